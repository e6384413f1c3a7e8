"""What callers can get at most, by brute force over all intervals: with refunds, debts and changed limits.

Runs are seeded; a failing seed is shown, and `refund_excess(seed)` plays it again. Figures of longer runs
(20,000 of refunds, 5,000 of each kind of change) are the same: what holds here broke never there.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.oracle.attacks import (
    EachRefundBoundedAlone,
    carry_excess,
    debt_excess,
    refund_excess,
)
from tests.oracle.bound import worst_excess
from tests.oracle.carry import WAYS

SEEDS = range(200)


def largest(capacities: list[Fraction]) -> Fraction:
    """The most that one of the limits admits at once."""
    return max(capacities)


def together(capacities: list[Fraction]) -> Fraction:
    """What all the limits admit at once, one after another."""
    return sum(capacities, Fraction(0))


def test_the_checker_knows_the_bound() -> None:
    """Capacity 3 at one a microsecond: five in two microseconds may be, six are one too many."""
    three_then_one_each = [(at_us, Fraction(cost), Fraction(0)) for at_us, cost in ((7, 3), (8, 1), (9, 1))]

    assert worst_excess(three_then_one_each, Fraction(3), Fraction(1)) == 0
    assert worst_excess([*three_then_one_each, (9, Fraction(1), Fraction(0))], Fraction(3), Fraction(1)) == 1
    assert worst_excess([*three_then_one_each, (9, Fraction(5), Fraction(5))], Fraction(3), Fraction(1)) == 0


def test_the_checker_looks_at_every_interval() -> None:
    """Too much in the middle is found, however idle the time around it."""
    burst = [(at_us, Fraction(2), Fraction(0)) for at_us in (0, 1_000_000, 1_000_001, 2_000_000)]

    assert worst_excess(burst, Fraction(3), Fraction(1, 1000)) == 1 - Fraction(1, 1000)


def test_bounded_refunds_keep_the_bound() -> None:
    """However much is given back, in parts or whole, at once or late, no interval holds too much."""
    assert [seed for seed in SEEDS if refund_excess(seed) > 0] == []


def test_the_bound_is_reached() -> None:
    """The rule is not merely safe: in many runs some interval holds exactly what it may."""
    assert sum(refund_excess(seed) == 0 for seed in SEEDS) > len(SEEDS) // 5


def test_full_refunds_break_the_bound() -> None:
    """Giving back all that the level still holds buys a second burst."""
    assert sum(refund_excess(seed, give_back="full") > 0 for seed in SEEDS) > len(SEEDS) // 20


def test_refunds_that_are_bounded_one_by_one_break_the_bound() -> None:
    """What a decision gave back before must be subtracted, or small refunds add up to a full one."""
    assert sum(refund_excess(seed, model=EachRefundBoundedAlone) > 0 for seed in SEEDS) > len(SEEDS) // 50


@pytest.mark.parametrize("max_debt", [None, 0, 5])
def test_debts_keep_their_bound(max_debt: int | None) -> None:
    """What is charged, settlements for more included, is at most capacity + max_debt + rate * time."""
    assert [seed for seed in SEEDS if debt_excess(seed, max_debt=max_debt) > 0] == []


@pytest.mark.parametrize("way", ["strict", "keep_level"])
@pytest.mark.parametrize("changes", [1, 2, 4])
def test_the_level_is_never_forgiven(way: str, changes: int) -> None:
    """Under strict and keep_level: the largest capacity + the largest rate * time, however many changes."""
    assert [seed for seed in SEEDS if carry_excess(seed, way, changes, largest) > 0] == []


@pytest.mark.parametrize("way", ["keep_tokens", "proportional"])
def test_one_change_buys_nothing(way: str) -> None:
    """keep_tokens and proportional: the larger capacity + the larger rate * time, over one change."""
    assert [seed for seed in SEEDS if carry_excess(seed, way, 1, largest) > 0] == []


@pytest.mark.parametrize(("way", "seed"), [("keep_tokens", 612), ("proportional", 612)])
def test_changes_there_and_back_can_refill(way: str, seed: int) -> None:
    """A small limit between two large ones drains soon; then the key is fresh, and the burst comes twice."""
    assert carry_excess(seed, way, 2, largest) > 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("changes", [1, 2, 4])
def test_no_way_gives_more_than_all_capacities(way: str, changes: int) -> None:
    """Each change hands out at most the new capacity: the sum of all capacities + the largest rate * time."""
    assert [seed for seed in SEEDS if carry_excess(seed, way, changes, together) > 0] == []


def test_reset_hands_out_each_capacity() -> None:
    """reset: the sum of the capacities is reached, and the larger one alone passed."""
    assert max(carry_excess(seed, "reset", 1, together) for seed in SEEDS) == 0
    assert sum(carry_excess(seed, "reset", 1, largest) > 0 for seed in SEEDS) > len(SEEDS) // 4
