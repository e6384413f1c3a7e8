"""The law, told as stories to bucket, meter and queue."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.core.stories import MACHINES, admitted, at_once, tell
from tidegate import LeakyBucket, Limiter, TokenBucket
from tidegate.testing import ManualClock

three = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)


@three
def test_a_burst_then_the_rate(machine):
    """TokenBucket(20, "5/s"): twenty pass at once, 0.4 s earns exactly two, 2 s exactly ten."""
    clock = ManualClock()
    limiter = Limiter(machine(20, "5/s"), clock=clock)

    assert admitted(at_once(limiter, 21)) == 20
    clock.advance(0.4)
    assert admitted(at_once(limiter, 21)) == 2
    clock.advance(2)
    assert admitted(at_once(limiter, 21)) == 10
    clock.advance(1)
    assert limiter.hit("key", 5).remaining == 0


@three
def test_fifty_then_five_a_second(machine):
    """TokenBucket(50, "5/s"): 12, ten idle seconds, 4: 46 left; 0.3 s earns 1.5; with 0.4 left, 0.12 s."""
    tell(
        machine(50, "5/s"),
        "allowed remaining balance retry_after",
        [
            (0, 12, True, 38, 38, 0),
            (10, 4, True, 46, 46, 0),
            (10, 46, True, 0, 0, 0),
            (10.3, 1, True, 0, Fraction(1, 2), 0),
            (10.3, 0.1, True, 0, Fraction(2, 5), 0),
            (10.3, 1, False, 0, Fraction(2, 5), 0.12),
            (10.42, 1, True, 0, 0, 0),
        ],
    )


@three
def test_parts_of_an_interval_count(machine):
    """C013: frequent calls lose no fraction of a token."""
    remaining = [9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2, 1, 1, 0, 0, 0]
    rows = [(t, 1, t != 14, left) for t, left in enumerate(remaining)]

    tell(machine(10, "1/3s"), "allowed remaining", rows)


@three
def test_a_meter_drains_in_parts(machine):
    """C012: ten at once, then one each six seconds: all pass."""
    rows = [(0, 1, True)] * 10 + [(t, 1, True) for t in (6, 12, 18, 24)]

    tell(machine(10, "10/min"), "allowed", rows)


@three
def test_refusals_do_not_delay_the_refill(machine):
    """C014: asked every tenth of a second, one a second passes, to the tenth."""
    rows = [(Fraction(t, 10), 1, t % 10 == 0) for t in range(21)]

    tell(machine(1, "1/s"), "allowed", rows)


@three
def test_a_refused_cost_is_not_taken(machine):
    """C016, C076: what does not fit takes nothing; what fits beside it passes."""
    tell(
        machine(10, "1/s"),
        "allowed remaining",
        [(0, 8, True, 2), (0, 5, False, 2), (0, 1, True, 1), (0, 1, True, 0), (0, 1, False, 0)],
    )


@three
def test_idle_time_earns_nothing_beyond_full(machine):
    """C026, C066: neither before the first use nor after."""
    tell(
        machine(3, "6/s"),
        "allowed",
        [(5, 1, True), (5.01, 1, True), (5.02, 1, True), (5.03, 1, False), (1e6, 3, True), (1e6, 1, False)],
    )


@three
def test_long_runs_admit_exactly(machine):
    """C044, C049: 17 of 50 at 3 + 3 x 4.9; 371 of 50 each tenth of a second."""
    clock = ManualClock()
    limiter = Limiter(machine(3, "3/s"), clock=clock)
    passed = 0
    for step in range(50):
        clock.set(Fraction(step, 10))
        passed += limiter.hit("key").allowed
    assert passed == 17

    limiter = Limiter(machine(11, "100/s"), clock=ManualClock())
    clock = limiter.store.clock  # type: ignore[attr-defined]  # the embedded store's
    passed = 0
    for step in range(37):
        clock.set(Fraction(step, 10))
        passed += admitted(at_once(limiter, 50))
    assert passed == 371


@three
def test_retry_after_is_exact(machine):
    """C053, C057: the announced wait is enough, and a microsecond less is not."""
    tell(
        machine(1, "0.4/s"),
        "allowed retry_after",
        [(0, 1, True, 0), (0.3, 1, False, 2.2), (2.499999, 1, False, 1e-6), (2.5, 1, True, 0)],
    )
    tell(machine(1, "1/s"), "retry_after", [(0, 1, 0), (0.2, 1, 0.8)])


@three
def test_reset_is_the_time_to_full(machine):
    """C059, C065: one unit throughout, from the first result on; an admission has retry_after 0."""
    tell(
        machine(2, "2/min"),
        "allowed remaining reset_after retry_after",
        [(0, 1, True, 1, 30, 0), (0, 1, True, 0, 60, 0), (0, 1, False, 0, 60, 30)],
    )


@three
def test_never_is_not_not_now(machine):
    """C060, C074, C076: a cost above the capacity can never pass, and costs nothing."""
    tell(
        machine(5, "1/s"),
        "allowed remaining retry_after",
        [(0, 1, True, 4, 0), (0, 5, False, 4, 1), (1, 5, True, 0, 0), (1, 6, False, 0, None)],
    )
    tell(machine(300, "1/s"), "allowed remaining", [(0, 301, False, 300), (0, 1, True, 299)])


@three
def test_a_look_counts_the_time_and_changes_nothing(machine):
    """C068: a thousand looks on the way leave every later answer as it was."""
    clock = ManualClock()
    limiter = Limiter(machine(5, "1/s"), clock=clock)
    limiter.hit("key", 5)
    clock.set(3)

    assert {limiter.peek("key").remaining for _ in range(1000)} == {3}
    assert limiter.hit("key", 3).remaining == 0


@three
def test_fractions_do_not_drift(machine):
    """C087: ten tenths are one; four times 2.5 are ten."""
    tell(machine(1, "1/30day"), "allowed", [(0, 0.1, True)] * 10 + [(0, 0.1, False)])
    tell(machine(10, "1/30day"), "allowed", [(0, 2.5, True)] * 4 + [(0, 2.5, False)])


@pytest.mark.parametrize("bucket", [TokenBucket, LeakyBucket])
def test_a_rate_of_nothing(bucket):
    """C020, C081, C086: a budget that does not refill; refused means never, and it never becomes fresh."""
    tell(
        bucket(2, "0/s"),
        "allowed remaining retry_after reset_after",
        [
            (0, 0, True, 2, 0, 0),
            (0, 1, True, 1, 0, None),
            (10**9, 1, True, 0, 0, None),
            (10**9, 0, True, 0, 0, None),
            (10**9, 1, False, 0, None, None),
        ],
    )


@three
@pytest.mark.parametrize("rate", ["1/10s", "1/day", "1/30day", "10/3day"])
def test_tiny_rates_are_exact(machine, rate: str):
    """C096: refused a microsecond before the next is due, admitted at it, also at one in thirty days."""
    limit = machine(1, rate)
    due_us = 1 / limit.rate.per_microsecond

    tell(
        limit,
        "allowed retry_after_us",
        [
            (0, 1, True, 0),
            ((due_us - 1) / 10**6, 1, False, 1),
            (due_us / 10**6, 1, True, 0),
            (due_us / 10**6, 1, False, due_us),
        ],
    )


@three
@pytest.mark.parametrize("idle", [43_200, 864_000, 3_650 * 86_400])
def test_long_idle_times(machine, idle: int):
    """C090, C091: twelve hours or ten years later a bucket of ten million is full, not more."""
    tell(machine(10**7, "10000000/s"), "remaining", [(0, 10**7, 0), (idle, 1, 10**7 - 1)])


def test_what_burst_means():
    """C097: 6/minute with capacity 1 is one each ten seconds; with capacity 6 it is six at once."""
    for capacity, expected in ((1, [1, 1]), (6, [6, 6])):
        clock = ManualClock()
        limiter = Limiter(TokenBucket(capacity, "6/min"), clock=clock)
        passed = []
        for at in (0, 60):
            clock.set(at)
            passed.append(admitted(at_once(limiter, 6)))
        assert passed == expected
