"""Why a request would pass or not: per rule the level, the largest cost that fits, and the earliest time."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import FixedWindow, LeakyQueue, Limiter, Policy, Rule, SlidingLog, SlidingWindow, TokenBucket
from tidegate.testing import ManualClock


def test_what_each_rule_holds():
    """Level, balance, largest cost and earliest time of every rule, and nothing is taken."""
    clock = ManualClock()
    limiter = Limiter(
        Policy([Rule("bucket", TokenBucket(5, "2/s")), Rule("codes", SlidingLog(3, "10s"), cost=1)]),
        clock=clock,
    )
    limiter.hit({}, 4)
    clock.set(0.25)
    explained = limiter.explain({}, 3)
    bucket, codes = explained["bucket"], explained["codes"]

    assert not explained.allowed
    assert (bucket.level, bucket.balance, bucket.largest_cost) == (
        Fraction(7, 2),
        Fraction(3, 2),
        Fraction(3, 2),
    )
    assert (bucket.allowed, bucket.earliest, bucket.reset_after) == (False, 0.75, 1.75)
    assert (codes.allowed, codes.level, codes.largest_cost, codes.earliest) == (True, 1, 2, 0)
    assert len(explained) == 2
    assert list(explained) == [bucket, codes]
    assert limiter.explain({}, 3).rules == explained.rules
    with pytest.raises(KeyError):
        explained["other"]


def test_in_words():
    """One line for the decision and one for each rule."""
    limiter = Limiter(
        Policy([Rule("bucket", TokenBucket(5, "2/s")), Rule("trial", TokenBucket(2, "0/s"), mode="shadow")]),
        clock=ManualClock(),
    )
    reservation = limiter.reserve({}, 2)
    limiter.hit({}, 3)

    assert str(limiter.explain({}, 6)).splitlines() == [
        "refused by bucket: 0 of 5 left, can never pass",
        "  bucket (enforce): 5 of 5 used; can never pass",
        "  trial (shadow): 2 of 2 used; can never pass",
    ]
    reservation.settle(3.5)
    assert (
        str(limiter.explain({}, 1)["bucket"]) == "bucket (enforce): 6.5 of 5 used, 1.5 owed; passes in 1250ms"
    )
    assert (
        str(limiter.explain({}, 1)["trial"])
        == "trial (shadow): 3.5 of 2 used, 1.5 owed; cannot pass by waiting"
    )
    limiter.reset({})
    assert str(limiter.explain({}, 1)["bucket"]) == "bucket (enforce): 0 of 5 used; passes; up to 5 would"


limits = st.sampled_from(
    [
        TokenBucket(5, "7/3s"),
        TokenBucket(2.5, "1/30day"),
        LeakyQueue(5, "166.666/s"),
        SlidingLog(5, "10s"),
        FixedWindow(2.5, "10s"),
        SlidingWindow(5, "7s"),
    ]
)


@given(
    limits, st.lists(st.tuples(st.integers(0, 4 * 10**6), st.integers(1, 3)), max_size=12), st.integers(1, 5)
)
def test_what_is_explained_is_true(limit, story, cost: int):
    """The largest cost passes and a thousandth more does not; the earliest time is that of a look."""
    clock = ManualClock(1_000)
    limiter = Limiter(limit, clock=clock)
    for gap_us, spent in story:
        clock.advance(Fraction(gap_us, 10**6))
        limiter.hit("key", spent)
    explained = limiter.explain("key", cost)["limit"]
    grain = 1 if isinstance(limit, SlidingLog) else Fraction(1, 1000)

    assert explained.level + explained.balance == limit.capacity
    assert explained.allowed == bool(limiter.peek("key", cost)) == (cost <= explained.largest_cost)
    assert limiter.peek("key", explained.largest_cost)
    assert not limiter.peek("key", explained.largest_cost + grain)
    told_us = limiter.peek("key", cost).retry_after_us
    assert explained.earliest == (None if told_us is None else told_us / 10**6)
