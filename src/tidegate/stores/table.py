"""How the embedded store keeps the states of one rule: a cell for each key, and a hand that goes round.

Levels are held in place, as numbers that the compiled path replaces. The hand looks at the keys that
were looked at longest ago and forgets the fresh ones, which loses nothing.

Whoever is interrupted here (Ctrl-C, a signal handler that raises) leaves a table that is whole: a key
enters the hand before it enters the cells and leaves the cells before it leaves the hand, so at worst
the hand knows a key that is gone, and drops it when it comes to it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tidegate.core.keys import Key
from tidegate.core.level import Level, LevelState

NEVER = float("inf")


class LevelCell:
    """A LevelState in place, so that the compiled path replaces numbers and creates nothing.

    Its instants are kept in nanoseconds of the clock's ticks, whole microseconds of the clock each.
    """

    __slots__ = ("at_ns", "busy_since_ns", "given_back", "law", "level")

    law: Level | None
    """None once the key was forgotten: nobody's cell, should a compiled path still have it in its hand."""

    def __init__(self, state: LevelState, offset_ns: int) -> None:
        self.put(state, offset_ns)

    def put(self, state: LevelState, offset_ns: int) -> None:
        """Hold this state. Nothing is called in here, so no other thread and no signal sees half of it."""
        self.level, at_us, busy_since_us, self.given_back, self.law = state
        self.at_ns = at_ns = at_us * 1_000 - offset_ns
        self.busy_since_ns = at_ns if busy_since_us == at_us else busy_since_us * 1_000 - offset_ns

    def state(self, offset_ns: int) -> LevelState:
        """The state that is held."""
        assert self.law is not None
        at_us = (self.at_ns + offset_ns) // 1_000
        busy_since_us = (self.busy_since_ns + offset_ns) // 1_000
        # A named tuple made like this costs half of what its own constructor takes.
        return tuple.__new__(LevelState, (self.level, at_us, busy_since_us, self.given_back, self.law))


class Table:
    """The states of one rule, and the order in which they are looked at."""

    __slots__ = ("cells", "hand", "is_shadow", "offset_ns")

    def __init__(self, offset_ns: int) -> None:
        self.offset_ns = offset_ns
        self.is_shadow = False  # whether its rule only reports, so that its keys make way for enforced ones
        self.cells: dict[Key, Any] = {}
        self.hand: deque[Key] = deque()

    def state(self, key: Key) -> Any:
        """The stored state, None if there is none."""
        cell = self.cells.get(key)
        return cell.state(self.offset_ns) if type(cell) is LevelCell else cell

    def keep(self, key: Key, state: Any) -> None:
        """Store a state."""
        cell = self.cells.get(key)
        if type(cell) is LevelCell and type(state) is LevelState:
            cell.put(state, self.offset_ns)
            return
        kept = LevelCell(state, self.offset_ns) if type(state) is LevelState else state
        if cell is None:
            hand = self.hand
            hand += (key,)  # not `append`, after which an interruption may come: the key would enter twice
        self.cells[key] = kept
        if type(cell) is LevelCell:  # the limit has become one of another kind
            cell.law = None

    def freshen(self, key: Key) -> None:
        """Make a key fresh; it is forgotten when it is looked at."""
        state = self.state(key)
        if state is not None:
            self.keep(key, state.law.holding(0, state.at_us, state.busy_since_us))

    def look(self, count: int, now_us: int, spare: Key | None = None) -> int:
        """Look at so many keys and forget the fresh ones, `spare` aside; how many were forgotten."""
        cells, hand, forgotten = self.cells, self.hand, 0
        for _ in range(min(count, len(hand))):
            key = hand[0]
            if key in cells:
                if key == spare or not self._is_fresh(key, now_us):
                    hand.rotate(-1)
                    continue
                cell = cells[key]
                is_level = type(cell) is LevelCell
                if is_level:  # a compiled path may have it in hand. From here to `popleft` there is no call
                    cell.law = None
                del cells[key]
                forgotten += 1
            hand.popleft()
        return forgotten

    def drop_nearest(self, count: int, now_us: int, spare: Key | None = None) -> bool:
        """Forget the key that is nearest to fresh among the last ones looked at; whether there was one."""
        hand = self.hand
        behind = [-back for back in range(1, min(count, len(hand)) + 1) if hand[-back] != spare]
        if not behind:
            return False
        place = min(behind, key=lambda place: self.fresh_in_us(hand[place], now_us))
        cell = self.cells.get(hand[place])
        if type(cell) is LevelCell:
            cell.law = None
        if cell is not None:
            del self.cells[hand[place]]
        del hand[place]
        return True

    def _is_fresh(self, key: Key, now_us: int) -> bool:
        cell = self.cells[key]
        if type(cell) is not LevelCell or cell.law is None:
            return self.fresh_in_us(key, now_us) == 0
        assert cell.law is not None
        gone_us = (now_us * 1_000 - self.offset_ns - cell.at_ns) // 1_000
        return cell.level == 0 or cell.level <= cell.law.p * gone_us

    def fresh_in_us(self, key: Key, now_us: int) -> float:
        """How long until a key is fresh: 0 if it is or is gone, NEVER if never by itself."""
        state = self.state(key)
        if state is None:
            return 0
        us = state.law.reset_after_us(state.law.advance(state, now_us), now_us)
        return NEVER if us is None else us
