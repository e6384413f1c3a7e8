"""The store on Redis or Valkey, in its two faces: one that blocks, and one that is awaited.

Every decision is one script call in one round trip, on the server's clock, atomic with all its rules. The
blocking face asks for each caller by himself, on one of a few connections that all threads share; the awaited
one puts callers who ask at the same moment into one call (`lane.py`), for each event loop by itself.

A call raises StoreUnavailable within its deadline when no usable answer came, and a plain StoreError for what
is a mistake. What then happens to a request is decided above, by the outage rule of each rule.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.health import Health
from tidegate.stores.redis.address import Options, options_of
from tidegate.stores.redis.verbs import Verbs
from tidegate.stores.redis.ways import LoopWay, Servers, ThreadWay
from tidegate.units import Duration


class RedisStore:
    """State on Redis 6.2 or newer, or Valkey: one server, a master behind sentinels, or a cluster.

    This is the face that blocks, for any number of threads; `awaited` is the other.

    Args:
        target: a URL, or a client of redis-py or valkey-py, which is left as it is: connections are our own,
            made as the client makes its. An async client serves the awaited face, a sync client this one.
        prefix: how all keys begin.
        deadline: the longest that a call may take, connecting included.
        may_forget: whether strict rules may stand on a server that could lose single charges.
        replicas: how many replicas must have a strict charge before it counts as decided.
        max_connections: how many connections threads may have to one server, and so each event loop.
    """

    name = "redis"

    def __init__(
        self,
        target: Any,
        *,
        prefix: str = "tidegate",
        deadline: Duration = "50ms",
        may_forget: bool = False,
        replicas: int = 0,
        max_connections: int = 64,
    ) -> None:
        self.servers = Servers(
            target,
            options_of(
                prefix=prefix,
                deadline=deadline,
                may_forget=may_forget,
                replicas=replicas,
                max_connections=max_connections,
            ),
        )
        servers = self.servers
        self.health: Health = servers.topology.health
        self.identity = servers.identity
        self.splits = servers.topology.is_cluster
        self.deadline_us = servers.options.deadline_us
        self._verbs = Verbs(servers.topology, ThreadWay(servers), servers.options.deadline_us)
        self._awaited = AwaitedRedisStore(servers)

    @property
    def awaited(self) -> AwaitedRedisStore:
        """The face for event loops."""
        return self._awaited

    def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing, or raise StoreUnavailable within the deadline (None: the store's own)."""
        self.servers.check_open()
        return run_blocking(self._verbs.decide(charges, now_us, take, deadline_us)) if charges else []

    def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests, all within one deadline; a failed one has its error in its place."""
        self.servers.check_open()
        return run_blocking(self._verbs.decide_many(requests, now_us, take, deadline_us))

    def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable: what was to come back then stays counted."""
        self.servers.check_open()
        return run_blocking(self._verbs.adjust(adjustments, now_us, deadline_us))

    def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        self.servers.check_open()
        run_blocking(self._verbs.forget(keys, deadline_us))

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once."""
        return self.servers.parts(charges)

    def close(self) -> None:
        """Close all connections, those of event loops too; the client that was given stays open."""
        self.servers.is_closed = True
        self.servers.topology.close()
        self._awaited._close_ways()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.servers.url is None:
            raise StoreError(
                "a store on a client cannot be pickled or copied; make it of a URL, which can be made again"
            )
        return _made_again, (self.servers.url, self.servers.options)

    def __repr__(self) -> str:
        return f"<RedisStore: {self.servers.topology.health.where}>"


class AwaitedRedisStore:
    """The awaited face of a `RedisStore`: the same verbs, for any number of event loops."""

    name = "redis"

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.health: Health = servers.topology.health
        self.identity = servers.identity
        self.splits = servers.topology.is_cluster
        self.deadline_us = servers.options.deadline_us
        self._ways: dict[asyncio.AbstractEventLoop, LoopWay] = {}
        self._lock = threading.RLock()
        _faces.add(self)

    async def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing; what waits at the same moment travels together."""
        if not charges:
            return []
        way = self._ways.get(asyncio.get_running_loop())
        if way is None or self.servers.is_closed:
            way = await self._begun()
        return await way.verbs.decide(charges, now_us, take, deadline_us)

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests, all within one deadline; a failed one has its error in its place."""
        return await (await self._begun()).verbs.decide_many(requests, now_us, take, deadline_us)

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable."""
        return await (await self._begun()).verbs.adjust(adjustments, now_us, deadline_us)

    async def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        await (await self._begun()).verbs.forget(keys, deadline_us)

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once."""
        return self.servers.parts(charges)

    async def close(self) -> None:
        """Close all connections, those of the blocking face too; the client that was given stays open."""
        self.servers.is_closed = True
        self.servers.topology.close()
        self._close_ways()
        for _ in range(2):
            await asyncio.sleep(0)  # a transport takes a turn of the loop to let go of its socket

    def __repr__(self) -> str:
        return f"<AwaitedRedisStore: {self.servers.topology.health.where}>"

    async def _begun(self) -> LoopWay:
        """The way of this loop, begun if it is the first call on it."""
        self.servers.check_open()
        loop = asyncio.get_running_loop()
        way = self._ways.get(loop)
        if way is None:
            way = LoopWay(self.servers, loop, self._ways)
            with self._lock:
                for gone in [other for other in self._ways if other.is_closed()]:
                    del self._ways[gone]
                self._ways[loop] = way
            await way.begin()
        return way

    def _close_ways(self) -> None:
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        with self._lock:
            ways = list(self._ways.items())
        for loop, way in ways:
            if loop is here:
                way.close()
            else:
                with suppress(RuntimeError):  # that loop has ended, and its connections with it
                    loop.call_soon_threadsafe(way.close)

    def _after_fork(self) -> None:
        # The child must not touch its parent's loops: they share what tells them of their sockets.
        _inherited.append(self._ways)
        self._ways = {}
        self._lock = threading.RLock()


def from_url(url: str) -> RedisStore:
    """The store that the URL names, with its options: `redis://localhost:6379/0?deadline=20ms`."""
    return RedisStore(url)


def _made_again(url: str, options: Options) -> RedisStore:
    """A store of another process, or another one in this; what its URL does not say, its options do."""
    given = options._asdict()
    deadline_us = given.pop("deadline_us")
    return RedisStore(url, deadline=timedelta(microseconds=deadline_us), **given)


_faces: weakref.WeakSet[AwaitedRedisStore] = weakref.WeakSet()
_inherited: list[object] = []


def _leave_loops() -> None:
    """In a forked child: the loops are its parent's."""
    for face in list(_faces):
        face._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_loops)
