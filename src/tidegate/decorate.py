"""What `limiter.limit(...)` does to a function: charge first, then run, in kind.

A coroutine function stays one, a generator function too (it is charged when it begins to run), and name,
signature and annotations are the original's. Whatever cannot be guarded is an error at decoration. A hook
that raises does so to the caller; it never means exempt.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

from tidegate.core.decision import Decision
from tidegate.core.keys import CallKey
from tidegate.core.limits import LeakyQueue
from tidegate.core.policy import Policy
from tidegate.errors import PolicyError, RateLimited
from tidegate.units import Number, milli

F = TypeVar("F", bound=Callable[..., Any])
Hook = Callable[..., Any]


def guard(
    hit: Callable[[CallKey, Number], Decision | Awaitable[Decision]],
    policy: Policy,
    key: CallKey | Hook,
    cost: Number | Callable[..., Number],
    *,
    blocking: bool,
) -> Callable[[F], F]:
    """A decorator that asks `hit` before each call, and raises RateLimited if it refuses.

    A blocking limiter guards every kind of function, an awaited one those that can await it.
    """
    _check_policy(policy)
    _check_hook("key", key)
    _check_hook("cost", cost)

    def decorate(function: F) -> F:
        if isinstance(function, classmethod | staticmethod):
            return cast(F, type(function)(decorate(function.__func__)))
        if not callable(function):
            raise PolicyError(f"limit() decorates functions, not {function!r}")
        key_of = key if callable(key) else _constant(_budget_of(function) if key is None else key)
        cost_of = cost if callable(cost) else _constant(cost)

        def ask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision | Awaitable[Decision]:
            return hit(key_of(*args, **kwargs), cost_of(*args, **kwargs))

        if _is(inspect.iscoroutinefunction, function) or _is(inspect.isasyncgenfunction, function):
            return _like(_guarded_async(function, ask), function)
        if not blocking:
            raise PolicyError(
                f"{function!r} cannot await its limiter; guard it with a Limiter, or make it async"
            )
        return _like(_guarded(function, cast("Callable[..., Decision]", ask)), function)

    return decorate


def _guarded(function: Hook, ask: Callable[..., Decision]) -> Hook:
    if not _is(inspect.isgeneratorfunction, function):

        def guarded(*args: Any, **kwargs: Any) -> Any:
            _pass(ask(args, kwargs))
            return function(*args, **kwargs)

        return guarded

    def guarded_generator(*args: Any, **kwargs: Any) -> Any:
        _pass(ask(args, kwargs))
        return (yield from function(*args, **kwargs))

    return guarded_generator


def _guarded_async(function: Hook, ask: Callable[..., Decision | Awaitable[Decision]]) -> Hook:
    async def admit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        answer = ask(args, kwargs)
        _pass(answer if isinstance(answer, Decision) else await answer)

    if not _is(inspect.isasyncgenfunction, function):

        async def guarded_coroutine(*args: Any, **kwargs: Any) -> Any:
            await admit(args, kwargs)
            return await function(*args, **kwargs)

        return guarded_coroutine

    async def guarded_stream(*args: Any, **kwargs: Any) -> Any:
        await admit(args, kwargs)
        async with aclosing(function(*args, **kwargs)) as stream:
            async for value in stream:
                yield value

    return guarded_stream


def _pass(decision: Decision) -> None:
    if not decision.allowed:
        raise RateLimited(decision)


def _is(kind: Callable[[object], bool], function: object) -> bool:
    """Whether a function, or what a partial or callable object stands for, is of a kind."""
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or (
        not inspect.isroutine(function) and kind(getattr(type(function), "__call__", None))  # noqa: B004  # its kind is what is asked
    )


def _like(guarded: Hook, function: F) -> F:
    return cast(F, functools.update_wrapper(guarded, function))


def _constant(value: object) -> Hook:
    return lambda *args, **kwargs: value


def _budget_of(function: object) -> tuple[str, str, int]:
    """The key of a function that was given none: where it is defined, so that namesakes do not share."""
    inner = inspect.unwrap(cast("Hook", function))
    code = getattr(inner, "__code__", None)
    if code is None:
        raise PolicyError(f"{function!r} has no place of its own in the code; name its budget with key=...")
    return (str(inner.__module__), str(getattr(inner, "__qualname__", inner)), code.co_firstlineno)


def _check_policy(policy: Policy) -> None:
    for rule in policy:
        if isinstance(rule.limit, LeakyQueue):
            raise PolicyError(
                f"rule {rule.name!r} is a LeakyQueue, whose work has to be held, and a decorated "
                "function runs at once; call hit() and hold the work for the decision's wait"
            )


def _check_hook(name: str, hook: object) -> None:
    if inspect.iscoroutinefunction(hook):
        raise PolicyError(
            f"{name} is an async function; it is asked before the decision, so give a plain one"
        )
    if name == "cost" and not callable(hook):
        milli(cast("Number", hook))
