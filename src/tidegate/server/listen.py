"""Runs the application on uvicorn: the one file that knows it.

What uvicorn leaves open is bounded here. A client has ten seconds to send a request, head and body, and a
head has 64 KiB; connections are bounded in number; whoever is too slow is closed by a sweep once a second,
which costs a request nothing. SIGTERM and SIGINT end the server after the requests at hand, SIGHUP asks
for a reload. None of them ends it in between.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import MissingDependency

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:
    raise MissingDependency(
        "the server runs on uvicorn and httptools; install them with: pip install 'tidegate[server]'"
    ) from error

if TYPE_CHECKING:
    import socket

REQUEST_WITHIN_S: Final = 10.0
HEAD_BYTES_MOST: Final = 64 << 10
CONNECTIONS_MOST: Final = 4096
IDLE_S_MOST: Final = (
    75  # longer than the 60 s for which gateways keep a connection, so that they close it first
)
STOP_WITHIN_S: Final = 10

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\n"
    b"content-length: 31\r\nconnection: close\r\n\r\nThe head is larger than 64 KiB."
)
_TICKS_A_SECOND = 10  # of uvicorn's main loop


class BoundedProtocol(HttpToolsProtocol):
    """One connection, which notes since when a request is arriving, and how long its head is."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.arriving_since_s: float | None = self.loop.time()
        self._head_bytes = -1  # -1: no head is being read

    def on_message_begin(self) -> None:
        """Start the clock of a request at its first byte."""
        super().on_message_begin()
        self.arriving_since_s = self.loop.time()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_bytes = -1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request has arrived, or another one of the pipeline is still to come."""
        self.arriving_since_s = None
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that does not end is cut off."""
        super().data_received(data)
        if self._head_bytes >= 0 and self.parser is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MOST and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def close_if_late(self, now_s: float) -> None:
        """Close the connection if its request takes longer to arrive than it may."""
        since_s = self.arriving_since_s
        if since_s is not None and now_s - since_s > REQUEST_WITHIN_S and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn's server, telling when it is up, sweeping out what is late, and reloading when asked."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None], hangups: Hangups) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._hangups = hangups

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what has been loaded stays; looking through it again and again would hold requests up
        self._hangups.begin()
        self._on_started()

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_SECOND == 0:
            now_s = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedProtocol):
                    connection.close_if_late(now_s)
        return await super().on_tick(counter)


class Hangups:
    """Turns SIGHUP into calls of `reload`, one at a time; those that come meanwhile make one more.

    A signal before the loop runs is kept until it does. Where there is no such signal, nothing happens.
    """

    def __init__(self) -> None:
        self.reload: Callable[[], Awaitable[object]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._asked = False

    def listen(self) -> None:
        """Take the signal from now on."""
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, self._on_signal)

    def begin(self) -> None:
        """Reload in the running loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._asked and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._asked:
            self._asked = False
            if self.reload is not None:
                await self.reload()


def listen(app: Any, at: socket.socket, *, on_started: Callable[[], None], hangups: Hangups) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT, and return when the requests at hand are answered."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # whom to believe about addresses is decided by `http/keys.py` alone
        limit_concurrency=CONNECTIONS_MOST,
        timeout_keep_alive=IDLE_S_MOST,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a stranger's broken request is no news
    # uvicorn raises the signal that stopped it once more when all is done; a stop on request is a success.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    _Server(config, on_started, hangups).run(sockets=[at])
