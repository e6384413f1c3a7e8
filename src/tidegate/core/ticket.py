"""Tickets: refused callers are told to come back one after another, not all at once.

A key's exact `retry_after` is the same for all who are refused together, and whoever obeys it obeys
it to the second, in a herd. So every refused caller gets a later place of its own in a line that is
kept beside the level and never in it:

    place = max(end of the line, now + need);  end of the line = place + stride;  hint = place - now

The stride is the time in which the cost is earned again. Who asks again before its place has come
keeps it; who asks at or after it and is refused gets a new, later one, with twice the stride each
time. It is a hint and no reservation: a caller that comes early is served if tokens are there. Obedient
callers need about two tries, as long as the line is no longer than `HINT_US_MOST`; whoever stands behind
that is told that time, and asks for a place then.

Two lines are kept for each key: one to the microsecond, and one for headers in whole seconds, whose
stride is at least cost / capacity of a second, since a whole second releases all its places at once.
The desk lives in one process, forgets the oldest first, and is not needed for any verdict.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeVar

from tidegate.core.limits import Limit
from tidegate.units import US_PER_S, div_ceil

HINT_US_MOST = 60 * US_PER_S
"""No hint is later than this, unless the exact wait is: several client libraries ignore longer ones."""

DOUBLINGS_MOST = 4

V = TypeVar("V")


class Place(NamedTuple):
    """A caller's place in a line, and how often it has obeyed one in vain.

    Where the line is longer than `HINT_US_MOST` the place is only the time to ask for a real one.
    """

    at_us: int
    in_vain: int
    is_real: bool


class TicketDesk:
    """The lines of one process: at most `lines_most` keys and `places_most` callers are remembered.

    `lock` guards the lines where several threads share a desk.
    """

    def __init__(
        self,
        lines_most: int = 10_000,
        places_most: int = 100_000,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._ends: dict[Hashable, tuple[int, int]] = {}
        self._places: dict[Hashable, tuple[Place, Place]] = {}
        self._lines_most = lines_most
        self._places_most = places_most
        self._lock = lock if lock is not None else nullcontext()

    def __len__(self) -> int:
        return len(self._ends) + len(self._places)

    def hints_us(
        self, limit: Limit, line: Hashable, caller: Hashable, cost: int, need_us: int, now_us: int
    ) -> tuple[int, int]:
        """How long a caller refused at `now_us` should stay away: exactly, and for a header in whole seconds.

        `need_us` is its exact retry_after; no hint is earlier. `line` names the rule and key, `cost` is in
        thousandths. Without a `caller` every refusal counts as another one's. Nobody knows which of the
        two a caller goes by, so each is kept until its own time.
        """
        stride_us = _earned_in_us(limit, cost)
        stride_whole_us = max(stride_us, div_ceil(cost * US_PER_S, limit.law.capacity))
        with self._lock:
            end_us, end_whole_us = self._ends.get(line, (0, 0))
            exact, whole = (
                self._places.get((line, caller), (None, None)) if caller is not None else (None, None)
            )
            exact, end_us = _placed(exact, end_us, stride_us, need_us, now_us)
            whole, end_whole_us = _placed(whole, end_whole_us, stride_whole_us, need_us, now_us)
            _remember(self._ends, line, (end_us, end_whole_us), self._lines_most)
            if caller is not None:
                _remember(self._places, (line, caller), (exact, whole), self._places_most)
        return max(need_us, exact.at_us - now_us), max(need_us, whole.at_us - now_us)


def _placed(last: Place | None, end_us: int, stride_us: int, need_us: int, now_us: int) -> tuple[Place, int]:
    """A caller's place, the last one if it has not come yet, and the end of its line."""
    if last is not None and now_us < last.at_us <= now_us + need_us + HINT_US_MOST:
        return last, end_us
    obeyed = last is not None and last.is_real and 0 <= now_us - last.at_us <= HINT_US_MOST
    in_vain = last.in_vain + 1 if last is not None and obeyed else 0
    last_us = now_us + max(need_us, HINT_US_MOST)
    at_us = min(max(end_us, now_us + need_us), last_us)
    return Place(at_us, in_vain, end_us <= last_us), at_us + (stride_us << min(in_vain, DOUBLINGS_MOST))


def _earned_in_us(limit: Limit, cost: int) -> int:
    """The time in which a cost in thousandths is earned again, at the rate or at quota per window."""
    if limit.quota_window_us is None:
        return 0
    return div_ceil(cost * limit.quota_window_us, limit.law.capacity)


def _remember(table: dict[Hashable, V], key: Hashable, value: V, most: int) -> None:
    """Put it in as the newest; above `most` entries the oldest is forgotten."""
    table.pop(key, None)
    table[key] = value
    if len(table) > most:
        del table[next(iter(table))]
