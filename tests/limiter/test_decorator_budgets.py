# Which budget a guarded function is charged to, and hooks and constants that are wrong.

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.limiter.faces import awaited
from tests.limiter.guarded import TWO, passes
from tidegate import (
    AsyncLimiter,
    CostError,
    CostTooLarge,
    InvalidKey,
    Limiter,
    Policy,
    PolicyError,
    Rule,
    SlidingLog,
    TokenBucket,
)


@pytest.fixture(params=[Limiter, AsyncLimiter])
def kind(request):
    return request.param


def test_namesakes_have_budgets_of_their_own():
    """C153: two functions called home in one module: two and three come through, on limiters with one
    store.
    """
    two = Limiter(Rule("two", TWO, by=("key",)))
    three = Limiter(Rule("three", TokenBucket(3, "0/s"), by=("key",)), store=two.store)

    @two.limit()
    def home():
        return "a"

    first = home

    @three.limit()  # type: ignore[no-redef]  # two of one name are the point
    def home():
        return "b"

    assert (passes(first), passes(home)) == (2, 3)


def test_namesakes_in_classes():
    """C153: A.index and B.index are two budgets, each call is one charge, and what is not decorated is
    exempt.
    """
    limiter = Limiter(TWO)

    class A:
        @limiter.limit()
        def index(self):
            return "a"

    class B:
        @limiter.limit()
        def index(self):
            return "b"

        def exempt(self):
            return "c"

    assert (passes(A().index), passes(B().index), passes(B().exempt, 9)) == (2, 2, 9)


def test_one_charge_for_each_call():
    """C182: application limit 10 and route limit 5, nested: five calls leave the application 5."""
    application = Limiter(TokenBucket(10, "0/s"))
    route = Limiter(TokenBucket(5, "0/s"))

    @route.limit()
    def inner():
        return "done"

    @application.limit(key="app")
    @route.limit(key="route")
    def handler():
        return inner()

    assert passes(handler, 5) == 5
    assert application.peek("app").remaining == 5
    assert route.peek("route").remaining == 0


def test_the_same_budget_twice_is_an_error(kind):
    """C182: one function guarded twice by one budget of one limiter would be charged twice: an error at
    decoration.
    """

    async def work(): ...

    limiter = kind(TWO)
    for key in (None, "k"):
        once = limiter.limit(key=key)(work)
        with pytest.raises(PolicyError, match="twice"):
            limiter.limit(key=key)(once)
    limiter.limit(key="everybody")(limiter.limit(key=lambda: "each")(limiter.limit()(work)))
    kind(TWO).limit()(limiter.limit()(work))


def test_keys_and_costs_of_the_call(kind):
    """Key and cost may be functions of the arguments, or attributes of a policy."""
    limiter = kind(Policy([Rule("org", TokenBucket(10, "0/s"), by=("org",))]))

    @limiter.limit(key=lambda org, size=1: {"org": org}, cost=lambda org, size=1: size)
    async def export(org, size=1):
        return org, size

    assert awaited(export("a", 7)) == ("a", 7)
    assert awaited(export("b", size=9)) == ("b", 9)
    assert passes(lambda: awaited(export("a", 4))) == 0
    assert passes(lambda: awaited(export("a")), 9) == 3


def test_functions_made_at_one_place_share_a_budget():
    """What is decorated again and again at one place, as in a loop, does not get a new budget each time."""
    limiter = Limiter(TWO)

    def call_once():
        @limiter.limit()
        def inner():
            return 1

        return inner()

    assert passes(call_once) == 2


async def _async_hook(*args):
    return 1


class _AsyncHook:
    async def __call__(self, *args):
        return 1


@pytest.mark.parametrize(
    "hook", [_async_hook, functools.partial(_async_hook), _AsyncHook()], ids=["def", "partial", "object"]
)
@pytest.mark.parametrize("name", ["key", "cost"])
def test_async_hooks_are_an_error(kind, name, hook):
    """C190: an async key or cost is an error at decoration, however it is async; the same in a rule."""
    with pytest.raises(PolicyError, match="async"):
        kind(TWO).limit(**{name: hook})
    if name == "cost":
        for field in ("cost", "overrides"):
            with pytest.raises(PolicyError, match="async"):
                Rule("r", TWO, by=("key",), **{field: hook})


def test_a_hook_that_raises_does_not_exempt(kind):
    """C190: a key or cost function that raises does so to the caller; the function does not run, nothing is
    taken.
    """
    ran = []

    async def work(x):
        ran.append(x)

    limiter = kind(TWO)
    for hooks in ({"key": lambda x: 1 // x}, {"key": "k", "cost": lambda x: 1 // x}):
        guarded = limiter.limit(**hooks)(work)
        with pytest.raises(ZeroDivisionError):
            awaited(guarded(0))
    assert ran == []
    assert limiter.store.stats().keys == 0


def nonsense(answer: Any) -> Any:
    return lambda: answer


def test_a_hook_that_answers_nonsense_does_not_exempt():
    """C190: a key or cost of a wrong type is an error at the call, and the function does not run."""
    ran = []
    limiter = Limiter(TWO)
    with pytest.raises(InvalidKey):
        limiter.limit(key=nonsense(1.5))(lambda: ran.append(1))()
    with pytest.raises(CostError):
        limiter.limit(key="k", cost=nonsense("many"))(lambda: ran.append(1))()
    assert ran == []


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ({"key": ""}, InvalidKey),
        ({"key": 1.5}, InvalidKey),
        ({"key": "k", "cost": -1}, CostError),
        ({"key": "k", "cost": "1"}, CostError),
        ({"key": "k", "cost": 3}, CostTooLarge),
        ({"cost": 0.0001}, CostError),
    ],
    ids=str,
)
def test_wrong_constants_are_errors_at_decoration(kind, named, error):
    """A constant key or cost that is wrong, or could never pass, is an error before the first call."""
    with pytest.raises(error):
        kind(TWO).limit(**named)


def test_a_policy_by_attributes_needs_a_key(kind):
    """A policy that looks at attributes gives no function a budget of its own: an error at decoration."""

    async def work(): ...

    limiter = kind(Rule("org", TWO, by=("org",)))
    with pytest.raises(InvalidKey, match="'org'"):
        limiter.limit()(work)
    with pytest.raises(InvalidKey, match="'org'"):
        limiter.limit(key="acme")
    assert passes(lambda: awaited(limiter.limit(key={"org": "acme"})(work)())) == 2


def test_a_log_needs_whole_costs_at_decoration(kind):
    """A fractional cost for a log is an error at decoration."""
    with pytest.raises(CostError, match="whole tokens"):
        kind(SlidingLog(5, "1min")).limit(key="k", cost=0.5)
