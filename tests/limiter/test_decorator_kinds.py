# limiter.limit(...) on every kind of function: in kind, charged once a call, or an error at decoration.

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from typing import Any

import pytest

from tests.limiter.faces import awaited
from tests.limiter.guarded import TWO, passes
from tidegate import (
    AsyncLimiter,
    LeakyQueue,
    Limiter,
    PolicyError,
    RateLimited,
    Rule,
)


@pytest.fixture(params=[Limiter, AsyncLimiter])
def kind(request):
    return request.param


def test_a_plain_function():
    """C186: a plain function gets its arguments, returns its result, and is refused with the decision."""

    @Limiter(TWO).limit()
    def double(number: int, *, plus: int = 0) -> int:
        """Twice the number."""
        return 2 * number + plus

    assert [double(3), double(number=4, plus=1)] == [6, 9]
    with pytest.raises(RateLimited) as refused:
        double(1)
    assert (refused.value.decision.remaining, refused.value.retry_after) == (0, None)
    assert "refused by limit" in str(refused.value)


def test_a_coroutine_function(kind):
    """C186: a coroutine function stays one, with a blocking limiter and with an awaited one."""

    @kind(TWO).limit()
    async def double(number: int) -> int:
        return 2 * number

    assert inspect.iscoroutinefunction(double)
    assert asyncio.iscoroutinefunction(double)
    assert awaited(double(4)) == 8
    assert passes(lambda: awaited(double(1))) == 1


def test_a_coroutine_is_charged_when_it_runs(kind):
    """A coroutine that is made and never awaited is not charged."""

    @kind(TWO).limit()
    async def work() -> None: ...

    for _ in range(5):
        work().close()
    assert passes(lambda: awaited(work())) == 2


def test_a_generator():
    """C186: a generator stays one: charged when it begins, values go in and out, and its result comes
    through.
    """

    @Limiter(TWO).limit()
    def echo(first: int):
        try:
            got = yield first
        except KeyError:
            got = "caught"
        yield got
        return "end"

    assert inspect.isgeneratorfunction(echo)
    unused = echo(0)
    one = echo(1)
    assert (next(one), one.send("in")) == (1, "in")
    with pytest.raises(StopIteration) as ended:
        next(one)
    assert ended.value.value == "end"
    two = echo(2)
    next(two)
    assert two.throw(KeyError) == "caught"
    two.close()
    with pytest.raises(RateLimited):
        next(unused)


def test_an_async_generator(kind):
    """C186: an async generator stays one: values go in and out, exceptions go in, and closing reaches it."""
    said = []

    @kind(TWO).limit()
    async def echo(first: int):
        try:
            got = yield first
            try:
                got = yield got
            except KeyError:
                got = "caught"
            yield got
        finally:
            said.append("closed")

    assert inspect.isasyncgenfunction(echo)

    async def story():
        unused = echo(0)
        one = echo(1)
        seen = [await anext(one), await one.asend("in"), await one.athrow(KeyError)]
        with pytest.raises(StopAsyncIteration):
            await anext(one)
        two = echo(2)
        seen.append(await anext(two))
        await two.aclose()
        with pytest.raises(RateLimited):
            await anext(unused)
        return seen

    assert awaited(story()) == [1, "in", "caught", 2]
    assert said == ["closed"] * 2
    assert awaited(_all_of(kind(TWO).limit()(_three)())) == [1, 2, 3]


async def _three():
    for number in (1, 2, 3):
        yield number


async def _all_of(stream):
    return [value async for value in stream]


def test_methods():
    """C186: methods, class methods and static methods, decorated inside and outside, keep their first
    argument.
    """
    limiter = Limiter(TWO)

    class Thing:
        name = ""

        @limiter.limit()
        def method(self, x):
            return self, x

        @limiter.limit()
        @classmethod
        def outside(cls, x):
            return cls, x

        @classmethod
        @limiter.limit()
        def inside(cls, x):
            return cls, x

        @limiter.limit()
        @staticmethod
        def static(x):
            return x

        @limiter.limit(key=lambda self: self.name)
        def by_name(self):
            return self.name

        @property
        @limiter.limit()
        def read(self):
            return 7

    thing, other = Thing(), Thing()
    assert thing.method(1) == (thing, 1)
    assert Thing.outside(2) == thing.inside(2) == (Thing, 2)
    assert thing.static(3) == Thing.static(3) == 3
    assert thing.read == 7
    for call in (
        lambda: thing.method(0),
        lambda: Thing.outside(0),
        lambda: Thing.inside(0),
        lambda: thing.read,
    ):
        assert passes(call) == 1
    assert passes(lambda: Thing.static(0)) == 0
    thing.name, other.name = "a", "b"
    assert [passes(thing.by_name), passes(other.by_name)] == [2, 2]


def test_callable_objects_partials_and_lambdas(kind):
    """C186: a callable object, a partial and a lambda are functions too; an async one of them stays async."""

    class Plain:
        def __call__(self, x):
            return x

    class Async:
        async def __call__(self, x):
            return x

    async def pair(x, y):
        return x, y

    limiter = kind(TWO)
    calls: tuple[Any, ...] = (
        Async(),
        functools.partial(pair, 1),
        functools.partial(functools.partial(pair), 1),
    )
    for call in calls:
        guarded = limiter.limit(key=("async", id(call)))(call)
        assert inspect.iscoroutinefunction(guarded)
        assert awaited(guarded(2)) in (2, (1, 2))
        assert passes(lambda guarded=guarded: awaited(guarded(2))) == 1
    blocking = Limiter(TWO)
    more: tuple[Any, ...] = (Plain(), functools.partial(max, 1), lambda x: x, abs)
    for number, call in enumerate(more):
        guarded = blocking.limit(key=number)(call)
        assert guarded(2) == 2
        assert passes(lambda guarded=guarded: guarded(2)) == 1
    lone = Limiter(TWO).limit()(lambda x: x)
    assert passes(lambda: lone(1)) == 2


@pytest.mark.parametrize(
    "thing",
    [
        None,
        5,
        "text",
        pytest.param(property(lambda self: 1), id="a property"),
        functools.partialmethod(max),
        int,
        dict,
        Limiter,
    ],
    ids=repr,
)
def test_what_cannot_be_guarded(kind, thing):
    """C186: what is no function, a class included, is an error at decoration."""
    with pytest.raises(PolicyError, match="functions"):
        kind(TWO).limit(key="k")(thing)


def test_an_awaited_limiter_needs_an_async_function():
    """C186: a plain function or generator cannot await its limiter: an error at decoration that says what
    to do.
    """

    def plain(): ...

    def generator():
        yield

    for function in (plain, generator, lambda: None, functools.partial(plain)):
        with pytest.raises(PolicyError, match="make it async"):
            AsyncLimiter(TWO).limit()(function)


def test_what_has_no_place_in_the_code_needs_a_key():
    """A partial of a built-in has no place of its own in the code, so its budget must be named."""
    for function in (abs, functools.partial(max, 1), print):
        with pytest.raises(PolicyError, match="key="):
            Limiter(TWO).limit()(function)


def test_a_queue_cannot_guard_a_function(kind):
    """A LeakyQueue's work must be held, and a decorated function runs at once: an error at decoration."""
    with pytest.raises(PolicyError, match="LeakyQueue"):
        kind(LeakyQueue(2, "1/s")).limit()


def test_a_guarded_function_looks_like_the_original(kind):
    """C187: name, qualified name, doc, module, annotations, defaults, signature and __wrapped__ are the
    original's.
    """

    async def work(a: int, /, b: str = "x", *args: float, c: bool = False, **more: object) -> list[int]:
        """What it does."""
        return [a]

    vars(work)["mark"] = 5
    guarded = kind(TWO).limit()(work)
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "mark"):
        assert getattr(guarded, name) == getattr(work, name)
    assert inspect.signature(guarded) == inspect.signature(work)
    assert inspect.unwrap(guarded) is work
    assert isinstance(guarded, types.FunctionType)


def test_a_framework_builds_parameters_from_the_signature(kind):
    """C187: FastAPI sees the original's parameters, and no hidden one is demanded."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    application = FastAPI()

    @application.get("/items/{item}")
    @kind(TWO).limit()
    async def read(item: int, q: str = "none") -> dict[str, object]:
        return {"item": item, "q": q}

    @application.exception_handler(RateLimited)
    async def refuse(request, refused):
        from fastapi.responses import JSONResponse

        return JSONResponse({"rule": refused.decision.rule}, status_code=429)

    with TestClient(application) as client:
        assert client.get("/items/5?q=a").json() == {"item": 5, "q": "a"}
        assert client.get("/items/x").status_code == 422
        assert client.get("/items/5").json() == {"item": 5, "q": "none"}
        assert client.get("/items/5").status_code == 429
        parameters = client.get("/openapi.json").json()["paths"]["/items/{item}"]["get"]["parameters"]
    assert [parameter["name"] for parameter in parameters] == ["item", "q"]


def test_a_reload_reaches_what_is_decorated(kind):
    """A function decorated before the policy changed is guarded by the new one."""

    async def work(): ...

    limiter = kind(TWO)
    guarded = limiter.limit()(work)
    assert passes(lambda: awaited(guarded()), 1) == 1
    limiter.replace_policy([Rule("shut", mode="deny")])
    assert passes(lambda: awaited(guarded())) == 0
