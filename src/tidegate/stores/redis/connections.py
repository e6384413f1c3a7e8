"""One connection of ours: commands out, replies in, all by one deadline, and then dropped or as good as new.

The library's connection object does the talking (address, TLS, authentication, the protocol). What is added
here is what a limiter needs and no library gives: one deadline over all that is sent and received, be it in
a hundred pieces; and a connection on which anything went wrong is never used again, so that a late reply
cannot be taken for the answer to something else.

Both kinds have the same verbs. Those of the blocking kind are coroutines that never suspend.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Protocol, TypeAlias

from tidegate.stores.redis.causes import classified

Command: TypeAlias = Sequence[bytes]


class Connection(Protocol):
    """An open connection, used by one caller at a time."""

    async def call(self, commands: Sequence[Command], until_s: float) -> list[Any]:
        """The replies to commands that are sent together; a reply that is an error stands in its place.

        Raises StoreUnavailable, and has dropped itself, where not all replies came in time.
        """

    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come that nobody asked for."""

    def drop(self) -> None:
        """Close it without a word. May be said twice."""


_LENGTHS = [b"$%d" % length for length in range(512)]


def packed(commands: Iterable[Command]) -> bytes:
    """The commands as they are sent."""
    pieces = []
    for command in commands:
        pieces.append(b"*%d" % len(command))
        for word in command:
            length = len(word)
            pieces.append(_LENGTHS[length] if length < 512 else b"$%d" % length)
            pieces.append(word)
    pieces.append(b"")
    return b"\r\n".join(pieces)


class BlockingConnection:
    """A connection whose calls block, by the library's connection object `raw`, which is open already."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._poller: Any = None
        sock = getattr(raw, "_sock", None)
        if sock is not None and hasattr(sock, "fileno") and hasattr(select, "poll"):
            self._poller = select.poll()
            self._poller.register(sock.fileno(), select.POLLIN)

    async def call(self, commands: Sequence[Command], until_s: float) -> list[Any]:
        """The replies; see `Connection.call`."""
        raw = self._raw
        raw.until_s = until_s
        replies: list[Any] = []
        try:
            raw.send_packed_command((packed(commands),), check_health=False)
            for _ in commands:
                try:
                    replies.append(raw.read_response())
                except Exception as error:  # noqa: BLE001 - what is no reply is raised again at once
                    replies.append(_as_reply(error))
        except BaseException as error:
            self.drop()
            if isinstance(error, Exception):
                raise classified(error) from error
            raise
        return replies

    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come that nobody asked for."""
        return self._poller is None or not self._poller.poll(0)

    def drop(self) -> None:
        """Close it without a word."""
        self._raw.disconnect()


class AwaitedConnection:
    """A connection of one event loop, by the library's connection object `raw`, which is open already.

    Once it is in use it knows no deadline: whoever awaits it cancels what takes too long, and it is dropped.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._writer = getattr(raw, "_writer", None)  # the library may let go of it before we do

    async def call(self, commands: Sequence[Command], until_s: float) -> list[Any]:
        """The replies; see `Connection.call`."""
        raw = self._raw
        replies: list[Any] = []
        try:
            await raw.send_packed_command((packed(commands),), check_health=False)
            for _ in commands:
                try:
                    replies.append(await raw.read_response())
                except Exception as error:  # noqa: BLE001 - what is no reply is raised again at once
                    replies.append(_as_reply(error))
        except BaseException as error:
            self.drop()
            if isinstance(error, Exception):
                raise classified(error) from error
            raise
        return replies

    def unhurried(self) -> AwaitedConnection:
        """The same, without the limit of time that every reply had while it was made."""
        self._raw.socket_timeout = None
        return self

    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come that nobody asked for, as far as the loop has heard."""
        reader, writer = getattr(self._raw, "_reader", None), self._writer
        if reader is None or writer is None or reader.at_eof() or writer.is_closing():
            return False
        return not getattr(reader, "_buffer", b"")  # what has come too much would answer the next call

    def drop(self) -> None:
        """Close it without a word, and without waiting for what could not be sent."""
        if self._writer is not None:
            with suppress(RuntimeError):  # the loop has ended, and its sockets with it
                self._writer.transport.abort()
                self._raw._close()


def _as_reply(error: Exception) -> Exception:
    """An error that the server replied. Raises whatever else it is."""
    if "ResponseError" in {kind.__name__ for kind in type(error).__mro__}:
        return error
    raise error


@cache
def deadlined(kind: type[Any]) -> type[Any]:
    """The library's class of blocking connections, with a total deadline: its attribute `until_s`."""
    if not hasattr(kind, "_connect"):
        return kind

    class Deadlined(kind):  # type: ignore[misc]  # the class is the library's, and known at run time only
        until_s = math.inf

        def _connect(self) -> Any:
            return _Hurried(super()._connect(), self)

    Deadlined.__name__ = Deadlined.__qualname__ = kind.__name__
    return Deadlined


class _Hurried:
    """A socket that gives every send and receive what is left until its owner's deadline."""

    def __init__(self, sock: Any, owner: Any) -> None:
        self._sock = sock
        self._owner = owner
        self._timeout_ms = 0

    def sendall(self, *args: Any) -> None:
        self._hurry()
        self._sock.sendall(*args)

    def recv(self, *args: Any) -> Any:
        self._hurry()
        return self._sock.recv(*args)

    def recv_into(self, *args: Any) -> Any:
        self._hurry()
        return self._sock.recv_into(*args)

    def settimeout(self, timeout_s: float | None) -> None:
        """Nothing: the deadline counts, whatever a library sets."""

    def _hurry(self) -> None:
        left_s = self._owner.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the deadline is over")
        timeout_ms = int(left_s * 1_000) + 1
        if timeout_ms != self._timeout_ms:  # else the socket has it already, to the millisecond
            self._timeout_ms = timeout_ms
            self._sock.settimeout(timeout_ms / 1_000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)
