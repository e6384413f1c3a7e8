"""Let strict rules begin full: write down that nothing has been lost since the beginning of time.

Where no epoch is set, the first strict charge sets it to its own instant, and all strict keys start empty: a
server that knows nothing may have lost everything. Somebody who sets up a new server knows better, and says
so once, before the first request. On a cluster each slot has an epoch of its own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, NamedTuple

from tidegate.drive import run_blocking
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.store import RedisStore
from tidegate.stores.redis.topology import SLOTS

WITHIN_S = 5.0
AT_ONCE = 1_000


class Epochs(NamedTuple):
    """What a server says of its epochs: the names of those with an instant, the latest one, and the others.

    So many are `unset`, so many say that nothing was ever lost (`since_ever`), and so many of these have just
    been `written`. `wanted`: it was asked that strict budgets begin full.
    """

    wanted: bool
    names: tuple[bytes, ...]
    latest_us: int
    unset: int
    since_ever: int
    written: int

    @property
    def is_done(self) -> bool:
        """Whether strict budgets begin full, if that was wanted."""
        return not (self.wanted and self.names)

    def __str__(self) -> str:
        if self.names:
            return self._begun()
        if self.wanted:
            return f"strict budgets begin full{'' if self.written else ' already: nothing was changed'}"
        if self.since_ever:
            return "nothing to prepare: strict budgets begin full already"
        return (
            "nothing to prepare: strict budgets begin empty on a server that nothing is known of. For one "
            "that has never held any, --full lets them begin full"
        )

    def _begun(self) -> str:
        where = f" in {len(self.names):,} of {SLOTS:,} slots" if self._is_cluster else ""
        knows = (
            f"the server knows already{where} since when it has lost nothing ({since(self.latest_us)}): a "
            "strict key that it does not hold counts as used up then, and has been filling since"
        )
        if not self.wanted:
            return f"nothing to prepare: {knows}"
        changed = " elsewhere they begin full." if self.written else " nothing was changed."
        one = "`tidegate keys reset --config FILE RULE VALUE` makes one key full."
        if self._is_cluster:
            return f"strict budgets do not begin full, for {knows};{changed} {one}"
        name = self.names[0].decode("utf-8", "backslashreplace")
        return (
            f"strict budgets do not begin full, for {knows};{changed} {one} If it has never lost anything, "
            f"remove the epoch, which is the key {name} (DEL), and say --full again at once: then all begin "
            "full that it does not hold"
        )

    @property
    def _is_cluster(self) -> bool:
        return len(self.names) + self.unset + self.since_ever > 1


def look(store: RedisStore) -> Epochs:
    """What the epochs are; nothing is changed."""
    return _asked(store, wanted=False)


def begin_full(store: RedisStore) -> Epochs:
    """Set the epochs that are not set, and leave the others."""
    return _asked(store, wanted=True)


def instant_us(reply: Any) -> int | None:
    """The instant that an epoch says, at least 0; None for none, or for a text that is no instant."""
    text = b"" if reply is None else bytes(reply)
    return int(text) if text.isdigit() and len(text) <= 16 else 0 if text[:1] == b"-" else None


def since(us: int) -> str:
    """An epoch in words."""
    return time.strftime("since %Y-%m-%d %H:%M:%S UTC", time.gmtime(us // 1_000_000)) if us else "since ever"


def _asked(store: RedisStore, *, wanted: bool) -> Epochs:
    topology, names, line = store.servers.topology, store.servers.names, ThreadLine()
    slots: list[int | None] = list(range(SLOTS)) if topology.is_cluster else [None]
    of_link: dict[Link, list[bytes]] = defaultdict(list)
    for slot in slots:
        link = run_blocking(topology.link(slot, line, line.now_s() + WITHIN_S))
        of_link[link].append(names.epoch(slot))
    written = 0
    told: dict[bytes, Any] = {}
    for link, epochs in of_link.items():
        for start in range(0, len(epochs), AT_ONCE):
            chunk = epochs[start : start + AT_ONCE]
            if wanted:
                replies = _replies(link, [(b"SET", name, b"0", b"NX") for name in chunk])
                written += sum(reply is not None for reply in replies)
            replies = _replies(link, [(b"GET", name) for name in chunk])
            told |= dict(zip(chunk, replies, strict=True))
    begun = {name: instant_us(text) or 0 for name, text in told.items() if text and instant_us(text) != 0}
    unset = sum(not text for text in told.values())
    since_ever = len(told) - len(begun) - unset
    return Epochs(wanted, tuple(begun), max(begun.values(), default=0), unset, since_ever, written)


def _replies(link: Link, commands: list[Command]) -> list[Any]:
    line = ThreadLine()
    replies = run_blocking(line.run(link, commands, line.now_s() + WITHIN_S))
    for reply in replies:
        if isinstance(reply, Exception):
            raise classified(reply)
    return replies
