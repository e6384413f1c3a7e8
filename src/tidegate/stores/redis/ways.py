"""How each face reaches the servers: a thread by itself, the callers of an event loop together.

Both share where the servers are, how they are asked, and whether they answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from tidegate.core.outcome import Charge, Outcome
from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.lane import Lane, own
from tidegate.stores.redis.address import Options, read_url
from tidegate.stores.redis.asking import Asking
from tidegate.stores.redis.calls import BYTES_A_CHARGE, Ask, Item
from tidegate.stores.redis.drivers import Target, target_of_address, target_of_client
from tidegate.stores.redis.lines import LoopLine, ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.names import Names
from tidegate.stores.redis.opening import opener
from tidegate.stores.redis.scripts import DECIDE
from tidegate.stores.redis.stub import StubOpener, is_askable
from tidegate.stores.redis.topology import Single, Spread, Topology
from tidegate.stores.redis.verbs import Verbs

T = TypeVar("T")
_new = tuple.__new__  # a named tuple made like this costs half of what its own constructor takes

PROBE = (b"EVALSHA", DECIDE.sha.encode(), b"0", b"", b"look", b"")
"""A script call that decides nothing: it fails where decisions would."""


class Servers:
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
        # A client that shows no connections is known by itself: the opener keeps it as long as we are.
        known_by = id(target) if found is None else found.identity
        self.identity: Hashable = ("redis", known_by, options.prefix)
        self.topology: Topology
        if found is None:
            if not is_askable(target):
                raise StoreError(
                    "a Redis store is made of a URL, or of a client of redis-py or valkey-py; "
                    f"this is a {type(target).__name__}"
                )
            self.topology = Single("redis by the client given", StubOpener(target), options, PROBE)
        elif found.kind == "cluster":
            made_by = opener(found, options.deadline_us)
            self.topology = Spread(found.where, made_by, found.hosts, options, PROBE, self.names)
        else:
            self.topology = Single(found.where, opener(found, options.deadline_us), options, PROBE)
        self.is_closed = False

    def check_open(self) -> None:
        """Raise StoreError if the store has been closed."""
        if self.is_closed:
            raise StoreError("this store is closed; make another one")

    def parts(self, charges: Sequence[Charge]) -> list[list[int]]:
        """The positions of the charges that one call can decide, each position once."""
        if not self.topology.is_cluster:
            return [list(range(len(charges)))] if charges else []
        places: dict[int | None, list[int]] = {}
        for place, charge in enumerate(charges):
            places.setdefault(self.topology.slot(charge.rule, charge.key), []).append(place)
        return list(places.values())


class ThreadWay:
    """Each caller asks by himself, and waits."""

    def __init__(self, servers: Servers) -> None:
        self.line = ThreadLine()
        self.asking = Asking(servers.names, servers.options, servers.topology, self.line)
        self.decide = self.asking.one

    async def ask(self, link: Link, item: Item, until_s: float) -> list[Any]:
        """See `Way.ask`."""
        (answers,) = await self.asking.answer(link, (item,), until_s)
        return answers

    async def all_of(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """See `Way.all_of`. All but the first have threads: no server waits for another."""
        return _side_by_side(works) if len(works) > 1 else [await work for work in works]


class LoopWay:
    """Callers of one event loop travel together, by a lane for each link."""

    def __init__(
        self,
        servers: Servers,
        loop: asyncio.AbstractEventLoop,
        ways: dict[asyncio.AbstractEventLoop, LoopWay],
    ) -> None:
        self.line = LoopLine(loop)
        self.asking = Asking(servers.names, servers.options, servers.topology, self.line)
        self.verbs = Verbs(servers.topology, self, servers.options.deadline_us)
        self._lanes: dict[Link, Lane[Item, list[Any]]] = {}
        self._loop, self._ways = loop, ways
        self._staying = self._stay()

    async def begin(self) -> None:
        """From now on the end of the loop closes everything."""
        await anext(self._staying)

    async def decide(
        self, link: Link, request: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome] | StoreError:
        """See `Way.decide`. The breaker is asked here: who is refused by it needs no seat in a lane."""
        lane = self._lanes.get(link)
        if lane is None:
            lane = self._lane(link)
        weight = 0
        for charge in request:
            weight += BYTES_A_CHARGE + len(charge.key)
        try:
            if link.health.is_open:
                await self.line.check(link, until_s)
            (answer,) = await lane.ask(_new(Ask, ((request,), now_us, take)), weight, until_s)
        except StoreError as error:
            return error
        outcomes: list[Outcome] | StoreError = own(answer) if isinstance(answer, StoreError) else answer
        return outcomes

    async def ask(self, link: Link, item: Item, until_s: float) -> list[Any]:
        """See `Way.ask`."""
        if link.health.is_open:
            await self.line.check(link, until_s)
        lane = self._lanes.get(link)
        if lane is None:
            lane = self._lane(link)
        return await lane.ask(item, item.weight, until_s)

    async def all_of(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """See `Way.all_of`."""
        if len(works) == 1:
            return [await works[0]]
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


def _side_by_side(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What the works say, which block: each in a thread, the first in this one."""
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def see_to(place: int) -> None:
        try:
            results[place] = run_blocking(works[place])
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            errors.append(error)

    threads = []
    for place in range(1, len(works)):
        thread = threading.Thread(target=see_to, args=(place,), name="tidegate-beside", daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # the interpreter ends, or there is no room for a thread
            see_to(place)
    see_to(0)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[place] for place in range(len(works))]
