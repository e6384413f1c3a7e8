# What a limit comes to in numbers: the bounds hold whatever the arrivals, and an attack reaches them.

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate import FixedWindow, LeakyBucket, LeakyQueue, Limiter, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.limits import Limit
from tidegate.testing import ManualClock
from tidegate.units import Rate
from tidegate.words import figures

S = 1_000_000
MIN, H, DAY = 60 * S, 3_600 * S, 86_400 * S

LIMITS = [
    TokenBucket(5, "2/s"),
    LeakyBucket(3, "7/min"),
    LeakyQueue(4, "2/s"),
    LeakyQueue(6, "2/s", "interval"),
    LeakyQueue(6, "2/s", delay_after=3),
    LeakyQueue(6, "2/s", "interval", delay_after=3),
    SlidingLog(3, "2s"),
    FixedWindow(3, "2s"),
    SlidingWindow(4, "2s"),
]


def departures(limit: Limit, arrivals_us: Iterable[int]) -> tuple[list[int], list[int]]:
    """When requests of cost 1 were admitted, and when their work begins."""
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    admitted, begun = [], []
    for at_us in arrivals_us:
        clock.set(Fraction(at_us, S))
        decision = limiter.hit("k")
        if decision:
            admitted.append(at_us)
            begun.append(at_us + decision.wait_us)
    return admitted, sorted(begun)


@pytest.mark.parametrize(
    ("limit", "us", "most"),
    [
        (TokenBucket(50, "5/s"), S, 55),
        (TokenBucket(50, "5/s"), MIN, 350),
        (TokenBucket(50, "5/s"), H, 18_050),
        (TokenBucket(50, "5/s"), DAY, 432_050),
        (LeakyQueue(20, "5/s"), S, 25),
        (TokenBucket(10, "0/s"), DAY, 10),
        (SlidingLog(5, "10min"), S, 5),
        (SlidingLog(5, "10min"), 10 * MIN, 5),
        (SlidingLog(5, "10min"), 10 * MIN + 1, 10),
        (SlidingLog(5, "10min"), H, 30),
        (FixedWindow(5, "10min"), 1, 5),
        (FixedWindow(5, "10min"), 2, 10),
        (FixedWindow(5, "10min"), 10 * MIN, 10),
        (FixedWindow(5, "10min"), 10 * MIN + 2, 15),
        (FixedWindow(5, "10min"), H, 35),
        (FixedWindow(100, "month"), DAY, 200),
        (FixedWindow(100, "day"), DAY, 200),
        (FixedWindow(100, "day", "Europe/Berlin"), DAY, 300),
        (SlidingWindow(100, "1h"), H, 200),
        (SlidingWindow(100, "1h"), H // 2, 150),
        (SlidingWindow(100, "1h"), DAY, 2_500),
    ],
)
def test_the_most_in_a_stretch(limit: Limit, us: int, most: int):
    """What the table of `explain` says for each algorithm, worked out by hand."""
    assert figures.most_in(limit, us) == most


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
@settings(max_examples=40)
@given(
    gaps=st.lists(
        st.sampled_from([0, 0, 0, 1, 1_000, 250_000, 499_999, 500_000, S, 2 * S - 1, 2 * S]), max_size=60
    )
)
def test_no_arrivals_pass_the_bound(limit: Limit, gaps: list[int]):
    """In every stretch of time what is admitted, and what begins, is within the figures."""
    at_us, arrivals = 10 * S, []
    for gap in gaps:
        at_us += gap
        arrivals.append(at_us)
    admitted, begun = departures(limit, arrivals)

    for bound, instants in ((figures.most_in, admitted), (figures.most_leaving_in, begun)):
        for first in range(len(instants)):
            for last in range(first, len(instants)):
                length_us = instants[last] - instants[first] + 1  # the end does not count, so one more
                assert last - first + 1 <= bound(limit, length_us)


HALF = S // 2
ATTACKS: list[
    tuple[Limit, list[int], int]
] = [  # arrivals, and how much of it begins within the bound's stretch
    (TokenBucket(5, "2/s"), [0] * 5 + [HALF * n for n in range(1, 5)], 9),
    (LeakyBucket(5, "2/s"), [0] * 5 + [HALF * n for n in range(1, 5)], 9),
    (LeakyQueue(4, "2/s"), [0] * 4, 4),
    (LeakyQueue(6, "2/s", "interval"), [0] * 6, 6),
    (LeakyQueue(6, "2/s", delay_after=3), [0] * 6, 6),
    (LeakyQueue(6, "2/s", "interval", delay_after=3), [0] * 6, 6),
    (SlidingLog(3, "2s"), [0] * 3 + [2 * S] * 3, 6),
    (FixedWindow(3, "2s"), [2 * S - 1] * 3 + [2 * S] * 3 + [4 * S] * 3, 9),
    (SlidingWindow(4, "2s"), [2 * S - 1] * 4 + [2 * S + HALF * n for n in range(1, 4)], 7),
]


@pytest.mark.parametrize(("limit", "arrivals", "count"), ATTACKS, ids=lambda value: str(value)[:40])
def test_an_attack_reaches_the_bound(limit: Limit, arrivals: list[int], count: int):
    """Somebody who times requests well gets all that the figures allow: they are no higher than needed."""
    _, begun = departures(limit, arrivals)
    within_us = begun[-1] - begun[0] + (0 if limit.rate is not None else 1)  # a level's bound holds both ends

    assert len(begun) == count
    assert count == int(figures.most_leaving_in(limit, within_us))


def test_three_days_within_one():
    """Where clocks go forward a day has 23 hours, and a day's quota passes three times in 24."""
    limit = FixedWindow(2, "day", "Europe/Berlin")
    midnight = 1_679_785_200 * S  # 2023-03-26 00:00 in Berlin, a day of 23 hours
    admitted, _ = departures(limit, [midnight - 1] * 3 + [midnight + H] * 3 + [midnight + 23 * H] * 3)

    assert len(admitted) == 6 == figures.most_in(limit, DAY)
    assert admitted[-1] - admitted[0] < DAY


@pytest.mark.parametrize(
    ("limit", "us"),
    [
        (LeakyQueue(20, "5/s"), 3_800_000),
        (LeakyQueue(20, "5/s", "interval"), 4_000_000),
        (LeakyQueue(21, "10/s", delay_after=8), 1_200_000),
        (LeakyQueue(1, "5/s"), 0),
        (LeakyQueue(20, "3/s"), 6_333_334),
        (TokenBucket(20, "5/s"), 0),
        (SlidingLog(5, "1s"), 0),
    ],
)
def test_the_longest_wait(limit: Limit, us: int):
    """The last of twenty leaves at 3.8 s, or at 4 s with "interval"; the figure is what the limiter says."""
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    waits_us = [decision.wait_us for _ in range(30) if (decision := limiter.hit("k"))]

    assert figures.longest_wait_us(limit) == us
    assert max(waits_us) == us


@pytest.mark.parametrize("interval", [False, True])
@pytest.mark.parametrize("wait_us", [0, 1, 199_999, 200_000, 3_800_000, 4_000_000])
def test_the_places_within_a_wait(wait_us: int, *, interval: bool):
    """A queue of so many places waits no longer than asked, and one with a place more does."""
    rate = Rate(5)
    places = figures.places_within(rate, wait_us, interval=interval)

    def longest_us(capacity: int) -> int:
        return figures.longest_wait_us(LeakyQueue(capacity, rate, "interval" if interval else "immediate"))

    assert places == 0 or longest_us(places) <= wait_us
    assert longest_us(places + 1) > wait_us


@pytest.mark.parametrize(
    ("limit", "average", "worst"),
    [
        (TokenBucket(50, "5/s"), Fraction(3, 2), Fraction(103, 2)),
        (LeakyQueue(20, "5/s"), Fraction(3, 2), Fraction(5, 2)),
        (SlidingLog(5, "10min"), Fraction(1, 400), 5),
        (FixedWindow(5, "10min"), Fraction(1, 400), 10),
    ],
)
def test_work_in_flight(limit: Limit, average: Fraction, worst: Fraction):
    """Little's law: rate times duration on average; at worst all that begins within one duration."""
    assert figures.in_flight(limit, 300_000) == (average, worst)
