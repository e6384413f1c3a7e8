"""Windows that count: fixed ones, aligned to the epoch or to a calendar, and two weighed counters.

A fixed window is cheap and easily explained, and lets up to twice its limit through across a
boundary. Two counters smooth that (the estimate is the previous window's count, weighed by how much
of it still overlaps, plus the current one's), yet stay an estimate: in any stretch of one window's
length, up to twice the limit can pass. `log.py` is exact.

Counts are whole thousandths of a token. Which window an instant falls into is a pure function of the
instant; a time zone only enters through the calendar that was given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidegate.core.law import EXACT, Receipt, begun_us, clock
from tidegate.units import div_ceil


class Calendar(Protocol):
    """Where windows begin and end."""

    def window(self, now_us: int) -> tuple[int, int]:
        """The window that holds the instant: its first microsecond, and the first after it."""


@dataclass(frozen=True, slots=True)
class Even:
    """Windows of one length, counted from the epoch."""

    length_us: int

    def window(self, now_us: int) -> tuple[int, int]:
        """The multiple of the length at or before the instant, and the next."""
        start_us = now_us - now_us % self.length_us
        return start_us, start_us + self.length_us


class FixedState(NamedTuple):
    """What was counted in one window."""

    counted: int
    at_us: int
    busy_since_us: int
    start_us: int
    end_us: int
    law: Fixed


@dataclass(frozen=True, slots=True)
class Fixed:
    """At most `capacity` thousandths in each window of a calendar."""

    capacity: int
    calendar: Calendar

    grain = 1

    def advance(self, state: FixedState | None, now_us: int) -> FixedState:
        """The count of the window that is now; 0 once a new one has begun."""
        if state is None:
            return self.holding(0, now_us, now_us - 1)
        if state.counted == 0:
            return self.holding(0, now_us, state.busy_since_us)
        at_us = clock(state.at_us, now_us)
        if at_us < state.at_us:
            return self.holding(state.counted, at_us, state.busy_since_us + 1)
        if at_us < state.end_us:
            return state._replace(at_us=at_us, law=self)
        return self.holding(0, at_us, state.busy_since_us)

    def fits(self, state: FixedState, cost: int, patience_us: int | None = None) -> bool:
        """Whether count + cost <= capacity. Windows know no patience: what does not fit now is refused."""
        return state.counted + cost <= self.capacity

    def spend(self, state: FixedState, cost: int) -> FixedState:
        """Count the cost in this window."""
        since_us = state.busy_since_us if state.counted else begun_us(state.at_us, state.busy_since_us)
        return state._replace(counted=state.counted + cost, busy_since_us=since_us)

    def overdraw(self, state: FixedState, cost: int, debt: int) -> FixedState:
        """Count the cost, at most to `debt` above the capacity; the next window owes nothing."""
        after = self.spend(state, cost)
        return after._replace(counted=min(after.counted, max(state.counted, self.capacity + debt)))

    def is_fresh(self, state: FixedState) -> bool:
        """Whether nothing was counted in this window."""
        return state.counted == 0

    def used(self, state: FixedState) -> int:
        """The count of this window, in thousandths."""
        return state.counted

    def left(self, state: FixedState) -> int:
        """What this window still admits, in thousandths."""
        return self.capacity - state.counted

    def wait_us(self, state: FixedState, cost: int, now_us: int) -> int:
        """0: admitted work runs at once."""
        return 0

    def retry_after_us(self, state: FixedState, cost: int, now_us: int) -> int | None:
        """The time to the end of the window; None for a cost that no window admits."""
        if self.fits(state, cost):
            return 0
        return state.end_us - now_us if cost <= self.capacity else None

    def reset_after_us(self, state: FixedState, now_us: int) -> int | None:
        """The time to the end of the window, 0 if nothing was counted in it."""
        return state.end_us - now_us if state.counted else 0

    def receipt(self, state: FixedState, cost: int) -> Receipt:
        """The busy period in which the cost was counted; it ends with its window."""
        return Receipt(cost, state.at_us, state.busy_since_us)

    def give_back(
        self, state: FixedState, receipt: Receipt, units: int, *, own: int, full: bool
    ) -> tuple[int, FixedState]:
        """Uncount it, if its window is still the current one."""
        returned = min(units, state.counted) if state.busy_since_us == receipt.since_us else 0
        return returned, state._replace(counted=state.counted - returned)

    def holding(self, used: int, now_us: int, since_us: int) -> FixedState:
        """The window of `now_us` with `used` thousandths counted, at most what the integers hold."""
        return FixedState(min(used, EXACT - 1), now_us, since_us, *self.calendar.window(now_us), self)


class SlidingState(NamedTuple):
    """The counts of this window and of the one before."""

    before: int
    counted: int
    at_us: int
    busy_since_us: int
    start_us: int
    law: Sliding


@dataclass(frozen=True, slots=True)
class Sliding:
    """At most `capacity` thousandths by the estimate of two counters (known from Cloudflare's).

    The window is cut into `parts` ticks of `tick_us`, as fine as the integers allow; the weight of the
    previous window falls by one part a tick.
    """

    capacity: int
    tick_us: int
    parts: int

    grain = 1

    @property
    def length_us(self) -> int:
        """The length of a window."""
        return self.tick_us * self.parts

    @property
    def most(self) -> int:
        """The largest count whose weight the integers hold; twice the capacity or more."""
        return (EXACT - 1) // self.parts

    def advance(self, state: SlidingState | None, now_us: int) -> SlidingState:
        """Turn to the window that is now: what was counted in the one before it is weighed."""
        if state is None:
            return self.holding(0, now_us, now_us - 1)
        if self.is_fresh(state):
            return self.holding(0, now_us, state.busy_since_us)
        at_us = clock(state.at_us, now_us)
        if at_us < state.at_us:  # moved back: what the counters weighed counts as spent in the window of now
            return self.holding(self.used(state), at_us, state.busy_since_us + 1)
        start_us = self._start_us(at_us)
        if start_us == state.start_us:
            return state._replace(at_us=at_us, law=self)
        before = state.counted if start_us - state.start_us == self.length_us else 0
        return SlidingState(before, 0, at_us, state.busy_since_us, start_us, self)

    def fits(self, state: SlidingState, cost: int, patience_us: int | None = None) -> bool:
        """Whether the estimate + cost <= capacity. Windows know no patience."""
        return self.used(state) + cost <= self.capacity

    def spend(self, state: SlidingState, cost: int) -> SlidingState:
        """Count the cost in this window."""
        since_us = state.busy_since_us
        if self.is_fresh(state):
            since_us = begun_us(state.at_us, since_us)
        return state._replace(counted=state.counted + cost, busy_since_us=since_us)

    def overdraw(self, state: SlidingState, cost: int, debt: int) -> SlidingState:
        """Count the cost, at most until the estimate is `debt` above the capacity."""
        most = max(0, min(self.capacity + debt, self.most) - self.used(state))
        return self.spend(state, min(cost, most))

    def is_fresh(self, state: SlidingState) -> bool:
        """Whether nothing was counted in either window."""
        return state.counted == 0 and state.before == 0

    def used(self, state: SlidingState) -> int:
        """The estimate in thousandths, rounded up."""
        gone = (state.at_us - state.start_us) // self.tick_us
        return div_ceil(state.before * (self.parts - gone), self.parts) + state.counted

    def left(self, state: SlidingState) -> int:
        """Capacity minus the estimate, in thousandths."""
        return self.capacity - self.used(state)

    def wait_us(self, state: SlidingState, cost: int, now_us: int) -> int:
        """0: admitted work runs at once."""
        return 0

    def retry_after_us(self, state: SlidingState, cost: int, now_us: int) -> int | None:
        """The time until enough of the earlier counts has lost its weight; None if that is never enough."""
        if self.fits(state, cost):
            return 0
        if cost > self.capacity:
            return None
        start_us, before, room = state.start_us, state.before, self.capacity - cost - state.counted
        if room < 0:  # not in this window: in the next, this one's count is what is weighed
            start_us, before, room = start_us + self.length_us, state.counted, self.capacity - cost
        gone = self.parts if before == 0 else max(0, self.parts - room * self.parts // before)
        return start_us + gone * self.tick_us - now_us

    def reset_after_us(self, state: SlidingState, now_us: int) -> int | None:
        """The time until neither window weighs anything."""
        if self.is_fresh(state):
            return 0
        windows = 2 if state.counted else 1
        return state.start_us + windows * self.length_us - now_us

    def receipt(self, state: SlidingState, cost: int) -> Receipt:
        """The instant, which tells the window, and the busy period."""
        return Receipt(cost, state.at_us, state.busy_since_us)

    def give_back(
        self, state: SlidingState, receipt: Receipt, units: int, *, own: int, full: bool
    ) -> tuple[int, SlidingState]:
        """Uncount it in the window it was counted in, if that one still weighs."""
        if receipt.since_us != state.busy_since_us:
            return 0, state
        counted_in_us = self._start_us(receipt.at_us)
        if counted_in_us == state.start_us:
            returned = min(units, state.counted)
            return returned, state._replace(counted=state.counted - returned)
        if counted_in_us == state.start_us - self.length_us:
            returned = min(units, state.before)
            return returned, state._replace(before=state.before - returned)
        return 0, state

    def holding(self, used: int, now_us: int, since_us: int) -> SlidingState:
        """The window of `now_us` with `used` thousandths counted, at most what the integers hold."""
        return SlidingState(0, min(used, self.most), now_us, since_us, self._start_us(now_us), self)

    def _start_us(self, at_us: int) -> int:
        return at_us - at_us % self.length_us
