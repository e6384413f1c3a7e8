"""The embedded store: state in this process, exact, bounded, with nothing to set up.

Threads: every decision is made under one lock, so nothing here rests on how bytecode is interleaved (the
compiled path of `hot.py` does, and says why it may). A signal handler or finalizer that asks while its
own thread is deciding gets a StoreError, for waiting would be for ever. The lock is renewed in a forked
child, where nobody could release it. No thread runs in the background.

Room: at most `max_keys` keys are kept. Each new key looks at the two that were looked at longest ago and
forgets those that have become fresh, which loses nothing, so the table stays near twice the keys that
still matter. When it is full of live ones, "refuse" (the default) refuses new keys, which keeps every
bound, and "forget" drops the one nearest to fresh among a few, which grants that key what it had spent.
Both are counted.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from tidegate.clock import Clock, SystemClock, ticks
from tidegate.core.compose import Adjustment, adjust, decide, must_write
from tidegate.core.keys import Key
from tidegate.core.level import Level, LevelState
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError

WhenFull: TypeAlias = Literal["refuse", "forget"]

LOOKED_AT_EACH_TIME = 2
LOOKED_AT_WHEN_FULL = 8
FULL_RETRY_US = 1_000_000
"""What a new key is told when there is no room: unlike other hints, a guess."""

FORKED = -1
_FORKED_SAYS = (
    "this limiter keeps its state in the process and is used in a forked one, which has its own budget: "
    "N processes admit up to N times as much. Share a store between them, or make a limiter in each"
)

R = TypeVar("R")

NEVER = float("inf")


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
        self._refused_for_room = 0
        self._forgotten_alive = 0
        _stores.add(self)

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""
        return self._alone(self._decide, charges, now_us, take)

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
        new = [o.mode for o, state in zip(outcomes, stored, strict=True) if o.charged and state is None]
        if new and not self._has_room(len(new), charges, now_us):
            enforced = new.count("enforce")
            if enforced and not self._has_room(enforced, charges, now_us):
                self._refused_for_room += 1
                return self._without_room(charges, stored, now_us)
            outcomes = _without_shadows(outcomes, stored)
        for table, outcome, state in zip(tables, outcomes, stored, strict=True):
            if must_write(outcome, state):
                table.keep(outcome.charge.key, outcome.state, now_us)
        return outcomes

    def _adjust(self, adjustments: Sequence[Adjustment], now_us: int | None) -> list[int]:
        if now_us is None:
            now_us = self.clock.now_us()
        changes = []
        for adjustment in adjustments:
            table, key = self.table(adjustment.charge.rule), adjustment.charge.key
            stored = table.state(key)
            units, state = adjust(adjustment, stored, now_us)
            if units:  # what is owed is kept even where there is no room: nothing is forgiven
                table.keep(key, state, now_us)
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

    def _has_room(self, count: int, charges: Sequence[Charge], now_us: int) -> bool:
        """Whether `count` new keys may be kept, after forgetting others than those of the request itself."""
        over = self._keys() + count - self.max_keys
        spared = {charge.rule: charge.key for charge in charges}
        while over > 0:
            rule, largest = max(self._tables.items(), key=lambda named: len(named[1].cells))
            drop_alive = self.when_full == "forget"
            forgotten, alive = largest.give_way(now_us, spared.get(rule), drop_alive=drop_alive)
            self._forgotten_alive += alive
            over -= forgotten
            if not forgotten:
                return False
        return True

    def _without_room(self, charges: Sequence[Charge], stored: Sequence[Any], now_us: int) -> list[Outcome]:
        """The refusal of a request whose new keys have no room; its hint is a guess."""
        outcomes = decide(charges, stored, now_us, take=False)
        return [
            o._replace(allowed=False, delay_us=FULL_RETRY_US) if state is None and o.mode == "enforce" else o
            for o, state in zip(outcomes, stored, strict=True)
        ]

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


class LevelCell:
    """A LevelState in place, so that the compiled path replaces numbers and creates nothing.

    Its instants are kept in nanoseconds of the clock's ticks, whole microseconds of the clock each.
    """

    __slots__ = ("at_ns", "busy_since_ns", "given_back", "law", "level")

    def __init__(self) -> None:
        self.law: Level | None = None
        self.level = self.at_ns = self.busy_since_ns = self.given_back = 0

    def put(self, state: LevelState, offset_ns: int) -> None:
        """Hold this state."""
        self.level, at_us, busy_since_us, self.given_back, self.law = state
        self.at_ns, self.busy_since_ns = at_us * 1_000 - offset_ns, busy_since_us * 1_000 - offset_ns

    def state(self, offset_ns: int) -> LevelState:
        """The state that is held."""
        assert self.law is not None
        at_us, busy_since_us = (self.at_ns + offset_ns) // 1_000, (self.busy_since_ns + offset_ns) // 1_000
        return LevelState(self.level, at_us, busy_since_us, self.given_back, self.law)


class Held:
    """Which thread is inside the slow path: None if none is, FORKED in a child that has not asked yet."""

    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by: int | None = None


class Table:
    """The states of one rule, and the order in which they are looked at. Levels are held in cells."""

    __slots__ = ("cells", "hand", "offset_ns")

    def __init__(self, offset_ns: int) -> None:
        self.offset_ns = offset_ns
        self.cells: dict[Key, Any] = {}
        self.hand: deque[Key] = deque()

    def state(self, key: Key) -> Any:
        """The stored state, None if there is none."""
        cell = self.cells.get(key)
        return cell.state(self.offset_ns) if type(cell) is LevelCell else cell

    def keep(self, key: Key, state: Any, now_us: int) -> None:
        """Store a state. For a new key, look at the keys that were looked at longest ago."""
        is_new = key not in self.cells
        self._put(key, state)
        if is_new:
            for _ in range(min(len(self.hand), LOOKED_AT_EACH_TIME)):
                looked_at = self.hand.popleft()
                if self._fresh_in_us(looked_at, now_us) == 0:
                    del self.cells[looked_at]
                else:
                    self.hand.append(looked_at)
            self.hand.append(key)

    def freshen(self, key: Key) -> None:
        """Make a key fresh; it is forgotten when it is looked at."""
        state = self.state(key)
        if state is not None:
            self._put(key, state.law.advance(None, state.at_us))

    def give_way(self, now_us: int, spared: Key | None, *, drop_alive: bool) -> tuple[int, int]:
        """Look at a few keys and forget the fresh ones; if none is, and it is allowed, the nearest to fresh.

        One key may be spared. Returns how many were forgotten, and how many of them alive.
        """
        looked_at = [self.hand.popleft() for _ in range(min(len(self.hand), LOOKED_AT_WHEN_FULL))]
        fresh_in_us = {key: self._fresh_in_us(key, now_us) for key in looked_at if key != spared}
        gone = [key for key, us in fresh_in_us.items() if us == 0]
        alive = 0
        if not gone and drop_alive and fresh_in_us:
            gone, alive = [min(fresh_in_us, key=fresh_in_us.__getitem__)], 1
        for key in gone:
            del self.cells[key]
        self.hand.extend(key for key in looked_at if key in self.cells)
        return len(gone), alive

    def _put(self, key: Key, state: Any) -> None:
        cell = self.cells.get(key)
        if not isinstance(state, LevelState):
            self.cells[key] = state
            return
        if type(cell) is not LevelCell:
            cell = self.cells[key] = LevelCell()
        cell.put(state, self.offset_ns)

    def _fresh_in_us(self, key: Key, now_us: int) -> float:
        state = self.state(key)
        us = state.law.reset_after_us(state.law.advance(state, now_us), now_us)
        return NEVER if us is None else us


def _without_shadows(outcomes: Sequence[Outcome], stored: Sequence[Any]) -> list[Outcome]:
    """The same, but nothing is kept for the new keys of shadow rules, for which there is no room."""
    return [
        o._replace(charged=False) if state is None and o.mode == "shadow" else o
        for o, state in zip(outcomes, stored, strict=True)
    ]


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()


def _renew_locks() -> None:
    for store in list(_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
