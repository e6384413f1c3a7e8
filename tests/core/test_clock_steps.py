"""Time that goes back, stands still or leaps neither grants credit nor locks a key."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import MACHINES, admitted, at_once
from tidegate import Limiter, TokenBucket
from tidegate.core.law import STEP_US, begun_us, clock, later
from tidegate.core.level import Level, LevelState, drained
from tidegate.testing import ManualClock

three = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)


@three
def test_a_clock_that_trembles(machine):
    """C023: eleven seconds back and forth, over and over: nothing is earned, no wait exceeds the step."""
    clock = ManualClock(100)
    limiter = Limiter(machine(10, "1/s"), clock=clock)
    at_once(limiter, 10)
    for _ in range(50):
        clock.set(89)
        back = limiter.hit("key")
        clock.set(100)
        forth = limiter.hit("key")

        assert not back
        assert not forth
        assert (back.retry_after, forth.retry_after) == (12, 1)
        assert back.balance == forth.balance == 0


@three
def test_a_late_instant_is_the_newest_one_seen(machine):
    """C024: an operation that comes with an older instant neither drains nor earns."""
    clock = ManualClock(10)
    limiter = Limiter(machine(100_000, "100/s"), clock=clock)
    limiter.hit("key", 100_000)
    clock.set(20)
    assert limiter.hit("key", 10).balance == 990
    clock.set(19)
    assert limiter.hit("key", 0).balance == 990
    clock.set(21)
    assert limiter.peek("key").balance == 1090


@three
def test_sixty_seconds_back_freeze_and_more_move(machine):
    """A step back of exactly 60 s freezes the drain; a microsecond more moves the key's instant along."""
    for back_us, retry_after_us in ((STEP_US, STEP_US + 1_000_000), (STEP_US + 1, 1_000_000)):
        clock = ManualClock(1000)
        limiter = Limiter(machine(2, "1/s"), clock=clock)
        limiter.hit("key", 2)
        clock.set(1000 - Fraction(back_us, 10**6))

        decision = limiter.hit("key")
        assert (decision.allowed, decision.retry_after_us) == (False, retry_after_us)
        clock.advance(Fraction(retry_after_us, 10**6))
        assert limiter.hit("key")


@three
def test_a_refusal_after_a_long_step_is_remembered(machine):
    """The key moves back with what is used, even if the call was refused: nobody is locked out for years."""
    clock = ManualClock(10**9)
    limiter = Limiter(machine(1, "1/s"), clock=clock)
    limiter.hit("key")
    clock.set(0)

    assert limiter.hit("key").retry_after == 1
    clock.set(1)
    assert limiter.hit("key")


def test_standing_still_earns_nothing():
    """A thousand asks at one instant admit the capacity."""
    assert admitted(at_once(Limiter(TokenBucket(7, "1000000/s"), clock=ManualClock()), 1000)) == 7


@pytest.mark.parametrize(
    ("at_us", "now_us", "counts_us"),
    [
        (100, 100, 100),
        (100, 101, 101),
        (100, 99, 100),
        (STEP_US, 0, STEP_US),
        (STEP_US + 1, 0, 0),
        (-5, -9, -5),
    ],
)
def test_the_instant_that_counts(at_us: int, now_us: int, counts_us: int):
    """Never before the last one seen, unless the clock stepped back by more than 60 s."""
    assert clock(at_us, now_us) == counts_us


def test_a_wait_seen_from_behind():
    """A wait that starts at the newest instant is longer by the lag; no wait stays no wait."""
    assert [later(5, 100, now) for now in (90, 100, 110)] == [15, 5, 5]
    assert later(0, 100, 90) == 0


@given(st.integers(0, 2**53), st.integers(0, 2**20), st.integers(0, 2**60))
def test_draining_never_multiplies_beyond_the_level(level: int, p: int, elapsed_us: int):
    """The level falls by p a microsecond, to 0 at least; the time is compared before it is multiplied."""
    assert drained(level, p, elapsed_us) == max(0, level - p * elapsed_us)


def test_busy_periods_have_names_of_their_own():
    """A period is named by its instant, or by the next name that is free."""
    assert [begun_us(100, last) for last in (50, 99, 100, 105)] == [100, 100, 101, 106]
    law = TokenBucket(5, "1/s").law
    assert isinstance(law, Level)
    state = law.spend(law.advance(None, 7), 1000)

    assert state == LevelState(law.q, 7, 7, 0, law)
    assert law.advance(state, 7 - STEP_US - 1).busy_since_us == 8
