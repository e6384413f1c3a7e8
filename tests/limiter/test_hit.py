# What hit, hit_many and peek promise, algorithm by algorithm: costs, refusals, hints, and bad input.

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from tidegate import (
    CostError,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)

TEN = [
    TokenBucket(10, "1/s"),
    LeakyBucket(10, "1/s"),
    LeakyQueue(10, "1/s"),
    SlidingLog(10, "10s"),
    FixedWindow(10, "10s"),
    SlidingWindow(10, "10s"),
]


def named(limit):
    return limit.algorithm


@pytest.fixture(params=TEN, ids=named)
def ten(request):
    """A limit of ten in about ten seconds, of every algorithm in turn."""
    return request.param


def test_a_refusal_costs_nothing(face, clock, ten):
    """C016: 8, 5, 1, 1, 1 of ten: ok, refused with 2 left, ok, ok, refused; the same in all algorithms."""
    limiter = face(ten, clock=clock)
    answers = [limiter.hit("k", cost) for cost in (8, 5, 1, 1, 1)]
    assert [(bool(d), d.remaining) for d in answers] == [
        (True, 2),
        (False, 2),
        (True, 1),
        (True, 0),
        (False, 0),
    ]


def test_the_first_decision_is_complete(face, clock, ten):
    """C065: the very first spend of 3 in 10 carries limit, remaining 7 and the time to full."""
    d = face(ten, clock=clock).hit("k", 3)
    assert (d.limit, d.remaining, d.balance, d.cost, d.retry_after, d.source) == (ten, 7, 7, 3, 0, "memory")
    assert d.reset_after == {
        "token_bucket": 3,
        "leaky_bucket": 3,
        "leaky_queue": 3,
        "sliding_window": 20,
    }.get(ten.algorithm, 10)


def test_looking_changes_nothing(face, clock, ten):
    """C068: a look tells what a hit would be answered, and a thousand looks change no later answer."""
    looked, plain = face(ten, clock=clock), face(ten, clock=clock)
    for step in range(12):
        expected = plain.hit("k", 2)
        for _ in range(80):
            looked.peek("k", 2)
        seen, got = looked.peek("k", 2), looked.hit("k", 2)
        assert (seen.allowed, seen.retry_after) == (expected.allowed, expected.retry_after)
        assert got == expected
        clock.set(Fraction(step * 7, 10))


def test_a_look_counts_the_time_passed(face, clock):
    """C068: bucket(5, 1): spend 5, look at 3 s twice: 3 left both times, and 3 can be spent. C066: never
    above full.
    """
    limiter = face(TokenBucket(5, "1/s"), clock=clock)
    limiter.hit("k", 5)
    clock.set(3)
    assert [limiter.peek("k").remaining for _ in range(2)] == [3, 3]
    assert limiter.hit("k", 3)
    clock.set(100)
    assert limiter.peek("k").remaining == 5


def test_what_can_never_pass(face, clock, ten):
    """C060, C075, C076: a cost above the capacity is refused as never, takes nothing, and the next is
    served.
    """
    limiter = face(ten, clock=clock)
    never = limiter.hit("k", 11)
    assert (never.allowed, never.retry_after, never.retry_hint, never.retry_hint_s) == (
        False,
        None,
        None,
        None,
    )
    assert limiter.peek("k").remaining == 10
    assert limiter.hit("k", 10)


def test_the_announced_wait_is_exact(face, clock, ten):
    """C057: a lone caller that waits retry_after is let in; a microsecond earlier it is not."""
    limiter = face(ten, clock=clock)
    limiter.hit("k", 4)
    clock.advance(1.25)
    limiter.hit("k", 6)
    refused = limiter.hit("k", 3)
    clock.advance(Fraction(refused.retry_after_us - 1, 1_000_000))
    assert not limiter.hit("k", 3)
    clock.advance(0.000001)
    assert limiter.hit("k", 3)


@pytest.mark.parametrize("limit", [TokenBucket(2, "0/s"), SlidingLog(2, "1h")], ids=named)
def test_cost_zero_takes_nothing(face, clock, limit):
    """C081: cost 0 gets the law's answer with 2, 1 and 0 left, a hundred times, and keeps no state."""
    limiter = face(limit, clock=clock)
    assert all(limiter.hit("k", 0) for _ in range(100))
    assert limiter.store.stats().keys == 0
    for left in (1, 0):
        limiter.hit("k")
        answers = [limiter.hit("k", 0) for _ in range(100)]
        assert {(d.allowed, d.remaining) for d in answers} == {(True, left)}


def test_no_drift(face, clock):
    """C087: eleven tenths of a budget of one: ten pass; five times 2.5 of ten: four pass."""
    one, ten = face(TokenBucket(1, "0/s"), clock=clock), face(TokenBucket(10, "0/s"), clock=clock)
    assert sum(bool(one.hit("k", 0.1)) for _ in range(11)) == 10
    assert sum(bool(ten.hit("k", 2.5)) for _ in range(5)) == 4


def test_rate_zero_and_unlimited_are_written_differently(face, clock):
    """C086: bucket(1, 0) lets one of 1000 pass and says never; mode bypass lets all pass."""
    limiter = face(TokenBucket(1, "0/s"), clock=clock)
    answers = [limiter.hit("k") for _ in range(1000)]
    assert [bool(d) for d in answers] == [True] + [False] * 999
    assert answers[-1].retry_after is None
    free = face([Rule("free", mode="bypass")], clock=clock)
    assert all(free.hit("k") for _ in range(1000))


@pytest.mark.parametrize("cost", [1, 1.0, Decimal(1), Fraction(1), 1.5, 3, 0.001], ids=str)
def test_costs_of_every_type(face, clock, cost):
    """A cost is an int, float, Decimal or Fraction, in thousandths, and counts exactly."""
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    limiter.hit("k")
    assert limiter.hit("k", cost).balance == 9 - Fraction(str(cost))


def test_many_at_once(face, clock):
    """hit_many decides like single hits in order: one cost for all or one for each; columns in, columns
    out.
    """
    keys, costs = ["a", "b", "a", "c", "a", ("b", 1), "b"], [4, 1, 4, 11, 4, 2, 10]
    many, single = (face(TokenBucket(10, "1/s"), clock=clock) for _ in range(2))
    for step in (0, 0.25):
        clock.advance(step)
        columns = many.hit_many(keys, costs)
        singles = [single.hit(key, cost) for key, cost in zip(keys, costs, strict=True)]
        assert list(columns) == singles
        assert columns.allowed == [d.allowed for d in singles]
        assert columns.remaining == [d.remaining for d in singles]
        assert columns.retry_after == [d.retry_after for d in singles]
        assert columns.reset_after == [d.reset_after for d in singles]
        assert columns.wait == [d.wait for d in singles]
        assert columns.rule == ["limit"] * 7
        assert (len(columns), columns[3], columns[-1]) == (7, singles[3], singles[-1])
        with pytest.raises(TypeError, match="neither true nor false"):
            bool(columns)


def test_many_with_one_cost_and_from_a_generator(face, clock):
    """hit_many takes any iterable of keys, none included, and one cost for all of them."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    assert limiter.hit_many((key for key in "aab"), 5).remaining == [5, 0, 5]
    assert limiter.hit_many(["a", "b", "c"], 5).allowed == [False, True, True]
    assert limiter.hit_many([]).allowed == []
    with pytest.raises(CostError, match="2 entries for 3 keys"):
        limiter.hit_many(["a", "b", "c"], [1, 1])


def test_many_are_refunded_like_singles(face, clock):
    """A decision out of hit_many is a receipt like any other."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    limiter.hit("a")
    columns = limiter.hit_many(["a", "a"], 3)
    assert limiter.refund(columns[0]) == 3
    assert limiter.refund(columns[0]) == 0
    assert limiter.peek("a").remaining == 6


def test_the_clock_goes_back(face, clock):
    """C023: the clock steps back and forth by 11 s: nothing more passes, and the wait is at most the step
    and one.
    """
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    clock.set(100)
    assert sum(bool(limiter.hit("k")) for _ in range(10)) == 10
    for instant in [89, 100] * 20:
        clock.set(instant)
        refused = limiter.hit("k")
        assert not refused
        assert refused.remaining == 0
        assert refused.retry_after <= 12


def test_a_late_instant_counts_as_the_newest_seen(face, clock):
    """C024: spend 10 at 10 s, touch at 9 s, look at 11 s: 990 left, then 1090."""
    limiter = face(TokenBucket(100_000, "100/s"), clock=clock)
    limiter.hit("k", 100_000)
    clock.set(10)
    assert limiter.hit("k", 10).remaining == 990
    clock.set(9)
    limiter.hit("k", 0)
    clock.set(11)
    assert limiter.peek("k").remaining == 1090


def test_a_long_step_back_does_not_lock(face, clock):
    """C023: after a step back of an hour the level is kept, and drains from there on."""
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    clock.set(7200)
    limiter.hit("k", 10)
    clock.set(3600)
    assert limiter.hit("k").retry_after == 1
    clock.advance(1)
    assert limiter.hit("k")


def test_idle_time_earns_nothing_beyond_full(face, clock):
    """C026, C029: bucket(3, 6) first used at 5 s: ok, ok, ok, refused."""
    limiter = face(TokenBucket(3, "6/s"), clock=clock)
    answers = []
    for instant in (5.00, 5.01, 5.02, 5.03):
        clock.set(instant)
        answers.append(bool(limiter.hit("k")))
    assert answers == [True, True, True, False]


def test_frequent_calls_lose_no_fraction(face, clock):
    """C013: bucket(10, 1/3), one spend a second: remaining 9 8 7 7 6 5 5 4 3 3 2 1 1 0, refused, ok."""
    limiter = face(TokenBucket(10, "1 per 3s"), clock=clock)
    answers = []
    for second in range(16):
        clock.set(second)
        answers.append(limiter.hit("k"))
    assert [d.remaining for d in answers] == [9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2, 1, 1, 0, 0, 0]
    assert [second for second, d in enumerate(answers) if not d] == [14]


def test_a_retry_is_never_early(face, clock):
    """C053, C054: bucket(1, 0.4) refused at 0.3 s: exact wait 2.2 s, header 3; whole seconds stay whole."""
    limiter = face(TokenBucket(1, "0.4/s"), clock=clock)
    limiter.hit("k")
    clock.set(0.3)
    refused = limiter.hit("k")
    assert (refused.retry_after, refused.retry_hint, refused.retry_hint_s) == (2.2, 2.2, 3)
    half = face(TokenBucket(1, "0.5/s"), clock=clock)
    half.hit("k")
    assert half.hit("k").retry_hint_s == 2


def test_a_long_life(face, clock):
    """C045: bucket(10, 1): spend 10 at 0 s, 5 at 5 s, 5 at 10 s, 1 at 10 s: ok, ok, ok, refused."""
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    answers = []
    for instant, cost in ((0, 10), (5, 5), (10, 5), (10, 1)):
        clock.set(instant)
        answers.append(bool(limiter.hit("k", cost)))
    assert answers == [True, True, True, False]


def test_a_whole_day_of_time(face, clock):
    """C090, C094: huge capacities and long windows: full again after years; a window of a billion seconds
    holds.
    """
    limiter = face(TokenBucket(10_000_000, "10000000/s"), clock=clock)
    limiter.hit("k", 10_000_000)
    clock.set(10 * 366 * 86_400)
    assert limiter.hit("k").remaining == 9_999_999
    block = face(FixedWindow(5, 1_000_000_000), clock=clock)
    answers = [bool(block.hit("k")) for _ in range(6)]
    for _ in range(60):
        clock.advance(1)
        answers.append(bool(block.hit("k")))
    assert answers == [True] * 5 + [False] * 61
