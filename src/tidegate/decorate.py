"""What `limiter.limit(...)` does to a function: charge first, then run, in kind.

A coroutine function stays one, a generator function too (it is charged when it begins to run), and name,
signature and annotations are the original's. Whatever cannot be guarded, and a key or cost that is wrong
beforehand, is an error at decoration. A hook that raises does so to the caller; it never means exempt.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast

from tidegate.core.decision import Decision
from tidegate.core.hooks import is_async, is_of_kind
from tidegate.core.keys import CallKey
from tidegate.core.limits import LeakyQueue
from tidegate.core.policy import Policy
from tidegate.core.rule import check_constant
from tidegate.errors import PolicyError, RateLimited
from tidegate.units import Number, milli

F = TypeVar("F", bound=Callable[..., Any])
Hook = Callable[..., Any]

_BUDGETS = "__tidegate_budgets__"


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
    _check_key(policy, key)
    _check_cost(policy, cost)

    def decorate(function: F) -> F:
        if isinstance(function, classmethod | staticmethod):
            return cast(F, type(function)(decorate(function.__func__)))
        if not callable(function) or inspect.isclass(function):
            raise PolicyError(f"limit() decorates functions and methods, not {function!r}")
        awaits = is_async(function) or is_of_kind(inspect.isasyncgenfunction, function)
        if not awaits and not blocking:
            raise PolicyError(
                f"{function!r} cannot await its limiter; guard it with a Limiter, or make it async"
            )
        budget = _budget_of(function) if key is None else key
        key_of, cost_of = _asked(budget), _asked(cost)

        def ask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision | Awaitable[Decision]:
            return hit(key_of(*args, **kwargs), cost_of(*args, **kwargs))

        if awaits:
            guarded = _guarded_async(function, ask)
        else:
            guarded = _guarded(function, cast("Callable[..., Decision]", ask))
        functools.update_wrapper(guarded, function)
        _remember(guarded, getattr(hit, "__self__", hit), budget)
        return cast(F, guarded)

    return decorate


def _guarded(function: Hook, ask: Callable[..., Decision]) -> Hook:
    if not is_of_kind(inspect.isgeneratorfunction, function):

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

    if not is_of_kind(inspect.isasyncgenfunction, function):

        async def guarded_coroutine(*args: Any, **kwargs: Any) -> Any:
            await admit(args, kwargs)
            return await function(*args, **kwargs)

        return guarded_coroutine

    async def guarded_stream(*args: Any, **kwargs: Any) -> Any:
        await admit(args, kwargs)
        async with aclosing(function(*args, **kwargs)) as stream:
            go_on = anext(stream)
            with suppress(StopAsyncIteration):
                while True:
                    value = await go_on
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001  # thrown in for the original to handle
                        go_on = stream.athrow(error)
                    else:
                        go_on = stream.asend(sent)

    return guarded_stream


def _pass(decision: Decision) -> None:
    if not decision.allowed:
        raise RateLimited(decision)


def _asked(hook: Any) -> Hook:
    """The hook, or a function that answers the constant."""
    return hook if callable(hook) else lambda *args, **kwargs: hook


def _remember(guarded: Hook, limiter: object, budget: object) -> None:
    """Note on the function which budgets guard it. Raises PolicyError for one that already does."""
    budgets = getattr(guarded, _BUDGETS, ())
    if any(owner is limiter and named == budget for owner, named in budgets):
        raise PolicyError(
            f"{guarded!r} is guarded twice by the budget {budget!r}, so each call would be charged twice; "
            "decorate it once, or name another budget with key=..."
        )
    setattr(guarded, _BUDGETS, (*budgets, (limiter, budget)))


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


def _check_key(policy: Policy, key: object) -> None:
    if callable(key):
        _check_plain("key", key)
        return
    attributes = policy.attributes(cast("CallKey", ("a function",) if key is None else key))
    for rule in policy:
        rule.key_for(attributes)


def _check_cost(policy: Policy, cost: object) -> None:
    if callable(cost):
        _check_plain("cost", cost)
        return
    thousandths = milli(cast("Number", cost))
    for rule in policy:
        if rule.limit is not None and (rule.matches, rule.cost, rule.overrides) == (None, None, None):
            check_constant(rule.limit, thousandths, rule.name)


def _check_plain(name: str, hook: object) -> None:
    if is_async(hook):
        raise PolicyError(
            f"{name} is an async function; it is asked before the decision, so give a plain one"
        )
