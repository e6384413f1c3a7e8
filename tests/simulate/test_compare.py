# The same traffic through every algorithm, in virtual time.

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import FixedWindow, LeakyBucket, LeakyQueue, LimitError, TokenBucket
from tidegate.simulate.compare import (
    Comparison,
    bytes_per_key,
    compare,
    limits_alike,
    most_within,
    passage,
    spread,
)
from tidegate.simulate.traffic import app_launch, bursts, script
from tidegate.units import Rate
from tidegate.words.figures import most_in, most_leaving_in

S = 1_000_000


@pytest.fixture(scope="module")
def usual() -> Comparison:
    """Capacity 20 and 5 a second."""
    return compare()


def test_a_launch_is_served_by_all(usual: Comparison):
    """Twelve requests in a second pass everywhere; in the line the last waits for 1.28 s."""
    launch = usual.scenes[0]

    assert [each.admitted for each in launch.passages] == [12] * 6
    assert [each.worst_second for each in launch.passages] == [12, 12, 5, 12, 12, 12]
    assert launch.passages[2].longest_wait_us == 1_283_334


def test_a_script_gets_the_rate(usual: Comparison):
    """In the long run a script gets what the limit sustains; the bucket adds its capacity once."""
    shown = {each.algorithm: each for each in usual.scenes[1].passages}

    assert shown["TokenBucket"].admitted == 20 + 299  # the last request comes 20 ms before the end
    assert shown["SlidingLog"].admitted == shown["FixedWindow"].admitted == 300
    assert shown["LeakyQueue"].worst_second == 5


def test_bursts_at_boundaries(usual: Comparison):
    """Across a boundary a fixed window passes twice its limit, a log and a bucket one capacity."""
    shown = {each.algorithm: each for each in usual.scenes[2].passages}

    assert shown["FixedWindow"].worst_second == shown["FixedWindow"].worst_window == 40
    assert shown["SlidingLog"].worst_window == shown["TokenBucket"].worst_window == 20


def test_nothing_is_worse_than_promised(usual: Comparison):
    """What was seen in any second and window is within the figures of `explain`."""
    for scene in usual.scenes:
        for limit, seen in zip(usual.limits, scene.passages, strict=True):
            assert seen.worst_second <= most_leaving_in(limit, S)
            assert seen.worst_window <= most_leaving_in(limit, usual.window_us)
            assert seen.admitted <= most_in(limit, scene.traffic.watched_us)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 20 * S), max_size=80), st.integers(1, 12))
def test_three_machines_one_verdict(arrivals: list[int], capacity: int):
    """Bucket, meter and line with the same numbers admit as many of any arrivals."""
    instants = sorted(arrivals)
    limits = TokenBucket(capacity, "3/s"), LeakyBucket(capacity, "3/s"), LeakyQueue(capacity, "3/s")
    assert len({passage(limit, instants, S).admitted for limit in limits}) == 1


def test_what_six_a_minute_means():
    """C097: six spends at 0 s and at 60 s: a bucket of 1 passes 1 and 1, one of 6 and a window 6 and 6."""
    six = [0] * 6 + [60 * S] * 6
    passed = [
        [passage(limit, six, S).departures_us.count(at_us) for at_us in (0, 60 * S)]
        for limit in (TokenBucket(1, "6/min"), TokenBucket(6, "6/min"), FixedWindow(6, "1min"))
    ]
    assert passed == [[1, 1], [6, 6], [6, 6]]


def test_fifty_in_a_line():
    """C098: of fifty at once in a line of 100 per minute the last begins at 29.4 s, in a bucket at 0 s."""
    line = passage(LeakyQueue(100, "100/min"), [0] * 50, S)
    bucket = passage(TokenBucket(100, "100/min"), [0] * 50, S)

    assert (line.admitted, line.departures_us[-1]) == (50, 29_400_000)
    assert set(bucket.departures_us) == {0}


def test_local_limits_multiply():
    """C128: ten servers with a memory each admit up to ten times the limit, with one store the limit once."""
    traffic = script(20, 4 * S)
    shown = spread(TokenBucket(20, "5/s"), traffic, 10)

    assert shown.together == passage(TokenBucket(20, "5/s"), traffic.arrivals_us, S).admitted
    assert shown.together <= shown.bound < shown.together + 1
    assert shown.apart > 8 * shown.together
    assert spread(TokenBucket(20, "5/s"), traffic, 1).apart == shown.together


def test_the_same_on_every_run(usual: Comparison):
    """Nothing but the weights depends on the machine: two runs are equal."""
    again = compare()
    assert (again.scenes, again.servers, again.limits) == (usual.scenes, usual.servers, usual.limits)


@pytest.mark.parametrize(
    ("capacity", "rate"), [(1, "1000000/s"), (3, "7/s"), (2_000, "1/day"), (7, "0.01/week")]
)
def test_any_numbers(capacity: int, rate: str):
    """Limits alike exist for small and large numbers, in windows of whole milliseconds."""
    limits = limits_alike(capacity, Rate.parse(rate))

    assert [limit.capacity for limit in limits] == [capacity] * 6
    assert (limits[-1].quota_window_us or 0) % 1_000 == 0


@pytest.mark.parametrize(
    ("capacity", "rate"), [(0, "1/s"), (2_001, "1/s"), (2.5, "1/s"), (True, "1/s"), (1, "0/s")]
)
def test_numbers_without_a_picture(capacity: int, rate: str):
    """Numbers that some algorithm cannot have, or that would take for ever, are an error that says so."""
    with pytest.raises(LimitError):
        compare(capacity, rate)


def test_a_log_weighs_its_entries():
    """A log's key weighs more with each spend that it remembers; the others weigh a few hundred bytes."""
    bucket, _, _, log, fixed, sliding = (bytes_per_key(limit) for limit in limits_alike(100, Rate(5)))

    assert 50 < min(bucket, fixed, sliding) <= max(bucket, fixed, sliding) < 1_000
    assert log > 1_600  # 16 bytes for each of a hundred entries, at least


def test_the_worst_stretch():
    """A stretch holds its first instant and not its end, so instants one length apart are not in one."""
    assert most_within([], S) == 0
    assert most_within([0, 0, S - 1, S, S], S) == 3
    assert most_within([0, S, 2 * S], S) == 1


def test_traffic_is_in_order():
    """Arrivals are whole microseconds in order, from the start and within what is watched."""
    for capacity, window_us in ((20, 4 * S), (1, 1), (2_000, 10**12)):
        for traffic in (app_launch(window_us), script(capacity, window_us), bursts(capacity, window_us)):
            assert list(traffic.arrivals_us) == sorted(traffic.arrivals_us)
            assert 0 <= traffic.arrivals_us[0] <= traffic.arrivals_us[-1] < traffic.watched_us
    assert Fraction(len(script(20, 4 * S).arrivals_us), 60) == 50
