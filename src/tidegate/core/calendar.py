"""Days, weeks, months and years of a time zone, as windows between two instants.

A unit lasts from its first instant to the first instant of the next one, so a day has 23 or 25 hours
where the clocks change. A local midnight that does not exist means the first instant after the gap,
and one that exists twice means the first. The zone's rules are read once, when a limit is built; the
machine's own zone plays no part.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

from tidegate.errors import LimitError

CalendarUnit: TypeAlias = Literal["day", "week", "month", "year"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Local:
    """The days, weeks (from Monday), months or years of a named zone."""

    unit: CalendarUnit
    zone: str
    _rules: tzinfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rules", zone_named(self.zone))

    def __reduce__(self) -> tuple[type[Local], tuple[CalendarUnit, str]]:
        return Local, (self.unit, self.zone)

    def window(self, now_us: int) -> tuple[int, int]:
        """The unit that holds the instant: its first microsecond, and the first after it.

        Raises LimitError for an instant that no calendar has (before year 1 or after year 9999).
        """
        zone = self._rules
        try:
            first = _first_day(self.unit, (_EPOCH + now_us * _US).astimezone(zone).date())
            start_us, end_us = _begin_us(first, zone), _begin_us(_next(self.unit, first), zone)
            while end_us <= now_us:  # the local clock went back over a midnight: that day had begun already
                first = _next(self.unit, first)
                start_us, end_us = end_us, _begin_us(_next(self.unit, first), zone)
        except (OverflowError, ValueError):
            raise LimitError(f"the instant {now_us} us is outside the calendar") from None
        return start_us, end_us


def zone_named(name: str) -> tzinfo:
    """The zone of that name. Raises LimitError if there is none."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # here, for it is slow to import and seldom needed

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError, TypeError, ImportError):
        raise LimitError(
            f'zone is {name!r}; no such time zone is known here. Write a name like "Europe/Berlin"; '
            "if the machine has no zone data, install the package tzdata"
        ) from None


def _first_day(unit: CalendarUnit, day: date) -> date:
    if unit == "day":
        return day
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if unit == "month" else day.replace(month=1, day=1)


def _next(unit: CalendarUnit, first: date) -> date:
    if unit == "day":
        return first + timedelta(days=1)
    if unit == "week":
        return first + timedelta(days=7)
    if unit == "month":
        return (first + timedelta(days=31)).replace(day=1)
    return first.replace(year=first.year + 1)


def _begin_us(day: date, zone: tzinfo) -> int:
    """The first instant at which the local date is `day` or later."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)  # fold 0: of two, the first
    instant = midnight.astimezone(UTC)
    local = instant.astimezone(zone)
    if local.replace(tzinfo=None) != midnight.replace(tzinfo=None):  # in a gap: go back to where it opens
        early, late = instant - timedelta(days=2), instant
        while late - early > _SECOND:
            middle = early + (late - early) / 2
            early, late = (early, middle) if middle.astimezone(zone).date() >= day else (middle, late)
        instant = late.replace(microsecond=0)
    return (instant - _EPOCH) // _US
