"""The embedded store: state in this process, exact, bounded, with nothing to set up.

Threads: every decision is made under one lock, so nothing here rests on how bytecode is interleaved (the
compiled path of `hot.py` does, and says why it may). A signal handler or finalizer that asks while its
own thread is deciding gets a StoreError, for waiting would be for ever. The lock is renewed in a forked
child, where nobody could release it. No thread runs in the background.

Room: at most `max_keys` keys are kept, over all rules. Each new key looks at the two of its rule that
were looked at longest ago and forgets those that have become fresh, which loses nothing, so a table stays
near twice the keys that still matter. When there is no room, a new key looks at a few in the largest
table and in some others, by turns; if all of these are live, "refuse" (the default) refuses it, which
keeps every bound, and "forget" drops the one nearest to fresh among a few of the largest table, which
grants that key what it had spent: whoever can send many new keys can then reset others. Both are
counted (docs/decisions/0008). The key of a rule that is only shadowed takes part where there is room,
and gives way to enforced ones, live or not. A debt is always kept, if need be above the bound.

What interrupts a request from outside (Ctrl-C, a handler that raises) may leave some of its rules charged
and others not: never too little is counted.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from tidegate.clock import Clock, SystemClock, ticks
from tidegate.core.carry import is_change
from tidegate.core.compose import Adjustment, adjust, decide, must_write
from tidegate.core.keys import Key
from tidegate.core.level import Level, LevelState
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError
from tidegate.stores.table import Table

WhenFull: TypeAlias = Literal["refuse", "forget"]

LOOKED_AT_EACH_TIME = 2
LOOKED_AT_WHEN_FULL = 8
OTHER_TABLES_LOOKED_AT = 4
FULL_RETRY_US = 1_000_000
"""What a new key is told when there is no room: unlike other hints, a guess."""

FORKED = -1
_FORKED_SAYS = (
    "this limiter keeps its state in the process and is used in a forked one, which has its own budget: "
    "N processes admit up to N times as much. Share a store between them, or make a limiter in each"
)

R = TypeVar("R")


class MemoryStats(NamedTuple):
    """What a store has been through. `keys` are held now; the others only grow."""

    keys: int
    max_keys: int
    refused_for_room: int
    forgotten_alive: int


class MemoryStore:
    """State in this process, for any number of threads and event loops.

    Several processes do not share it: N workers with a limit each admit up to N times as much. A forked
    child keeps a copy of the state and warns about it at its first use; pickling is an error.

    Args:
        max_keys: how many keys are kept at most, over all rules.
        when_full: what happens to a new key when all the keys kept are live: "refuse" or "forget".
        clock: another source of instants, for tests.
    """

    name = "memory"

    def __init__(
        self, max_keys: int = 1_000_000, when_full: WhenFull = "refuse", *, clock: Clock | None = None
    ) -> None:
        if not isinstance(max_keys, int) or isinstance(max_keys, bool) or max_keys < 1:
            raise StoreError(f"max_keys is {max_keys!r}; write a whole number of keys, at least 1")
        if when_full not in get_args(WhenFull):
            raise StoreError(f"when_full is {when_full!r}; write 'refuse' or 'forget'")
        self.max_keys = max_keys
        self.when_full: WhenFull = when_full
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.ticks_ns, self.offset_ns = ticks(self.clock)
        self.lock = threading.Lock()
        self.held = Held()
        self._tables: dict[str, Table] = {}
        self._turn = 0
        self._refused_for_room = 0
        self._forgotten_alive = 0
        _stores.add(self)

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""
        return self._alone(self._decide, charges, now_us, take)

    def begin(self, rule: str, key: Key, law: Level, units: int) -> int | None:
        """Charge a level key that is not held yet; the instant in nanoseconds of the ticks.

        None, and nothing done, if it is held already, if the cost does not fit, or if there is no room
        without a search: then `decide` has to.
        """
        return self._alone(self._begin, rule, key, law, units)

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """Give back or charge on top; the units by which each level went down, negative if it went up."""
        return self._alone(self._adjust, adjustments, now_us)

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""
        self._alone(self._forget, keys)

    def close(self) -> None:
        """Nothing was opened; the state stays."""

    def stats(self) -> MemoryStats:
        """How many keys are held, and what was done for lack of room."""
        return self._alone(self._stats)

    def table(self, rule: str) -> Table:
        """The states of one rule; to be read and changed under `lock`."""
        table = self._tables.get(rule)
        if table is None:
            table = self._tables.setdefault(rule, Table(self.offset_ns))
        return table

    def _decide(self, charges: Sequence[Charge], now_us: int | None, take: bool) -> list[Outcome]:
        if now_us is None:
            now_us = self.clock.now_us()
        tables = [self.table(charge.rule) for charge in charges]
        stored = [table.state(charge.key) for table, charge in zip(tables, charges, strict=True)]
        outcomes = decide(charges, stored, now_us, take=take)
        if None in stored:
            outcomes = self._as_room_allows(charges, stored, outcomes, now_us, take)
        for table, outcome, state in zip(tables, outcomes, stored, strict=True):
            if take and must_write(outcome, state):
                if state is None:
                    table.is_shadow = outcome.mode == "shadow"
                    table.look(LOOKED_AT_EACH_TIME, now_us)
                table.keep(outcome.charge.key, outcome.state)
            elif state is not None:
                law = outcome.limit.law  # this very one is what the compiled path looks for
                if state.law is not law and not is_change(state.law, law):
                    table.keep(outcome.charge.key, state._replace(law=law))
        return outcomes

    def _begin(self, rule: str, key: Key, law: Level, units: int) -> int | None:
        table = self.table(rule)
        if key in table.cells or units > law.room or self._keys() >= self.max_keys:
            return None
        now_us = self.clock.now_us()
        table.look(LOOKED_AT_EACH_TIME, now_us)
        table.keep(key, LevelState(units, now_us, now_us, 0, law))
        return now_us * 1_000 - self.offset_ns

    def _adjust(self, adjustments: Sequence[Adjustment], now_us: int | None) -> list[int]:
        if now_us is None:
            now_us = self.clock.now_us()
        changes = []
        for adjustment in adjustments:
            table, key = self.table(adjustment.charge.rule), adjustment.charge.key
            stored = table.state(key)
            units, state = adjust(adjustment, stored, now_us)
            if units:
                if stored is None:  # a debt: kept even where there is no room, for nothing is forgiven
                    self._has_room([adjustment.charge], 1, now_us, take=True)
                table.keep(key, state)
            changes.append(units)
        return changes

    def _forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        for rule, key in keys:
            self.table(rule).freshen(key)

    def _stats(self) -> MemoryStats:
        return MemoryStats(self._keys(), self.max_keys, self._refused_for_room, self._forgotten_alive)

    def _alone(self, work: Callable[..., R], *given: Any) -> R:
        """Do the work under the lock; StoreError if this very thread is already doing some."""
        thread = threading.get_ident()
        if self.held.by == FORKED:
            self.held.by = None
            warnings.warn(_FORKED_SAYS, RuntimeWarning, stacklevel=4)
        if self.held.by == thread:
            raise StoreError("the limiter was asked from a signal handler or finalizer while it was deciding")
        with self.lock:
            self.held.by = thread
            try:
                return work(*given)
            finally:
                self.held.by = None

    def _keys(self) -> int:
        return sum(len(table.cells) for table in self._tables.values())

    def _as_room_allows(
        self,
        charges: Sequence[Charge],
        stored: Sequence[Any],
        outcomes: list[Outcome],
        now_us: int,
        take: bool,
    ) -> list[Outcome]:
        """The outcomes as they are, or without the new keys that there is no room for.

        A request is refused if an enforced rule's key has no room; its hint is a guess.
        """
        if not all(outcome.allowed for outcome in outcomes if outcome.mode == "enforce"):
            return outcomes  # refused anyway
        new = [
            outcome.mode
            for outcome, state in zip(outcomes, stored, strict=True)
            if state is None and outcome.allowed and outcome.charge.cost
        ]
        enforced = new.count("enforce")
        if not self._has_room(charges, enforced, now_us, take):
            self._refused_for_room += take
            asked = decide(charges, stored, now_us, take=False)
            return [
                o._replace(allowed=False, delay_us=FULL_RETRY_US)
                if state is None and o.mode == "enforce"
                else o
                for o, state in zip(asked, stored, strict=True)
            ]
        if len(new) > enforced and self._keys() + len(new) > self.max_keys:
            self._refused_for_room += take
            return [  # a shadow rule's key is kept where there is room, and never makes any
                o._replace(charged=False) if state is None and o.mode == "shadow" else o
                for o, state in zip(outcomes, stored, strict=True)
            ]
        return outcomes

    def _has_room(self, charges: Sequence[Charge], count: int, now_us: int, take: bool) -> bool:
        """Whether `count` new keys may be kept, after forgetting others than those of these charges."""
        over = self._keys() + count - self.max_keys
        if over <= 0 or not count:
            return True
        shadows = [rule for rule, table in self._tables.items() if table.is_shadow]
        could_give = sum(len(self._tables[rule].cells) for rule in shadows)
        if not take and (self.when_full == "forget" or could_give >= over):
            return True
        own = {charge.rule: charge.key for charge in charges}
        largest_first = sorted(self._tables, key=lambda rule: -len(self._tables[rule].cells))
        self._turn += 1
        turned = self._turn % len(largest_first)
        others = [*largest_first[turned:], *largest_first[:turned]][:OTHER_TABLES_LOOKED_AT]
        for rule in (largest_first[0], *others):
            table, spare = self._tables[rule], own.get(rule)
            while over > 0 and (forgotten := table.look(LOOKED_AT_WHEN_FULL, now_us, spare)):
                over -= forgotten
        giving_way = largest_first if self.when_full == "forget" else ()
        return self._drop(over, [*shadows, *giving_way], own, now_us) <= 0

    def _drop(self, over: int, rules: Sequence[str], own: dict[str, Key], now_us: int) -> int:
        """Drop live keys of these rules, in order, until none is over; how many are over still."""
        for rule in rules:
            while over > 0 and self._tables[rule].drop_nearest(LOOKED_AT_WHEN_FULL, now_us, own.get(rule)):
                self._forgotten_alive += 1
                over -= 1
        return over

    def _after_fork(self) -> None:
        # As the standard library does for its own locks: nobody in this process could release it.
        self.held.by = FORKED
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the type stubs

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a memory store cannot be pickled or copied: a copy would be a second budget. "
            "Make the limiter in each process, or share a store between them"
        )

    def __repr__(self) -> str:
        return f"MemoryStore(max_keys={self.max_keys}, when_full={self.when_full!r})"


class Held:
    """Which thread is inside the slow path: None if none is, FORKED in a child that has not asked yet."""

    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by: int | None = None


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _renew_locks() -> None:
    for store in list(_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
