"""The law: one number per key, shared by bucket, meter and queue.

The level is the work admitted and not yet drained. Time drains it, an admission raises it, and a
refusal changes nothing:

    level = max(0, level - rate * elapsed)
    admit iff  level + cost <= capacity
    if admitted:  level = level + cost

A token bucket shows `capacity - level` as its tokens, a leaky meter shows the level as its water, and
a leaky queue lets the admitted work wait until the level ahead of it has drained. The verdicts are
the same; only what an admitted request experiences differs. GCRA is this law too: its theoretical
arrival time is `at + level / rate` (ITU-T I.371, the continuous-state leaky bucket).

No float decides. The unit is chosen per limit so that one token is `q` units, `p` units drain in a
microsecond, and both are whole. Rounding happens only where a duration leaves, and upwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.core.law import EXACT, Receipt, begun_us, clock, later
from tidegate.units import MILLI, div_ceil


class LevelState(NamedTuple):
    """What is remembered of one key: the level at an instant, in units of `law`.

    `busy_since_us` is the instant at which the level last left 0 (`begun_us`), and `given_back` what was
    returned since then: both are there so that a late refund cannot buy a second burst.
    """

    level: int
    at_us: int
    busy_since_us: int
    given_back: int
    law: Level


def drained(level: int, p: int, elapsed_us: int) -> int:
    """The level after `elapsed_us` during which `p` units a microsecond drained; never below 0.

    The time is compared before it is multiplied, so that no product exceeds level + p.
    """
    if p == 0 or level == 0:
        return level
    return max(0, level - p * elapsed_us) if elapsed_us < div_ceil(level, p) else 0


@dataclass(frozen=True, slots=True)
class Level:
    """Bucket and meter: admitted work runs at once, or after `wait_us` for a caller with patience.

    `room` is the capacity in units, `q` units make a token, `p` units drain in a microsecond.
    """

    room: int
    q: int
    p: int

    @property
    def capacity(self) -> int:
        """The most that may pass at one instant, in thousandths."""
        return self.room // self.grain

    @property
    def grain(self) -> int:
        """Units in a thousandth of a token."""
        return self.q // MILLI

    @property
    def patience_us_most(self) -> int:
        """The longest patience that the integers have room for, in microseconds."""
        return (EXACT - 1 - 2 * self.room) // self.p if self.p else 0

    def advance(self, state: LevelState | None, now_us: int) -> LevelState:
        """Let time drain the level. A step back of the clock drains nothing; a long one moves `at` back."""
        if state is None:
            return LevelState(0, now_us, now_us - 1, 0, self)
        level, at_us, busy_since_us, given_back, _ = state
        if level == 0:  # as if never seen: docs/decisions/0010
            return LevelState(0, now_us, busy_since_us, 0, self)
        if now_us >= at_us:
            level = drained(level, self.p, now_us - at_us)
            return LevelState(level, now_us, busy_since_us, given_back if level else 0, self)
        if clock(at_us, now_us) == at_us:
            return LevelState(level, at_us, busy_since_us, given_back, self)
        # Moved back: what was taken before can no longer be refunded.
        return LevelState(level, now_us, busy_since_us + 1, 0, self)

    def fits(self, state: LevelState, cost: int, patience_us: int | None = None) -> bool:
        """Whether level + cost <= capacity, plus what drains while a patient caller waits (None: none)."""
        room = self.room
        if patience_us and cost <= self.capacity:
            room += self.p * min(patience_us, self.patience_us_most)
        return state.level + cost * self.grain <= room

    def spend(self, state: LevelState, cost: int) -> LevelState:
        """Raise the level by the cost; one that was 0 begins a new busy period. Cost 0 changes nothing."""
        level, at_us, busy_since_us, given_back, law = state
        if level == 0:
            busy_since_us, given_back = begun_us(at_us, busy_since_us), 0
        return LevelState(level + cost * self.grain, at_us, busy_since_us, given_back, law)

    def overdraw(self, state: LevelState, cost: int, debt: int) -> LevelState:
        """Raise the level by the cost, at most to `debt` above the capacity, and never lower it."""
        after = self.spend(state, cost)
        most = max(state.level, min(self.room + debt * self.grain, EXACT - 1))
        return after._replace(level=min(after.level, most))

    def is_fresh(self, state: LevelState) -> bool:
        """Whether nothing is left to drain."""
        return state.level == 0

    def used(self, state: LevelState) -> int:
        """The level in thousandths, rounded up."""
        return div_ceil(state.level, self.grain)

    def left(self, state: LevelState) -> int:
        """Capacity minus level in units; negative while in debt."""
        return self.room - state.level

    def wait_us(self, state: LevelState, cost: int, now_us: int) -> int:
        """How long until the work just admitted is covered: 0 unless patience made room for it."""
        return later(self._drains_in_us(state.level - self.room), state.at_us, now_us)

    def retry_after_us(self, state: LevelState, cost: int, now_us: int) -> int | None:
        """The wait until the cost fits, rounded up to a microsecond; None if it never does."""
        excess = state.level + cost * self.grain - self.room
        if excess > 0 and (cost > self.capacity or self.p == 0):
            return None
        return later(self._drains_in_us(excess), state.at_us, now_us)

    def reset_after_us(self, state: LevelState, now_us: int) -> int | None:
        """How long until the level is 0; None if it does not drain."""
        if state.level and self.p == 0:
            return None
        return later(self._drains_in_us(state.level), state.at_us, now_us)

    def receipt(self, state: LevelState, cost: int) -> Receipt:
        """The level after the admission, its busy period, and what had been given back in it."""
        return Receipt(cost, state.at_us, state.busy_since_us, state.level, state.given_back)

    def give_back(
        self, state: LevelState, receipt: Receipt, units: int, *, own: int, full: bool
    ) -> tuple[int, LevelState]:
        """Return at most what of the decision's own level has not drained since (docs/decisions/0011)."""
        if state.level == 0 or state.busy_since_us != receipt.since_us:
            return 0, state
        returned = min(units, state.level)
        if not full:
            by_others = state.given_back - receipt.given_back - own
            undrained = max(receipt.cost * self.grain, receipt.mark - by_others)
            elapsed_us = max(0, state.at_us - receipt.at_us)
            returned = min(returned, max(0, drained(undrained, self.p, elapsed_us) - own))
        level, given_back = state.level - returned, state.given_back + returned
        return returned, state._replace(level=level, given_back=given_back)

    def holding(self, used: int, now_us: int, since_us: int) -> LevelState:
        """A level of `used` thousandths, at most what the integers hold, in the busy period `since_us`.

        That most is twice the capacity or more, so a debt that is cut to it still refuses all.
        """
        return LevelState(min(used * self.grain, EXACT - 1), now_us, since_us, 0, self)

    def _drains_in_us(self, units: int) -> int:
        return div_ceil(units, self.p) if units > 0 and self.p else 0


@dataclass(frozen=True, slots=True)
class Line(Level):
    """The leaky queue: admitted work waits until the work ahead of it has drained.

    `own` is 1 where a job's own length counts too ("interval": the first leaves one interval after
    it came) and 0 where only the work ahead does. The first `free` units cost no wait, as with nginx
    `delay=`. The verdict is the level's own; patience adds no room, for the line is finite.
    """

    own: int
    free: int

    def fits(self, state: LevelState, cost: int, patience_us: int | None = None) -> bool:
        """Whether there is a place, and its wait is at most `patience_us` (None: any)."""
        if state.level + cost * self.grain > self.room:
            return False
        return patience_us is None or self._hold_us(state.level, cost) <= patience_us

    def wait_us(self, state: LevelState, cost: int, now_us: int) -> int:
        """How long the work just admitted is held: until what counts ahead of it has drained."""
        return later(self._hold_us(state.level - cost * self.grain, cost), state.at_us, now_us)

    def _hold_us(self, ahead: int, cost: int) -> int:
        return self._drains_in_us(ahead + self.own * cost * self.grain - self.free)
