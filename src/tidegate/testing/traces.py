"""Random traffic against a store and the reference side by side: every answer must be equal.

A trace follows from a seed and a number alone, so a difference can be repeated. One that is found is made
small before it is told: steps are left out as long as the two still differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from itertools import count
from random import Random
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from tidegate.core.decision import Decision
from tidegate.core.policy import Policy
from tidegate.errors import TidegateError
from tidegate.limiter import Limiter
from tidegate.reservation import Reservation
from tidegate.stores.base import Store
from tidegate.testing.clock import ManualClock
from tidegate.testing.draw import Step, Trace, draw, rule_text
from tidegate.testing.reference import ReferenceStore
from tidegate.testing.report import Difference, Report
from tidegate.units import US_PER_S, decimal_text

_TRIES_MOST = 400
"""So many times a difference is played again to make it smaller."""

Answer: TypeAlias = Any


class _Apart(NamedTuple):
    """Where a store and the reference part: the steps up to there, and the two answers."""

    trace: Trace
    expected: Answer
    answered: Answer


def run_traces(
    store_factory: Callable[[], Store],
    *,
    seed: int = 0,
    traces: int = 200,
    only: int | None = None,
    differences_most: int = 3,
) -> Report:
    """Play `traces` random traces of a seed; the report is true iff the store answered as the reference does.

    `only` plays the one trace of that number. At most `differences_most` differences are made small and told.
    """
    numbers = range(traces) if only is None else [only]
    differing = 0
    found: list[Difference] = []
    with closing(store_factory()) as store:
        for number in numbers:
            apart = _compare(draw(_chance(seed, number)), store)
            if apart is None:
                continue
            differing += 1
            if len(found) < differences_most:
                found.append(_told(_smallest(apart, store), seed, number))
    return Report(len(numbers), differing, tuple(found))


def _chance(seed: int, number: int) -> Random:
    return Random(f"{seed}/{number}")  # noqa: S311 - a trace must be repeatable, and guards nothing


def _compare(trace: Trace, store: Store) -> _Apart | None:
    """Play the trace on both, step by step, until they part.

    A store may forget a key that has become fresh, or keep it, and before the instant of that the two
    would answer differently; so the clock goes back as far as that at most.
    """
    run = uuid4().hex[:12]
    reference = ReferenceStore()
    ours, theirs = _Player(trace, reference, run), _Player(trace, store, run)
    played: list[Step] = []
    try:
        for drawn in trace.steps:
            step = drawn._replace(at_us=max(drawn.at_us, reference.forgets_before_us))
            played.append(step)
            expected, answered = ours.answer(step), theirs.answer(step)
            if expected != answered:
                return _Apart(replace(trace, steps=tuple(played)), expected, answered)
            reference.forget_fresh(step.at_us)
    finally:
        theirs.forget()
    return None


def _smallest(apart: _Apart, store: Store) -> _Apart:
    """The same difference with fewer steps: halves, then quarters, down to single ones are left out."""
    tries = count()
    size = len(apart.trace.steps) // 2
    while size:
        start = 0
        while start < len(apart.trace.steps) - 1 and next(tries) < _TRIES_MOST:
            steps = apart.trace.steps
            fewer = replace(apart.trace, steps=steps[:start] + steps[min(start + size, len(steps) - 1) :])
            closer = _compare(fewer, store)
            if closer is None:
                start += size
            else:
                apart = closer
        size //= 2
    return apart


class _Player:
    """One side: a limiter on a store, with what it decided so far."""

    def __init__(self, trace: Trace, store: Store, run: str) -> None:
        self._run = run
        self._clock = ManualClock()
        self._store = store
        self._decisions: dict[int, Decision] = {}
        self._touched: set[tuple[str, Any]] = set()
        self._limiter = Limiter(self._policy(trace.rules), store=store, clock=self._clock)

    def answer(self, step: Step) -> Answer:
        """What the store says to a step, in numbers; the text of an error where there was one."""
        self._clock.set(Fraction(step.at_us, US_PER_S))
        try:
            return self._answered(step)
        except TidegateError as error:
            return f"{type(error).__name__}: {error}"

    def forget(self) -> None:
        """Make all keys fresh that were touched, so that nothing is left in the store."""
        self._store.forget(sorted(self._touched, key=repr))

    def _answered(self, step: Step) -> Answer:
        if step.op == "change":
            self._limiter.replace_policy(self._policy(step.rules))
            return None
        if step.op == "reset":
            self._limiter.reset(dict(step.attributes))
            return None
        if step.op in ("refund", "settle"):
            earlier = self._decisions.get(step.of)
            if earlier is None or not earlier.allowed:
                return None
            if step.op == "settle":
                return Reservation(self._limiter, earlier).settle(step.cost)
            return self._limiter.refund(earlier, step.cost)
        ask = self._limiter.hit if step.op == "hit" else self._limiter.peek
        decision = ask(dict(step.attributes), step.cost)
        self._decisions[step.number] = decision
        self._touched.update((outcome.rule, outcome.charge.key) for outcome in decision.outcomes)
        return [
            {
                "allowed": outcome.allowed,
                "charged": outcome.charged,
                "balance": outcome.balance,
                "wait_us": outcome.wait_us,
                "retry_after_us": outcome.retry_after_us,
                "reset_after_us": outcome.reset_after_us,
            }
            for outcome in decision.outcomes
        ]

    def _policy(self, rules: Sequence[Any]) -> Policy:
        """The rules under names of this run, so that no two runs meet in a store, whatever their keys."""
        return Policy(replace(rule, name=f"{self._run} {rule.name}") for rule in rules)


def _told(apart: _Apart, seed: int, number: int) -> Difference:
    steps = apart.trace.steps
    rules = [rule_text(rule) for rule in apart.trace.rules]
    return Difference(
        where=f"trace {number} of seed {seed}, {len(steps)} step{'' if len(steps) == 1 else 's'} of it",
        steps=(*rules, *(str(step) for step in steps)),
        expected=_only_what_differs(apart.expected, apart.answered),
        answered=_only_what_differs(apart.answered, apart.expected),
        replay=("--seed", str(seed), "--trace", str(number)),
    )


def _only_what_differs(said: Answer, other: Answer) -> str:
    if not (isinstance(said, list) and isinstance(other, list) and len(said) == len(other)):
        return _shown(said)
    parts = []
    for place, (ours, theirs) in enumerate(zip(said, other, strict=True), 1):
        fields = [f"{name} {_shown(value)}" for name, value in ours.items() if value != theirs[name]]
        parts += [f"rule {place}: {', '.join(fields)}"] if fields else []
    return "; ".join(parts)


def _shown(value: Answer) -> str:
    return decimal_text(value) if isinstance(value, Fraction) else str(value)
