"""Fixed windows, and two weighed counters."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.oracle import calendar_windows
from tests.oracle.machine import Machine, Receipt
from tests.oracle.reading import (
    CALENDAR_UNITS,
    UNIT_US,
    BadInput,
    ceil,
    duration_us,
    number,
)

ZERO = Fraction(0)
MILLI = 1000


class Fixed(Machine):
    """At most `limit` in each window, of one length from the epoch on or of a calendar unit in a zone."""

    def __init__(self, limit: dict[str, str]) -> None:
        self.capacity = number(limit["limit"])
        self.unit = limit["window"]
        self.zone = limit.get("zone", "UTC")
        self.length_us = {"minute": UNIT_US["min"], "hour": UNIT_US["h"]}.get(self.unit)
        if self.length_us is None and self.unit not in CALENDAR_UNITS:
            self.length_us = duration_us(self.unit)
        self.count = ZERO
        if self.capacity == 0:
            raise BadInput("limit is 0")
        if self.length_us is None and not calendar_windows.is_zone(self.zone):
            raise BadInput(f"{self.zone} is not a zone")

    def window(self, at_us: int) -> tuple[int, int]:
        if self.length_us is None:
            return calendar_windows.window(at_us, self.unit, self.zone)
        start_us = at_us - at_us % self.length_us
        return start_us, start_us + self.length_us

    def pass_time(self, seen_us: int) -> None:
        assert self.at_us is not None
        if self.window(seen_us) != self.window(self.at_us):
            self.count = ZERO

    def move_back(self, now_us: int) -> None:
        """The count is kept, in the window of now."""

    def used(self) -> Fraction:
        return self.count

    def add(self, cost: Fraction) -> Any:
        assert self.at_us is not None
        self.count += cost
        return self.window(self.at_us)

    def retry_after_us(self, cost: Fraction, now_us: int) -> int | None:
        if cost > self.capacity:
            return None
        return 0 if self.fits(cost) else self._end_us() - now_us

    def reset_after_us(self, now_us: int) -> int | None:
        return self._end_us() - now_us if self.count else 0

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        assert self.at_us is not None
        if receipt.mark != self.window(self.at_us):
            return ZERO
        returned = min(amount, receipt.cost - receipt.returned, self.count)
        self.count -= returned
        return returned

    def hold(self, used: Fraction, at_us: int) -> None:
        self.at_us, self.count = at_us, used

    def _end_us(self) -> int:
        assert self.at_us is not None
        return self.window(self.at_us)[1]


class Sliding(Machine):
    """The count of the window before, weighed by how much of it still overlaps, and the count of this one."""

    def __init__(self, limit: dict[str, str]) -> None:
        self.capacity = number(limit["limit"])
        self.window_us = duration_us(limit["window"])
        self.tick_us = self._finest_tick_us()
        self.ticks = self.window_us // self.tick_us
        self.before = ZERO
        self.count = ZERO
        if self.capacity == 0:
            raise BadInput("limit is 0")

    def _finest_tick_us(self) -> int:
        decade = 1
        while decade <= self.window_us:
            for tick_us in (decade, 2 * decade, 5 * decade):
                divides = self.window_us % tick_us == 0
                if divides and self.capacity * MILLI * (self.window_us // tick_us) < 2**52:
                    return tick_us
            decade *= 10
        raise BadInput("no tick is coarse enough for these numbers")

    def pass_time(self, seen_us: int) -> None:
        assert self.at_us is not None
        passed = seen_us // self.window_us - self.at_us // self.window_us
        if passed == 1:
            self.before, self.count = self.count, ZERO
        elif passed > 1:
            self.before = self.count = ZERO

    def move_back(self, now_us: int) -> None:
        self.hold(self.used(), now_us)

    def used(self) -> Fraction:
        assert self.at_us is not None
        k = self.at_us % self.window_us // self.tick_us
        weighed = ceil(self.before * MILLI * (self.ticks - k) / self.ticks)
        return Fraction(weighed, MILLI) + self.count

    def is_fresh(self) -> bool:
        return self.before == 0 and self.count == 0

    def add(self, cost: Fraction) -> Any:
        assert self.at_us is not None
        self.count += cost
        return self.at_us // self.window_us

    def retry_after_us(self, cost: Fraction, now_us: int) -> int | None:
        if cost > self.capacity:
            return None
        return self._first_us(now_us, lambda later: later.fits(cost))

    def reset_after_us(self, now_us: int) -> int | None:
        return self._first_us(now_us, lambda later: later.used() == 0)

    def _first_us(self, now_us: int, holds: Any) -> int:
        """The smallest wait after which it holds. What is used never rises by itself: bisect."""

        def at(wait_us: int) -> bool:
            later = self.copied()
            later.move_to(now_us + wait_us)
            return bool(holds(later))

        if at(0):
            return 0
        low, high = 0, self.lag_us + 2 * self.window_us
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if at(middle) else (middle, high)
        return high

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        assert self.at_us is not None
        age = self.at_us // self.window_us - receipt.mark
        wanted = min(amount, receipt.cost - receipt.returned)
        if age == 0:
            returned = min(wanted, self.count)
            self.count -= returned
        elif age == 1:
            returned = min(wanted, self.before)
            self.before -= returned
        else:
            returned = ZERO
        return returned

    def hold(self, used: Fraction, at_us: int) -> None:
        self.at_us, self.before, self.count = at_us, ZERO, used
