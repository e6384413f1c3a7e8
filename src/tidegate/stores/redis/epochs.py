"""Let strict rules begin full: write down that nothing has been lost since the beginning of time.

Where no epoch is set, the first strict charge sets it to its own instant, and all strict keys start empty: a
server that knows nothing may have lost everything. Somebody who sets up a new server knows better, and says
so once, before the first request. On a cluster each slot has an epoch of its own.
"""

from __future__ import annotations

from collections import defaultdict

from tidegate.drive import run_blocking
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.store import RedisStore
from tidegate.stores.redis.topology import SLOTS

WITHIN_S = 5.0
AT_ONCE = 1_000


def begin_full(store: RedisStore) -> int:
    """Set the epochs that are not set, and leave the others; how many were set."""
    topology, names, line = store.servers.topology, store.servers.names, ThreadLine()
    slots: list[int | None] = list(range(SLOTS)) if topology.is_cluster else [None]
    commands: dict[Link, list[Command]] = defaultdict(list)
    for slot in slots:
        link = run_blocking(topology.link(slot, line, line.now_s() + WITHIN_S))
        commands[link].append((b"SET", names.epoch(slot), b"0", b"NX"))
    count = 0
    for link, all_of_it in commands.items():
        for start in range(0, len(all_of_it), AT_ONCE):
            chunk = all_of_it[start : start + AT_ONCE]
            for reply in run_blocking(line.run(link, chunk, line.now_s() + WITHIN_S)):
                if isinstance(reply, Exception):
                    raise classified(reply)
                count += reply is not None
    return count
