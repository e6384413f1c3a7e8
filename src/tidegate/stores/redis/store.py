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
from collections.abc import AsyncGenerator, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import Health
from tidegate.stores.lane import Lane
from tidegate.stores.redis.address import Options, options_of, read_url
from tidegate.stores.redis.asking import Ask, Asking, Item
from tidegate.stores.redis.drivers import Target, target_of_address, target_of_client
from tidegate.stores.redis.link import Link, LoopLine, ThreadLine
from tidegate.stores.redis.names import Names
from tidegate.stores.redis.opening import opener
from tidegate.stores.redis.scripts import DECIDE
from tidegate.stores.redis.stub import StubOpener, is_askable
from tidegate.stores.redis.topology import Single, Spread, Topology
from tidegate.stores.redis.verbs import Verbs
from tidegate.units import Duration

T = TypeVar("T")

PROBE = (b"EVALSHA", DECIDE.sha.encode(), b"0", b"", b"look", b"")
"""A script call that decides nothing: it fails where decisions would."""


class _Core:
    """What both faces share: where the servers are, how they are asked, and whether they answer."""

    def __init__(self, target: object, options: Options) -> None:
        self.url = target if isinstance(target, str) else None
        if self.url is not None:
            address, options = read_url(self.url, options)
            found: Target | None = target_of_address(address)
        else:
            found = target_of_client(target)
        self.options = options
        self.names = Names(options.prefix)
        self.topology: Topology
        if found is None:
            if not is_askable(target):
                raise StoreError(
                    "a Redis store is made of a URL, or of a client of redis-py or valkey-py; "
                    f"this is a {type(target).__name__}"
                )
            self.topology = Single("redis by the client given", StubOpener(target), options, PROBE)
        elif found.kind == "cluster":
            self.topology = Spread(found.where, opener(found), found.hosts, options, PROBE, self.names)
        else:
            self.topology = Single(found.where, opener(found), options, PROBE)
        self.is_closed = False

    def check_open(self) -> None:
        if self.is_closed:
            raise StoreError("this store is closed; make another one")

    def parts(self, charges: Sequence[Charge]) -> list[list[int]]:
        if not self.topology.is_cluster:
            return [list(range(len(charges)))] if charges else []
        places: dict[int | None, list[int]] = {}
        for place, charge in enumerate(charges):
            places.setdefault(self.topology.slot(charge.rule, charge.key), []).append(place)
        return list(places.values())


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
        self._core = _Core(
            target,
            options_of(
                prefix=prefix,
                deadline=deadline,
                may_forget=may_forget,
                replicas=replicas,
                max_connections=max_connections,
            ),
        )
        core = self._core
        self._way = _ThreadWay(core)
        self._verbs = Verbs(core.topology, self._way, core.options.deadline_us)
        self._awaited = AwaitedRedisStore(core)

    @property
    def health(self) -> Health:
        """Whether the servers answer, and how often they did not."""
        return self._core.topology.health

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
        self._core.check_open()
        return run_blocking(self._verbs.decide(charges, now_us, take, deadline_us)) if charges else []

    def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests in few round trips; where one failed its error stands in its place."""
        self._core.check_open()
        return run_blocking(self._verbs.decide_many(requests, now_us, deadline_us))

    def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable: what was to come back then stays counted."""
        self._core.check_open()
        return run_blocking(self._verbs.adjust(adjustments, now_us, deadline_us))

    def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        self._core.check_open()
        run_blocking(self._verbs.forget(keys, deadline_us))

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once."""
        return self._core.parts(charges)

    def close(self) -> None:
        """Close all connections, those of event loops too; the client that was given stays open."""
        self._core.is_closed = True
        self._core.topology.close()
        self._awaited._close_ways()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._core.url is None:
            raise StoreError(
                "a store on a client cannot be pickled or copied; make it of a URL, which can be made again"
            )
        return _made_again, (self._core.url, self._core.options)

    def __repr__(self) -> str:
        return f"<RedisStore: {self._core.topology.health.where}>"


class AwaitedRedisStore:
    """The awaited face of a `RedisStore`: the same verbs, for any number of event loops."""

    name = "redis"

    def __init__(self, core: _Core) -> None:
        self._core = core
        self._ways: dict[asyncio.AbstractEventLoop, _LoopWay] = {}
        self._lock = threading.Lock()
        _faces.add(self)

    @property
    def health(self) -> Health:
        """Whether the servers answer, and how often they did not."""
        return self._core.topology.health

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
        return await (await self._verbs()).decide(charges, now_us, take, deadline_us)

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests in few round trips; where one failed its error stands in its place."""
        return await (await self._verbs()).decide_many(requests, now_us, deadline_us)

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable."""
        return await (await self._verbs()).adjust(adjustments, now_us, deadline_us)

    async def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        await (await self._verbs()).forget(keys, deadline_us)

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once."""
        return self._core.parts(charges)

    async def close(self) -> None:
        """Close all connections, those of the blocking face too; the client that was given stays open."""
        self._core.is_closed = True
        self._core.topology.close()
        self._close_ways()
        for _ in range(2):
            await asyncio.sleep(0)  # a transport takes a turn of the loop to let go of its socket

    def __repr__(self) -> str:
        return f"<AwaitedRedisStore: {self._core.topology.health.where}>"

    async def _verbs(self) -> Verbs:
        self._core.check_open()
        loop = asyncio.get_running_loop()
        way = self._ways.get(loop)
        if way is None:
            way = _LoopWay(self._core, loop, self._ways)
            with self._lock:
                for gone in [other for other in self._ways if other.is_closed()]:
                    del self._ways[gone]
                self._ways[loop] = way
            await way.begin()
        return way.verbs

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
            elif not loop.is_closed():
                loop.call_soon_threadsafe(way.close)

    def _after_fork(self) -> None:
        # The child must not touch its parent's loops: they share what tells them of their sockets.
        _inherited.append(self._ways)
        self._ways = {}
        self._lock = threading.Lock()


class _ThreadWay:
    """Each caller asks by himself, and waits."""

    def __init__(self, core: _Core) -> None:
        self.line = ThreadLine()
        self.asking = Asking(core.names, core.options, core.topology, self.line)

    async def decide(
        self, link: Link, request: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome] | StoreError:
        return await self.asking.one(link, request, now_us, take, until_s)

    async def ask(self, link: Link, item: Item, until_s: float) -> list[Any]:
        (answers,) = await self.asking.answer(link, (item,), until_s)
        return answers

    async def all_of(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return [await work for work in works]


class _LoopWay:
    """Callers of one event loop travel together, by a lane for each link."""

    def __init__(
        self, core: _Core, loop: asyncio.AbstractEventLoop, ways: dict[asyncio.AbstractEventLoop, _LoopWay]
    ) -> None:
        self.line = LoopLine(loop)
        self.asking = Asking(core.names, core.options, core.topology, self.line)
        self.verbs = Verbs(core.topology, self, core.options.deadline_us)
        self._lanes: dict[Link, Lane[Item, list[Any]]] = {}
        self._loop, self._ways = loop, ways
        self._staying = self._stay()

    async def begin(self) -> None:
        """From now on the end of the loop closes everything."""
        await anext(self._staying)

    async def decide(
        self, link: Link, request: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome] | StoreError:
        try:
            ((answer),) = await self.ask(link, Ask((request,), now_us, take), until_s)
        except StoreError as error:
            return error
        outcomes: list[Outcome] | StoreError = answer
        return outcomes

    async def ask(self, link: Link, item: Item, until_s: float) -> list[Any]:
        lane = self._lanes.get(link)
        if lane is None:
            lane = self._lane(link)
        return await lane.ask(item, item.weight, until_s)

    async def all_of(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*works))

    def close(self) -> None:
        """Close the lanes and the connections. Called on the loop."""
        self._ways.pop(self._loop, None)
        for lane in self._lanes.values():
            lane.close()
        self.line.close()

    def _lane(self, link: Link) -> Lane[Item, list[Any]]:
        for gone in [other for other in self._lanes if other.is_closed]:
            del self._lanes[gone]  # it ends with those that are under way

        async def send(items: Sequence[Item], until_s: float) -> Sequence[list[Any] | StoreError]:
            return await self.asking.answer(link, items, until_s)

        def late(items: int) -> None:
            if items:
                link.failed(StoreUnavailable("no answer came in time", "deadline"), items)

        lane = self._lanes[link] = Lane(send, late=late)
        return lane

    async def _stay(self) -> AsyncGenerator[None]:
        """A generator that is never finished: a loop that ends in order finishes it, and so closes us."""
        try:
            yield
        finally:
            self.close()


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
