"""Where fixed windows begin, found by looking: every minute of a stretch of UTC is read on the zone's clock.

The first instant of a local day, week, month or year is the earliest instant at which the local clock
shows its midnight or later. So a midnight that does not exist is the first valid instant after it, and
one that exists twice is the first.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE_US = timedelta(microseconds=1)


def window(now_us: int, unit: str, zone: str) -> tuple[int, int]:
    """The window that holds the instant: its first microsecond, and the first one after it."""
    local = _wall_clock(now_us, zone)
    first = _first_of(local, unit)
    near = [first]
    for _ in range(2):
        near.append(_step(near[-1], unit, 1))
        near.insert(0, _step(near[0], unit, -1))
    starts = sorted({_start_us(wall, zone) for wall in near})
    return max(s for s in starts if s <= now_us), min(s for s in starts if s > now_us)


def is_zone(name: str) -> bool:
    """Whether the time-zone data knows the name."""
    try:
        ZoneInfo(name)
    except ZoneInfoNotFoundError:
        return False
    return True


def _wall_clock(at_us: int, zone: str) -> datetime:
    return (EPOCH + at_us * ONE_US).astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)


def _first_of(local: datetime, unit: str) -> datetime:
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return midnight - timedelta(days=midnight.weekday())
    if unit == "month":
        return midnight.replace(day=1)
    return midnight.replace(month=1, day=1) if unit == "year" else midnight


def _step(first: datetime, unit: str, by: int) -> datetime:
    """The first of the unit after or before: from its first day, go a little further than one unit."""
    if unit == "day":
        return first + by * timedelta(days=1)
    if unit == "week":
        return first + by * timedelta(days=7)
    days = {"month": (40, 10), "year": (400, 100)}[unit]
    return _first_of(first + timedelta(days=days[0]) if by > 0 else first - timedelta(days=days[1]), unit)


@lru_cache(maxsize=4096)
def _start_us(midnight: datetime, zone: str) -> int:
    """The earliest instant at which the wall clock shows this midnight or later."""
    minute_us = 60_000_000
    about_us = (midnight.replace(tzinfo=UTC) - EPOCH) // ONE_US
    at_us = about_us - 27 * 60 * minute_us
    while _wall_clock(at_us, zone) < midnight:
        at_us += minute_us
    low_us, high_us = at_us - minute_us, at_us  # before it, and at it or after
    while high_us - low_us > 1:
        middle_us = (low_us + high_us) // 2
        if _wall_clock(middle_us, zone) < midnight:
            low_us = middle_us
        else:
            high_us = middle_us
    return high_us
