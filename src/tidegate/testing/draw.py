"""Draws a random trace: a policy of up to four rules, and forty steps that look for trouble.

Costs, capacities and gaps are small and collide often; instants stand still, run, leap, and go back a
little or a lot. What is drawn is valid: an error of a store is then a difference too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from tidegate.core.carry import WAYS
from tidegate.core.limits import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.rule import Rule
from tidegate.units import US_PER_S, decimal_text, seconds

STEPS = 40
START_US = 1_700_000_000 * US_PER_S

Op: TypeAlias = Literal["hit", "peek", "refund", "settle", "reset", "change"]

_OPS: tuple[Op, ...] = ("hit", "peek", "refund", "settle", "reset", "change")
_OFTEN = (70, 10, 8, 5, 3, 4)
_RATES = ("0/s", "1/s", "5/s", "1/3s", "7/min", "300 per 5 min", "0.5/s", "1000/s")
_WINDOWS = ("1s", "10s", "1min", "10min", "1500ms")
_CALENDAR = ("10s", "1min", "1h", "day", "week", "month")
_ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata")
_PLAIN = {"cost": None, "mode": "enforce", "give_back": "bounded", "max_debt": None, "carry": "strict"}
_BY: tuple[tuple[str, ...], ...] = (("a",), ("b",), ("a", "b"), ())


class Step(NamedTuple):
    """One thing that is done at one instant. `of` is the number of the hit that is given back."""

    number: int
    op: Op
    at_us: int
    attributes: tuple[tuple[str, str], ...] = ()
    cost: Fraction = Fraction(0)
    of: int = -1
    rules: tuple[Rule, ...] = ()

    def __str__(self) -> str:
        at = f"{self.number}: at {seconds(self.at_us - START_US):.6f} s {self.op}"
        if self.op == "change":
            return f"{at}: now {'; '.join(map(rule_text, self.rules))}"
        if self.op in ("refund", "settle"):
            return f"{at} step {self.of}, cost {decimal_text(self.cost)}"
        key = " ".join(f"{name}={value}" for name, value in self.attributes)
        return f"{at} {key}{'' if self.op == 'reset' else f', cost {decimal_text(self.cost)}'}"


@dataclass(frozen=True)
class Trace:
    """Rules, and what is asked of them."""

    rules: tuple[Rule, ...]
    steps: tuple[Step, ...]


def rule_text(rule: Rule) -> str:
    """A rule in short: what differs from a plain one."""
    said = [f"{rule.name}: {rule.limit!r} by {list(rule.by)}"]
    for name, plain in _PLAIN.items():
        value = getattr(rule, name)
        said += [] if value == plain else [f"{name} {value}"]
    return ", ".join(said)


def draw(random: Random) -> Trace:
    """The trace that this source of chance makes; an equal source makes an equal one."""
    whole = random.random() < 0.4
    rules = tuple(_rule(random, number, whole) for number in range(random.randint(1, 4)))
    steps: list[Step] = []
    current, at_us = rules, START_US + random.randrange(60 * US_PER_S)
    for number in range(STEPS):
        at_us = _next_instant(random, at_us)
        step = _step(random, number, at_us, current, steps, whole)
        current = step.rules or current
        steps.append(step)
    return Trace(rules, tuple(steps))


def _step(
    random: Random, number: int, at_us: int, rules: tuple[Rule, ...], before: list[Step], whole: bool
) -> Step:
    (op,) = random.choices(_OPS, _OFTEN)
    if op == "change":
        at = random.randrange(len(rules))
        changed = _rule(random, at, whole, like=rules[at])
        return Step(number, op, at_us, rules=(*rules[:at], changed, *rules[at + 1 :]))
    attributes = (("a", random.choice("xy")), ("b", random.choice("xyz")))
    if op in ("refund", "settle"):
        hits = [step.number for step in before if step.op == "hit"]
        if hits:
            return Step(number, op, at_us, cost=_cost(random, whole), of=random.choice(hits[-8:]))
        op = "hit"
    return Step(number, op, at_us, attributes, _cost(random, whole))


def _rule(random: Random, number: int, whole: bool, like: Rule | None = None) -> Rule:
    limit = _limit(random, whole)
    fixed = random.random() < 0.15
    return Rule(
        f"rule {number + 1}",
        limit,
        by=random.choice(_BY) if like is None else like.by,
        cost=1 if fixed and limit.capacity >= 1 else None,
        mode="shadow" if random.random() < 0.1 else "enforce",
        give_back="full" if random.random() < 0.2 else "bounded",
        max_debt=random.choice((None, 0, 3)),
        carry=random.choice(WAYS),
    )


def _limit(random: Random, whole: bool) -> Limit:
    size = random.choice((1, 2, 3, 5, 10, 20))
    rate, window = random.choice(_RATES), random.choice(_WINDOWS)
    release: Literal["immediate", "interval"] = random.choice(("immediate", "interval"))
    calendar = random.choice(_CALENDAR)
    zone = random.choice(_ZONES) if calendar in ("day", "week", "month") else "UTC"
    kinds: list[Callable[[], Limit]] = [
        lambda: TokenBucket(size, rate),
        lambda: LeakyBucket(size, rate),
        lambda: LeakyQueue(size, "5/s" if rate == "0/s" else rate, release, random.choice((0, 0, 1, 8))),
        lambda: FixedWindow(size, calendar, zone),
        lambda: SlidingWindow(size, window),
    ]
    if whole:
        kinds.append(lambda: SlidingLog(size, window))
    return random.choice(kinds)()


def _cost(random: Random, whole: bool) -> Fraction:
    """Mostly 1. A log counts whole tokens, so where there may be one no cost is a fraction."""
    costs = [Fraction(1)] * 6 + [Fraction(0), Fraction(2), Fraction(5), Fraction(25)]
    if not whole:
        costs += [Fraction(1, 2), Fraction(1, 1_000), Fraction(2_333, 1_000)]
    return random.choice(costs)


def _next_instant(random: Random, at_us: int) -> int:
    kind = random.random()
    if kind < 0.45:
        return at_us
    if kind < 0.85:
        return at_us + random.randrange(1, 2 * US_PER_S)
    if kind < 0.93:
        return at_us + random.randrange(1, 40 * 60 * US_PER_S)
    if kind < 0.98:
        return max(0, at_us - random.randrange(1, 50 * US_PER_S))
    return max(0, at_us - random.randrange(61 * US_PER_S, 3_600 * US_PER_S))
