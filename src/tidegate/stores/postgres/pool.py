"""Connections, a few, each used by one caller at a time: our own, or lent by a pool of the user's.

The one used last is the first to be used again, so that idle ones stay idle. A new one is made beside the
callers, by a thread or a task, for that may take longer than a decision; a caller waits for one that is
made or given back as long as the deadline allows, and the one being made serves the next. An error of making
one is told to the caller who caused it.

A forked child has none of its parent's connections: it forgets them unused and opens its own.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol

from tidegate.errors import StoreError
from tidegate.stores.postgres import driver
from tidegate.stores.postgres.address import Address, Options, allowed_ms
from tidegate.stores.postgres.causes import Lost, TimeUp
from tidegate.stores.postgres.driver import Link
from tidegate.stores.postgres.ports import Port

OPEN_WITHIN_S = 2.0


class Pool(Protocol):
    """Where links come from."""

    async def take(self, until_s: float) -> Link:
        """A link that is open, as far as can be seen, to be given back. Raises Lost, TimeUp or StoreError."""

    async def give(self, link: Link) -> None:
        """Put a link back; one that is no good is closed."""

    def renew(self) -> None:
        """Use none of the present links again: another server may have the name by now."""

    def close(self) -> None:
        """Close what is idle; what is in use closes when it is given back."""


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
        self._opening = 0
        self._is_closed = False

    async def take(self, until_s: float) -> Link:
        """See `Pool`."""
        failures: list[Exception] = []
        is_opening = False
        gate = self._gate
        with gate.held:
            while not self._is_closed:
                while self._idle:
                    link = self._idle.pop()
                    if link.is_quiet():
                        self._in_use.add(link)
                        return link
                    link.drop()
                if failures:
                    raise failures[0]
                if not is_opening and len(self._in_use) + self._opening < self._options.max_connections:
                    is_opening = True
                    self._start_opening(failures)
                try:
                    await gate.wait(until_s)
                except TimeUp:
                    what = "was ready" if is_opening else f"of {self._options.max_connections} was free"
                    raise TimeUp(f"no connection {what} in time") from None
        raise StoreError("the store is closed")

    async def give(self, link: Link) -> None:
        """See `Pool`."""
        with self._gate.held:
            is_ours = link in self._in_use
            self._in_use.discard(link)
            if is_ours and not self._is_closed and link.is_good:
                self._idle.append(link)
            else:
                link.drop()
            self._gate.open()

    def renew(self) -> None:
        """See `Pool`."""
        with self._gate.held:
            idle, self._idle, self._in_use = self._idle, [], set()
            for link in idle:
                link.drop()
            self._gate.open()

    def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True
        self.renew()

    def _start_opening(self, failures: list[Exception]) -> None:
        """Have a link made beside. Called while the gate is held."""
        gate = self._gate
        self._opening += 1

        async def work() -> None:
            link = error = None
            try:
                link = await self._opened()
            except Exception as problem:  # noqa: BLE001 - told to the caller who waits for it
                error = problem
            finally:
                with gate.held:
                    if gate is self._gate:
                        self._opening -= 1
                    if error is not None:
                        failures.append(error)
                    elif link is not None and not self._is_closed and gate is self._gate:
                        self._idle.append(link)
                    elif link is not None:
                        link.drop()
                    gate.open()

        try:
            self._port.beside(work)
        except Lost:
            self._opening -= 1
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
                        link = await Link.opened(
                            conninfo, port, now_s + (until_s - now_s) / left, prepares=self._options.prepare
                        )
                    except (Lost, TimeUp) as error:
                        failure = error
                        continue
                    self._next_host = number
                    link.allowed_ms = allowed_ms(self._options)
                    return link
            except Lost as error:
                failure = error
        if isinstance(failure, TimeUp):
            raise TimeUp("no server took a connection in time") from failure
        raise failure


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
        return link

    async def give(self, link: Link) -> None:
        """See `Pool`."""
        if not link.is_good:
            link.drop()
        await self._put(link.owner)

    async def _put(self, owner: Any) -> None:
        given = self._pool.putconn(owner)
        if self._awaited:
            await given

    def renew(self) -> None:
        """See `Pool`. The pool minds that itself."""

    def close(self) -> None:
        """See `Pool`."""
        self._is_closed = True


_pools: weakref.WeakSet[OwnPool] = weakref.WeakSet()


def _forget_links() -> None:
    """In a forked child: its parent goes on using them."""
    for pool in list(_pools):
        for link in (*pool._idle, *pool._in_use):
            link.forget()
        pool._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_links)
