"""Connections, a few, each used by one caller at a time: our own, or lent by a pool of the user's.

The one used last is the first to be used again, so that idle ones stay idle. A new one is made and warmed
beside the callers, by a thread or a task, for that may take longer than a decision; few begin at once, as
each is work for the server. A caller waits for one that is made or given back as long as the deadline allows,
and the one being made serves the next. An error of making one is told to those who wait for one to be made.

A link whose reply is late is not closed, for another one would cost more than waiting: the reply is read
beside the callers, and then the link is used again. When the server falls silent, idle ones are asked too.

A forked child has none of its parent's connections: it forgets them unused and opens its own.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Any, Protocol

from tidegate.errors import StoreError
from tidegate.stores.postgres import driver
from tidegate.stores.postgres.address import Address, Options, allowed_ms
from tidegate.stores.postgres.causes import Crowded, Lost, Refused, TimeUp
from tidegate.stores.postgres.driver import Link
from tidegate.stores.postgres.ports import Port
from tidegate.stores.postgres.warming import warm

OPEN_WITHIN_S = 2.0
OPENED_AT_ONCE = 2
OPENING_S = 0.1
"""Whatever has been opening for longer waits for something, and does not keep others from beginning."""
LATE_MOST_S = 1.0
"""A reply that is later than this does not come any more."""


class Pool(Protocol):
    """Where links come from."""

    async def take(self, until_s: float) -> Link:
        """A link that is open, as far as can be seen, to be given back. Raises Lost, TimeUp or StoreError."""

    async def give(self, link: Link) -> None:
        """Put a link back; one that is no good is closed."""

    async def give_late(self, link: Link) -> None:
        """Put a link back whose reply has not come in time; it is used again once that has been read."""

    def renew(self) -> None:
        """Use none of the present links again: another server may have the name by now."""

    def doubt(self) -> None:
        """Use those that are idle again once the server has answered by them: it has become silent."""

    def close(self) -> None:
        """Close what is idle; what is in use closes when it is given back."""


class _Waiter:
    """A caller who waits for a link: he has one made, or hopes for one that others have made."""

    def __init__(self) -> None:
        self.is_opening = self.hopes = False
        self.failures: list[Exception] = []


class OwnPool:
    """Links of our own, at most `options.max_connections`, for one port."""

    def __init__(self, address: Address, options: Options, port: Port) -> None:
        self._address = address
        self._options = options
        self._port = port
        self._next_host = 0
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._gate = self._port.gate()
        self._idle: list[Link] = []
        self._in_use: set[Link] = set()
        self._late: set[Link] = set()
        self._doubted: set[Link] = set()  # these take no place from others
        self._opening: list[float] = []  # since when
        self._queue: list[_Waiter] = []
        self._is_closed = False

    async def take(self, until_s: float) -> Link:
        """See `Pool`."""
        waiter = _Waiter()
        gate = self._gate
        with gate.held:
            try:
                while not self._is_closed:
                    while len(self._idle) > self._ahead_of(waiter):
                        link = self._idle.pop()
                        if link.is_quiet():
                            self._in_use.add(link)
                            return link
                        link.drop()
                    if waiter.failures:
                        raise waiter.failures[0]
                    may_open = waiter.is_opening or self._has_room()
                    waiter.hopes = may_open and not waiter.is_opening
                    if waiter.hopes and self._may_begin():
                        waiter.is_opening, waiter.hopes = True, False
                        self._start_opening(waiter)
                    if waiter not in self._queue:
                        self._queue.append(waiter)
                    try:
                        await gate.wait(until_s)
                    except TimeUp:
                        if may_open:
                            raise TimeUp("no connection was ready in time") from None
                        most = self._options.max_connections
                        raise Crowded(f"no connection of {most} was free in time") from None
            finally:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                    if self._idle:
                        gate.open()
        raise StoreError("the store is closed")

    def _ahead_of(self, waiter: _Waiter) -> int:
        """How many have waited for longer; a newcomer goes before nobody."""
        queue = self._queue
        return queue.index(waiter) if waiter in queue else len(queue)

    def _has_room(self) -> bool:
        known = len(self._idle) + len(self._in_use) + len(self._late)
        return known + len(self._opening) < self._options.max_connections

    def _may_begin(self) -> bool:
        lately_s = self._port.now_s() - OPENING_S
        return sum(since_s > lately_s for since_s in self._opening) < OPENED_AT_ONCE

    async def give(self, link: Link) -> None:
        """See `Pool`."""
        with self._gate.held:
            is_ours = link in self._in_use
            self._in_use.discard(link)
            self._put(link, is_wanted=is_ours)

    async def give_late(self, link: Link) -> None:
        """See `Pool`."""
        if link not in self._in_use or not link.is_late:
            link.drop()
            await self.give(link)
            return
        with self._gate.held:
            self._in_use.discard(link)
            self._late.add(link)
            self._start_hearing([link])

    def renew(self) -> None:
        """See `Pool`."""
        with self._gate.held:
            idle, self._idle = self._idle, []
            self._in_use, self._late, self._doubted = set(), set(), set()
            for link in idle:
                link.drop()
            self._gate.open()

    def doubt(self) -> None:
        """See `Pool`."""
        with self._gate.held:
            idle, self._idle = self._idle, []
            self._doubted.update(idle, self._late)
            self._late = set()
            self._start_hearing(idle)
            self._gate.open()

    def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True
        self.renew()

    def _put(self, link: Link, *, is_wanted: bool) -> None:
        """The link is idle, or closed if it is not wanted or no good. Called while the gate is held."""
        if is_wanted and not self._is_closed and link.is_good:
            self._idle.append(link)
        else:
            link.drop()
        self._gate.open()

    def _start_hearing(self, links: list[Link]) -> None:
        """Have it heard beside what the server says on these links. Called while the gate is held."""
        gate, port, unheard = self._gate, self._port, links[::-1]

        def heard(link: Link) -> None:
            with gate.held:
                is_wanted = link in self._late or (link in self._doubted and self._has_room())
                self._late.discard(link)
                self._doubted.discard(link)
                self._put(link, is_wanted=is_wanted)

        async def work() -> None:
            until_s = port.now_s() + LATE_MOST_S
            try:
                while unheard:
                    with suppress(Lost, TimeUp, Refused):
                        await unheard[-1].heard(port, until_s)
                    heard(unheard.pop())
            finally:
                for link in unheard:
                    link.drop()
                    heard(link)

        if links:
            try:
                port.beside(work)
            except Lost:
                for link in links:
                    link.drop()
                    heard(link)

    def _start_opening(self, waiter: _Waiter) -> None:
        """Have a link made beside. Called while the gate is held."""
        gate, since_s = self._gate, self._port.now_s()
        self._opening.append(since_s)

        async def work() -> None:
            link = error = None
            try:
                link = await self._opened()
            except Exception as problem:  # noqa: BLE001 - told to the callers who wait for it
                error = problem
            finally:
                with gate.held:
                    if gate is self._gate:
                        self._opening.remove(since_s)
                    if error is not None:
                        for told in (waiter, *(one for one in self._queue if one.hopes)):
                            told.failures.append(error)
                    elif link is not None and not self._is_closed and gate is self._gate:
                        self._idle.append(link)
                    elif link is not None:
                        link.drop()
                    gate.open()

        try:
            self._port.beside(work)
        except Lost:
            self._opening.remove(since_s)
            raise

    async def _opened(self) -> Link:
        """A new link to the first server that takes it, beginning with the one that did last."""
        port, until_s = self._port, self._port.now_s() + OPEN_WITHIN_S
        hosts = list(self._address.hosts()) or [("", "", "")]
        failure: Exception = Lost("no server is named")
        for turn in range(len(hosts)):
            number = (self._next_host + turn) % len(hosts)
            host, address, port_number = hosts[number]
            try:
                addresses = [address]
                if host and not address and not host.startswith(("/", "@")):
                    addresses = await port.addresses(host, port_number or driver.default_of("port"))
                for place, one in enumerate(addresses):
                    left = len(addresses) - place + len(hosts) - turn - 1
                    now_s = port.now_s()
                    conninfo = self._address.conninfo(self._options, host, one, port_number)
                    try:
                        link = await self._warmed(conninfo, now_s + (until_s - now_s) / left)
                    except (Lost, TimeUp) as error:
                        failure = error
                        continue
                    self._next_host = number
                    return link
            except Lost as error:
                failure = error
        if isinstance(failure, TimeUp):
            raise TimeUp("no server took a connection in time") from failure
        raise failure

    async def _warmed(self, conninfo: bytes, until_s: float) -> Link:
        """A new link whose session has done its first calls; a pooler has sessions of its own."""
        options = self._options
        link = await Link.opened(conninfo, self._port, until_s, prepares=options.prepare)
        link.allowed_ms = allowed_ms(options)
        try:
            if options.prepare:
                await warm(link, self._port, options.schema, until_s)
        except BaseException:
            link.drop()
            raise
        return link


class LentPool:
    """The links of a pool of the user's, blocking or awaited, which is never closed here."""

    def __init__(self, pool: Any, port: Port, *, awaited: bool) -> None:
        self._pool = pool
        self._port = port
        self._awaited = awaited
        self._known: weakref.WeakKeyDictionary[Any, Link] = weakref.WeakKeyDictionary()
        self._is_closed = False

    async def take(self, until_s: float) -> Link:
        """See `Pool`."""
        if self._is_closed:
            raise StoreError("the store is closed")
        left_s = until_s - self._port.now_s()
        if left_s <= 0:
            raise TimeUp
        try:
            owner = self._pool.getconn(timeout=left_s)
            if self._awaited:
                owner = await owner
        except Exception as error:
            raise driver.why_not_lent(error) from error
        try:
            link = driver.lent_link(owner, self._known.get(owner))
        except BaseException:
            await self._put(owner)
            raise
        self._known[owner] = link
        link.owner = owner
        return link

    async def give(self, link: Link) -> None:
        """See `Pool`."""
        if not link.is_good:
            link.drop()
        owner, link.owner = link.owner, None  # or it would hold on to what knows it
        await self._put(owner)

    async def give_late(self, link: Link) -> None:
        """See `Pool`. A pool of the user's is not made to wait for a reply: the link is closed."""
        link.drop()
        await self.give(link)

    async def _put(self, owner: Any) -> None:
        given = self._pool.putconn(owner)
        if self._awaited:
            await given

    def renew(self) -> None:
        """See `Pool`. The pool minds that itself."""

    def doubt(self) -> None:
        """See `Pool`. The pool minds that itself."""

    def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True


_pools: weakref.WeakSet[OwnPool] = weakref.WeakSet()


def _forget_links() -> None:
    """In a forked child: its parent goes on using them."""
    for pool in list(_pools):
        for link in (*pool._idle, *pool._in_use, *pool._late, *pool._doubted):
            link.forget()
        pool._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_links)
