"""Tells a story to one key of a limit: rows of instant, cost, and what must be answered.

A row is `(seconds, cost, *expected)`; what is expected is named by the columns of the story. Every story is
told to the compiled path and to the layered one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate import Decision, LeakyBucket, LeakyQueue, Limiter, TokenBucket
from tidegate.core.limits import Limit
from tidegate.testing import ManualClock

MACHINES: tuple[Callable[..., Any], ...] = (TokenBucket, LeakyBucket, LeakyQueue)
"""The three that share the law: the same numbers must give the same verdicts."""


def tell(limit: Limit, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Assert that the limit answers every row as it says, on both paths."""
    for hit in (lambda limiter: limiter.hit, lambda limiter: lambda *given: Limiter.hit(limiter, *given)):
        clock = ManualClock()
        limiter = Limiter(limit, clock=clock)
        for number, (at, cost, *expected) in enumerate(rows):
            clock.set(at)
            decision = hit(limiter)("key", cost)
            answered = [getattr(decision, name) for name in columns.split()]
            assert answered == expected, f"row {number}: at {at} s, cost {cost}: {columns}"


def at_once(limiter: Limiter, count: int, cost: float = 1, key: str = "key") -> list[Decision]:
    """So many hits of one cost at the instant that it is."""
    return [limiter.hit(key, cost) for _ in range(count)]


def admitted(decisions: Sequence[Decision]) -> int:
    """How many were admitted; the admitted ones must be the first."""
    verdicts = [decision.allowed for decision in decisions]
    count = sum(verdicts)
    assert verdicts == [True] * count + [False] * (len(verdicts) - count)
    return count
