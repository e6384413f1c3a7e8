"""Callers who try to get more than the bound, from a seed: with refunds, and with changed limits.

Each attack plays one key and returns what was admitted, for `bound.worst_excess`. A greedy caller takes
all there is as soon as it is there, which is the worst case of any interval; a random one finds the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from types import MappingProxyType

from tests.oracle.bound import Admission, worst_excess
from tests.oracle.level import Level
from tests.oracle.machine import Receipt
from tests.oracle.model import Answer, Model
from tests.oracle.reading import rate_per_us

Bound = Callable[[list[Fraction]], Fraction | int]

RATES = ("1/s", "5/s", "1/3s", "7/s", "166.666/s", "80000/s", "1/30day", "0/s")
CAPACITIES = (1, 2, 3, 5, 10, 20, 100)
MILLI = 1000


def refund_excess(seed: int, *, give_back: str = "bounded", model: type[Model] = Model) -> Fraction:
    """How far a caller who gives back and takes again gets beyond capacity + rate * time.

    The clock stands still, creeps and leaps, but does not go back: a key that has become fresh is as one
    never seen and has no last instant, so going back to before it was fresh is living a time twice.
    """
    chance = random.Random(seed)
    limit = _bucket(chance)
    key = model(limit, give_back=give_back)
    capacity, rate = Fraction(limit["capacity"]), rate_per_us(limit["rate"])
    refund_at_once, habit = chance.random() < 0.3, chance.choice(["whole", "parts", "settle", "mixed"])
    now_us, taken = 0, list[Answer]()
    for _ in range(chance.randint(5, 40)):
        now_us += _pause_us(chance, capacity, rate)
        if taken and chance.random() < 0.4:
            _give_back(chance, key, now_us, taken[-1] if refund_at_once else chance.choice(taken), habit)
        else:
            taken += [answer for answer in _take(chance, key, now_us) if answer.receipt]
    return worst_excess(_admissions(taken), capacity, rate)


def carry_excess(seed: int, way: str, changes: int, bound: Bound) -> Fraction:
    """How far a caller gets beyond bound(capacities) + largest rate * time over so many changes of the limit.

    The limit is changed at random instants, and whatever comes next is the first touch.
    """
    chance = random.Random(seed)
    limits = [_bucket(chance) for _ in range(changes + 1)]
    key = Model(limits[0], carry=way)
    rates = [rate_per_us(limit["rate"]) for limit in limits]
    capacities = [Fraction(limit["capacity"]) for limit in limits]
    now_us, taken, greedy = 0, list[Answer](), chance.random() < 0.6
    for index, limit in enumerate(limits):
        if index:
            key.change(limit)
        for _ in range(chance.randint(1, 6)):
            now_us += max(0, _pause_us(chance, capacities[index], chance.choice(rates)))
            answers = _take_all(key, now_us) if greedy else _take(chance, key, now_us)
            taken += [answer for answer in answers if answer.receipt]
    return worst_excess(_admissions(taken), Fraction(bound(capacities)), max(rates))


def debt_excess(seed: int, *, max_debt: int | None) -> Fraction:
    """How far what is charged, settlements for more too, gets beyond capacity + max_debt + rate * time."""
    chance = random.Random(seed)
    limit = _bucket(chance)
    capacity, rate = Fraction(limit["capacity"]), rate_per_us(limit["rate"])
    debt = capacity if max_debt is None else Fraction(max_debt)
    key = Model(limit, max_debt=debt)
    now_us, taken, charged = 0, list[Answer](), list[Admission]()
    for _ in range(chance.randint(5, 40)):
        now_us += max(0, _pause_us(chance, capacity, rate))
        if taken and chance.random() < 0.5:
            decision = taken.pop(chance.randrange(len(taken)))
            assert decision.receipt is not None
            more = key.settle(
                now_us,
                decision,
                decision.receipt.cost + Fraction(chance.randint(0, 3 * int(capacity) * MILLI), MILLI),
            )
            charged.append((now_us, -more, Fraction(0)))
        else:
            answers = [answer for answer in _take(chance, key, now_us) if answer.receipt]
            taken += answers
            charged += _admissions(answers)
    return worst_excess(charged, capacity + debt, rate)


class RefundsOfItsOwnForgotten(Level):
    """The refund rule without `given back of itself`: each refund is bounded, their sum is not."""

    def _still_there(self, receipt: Receipt, level_after: Fraction, given_back_then: Fraction) -> Fraction:
        own = receipt.returned
        return super()._still_there(receipt, level_after, given_back_then) + own


class EachRefundBoundedAlone(Model):
    """A model with that rule."""

    machines = MappingProxyType({"token_bucket": RefundsOfItsOwnForgotten})


def _bucket(chance: random.Random) -> dict[str, str]:
    return {
        "algorithm": "token_bucket",
        "capacity": str(chance.choice(CAPACITIES)),
        "rate": chance.choice(RATES),
    }


def _pause_us(chance: random.Random, capacity: Fraction, rate: Fraction) -> int:
    """Mostly none, or a part of the time to refill."""
    refill_us = int(capacity / rate) if rate else 1_000_000
    kind = chance.random()
    if kind < 0.45:
        return 0
    if kind < 0.55:
        return 1
    if kind < 0.75:
        return chance.randint(0, refill_us // 8 + 1)
    return chance.randint(0, refill_us // 2 + 1) if kind < 0.97 else refill_us + 1


def _take(chance: random.Random, key: Model, now_us: int) -> list[Answer]:
    capacity = int(Fraction(key.limit["capacity"]))
    cost = Fraction(
        chance.choice([MILLI, chance.randint(1, capacity * MILLI), MILLI * chance.randint(1, capacity)]),
        MILLI,
    )
    answer = key.hit(now_us, cost)
    return [answer] if answer.allowed or chance.random() < 0.3 else [answer, *_take_all(key, now_us)]


def _take_all(key: Model, now_us: int) -> list[Answer]:
    """As many thousandths as there are."""
    thousandths = int(key.peek(now_us).balance * MILLI)
    return [key.hit(now_us, Fraction(thousandths, MILLI))] if thousandths > 0 else []


def _give_back(chance: random.Random, key: Model, now_us: int, decision: Answer, habit: str) -> None:
    assert decision.receipt is not None
    kind = chance.choice(["whole", "parts", "settle"]) if habit == "mixed" else habit
    part = Fraction(chance.randint(0, int(decision.receipt.cost * MILLI)), MILLI)
    if kind == "settle":
        key.settle(now_us, decision, part)
    else:
        key.refund(now_us, decision, part if kind == "parts" else None)


def _admissions(taken: list[Answer]) -> list[Admission]:
    return [
        (answer.receipt.at_us, answer.receipt.cost, answer.receipt.returned)
        for answer in taken
        if answer.receipt
    ]
