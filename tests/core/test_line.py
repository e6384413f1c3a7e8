"""The waiting line: who leaves when; nginx's own arithmetic; and patience."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import MACHINES, admitted, at_once
from tidegate import LeakyBucket, LeakyQueue, Limiter, TokenBucket
from tidegate.testing import ManualClock

three = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)


def test_twenty_jobs_in_a_line():
    """LeakyQueue(20, "5/s"): they leave at 0, 0.2 ... 3.8 s, or at 0.2 ... 4.0 s; the next is refused."""
    for first_release, first in (("immediate", 0), ("interval", 1)):
        limiter = Limiter(LeakyQueue(20, "5/s", first_release), clock=ManualClock())  # type: ignore[arg-type]  # one of two
        decisions = at_once(limiter, 21)

        assert [d.wait for d in decisions[:20]] == [(n + first) / 5 for n in range(20)]
        assert not decisions[20]
        assert decisions[20].wait == 0


def test_a_line_at_a_hundred_a_minute():
    """C098: of fifty at once the last goes at 29.4 s; from the bucket all go at once."""
    decisions = at_once(Limiter(LeakyQueue(100, "100/min"), clock=ManualClock()), 50)

    assert decisions[-1].wait == 29.4


def test_one_line_and_two_ways_to_refuse():
    """C101, C113: capacity 1; capacity 21 at once; twenty waiting."""
    meter = at_once(Limiter(LeakyBucket(1, "10/s"), clock=ManualClock()), 22)
    bucket = at_once(Limiter(TokenBucket(21, "10/s"), clock=ManualClock()), 22)
    queue = at_once(Limiter(LeakyQueue(21, "10/s"), clock=ManualClock()), 22)

    assert [admitted(decisions) for decisions in (meter, bucket, queue)] == [1, 21, 21]
    assert [d.wait for d in queue[:21]] == [n / 10 for n in range(21)]


def test_the_first_delay_after_costs_no_wait():
    """Work within `delay_after` leaves at once; behind it each waits for the excess alone."""
    decisions = at_once(Limiter(LeakyQueue(21, "10/s", delay_after=8), clock=ManualClock()), 22)

    assert [d.wait for d in decisions[:21]] == [max(0, n - 8) / 10 for n in range(21)]


class Nginx:
    """One key of nginx's limit_req, in its own arithmetic: thousandths of requests, milliseconds.

    From its source: excess = max(0, excess - rate * elapsed + 1000), refused above burst; a new key begins
    with 0; what exceeds `delay` is held for (excess - delay) / rate.
    """

    def __init__(self, rate_per_s: int, burst: int, delay: int) -> None:
        self.rate, self.burst, self.delay = rate_per_s * 1000, burst * 1000, delay * 1000
        self.excess: int | None = None
        self.last_ms = 0

    def ask(self, now_ms: int) -> int | None:
        """Milliseconds of delay; None if refused."""
        if self.excess is None:
            excess = 0
        else:
            excess = max(0, self.excess - self.rate * (now_ms - self.last_ms) // 1000 + 1000)
        if excess > self.burst:
            return None
        self.excess, self.last_ms = excess, now_ms
        return max(0, excess - self.delay) * 1000 // self.rate


@given(
    st.sampled_from([1, 2, 5, 10, 100]),
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(st.integers(0, 400), max_size=60),
)
def test_nginx_says_the_same(rate: int, burst: int, delay: int, gaps_ms: list[int]):
    """Nginx `burst=b delay=d` is LeakyQueue(b + 1, delay_after=d), and `nodelay` is TokenBucket(b + 1)."""
    theirs = Nginx(rate, burst, delay)
    clock = ManualClock()
    queue = Limiter(LeakyQueue(burst + 1, f"{rate}/s", delay_after=delay), clock=clock)
    bucket = Limiter(TokenBucket(burst + 1, f"{rate}/s"), clock=clock)
    now_ms = 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        clock.set(Fraction(now_ms, 1000))
        delay_ms = theirs.ask(now_ms)
        decision = queue.hit("key")

        assert decision.allowed == bucket.hit("key").allowed == (delay_ms is not None)
        assert decision.wait_us == (delay_ms or 0) * 1000


# --- patience ---


def asked(limiter: Limiter, cost: int, patience_us: int | None):
    """The decision for a caller who would wait so long."""
    charges, _ = limiter.policy.plan({"key": ("key",)}, cost * 1000)
    return limiter.store.decide([charge._replace(patience_us=patience_us) for charge in charges])[0]


@pytest.mark.parametrize("bucket", [TokenBucket, LeakyBucket])
def test_patience_makes_room(bucket):
    """Bucket and meter admit what fits within the wait, and say how long it is."""
    limiter = Limiter(bucket(5, "1/s"), clock=ManualClock())

    assert asked(limiter, 5, 0).wait_us == 0
    assert not asked(limiter, 3, 2_999_999).allowed
    outcome = asked(limiter, 3, 3_000_000)
    assert (outcome.allowed, outcome.wait_us, outcome.balance) == (True, 3_000_000, -3)
    assert not asked(limiter, 1, 3_999_999).allowed
    assert asked(limiter, 1, 4_000_000).wait_us == 4_000_000
    assert asked(limiter, 6, 10**12).retry_after_us is None


def test_patience_adds_no_room_to_a_line():
    """A queue's line is finite: patience only says which waits are too long."""
    limiter = Limiter(LeakyQueue(3, "1/s"), clock=ManualClock())

    assert asked(limiter, 1, 0).wait_us == 0
    assert not asked(limiter, 1, 999_999).allowed
    assert asked(limiter, 1, 1_000_000).wait_us == 1_000_000
    assert asked(limiter, 1, None).wait_us == 2_000_000
    assert not asked(limiter, 1, 10**12).allowed


def test_patience_beyond_all_measure():
    """The longest patience is as good as what the integers have room for; nothing overflows."""
    limit = TokenBucket(5, "1/s")
    limiter = Limiter(limit, clock=ManualClock())

    assert asked(limiter, 5, 2**200).allowed
    assert limit.law.room + limit.law.p * limit.law.patience_us_most < 2**53  # type: ignore[attr-defined]  # a Level
