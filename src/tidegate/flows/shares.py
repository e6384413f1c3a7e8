"""This node's own shares of limits with a reserve: buckets that are spent always, and before the store's.

A share is the bucket (B_i, r_i) of `core/outage.py` for one key, decided by the same law as any other. It
begins EMPTY when the process first takes it, for nobody knows what was spent of it before a restart, and
fills at r_i. A key that is not held has spent nothing since, so it is as full as that time allows: a key
that has become fresh can be forgotten, which loses nothing and grants nothing. A share of another division
of the limit begins empty as well, for others may have spent meanwhile what it owns from now on. What is held
is held for one beginning: of one that is over it is of no more use, and goes once it is fresh.

At most `rows_most` keys are held. Each new one looks at the two that were looked at longest ago and
forgets those that are fresh; when there is no room, a new key has no share and is left to the store.
The clock is the process's own, and `lock` keeps its threads apart; both come from outside. Who comes in
from a signal handler while its own thread is deciding here has no share either.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidegate.core.compose import Adjustment, adjust, current, must_write
from tidegate.core.keys import Key
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge, Outcome

LOOKED_AT_EACH_TIME = 2
LOOKED_AT_WHEN_FULL = 8
BEGINNINGS_MOST = 10_000

R = TypeVar("R")


class Share(NamedTuple):
    """Which share a charge is asked of: the one of the node `node`."""

    node: int
    charge: Charge


_Row: TypeAlias = tuple[str, int, int, Key]
"""A rule, a node, when the share began, and a key."""


class _Beginning(NamedTuple):
    """When a share began, and of which division of the limit it is."""

    at_us: int
    division: Hashable


class Shares:
    """The shares of one process, of any number of rules. `now_us` and `lock` come from outside."""

    def __init__(
        self, now_us: Callable[[], int], lock: AbstractContextManager[object], rows_most: int = 100_000
    ) -> None:
        self.now_us = now_us
        self._lock = lock
        self._rows_most = rows_most
        self._rows: OrderedDict[_Row, Any] = OrderedDict()
        self._begun: dict[tuple[str, int], _Beginning] = {}
        self._last_begun_us: int | None = None
        self._busy = False

    def __len__(self) -> int:
        return len(self._rows)

    def begin(self, rule: str, node: int, division: Hashable = None) -> None:
        """Own the share from now on, empty; one of the same division that is owned already stays as it is."""
        with self._lock:  # not alone: whoever is deciding meanwhile in this thread goes on with the old one
            begun = self._begun.get((rule, node))
            if begun is not None and begun.division != division:
                self.end(rule, node)
            self._beginning_us(rule, node, self.now_us(), division)

    def end(self, rule: str, node: int) -> None:
        """Own the share no more; should it come back, it begins empty."""
        with self._lock:
            self._begun.pop((rule, node), None)

    def ask(self, shares: Sequence[Share], *, take: bool) -> list[Outcome | None]:
        """What each share says, by itself; None where there is no share to ask.

        What fits is taken at once, unless only asked about; what does not is left as it was.
        """
        outcomes = self._alone(self._ask, shares, take)
        return [None] * len(shares) if outcomes is None else outcomes

    def adjust(self, node: int, adjustment: Adjustment) -> int:
        """Give back or charge on top; the units by which the level went down, negative if it went up."""
        return self._alone(self._adjust, node, adjustment) or 0

    def forget(self, rule: str, node: int, key: Key, limit: Limit) -> None:
        """Make a key's share fresh: full, which is at most this node's part of the limit."""
        self._alone(self._forget, rule, node, key, limit)

    def restart(self) -> None:
        """Hold nothing, and let all shares begin anew: this process is another than it was."""
        self._busy = False
        self._rows.clear()
        begun, self._begun = self._begun, {}
        now_us = self.now_us()
        for (rule, node), beginning in begun.items():
            self._beginning_us(rule, node, now_us, beginning.division)

    def _ask(self, shares: Sequence[Share], take: bool) -> list[Outcome | None]:
        now_us = self.now_us()
        return [self._asked(share.node, share.charge, take, now_us) for share in shares]

    def _asked(self, node: int, charge: Charge, take: bool, now_us: int) -> Outcome | None:
        law, row = charge.limit.law, self._row(charge.rule, node, charge.key, now_us)
        state = self._state(row, charge, now_us)
        fits = law.fits(state, charge.cost, charge.patience_us)
        charged = take and fits and charge.cost > 0
        if charged and row not in self._rows and not self._has_room(now_us):
            return None
        outcome = Outcome(charge, fits, charged, law.spend(state, charge.cost) if charged else state, now_us)
        if take and must_write(outcome, self._rows.get(row)):
            self._rows[row] = outcome.state
        return outcome

    def _adjust(self, node: int, adjustment: Adjustment) -> int:
        charge, now_us = adjustment.charge, self.now_us()
        row = self._row(charge.rule, node, charge.key, now_us)
        stored = self._rows.get(row)
        if stored is None and adjustment.units > 0:  # a debt: it is kept also above the bound
            stored = self._state(row, charge, now_us)
        units, state = adjust(adjustment, stored, now_us)
        if units:
            self._rows[row] = state
        return units

    def _forget(self, rule: str, node: int, key: Key, limit: Limit) -> None:
        now_us = self.now_us()
        row, charge = self._row(rule, node, key, now_us), Charge(rule, key, limit, 0, share=True)
        state = self._state(row, charge, now_us)
        if row in self._rows or self._has_room(now_us):
            self._rows[row] = limit.law.holding(0, state.at_us, state.busy_since_us)

    def _row(self, rule: str, node: int, key: Key, now_us: int) -> _Row:
        return rule, node, self._beginning_us(rule, node, now_us), key

    def _state(self, row: _Row, charge: Charge, now_us: int) -> Any:
        """The state of a share now. One that is not held was spent whole when it began."""
        stored = self._rows.get(row)
        if stored is None:
            since_us, law = row[2], charge.limit.law
            stored = law.holding(law.capacity, since_us, since_us)
        return current(charge, stored, now_us)

    def _beginning_us(self, rule: str, node: int, now_us: int, division: Hashable = None) -> int:
        """When the share began; each began at an instant of its own, so that no two have one busy period."""
        begun = self._begun.get((rule, node))
        if begun is None:
            if len(self._begun) >= BEGINNINGS_MOST:
                self._begun.clear()  # those that are asked again begin empty
            last_us = self._last_begun_us
            at_us = self._last_begun_us = now_us if last_us is None else max(now_us, last_us + 1)
            begun = self._begun[rule, node] = _Beginning(at_us, division)
        return begun.at_us

    def _has_room(self, now_us: int) -> bool:
        """Whether one more key may be held, after forgetting some that are fresh."""
        self._look(LOOKED_AT_EACH_TIME, now_us)
        if len(self._rows) >= self._rows_most:
            self._look(LOOKED_AT_WHEN_FULL, now_us)
        return len(self._rows) < self._rows_most

    def _look(self, count: int, now_us: int) -> None:
        for _ in range(min(count, len(self._rows))):
            row, state = next(iter(self._rows.items()))
            if state.law.is_fresh(state.law.advance(state, now_us)):
                del self._rows[row]
            else:
                self._rows.move_to_end(row)

    def _alone(self, work: Callable[..., R], *given: Any) -> R | None:
        """Do the work under the lock; None if this very thread is already doing some."""
        with self._lock:
            if self._busy:
                return None
            self._busy = True
            try:
                return work(*given)
            finally:
                self._busy = False
