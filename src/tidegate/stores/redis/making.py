"""Prepare servers: the note that nothing has been lost yet, so that strict budgets begin full.

The note is the epoch of `current.lua`: an instant since which the server has lost nothing, 0 for ever. A
server that has none was never prepared, or has lost what it held; then the first strict request writes the
instant, and strict budgets begin empty. On a cluster every slot has a note of its own, since each master can
lose what it holds by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.drive import run_blocking
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.store import RedisStore

WITHIN_S = 30.0
SLOTS = 16_384
AT_ONCE = 512


class Prepared(NamedTuple):
    """How many notes there are, and how many of them were written now."""

    notes: int
    written: int

    def __str__(self) -> str:
        if not self.written:
            return "the server was prepared already, or has lost state since: nothing was changed"
        said = "" if self.notes == 1 else f" in {self.written:,} of {self.notes:,} slots"
        return f"prepared{said}: strict budgets begin full"


def init(store: RedisStore) -> Prepared:
    """Write the notes where there are none. Raises StoreError if a server does not take them."""
    topology, names, line = store.servers.topology, store.servers.names, ThreadLine()
    until_s = line.now_s() + WITHIN_S
    by_link: dict[Link, list[Command]] = {}
    for slot in range(SLOTS) if topology.is_cluster else (None,):
        link = run_blocking(topology.link(slot, line, until_s))
        by_link.setdefault(link, []).append((b"SET", names.epoch(slot), b"0", b"NX"))
    written = 0
    for link, commands in by_link.items():
        for start in range(0, len(commands), AT_ONCE):
            for reply in run_blocking(line.run(link, commands[start : start + AT_ONCE], until_s)):
                if isinstance(reply, Exception):
                    raise classified(reply)
                written += reply is not None
    return Prepared(sum(map(len, by_link.values())), written)
