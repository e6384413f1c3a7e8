"""Rows that another transaction held for too long: a breaker for each, beside the one of the server.

Callers of such a row would have all connections wait for it. So once one has been told that the row is busy,
one at a time asks for it, and the others are told at once; until one is answered.
"""

from __future__ import annotations

from tidegate.core.keys import Key

KEYS_MOST = 1_000


class Stuck:
    """The keys of such rows. Shared by threads without a lock, for nothing but time rests on it."""

    def __init__(self) -> None:
        self._is_asked_for: dict[tuple[str, Key], bool] = {}

    def may_ask(self, key: tuple[str, Key]) -> bool:
        """Whether the caller may ask for the row; then he says how that ended."""
        known = self._is_asked_for
        if known and key in known:
            if known[key]:
                return False
            known[key] = True
        return True

    def knows(self, key: tuple[str, Key]) -> bool:
        """Whether the row was held when it was last asked for."""
        return key in self._is_asked_for

    def ended(self, key: tuple[str, Key], *, is_held: bool) -> None:
        """Who might ask for the row has done so, and it was held all the time or not."""
        known = self._is_asked_for
        if is_held:
            if len(known) >= KEYS_MOST:
                known.clear()
            known[key] = False
        elif known:
            known.pop(key, None)
