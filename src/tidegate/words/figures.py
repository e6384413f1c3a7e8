"""What a limit comes to in numbers, exactly, from the limit alone: no traffic is needed to know its worst.

Amounts are tokens as fractions, durations whole microseconds rounded up. An interval of length d holds
its first instant and not the one d later, except that level limits (bucket, meter, queue) keep their
bound with both ends in.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from tidegate.core.limits import FixedWindow, LeakyQueue, Limit, SlidingLog
from tidegate.units import US_PER_S, Rate, div_ceil

HOUR_US = 3_600 * US_PER_S
DAY_US = 24 * HOUR_US

PERIODS: tuple[tuple[str, int], ...] = (
    ("1 s", US_PER_S),
    ("1 min", 60 * US_PER_S),
    ("1 h", HOUR_US),
    ("1 day", DAY_US),
)
"""The stretches of time for which a table shows the most that can pass."""

_SHORTEST_US = {"week": 7 * DAY_US, "month": 28 * DAY_US, "year": 365 * DAY_US}
_CALENDAR_UNITS = ("day", "week", "month", "year")


def most_in(limit: Limit, us: int) -> Fraction:
    """The most that the limit can admit in some interval of that length, in tokens.

    Level limits: capacity + rate * d. A log: its limit for each window begun. A fixed window: its limit
    for each window that the interval can touch, so twice the limit already for an instant. Two weighed
    counters: limit + limit * d / window; whatever the arrivals, one count's weight falls no faster.
    """
    size = Fraction(limit.capacity)
    if limit.rate is not None:
        return size + limit.rate.per_microsecond * us
    window_us = shortest_window_us(limit)
    if isinstance(limit, SlidingLog):
        return size * div_ceil(us, window_us)
    if isinstance(limit, FixedWindow):
        return size * (1 + div_ceil(us - 1, window_us))
    return size + size * us / window_us


def most_leaving_in(limit: Limit, us: int, job: Fraction = Fraction(1)) -> Fraction:
    """The most work that can begin in some interval of that length, in jobs of `job` tokens at most.

    It is what was admitted, except behind a queue, where one job and what costs no wait begin at once
    (with "interval" the larger of the two) and the rest follows at the rate.
    """
    if not isinstance(limit, LeakyQueue):
        return most_in(limit, us)
    free = Fraction(limit.delay_after)
    at_once = max(job, free) if limit.first_release == "interval" else job + free
    return min(Fraction(limit.capacity), at_once) + limit.rate.per_microsecond * us


def sustained_per_us(limit: Limit) -> Fraction:
    """Tokens per microsecond in the long run; of a window its limit over its length."""
    if limit.rate is not None:
        return limit.rate.per_microsecond
    assert limit.quota_window_us is not None
    return Fraction(limit.capacity) / limit.quota_window_us


def shortest_window_us(limit: Limit) -> int:
    """The least time between the beginnings of two windows. Where clocks change, a day may have 23 hours."""
    assert limit.quota_window_us is not None
    if not is_calendar(limit):
        return limit.quota_window_us
    assert isinstance(limit, FixedWindow)
    change_us = 0 if limit.zone == "UTC" else HOUR_US
    return _SHORTEST_US.get(limit.window, DAY_US) - change_us


def is_calendar(limit: Limit) -> bool:
    """Whether the limit counts days, weeks, months or years of a time zone."""
    return isinstance(limit, FixedWindow) and limit.window in _CALENDAR_UNITS


def longest_wait_us(limit: Limit, job: Fraction = Fraction(1)) -> int:
    """How long an admitted job of that cost is held at most: 0 without a queue."""
    if not isinstance(limit, LeakyQueue):
        return 0
    ahead = Fraction(limit.capacity) - (0 if limit.first_release == "interval" else job)
    return _ceil(max(Fraction(0), ahead - Fraction(limit.delay_after)) / limit.rate.per_microsecond)


def refill_us(limit: Limit) -> int | None:
    """The time after which a key that used everything has its whole capacity again; None: never by itself."""
    if limit.algorithm == "sliding_window":
        assert limit.quota_window_us is not None
        return 2 * limit.quota_window_us
    return limit.quota_window_us


def places_within(
    rate: Rate, wait_us: int, *, interval: bool, job: Fraction = Fraction(1), free: Fraction = Fraction(0)
) -> int:
    """The most places of a `LeakyQueue`, in jobs of that cost, whose longest wait is within `wait_us`."""
    drains = floor((rate.per_microsecond * wait_us + free) / job)
    return drains if interval else drains + 1


def in_flight(limit: Limit, duration_us: int, job: Fraction = Fraction(1)) -> tuple[Fraction, Fraction]:
    """Work in flight if each job of that cost takes `duration_us`: on average in the long run, and at worst.

    The average is Little's law: rate times duration. The worst is all that can begin within one duration.
    """
    return sustained_per_us(limit) * duration_us / job, most_leaving_in(limit, duration_us, job) / job


def _ceil(value: Fraction) -> int:
    return div_ceil(value.numerator, value.denominator)
