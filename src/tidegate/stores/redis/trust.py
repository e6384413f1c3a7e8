"""What a server may forget without our noticing, which decides whether it can hold strict budgets.

A strict rule must never find a key fresher than it left it. Losing everything at once is no harm, for then
the epoch key is gone too and strict keys start empty. What harms is a loss that leaves the epoch: single
keys that are evicted, an old snapshot that comes back, the last second of a log, a replica that was promoted
before it had heard of the latest charges. Where the server does not let us look, we do not know.

It is looked at before the first strict charge, on every new connection from then on (whoever was started anew
has lost his connections), and beside the callers every `LOOK_EVERY_S`. What nobody can see is what others do
with its files: who puts an old snapshot back restores its epoch, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tidegate.errors import StoreUnavailable
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import Command

Run: TypeAlias = Callable[[Sequence[Command]], Awaitable[list[Any]]]
"""A round trip: the replies to commands, errors among them."""

LOOK_EVERY_S = 30.0
LOOK: tuple[Command, ...] = (
    (b"INFO", b"replication"),
    *((b"CONFIG", b"GET", name) for name in (b"maxmemory", b"maxmemory-policy")),
    *((b"CONFIG", b"GET", name) for name in (b"appendonly", b"appendfsync", b"save")),
)
WAYS_OUT = "set it otherwise, or accept the loss with may_forget=True (?may_forget=yes in a URL)"


async def look(run: Run) -> dict[str, str] | None:
    """The settings and facts that decide; None if the server does not let us see them."""
    replies = await run(LOOK)
    if any(isinstance(reply, Exception) for reply in replies):
        outages = [classified(reply) for reply in replies if isinstance(reply, Exception)]
        for error in outages:
            if isinstance(error, StoreUnavailable) and error.cause != "authentication":
                raise error
        return None
    return facts(replies)


def facts(replies: Sequence[Any]) -> dict[str, str]:
    """The replies to LOOK as texts by name."""
    found = info(replies[0])
    for reply in replies[1:]:
        pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
        found |= {_text(name): _text(value) for name, value in pairs}
    return found


def info(reply: Any) -> dict[str, str]:
    """What INFO says, by name."""
    lines = _text(reply).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def losses(found: Mapping[str, str], replicas: int) -> list[str]:
    """What could be lost and leave the epoch behind: a sentence each, naming the setting."""
    told = []
    policy = found.get("maxmemory-policy", "noeviction")
    if found.get("maxmemory", "0") != "0" and policy != "noeviction":
        told.append(f"maxmemory-policy is {policy}, so it evicts keys when its memory is full")
    keeps_log = found.get("appendonly") == "yes"
    if keeps_log and found.get("appendfsync") != "always":
        told.append(
            f"appendfsync is {found.get('appendfsync')}, so a crash loses the last charges and keeps the rest"
        )
    if found.get("save") and not keeps_log:
        told.append(
            f"save is {found['save']!r}, so after a crash it comes back as it was at its last snapshot"
        )
    connected = int(found.get("connected_slaves", "0"))
    if connected > replicas:
        told.append(
            f"any of its {connected} replicas may be promoted without the last charges "
            f"(replicas={connected} waits for all of them)"
        )
    return told


class Trust:
    """Whether one server may hold strict budgets, as it was when somebody last looked.

    `is_given` says that nothing speaks against it, `against` what does. Neither is known until then.
    """

    def __init__(self, where: str, replicas: int) -> None:
        self._where, self._replicas = where, replicas
        self.is_given = False
        self.against: str | None = None
        self._looked_at_s = -math.inf

    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._looked_at_s >= LOOK_EVERY_S

    def withdraw(self) -> None:
        """Know nothing any more: another server may stand behind the name."""
        self.is_given, self.against = False, None

    async def look(self, run: Run) -> str | None:
        """Look, by a round trip of this kind; what speaks against the server. Raises StoreError."""
        self._looked_at_s = time.monotonic()
        found = await look(run)
        told = (
            ["it does not let us see what it may lose (CONFIG GET and INFO)"]
            if found is None
            else losses(found, self._replicas)
        )
        reason = f"{self._where} may forget what strict rules have charged: {'; '.join(told)}; {WAYS_OUT}"
        self.against = reason if told else None
        self.is_given = not told
        return self.against


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
