"""Where the servers are: one, the master that sentinels name, or the masters of a cluster.

A single server and a master behind sentinels are one link; behind sentinels, whoever makes a connection asks
them first, and takes the answer only from a server that says itself that it is a master. A cluster has a link
for each master, with a breaker of its own, so that one that is down takes down its own part only. Which slot
lives where is read from any node that answers, by one caller at a time and not more often than
`READ_EVERY_S`; a redirection corrects it at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from tidegate.core.keys import Key
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import DECIDED, PROBED, Health, HealthStats
from tidegate.stores.redis.address import Host, Options
from tidegate.stores.redis.causes import Redirection, classified
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.link import Line, Link
from tidegate.stores.redis.names import Names, slot
from tidegate.stores.redis.opening import Opener

SLOTS = 16_384
READ_EVERY_S = 0.25
READ_WITHIN_S = 0.25
NODES_MOST = 1_000
"""A cluster has no more; and what a server calls a node does not fill our memory."""


class Topology(Protocol):
    """Which link a key is asked by."""

    @property
    def health(self) -> Health:
        """Whether the servers answer."""

    @property
    def is_cluster(self) -> bool:
        """Whether keys live on several servers."""

    def slot(self, rule: str, key: Key) -> int | None:
        """What is equal of keys that one call may touch together; None where all may meet."""

    def links(self) -> Sequence[Link]:
        """The links that are known."""

    async def link(self, slot: int | None, line: Line, until_s: float) -> Link:
        """The link that has the slot. Raises StoreUnavailable if that cannot be found out in time."""

    def moved(self, elsewhere: Redirection) -> Link:
        """The link to the node to which a server has sent us."""

    async def doubt(self, line: Line) -> None:
        """Somebody has had no answer: find out beside the callers whether all is where it was."""

    def close(self) -> None:
        """Close the links of the blocking face."""


class Single:
    """One link: to one server, or to whoever is master."""

    is_cluster = False

    def __init__(self, where: str, opener: Opener, options: Options, probe: Command) -> None:
        self.health = Health(where)
        self._link = Link(self.health, opener, None, options, probe)

    def slot(self, rule: str, key: Key) -> int | None:
        """None: all keys may meet."""
        return None

    def links(self) -> Sequence[Link]:
        """The only one."""
        return (self._link,)

    async def link(self, slot: int | None, line: Line, until_s: float) -> Link:
        """The only one."""
        return self._link

    def moved(self, elsewhere: Redirection) -> Link:
        """Raise: only the node of a cluster sends us elsewhere."""
        raise StoreError(
            f"{self.health.where} is a node of a cluster: write redis+cluster://, or give a RedisCluster"
        )

    async def doubt(self, line: Line) -> None:
        """Nothing: whoever makes the next connection finds out."""

    def close(self) -> None:
        """Close the link."""
        self._link.close()


class ClusterHealth(Health):
    """The sum over the nodes, those that are gone included. It is open where some present node's is."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.nodes: dict[Host, Health] = {}

    def of(self, host: Host) -> Health:
        """The health of one node, the same as long as it is on the map."""
        return self.nodes.get(host) or self.nodes.setdefault(
            host, Health(f"redis cluster node {host[0]}:{host[1]}")
        )

    def retire(self, host: Host) -> None:
        """Keep what was counted of a node that has left the map, and forget whether it answered."""
        gone = self.nodes.pop(host, None)
        if gone is not None:
            self.inherit(gone.stats())

    def stats(self) -> HealthStats:
        """What has happened so far, over all nodes."""
        each = [super().stats(), *(health.stats() for health in list(self.nodes.values()))]
        causes = {cause for one in each for cause in one.unavailable}
        return HealthStats(
            any(one.open for one in each),
            sum(one.outages for one in each),
            {cause: sum(one.unavailable.get(cause, 0) for one in each) for cause in sorted(causes)},
        )


class Spread:
    """A link for each master of a cluster, and which slot is whose."""

    is_cluster = True

    def __init__(
        self,
        where: str,
        opener: Opener,
        seeds: Sequence[Host],
        options: Options,
        probe: Command,
        names: Names,
    ) -> None:
        self.health = ClusterHealth(where)
        self._opener, self._seeds = opener, tuple(seeds)
        self._options, self._probe, self._names = options, probe, names
        self._links: dict[Host, Link] = {}
        self._owners: list[Link | None] = [None] * SLOTS
        self._was_read = self._is_whole = False
        self._read_at_s = -READ_EVERY_S
        self._trouble = "it was not reached yet"

    def slot(self, rule: str, key: Key) -> int | None:
        """The hash slot of the key."""
        return slot(self._names.key(rule, key))

    def links(self) -> Sequence[Link]:
        """Those of the masters that have slots."""
        return list(dict.fromkeys(owner for owner in self._owners if owner is not None))

    async def link(self, slot: int | None, line: Line, until_s: float) -> Link:
        """The link that has the slot, after reading the map if it is not known."""
        number = 0 if slot is None else slot
        owner = self._owners[number]
        health = self.health
        if owner is not None:
            if not (health.is_well or health.is_open):
                health.answered(_now_us(), self._proof())
            return owner
        if health.is_open:
            if health.is_overdue(_now_us()) and health.take_probe(_now_us()):
                try:
                    await line.beside(self, lambda: self._read(line), until_s)
                finally:
                    health.probed()
            await self.doubt(line)
            health.check()
        if not self._is_fresh():
            await line.beside(self, lambda: self._read(line), until_s)
        owner = self._owners[number]
        if owner is not None:
            return owner
        error = StoreUnavailable(
            f"nobody serves slot {number} of {self.health.where}: {self._trouble}",
            "cluster_down" if self._was_read else "connection",
        )
        self.health.failed(error, _now_us())
        raise error

    def moved(self, elsewhere: Redirection) -> Link:
        """The link to that node. A slot that has moved for good is put right on the map, too."""
        slot, (name, port), for_good = elsewhere
        link = self._link_to((name or self._seeds[0][0], port))
        if for_good and 0 <= slot < SLOTS:
            self._owners[slot] = link
        return link

    async def doubt(self, line: Line) -> None:
        """Read the map again beside the callers, if that was not done just now."""
        if not self._is_fresh():
            await line.beside(self, lambda: self._read(line), None)

    def close(self) -> None:
        """Close all links."""
        for link in list(self._links.values()):
            link.close()

    async def _read(self, line: Line) -> None:
        """Read the map from the first node that answers: those that have answered before, then the seeds."""
        if self._is_fresh():
            return
        self._read_at_s = time.monotonic()
        well = [host for host, link in list(self._links.items()) if not link.health.is_open]
        trouble = []
        for host in dict.fromkeys([*well, *self._seeds, *self._links]):
            try:
                connection = await line.opened(self._opener, host)
                try:
                    (reply,) = await connection.call(
                        [(b"CLUSTER", b"SLOTS")], time.monotonic() + READ_WITHIN_S
                    )
                finally:
                    connection.drop()
                if isinstance(reply, Exception):
                    raise classified(reply)
                self._keep(reply, host)
                return
            except (StoreError, LookupError, TypeError, ValueError, AttributeError) as error:
                trouble.append(f"{host[0]}:{host[1]}: {error}")
        self._trouble = "; ".join(trouble)[:500]

    def _proof(self) -> int:
        """What the map proves: that all is served, or only that there is one."""
        return DECIDED if self._is_whole else PROBED

    def _is_fresh(self) -> bool:
        return self._was_read and time.monotonic() - self._read_at_s < READ_EVERY_S

    def _keep(self, reply: Any, asked: Host) -> None:
        """Put the map that a node has told in the place of ours."""
        owners: list[Link | None] = [None] * SLOTS
        for first, last, master, *_ in reply:
            host = (_text(master[0]) or asked[0], int(master[1]))
            link = self._link_to(host)
            if not 0 <= first <= last < SLOTS:
                raise ValueError(f"slots {first} to {last}")
            owners[first : last + 1] = [link] * (last + 1 - first)
        self._owners, self._was_read, self._is_whole = owners, True, None not in owners
        self.health.answered(_now_us(), self._proof())
        self._trouble = f"{asked[0]}:{asked[1]} says so"
        kept = set(self.links())
        for host, link in list(self._links.items()):
            if link not in kept:
                self._links.pop(host, None)
                link.leave()
                self.health.retire(host)

    def _link_to(self, host: Host) -> Link:
        """The link to this node, made if it is new. No lock: of two made at once the first one stays."""
        link = self._links.get(host)
        if link is None:
            if len(self._links) >= NODES_MOST:
                raise StoreUnavailable(
                    f"{self.health.where} names more than {NODES_MOST} nodes", "cluster_down"
                )
            made = Link(self.health.of(host), self._opener, host, self._options, self._probe)
            link = self._links.setdefault(host, made)
        return link


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
