"""The sliding log: exactly so many in any stretch of its window, to the microsecond."""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import admitted, at_once, tell
from tidegate import Limiter, SlidingLog
from tidegate.core.log import Log
from tidegate.errors import CostError
from tidegate.testing import ManualClock


def test_five_in_any_ten_minutes():
    """SlidingLog(5, "10min") for one-time codes: what was spent at t stops counting at exactly t + 600."""
    rows = [(t, 1, True) for t in (0, 100, 200, 300, 400)]
    rows += [(599.999999, 1, False), (600, 1, True), (600, 1, False), (700, 1, True), (799.999999, 1, False)]

    tell(SlidingLog(5, "10min"), "allowed", rows)


def test_equal_times_are_entries_of_their_own():
    """C007: at one instant, or nearer than the clock can tell: three pass, seven are refused."""
    assert admitted(at_once(Limiter(SlidingLog(3, "10s"), clock=ManualClock()), 10)) == 3


def test_the_wait_is_that_of_the_oldest():
    """C056: refused until enough of the oldest have stopped counting."""
    tell(
        SlidingLog(2, "1min"),
        "allowed retry_after",
        [(0, 1, True, 0), (10, 1, True, 0), (20, 1, False, 40), (59, 1, False, 1), (60, 1, True, 0)],
    )
    tell(
        SlidingLog(3, "1min"),
        "allowed retry_after reset_after",
        [
            (0, 1, True, 0, 60),
            (10, 2, True, 0, 60),
            (20, 1, False, 40, 50),
            (20, 2, False, 50, 50),
            (20, 4, False, None, 50),
        ],
    )


def test_fifteen_of_fifty():
    """C044: three in any second, asked each tenth for 4.9 s."""
    rows = [(Fraction(t, 10), 1, t % 10 < 3) for t in range(50)]

    tell(SlidingLog(3, "1s"), "allowed", rows)


def test_costs_are_whole():
    """C075: above the limit never; a part of a token is an error; neither takes anything."""
    limiter = Limiter(SlidingLog(10, "1min"), clock=ManualClock())
    assert limiter.hit("key", 11).retry_after is None
    limiter.hit("key", 5)
    assert limiter.hit("key", 11).retry_after is None
    for cost in (0.5, 1.001):
        with pytest.raises(CostError, match="counts whole tokens"):
            limiter.hit("key", cost)
        with pytest.raises(CostError, match="counts whole tokens"):
            limiter.peek("key", cost)

    assert limiter.peek("key").remaining == 5


def test_parts_are_not_given_back():
    """A refund or a settlement of a part of a token is an error too, and changes nothing."""
    limiter = Limiter(SlidingLog(10, "1min"), clock=ManualClock())
    reservation = limiter.reserve("key", 5)
    with pytest.raises(CostError, match="counts whole tokens"):
        limiter.refund(reservation.decision, 0.5)
    with pytest.raises(CostError, match="counts whole tokens"):
        reservation.settle(5.5)

    assert limiter.peek("key").remaining == 5


def test_giving_back_takes_it_out_of_its_own_entry():
    """C082: an entry that still counts is lowered; one that has expired gives nothing."""
    clock = ManualClock()
    limiter = Limiter(SlidingLog(5, "10s"), clock=clock)
    first = limiter.hit("key", 2)
    clock.set(4)
    second = limiter.hit("key", 3)

    assert limiter.refund(second, 1) == 1
    assert limiter.peek("key", 2).retry_after == 6
    clock.set(10)
    assert limiter.refund(first) == 0
    assert limiter.refund(second) == 2
    assert limiter.refund(second) == 0
    assert limiter.peek("key").reset_after == 0


@given(
    st.integers(1, 6),
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 7)), max_size=60),
)
def test_as_a_plain_list_does(limit: int, window_us: int, asks: list[tuple[int, int]]):
    """Instants, running totals and views answer as a list of single spends would."""
    law: Any = Log(limit * 1000, window_us)
    state, now_us, plain = None, 0, deque[int]()
    for gap_us, cost in asks:
        now_us += gap_us
        while plain and plain[0] + window_us <= now_us:
            plain.popleft()
        state = law.advance(state, now_us)
        assert law.used(state) == len(plain) * 1000
        assert law.fits(state, cost * 1000) == (len(plain) + cost <= limit)
        if law.fits(state, cost * 1000):
            state = law.spend(state, cost * 1000)
            plain.extend([now_us] * cost)
        elif cost <= limit:
            free_us = plain[len(plain) + cost - limit - 1] + window_us
            assert law.retry_after_us(state, cost * 1000, now_us) == free_us - now_us


@given(st.lists(st.integers(0, 8), max_size=40))
def test_old_views_stay_true(gaps: list[int]):
    """A state that somebody kept says the same after the log went on, also where the two share their rows."""
    law: Any = Log(3000, 20)
    now_us, state = 0, law.advance(None, 0)
    kept = []
    for gap in gaps:
        now_us += gap
        state = law.advance(state, now_us)
        kept.append((state, law.used(state), law.reset_after_us(state, now_us), now_us))
        if law.fits(state, 1000):
            law.spend(state, 2000)  # another future of the same state, which nobody keeps
            state = law.spend(state, 1000)

    for view, used, reset_after_us, then_us in kept:
        assert (law.used(view), law.reset_after_us(view, then_us)) == (used, reset_after_us)


def test_rows_do_not_grow():
    """C095: in a year of use the rows stay near the limit, and an answer costs a search, not a walk."""
    law: Any = Log(100_000, 1_000)
    state = None
    for now_us in range(0, 200_000, 7):
        state = law.advance(state, now_us)
        if law.fits(state, 1000):
            state = law.spend(state, 1000)

    assert state is not None
    assert len(state.instants) <= 2 * 100 + 2


def test_a_long_step_back_counts_all_from_now_on():
    """Beyond 60 s back the entries count as spent now: no credit, and no lock beyond a window."""
    clock = ManualClock(1_000)
    limiter = Limiter(SlidingLog(3, "10s"), clock=clock)
    first = limiter.hit("key")
    clock.advance(2)
    limiter.hit("key", 2)
    clock.set(0)

    assert limiter.hit("key").retry_after == 10
    assert limiter.refund(first) == 0
    clock.set(10)
    assert limiter.hit("key", 3)
