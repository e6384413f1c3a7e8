"""Making a connection, to a server that is known or to the one that sentinels call the master.

Written once for both faces, over two functions that make a connection to a host: of a sentinel, of a server.
It happens beside the callers (`pool.py`), so it has a limit of time of its own.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.redis.address import Host
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import AwaitedConnection, BlockingConnection, Connection
from tidegate.stores.redis.drivers import Makers, Target
from tidegate.units import US_PER_S

OPEN_WITHIN_S = 1.0
"""A connection is made beside the callers, so it may take longer than a decision; but not for ever."""
SENTINEL_WITHIN_S = 0.25
NOT_SERVED = {
    "blocking": "an async client serves AsyncLimiter; give Limiter a sync client, or a URL: it does for both",
    "awaited": "a sync client serves Limiter; give AsyncLimiter an async client, or a URL: it does for both",
}

To: TypeAlias = Callable[[Host | None], Awaitable[Connection]]


class Opener(Protocol):
    """Makes connections of either kind, ready for commands. None is the one server that is meant."""

    def open(self, host: Host | None) -> BlockingConnection:
        """A blocking one. Raises StoreUnavailable, or StoreError if the target serves only the other face."""

    async def open_awaited(self, host: Host | None) -> AwaitedConnection:
        """One of the running event loop."""


def opener(target: Target, deadline_us: int) -> Opener:
    """Whoever makes the connections that this target needs, for calls that may take so long."""
    within_s = max(OPEN_WITHIN_S, deadline_us / US_PER_S)
    server = _Server(target.servers, within_s)
    return server if target.kind != "sentinel" else _Master(target, server)


class _Server:
    """Makes connections to a server whose address is known."""

    def __init__(self, makers: Makers, within_s: float) -> None:
        self._makers = makers
        self.within_s = within_s

    def open(self, host: Host | None) -> BlockingConnection:
        if self._makers.blocking is None:
            raise StoreError(NOT_SERVED["blocking"])
        return self._makers.blocking.open(host, self.within_s)

    async def open_awaited(self, host: Host | None) -> AwaitedConnection:
        if self._makers.awaited is None:
            raise StoreError(NOT_SERVED["awaited"])
        return await self._makers.awaited.open_awaited(host, self.within_s)


class _Master:
    """Makes connections to the server that is master by the word of the first sentinel that answers."""

    def __init__(self, target: Target, servers: _Server) -> None:
        self._servers, self._sentinels = servers, _Server(target.sentinels, SENTINEL_WITHIN_S)
        self._name = target.master
        self._where = target.where
        self._hosts = target.hosts

    def open(self, host: Host | None) -> BlockingConnection:
        async def to_sentinel(host: Host | None) -> Connection:
            return self._sentinels.open(host)

        async def to_server(host: Host | None) -> Connection:
            return self._servers.open(host)

        opened = run_blocking(self._open(to_sentinel, to_server))
        assert isinstance(opened, BlockingConnection)
        return opened

    async def open_awaited(self, host: Host | None) -> AwaitedConnection:
        opened = await self._open(self._sentinels.open_awaited, self._servers.open_awaited)
        assert isinstance(opened, AwaitedConnection)
        return opened

    async def _open(self, to_sentinel: To, to_server: To) -> Connection:
        told = []
        for host in self._hosts:
            try:
                said = await _said(to_sentinel, host, self._name)
            except StoreError as error:
                told.append(f"{host[0]}:{host[1]}: {error}")
                continue
            self._hosts = (host, *(other for other in self._hosts if other != host))
            return await self._checked(await to_server(said))
        raise StoreUnavailable(f"no sentinel names {self._where}: {'; '.join(told)[:500]}", "connection")

    async def _checked(self, connection: Connection) -> Connection:
        """The connection, if its server says that it is a master, or is not allowed to say."""
        (role,) = await connection.call([(b"ROLE",)], time.monotonic() + self._servers.within_s)
        if isinstance(role, Exception):
            error = classified(role)
            if isinstance(error, StoreUnavailable) and error.cause != "authentication":
                connection.drop()
                raise error
        elif _word(role[0]) != "master":
            connection.drop()
            raise StoreUnavailable(f"{self._where} is no master yet, or no longer", "connection")
        return connection


async def _said(to_sentinel: To, host: Host, name: str) -> Host:
    connection = await to_sentinel(host)
    try:
        (reply,) = await connection.call(
            [(b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.encode())], time.monotonic() + SENTINEL_WITHIN_S
        )
    finally:
        connection.drop()
    if isinstance(reply, Exception):
        raise classified(reply)
    if not reply:
        raise StoreUnavailable(f"it knows no master {name!r}", "connection")
    return _word(reply[0]), int(reply[1])


def _word(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
