"""Which keys this process has charged lately: a guess about how a call is best carried out.

A key that was charged less than a minute ago is surely in the tables, and if it was not refused since, it
will probably be charged again; then its row is locked at once. Of any other it is better to look first: it
may have to be made before anything is locked, or it may be refused, and then nothing is locked or written at
all. A wrong guess costs a little time and changes no answer (`decide.sql`).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.core.keys import Key

REMEMBERED_MOST = 20_000
FOR_S = 45.0
"""Less than the minute for which a fresh row stays."""


class Familiar:
    """Keys charged lately. Shared by threads without a lock, for nothing rests on it."""

    def __init__(self) -> None:
        self._charged_at_s: dict[tuple[str, Key], float] = {}

    def knows(self, keys: Iterable[tuple[str, Key]], now_s: float) -> bool:
        """Whether all of these have been charged lately, and not refused since."""
        known = self._charged_at_s
        return all(now_s - known.get(key, -FOR_S) < FOR_S for key in keys)

    def charged(self, keys: Iterable[tuple[str, Key]], now_s: float) -> None:
        """These have been charged."""
        known = self._charged_at_s
        if len(known) > REMEMBERED_MOST:
            known.clear()
        for key in keys:
            known[key] = now_s

    def refused(self, keys: Iterable[tuple[str, Key]]) -> None:
        """A request for these has been refused."""
        for key in keys:
            self._charged_at_s.pop(key, None)
