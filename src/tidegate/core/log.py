"""The sliding log: exactly at most n in any window of the given length, each spend remembered.

What was spent at t stops counting at exactly t + window. The price is memory: up to n entries a key.
Entries are kept as two rows that only ever grow at the end, instants and running totals, and a state
is a view of a stretch of them; so looking costs a binary search, spending an append, and old states
stay true. Costs are whole tokens here, which bounds the entries by the limit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.core.law import EXACT, Receipt, begun_us, clock
from tidegate.units import MILLI


class LogState(NamedTuple):
    """Entries `start` to `end` of the rows. `totals[i]` is what was spent up to and with entry i."""

    instants: list[int]
    totals: list[int]
    start: int
    end: int
    at_us: int
    busy_since_us: int
    law: Log


@dataclass(frozen=True, slots=True)
class Log:
    """At most `capacity` thousandths in any stretch of `window_us`, to the microsecond."""

    capacity: int
    window_us: int

    grain = 1

    def advance(self, state: LogState | None, now_us: int) -> LogState:
        """Leave out what has stopped counting. After a long step back all entries count from now on."""
        if state is None:
            return LogState([], [], 0, 0, now_us, now_us - 1, self)
        if self.is_fresh(state):
            return self.holding(0, now_us, state.busy_since_us)
        at_us = clock(state.at_us, now_us)
        if at_us < state.at_us:
            return self.holding(self.used(state), at_us, state.busy_since_us + 1)
        start = bisect_right(state.instants, at_us - self.window_us, state.start, state.end)
        if start == state.end:
            return LogState([], [], 0, 0, at_us, state.busy_since_us, self)
        return state._replace(start=start, at_us=at_us, law=self)

    def fits(self, state: LogState, cost: int, patience_us: int | None = None) -> bool:
        """Whether what still counts + cost <= capacity. A log knows no patience."""
        return self.used(state) + cost <= self.capacity

    def spend(self, state: LogState, cost: int) -> LogState:
        """Add an entry at this instant."""
        if cost == 0:
            return state
        instants, totals, start, end, at_us, busy_since_us, _ = state
        if start == end:
            busy_since_us = begun_us(at_us, busy_since_us)
        if len(instants) != end or start > self.capacity // MILLI:  # an older view, or mostly dead entries
            base = totals[start - 1] if start else 0
            instants, totals = instants[start:end], [total - base for total in totals[start:end]]
            start, end = 0, len(instants)
        instants.append(at_us)
        totals.append(cost + (totals[-1] if totals else 0))
        return LogState(instants, totals, start, end + 1, at_us, busy_since_us, self)

    def overdraw(self, state: LogState, cost: int, debt: int) -> LogState:
        """Add an entry for what is owed, at most to `debt` above the capacity."""
        most = max(0, self.capacity + debt - self.used(state))
        return self.spend(state, min(cost, most))

    def is_fresh(self, state: LogState) -> bool:
        """Whether no entry counts."""
        return state.start == state.end

    def used(self, state: LogState) -> int:
        """The sum of what counts, in thousandths."""
        totals, start, end = state.totals, state.start, state.end
        return totals[end - 1] - (totals[start - 1] if start else 0) if end > start else 0

    def left(self, state: LogState) -> int:
        """Capacity minus what counts, in thousandths."""
        return self.capacity - self.used(state)

    def wait_us(self, state: LogState, cost: int, now_us: int) -> int:
        """0: admitted work runs at once."""
        return 0

    def retry_after_us(self, state: LogState, cost: int, now_us: int) -> int | None:
        """The time until enough entries have stopped counting; None for a cost above the capacity."""
        excess = self.used(state) + cost - self.capacity
        if excess <= 0:
            return 0
        if cost > self.capacity:
            return None
        base = state.totals[state.start - 1] if state.start else 0
        last = bisect_left(state.totals, base + excess, state.start, state.end)
        return state.instants[last] + self.window_us - now_us

    def reset_after_us(self, state: LogState, now_us: int) -> int | None:
        """The time until the newest entry stops counting."""
        return 0 if self.is_fresh(state) else state.instants[state.end - 1] + self.window_us - now_us

    def receipt(self, state: LogState, cost: int) -> Receipt:
        """The instant of the entry, and its busy period."""
        return Receipt(cost, state.at_us, state.busy_since_us)

    def give_back(
        self, state: LogState, receipt: Receipt, units: int, *, own: int, full: bool
    ) -> tuple[int, LogState]:
        """Take it out of the entry it made, if that still counts. Costs a copy of the entries."""
        instants, totals, start, end, at_us, busy_since_us, _ = state
        first = bisect_left(instants, receipt.at_us, start, end)
        past = bisect_right(instants, receipt.at_us, start, end)
        if first == past or busy_since_us != receipt.since_us:
            return 0, state
        gone = totals[start - 1] if start else 0
        before = totals[first - 1] if first else 0
        returned = min(units, totals[past - 1] - before)
        returned -= returned % MILLI
        rest = totals[past - 1] - before - returned  # entries of one instant are alike, so they become one
        instants = instants[start:first] + ([receipt.at_us] if rest else []) + instants[past:end]
        sums = [total - gone for total in totals[start:first]]
        sums += [before + rest - gone] if rest else []
        sums += [total - returned - gone for total in totals[past:end]]
        return returned, LogState(instants, sums, 0, len(instants), at_us, busy_since_us, self)

    def holding(self, used: int, now_us: int, since_us: int) -> LogState:
        """One entry of `used` thousandths at `now_us`; kept by carrying over and by steps back.

        It holds at most what the integers hold, which is far above every capacity.
        """
        used = min(used, EXACT - 1)
        if not used:
            return LogState([], [], 0, 0, now_us, since_us, self)
        return LogState([now_us], [used], 0, 1, now_us, since_us, self)
