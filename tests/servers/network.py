# A network that fails on demand: a port passing bytes on to another one, or loses, holds, delays, cuts them.
#
# One thread with one event loop carries everything. Connections are bounded, and so is what waits in either
# direction: beyond that, whoever sends is not read. A connection that has lost bytes stays silent in that
# direction until it is dropped, for a stream with a hole in it is nothing that a network delivers.

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Self

from tests.servers.ports import claim_port, release_port

HOST = "127.0.0.1"
CONNECTIONS_MOST = 1_000
WAITING_BYTES_MOST = 1 << 20
COMMAND_S = 10.0

Direction = str
REQUESTS, REPLIES = "requests", "replies"


class Network:
    """The way to a port of this machine, by another port; a context manager.

    What is set holds for all connections, those that are open included, until `heal`. Every method has taken
    effect when it returns.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = claim_port()
        self.accepted = 0  # connections, since the beginning
        self.swallows: frozenset[Direction] = frozenset()
        self.holds = False
        self.delay_s = {REQUESTS: 0.0, REPLIES: 0.0}
        self.cut: _Cut | None = None
        self.doubles: str = ""  # "at once" or "late": how the next reply is sent a second time
        self.pairs: set[_Pair] = set()
        self._listening: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="network", daemon=True)

    def through(self, url: str) -> str:
        """The address of the target (redis://... or postgresql://...) by way of this network."""
        assert f"127.0.0.1:{self.target_port}" in url, url
        return url.replace(f"127.0.0.1:{self.target_port}", f"127.0.0.1:{self.port}")

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self.pairs)

    # --- what it can do ---

    def heal(self) -> None:
        """Accept connections and pass everything on at once, what was held first; what was lost is lost."""

        async def heal() -> None:
            self.swallows, self.cut = frozenset(), None
            self.delay_s = {REQUESTS: 0.0, REPLIES: 0.0}
            self.holds = False
            for end in self._ends():
                end.arrive_all()
                end.read_or_wait()
            self._listen()

        self._run(heal)

    def swallow(self, *directions: Direction) -> None:
        """Accept connections, and lose what is sent: both ways, or only REQUESTS, or only REPLIES.

        With lost requests the target hears nothing. With lost replies it does what it is asked, and nobody
        learns of it.
        """
        self._now(lambda: setattr(self, "swallows", frozenset(directions or (REQUESTS, REPLIES))))

    def hold(self) -> None:
        """Deliver nothing for now, either way, but lose nothing."""

        async def hold() -> None:
            self.holds = True
            for end in self._ends():
                end.read_or_wait()

        self._run(hold)

    def delay(self, reply_s: float = 0.0, *, request_s: float = 0.0) -> None:
        """Deliver replies, and requests, so much later; what is sent in a row arrives in a row."""
        self._now(lambda: setattr(self, "delay_s", {REQUESTS: request_s, REPLIES: reply_s}))

    def cut_after(self, count_bytes: int, direction: Direction = REPLIES, *, once: bool = False) -> None:
        """Pass so many more bytes on each connection and end it; with `once`, only the first to get there."""
        self._now(lambda: setattr(self, "cut", _Cut(count_bytes, direction, once)))

    def double(self, *, late: bool = False) -> None:
        """Deliver the next reply twice: in a row, or the second time when the next request comes by."""
        self._now(lambda: setattr(self, "doubles", "late" if late else "at once"))

    def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""
        self._now(self._deafen)

    def drop(self) -> None:
        """Break all connections (RST); new ones are taken."""
        self._now(self._break)

    def lead_to(self, port: int) -> None:
        """Let new connections lead to another port."""
        self._now(lambda: setattr(self, "target_port", port))

    # --- beginning and end ---

    def start(self) -> Self:
        """Begin to listen."""
        self._thread.start()
        self._now(self._listen)
        return self

    def close(self) -> None:
        """Break all connections and stop listening."""

        async def end() -> None:
            self._deafen()
            self._break()
            await asyncio.sleep(0)  # each task has begun, and will close what it was given
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._break()  # those that were just being made
            await asyncio.sleep(0)  # transports close in the next turn of the loop

        if self._thread.is_alive():
            self._run(end)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(COMMAND_S)
        self.loop.close()
        release_port(self.port)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the loop's thread ---

    def _now(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self._run(call)

    def _run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(function(), self.loop).result(COMMAND_S)

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = socket.create_server((HOST, self.port), backlog=CONNECTIONS_MOST)
            self._listening.setblocking(False)
            self.loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        assert self._listening is not None
        while True:
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            task = self.loop.create_task(_Pair(self).begin(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _deafen(self) -> None:
        if self._listening is not None:
            self._accept()  # whoever has come before stays
            self.loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _break(self) -> None:
        for pair in tuple(self.pairs):
            pair.abort()

    def _ends(self) -> list[_End]:
        return [end for pair in self.pairs for end in (pair.client, pair.server)]


class _Cut:
    """Where connections break, and how far each has come since this was set."""

    def __init__(self, count_bytes: int, direction: Direction, once: bool) -> None:
        self.count_bytes = count_bytes
        self.direction = direction
        self.once = once
        self.passed: dict[_Pair, int] = {}


class _End(asyncio.Protocol):
    """One end of a pair: what it reads travels in its direction to the other end."""

    def __init__(self, pair: _Pair, direction: Direction) -> None:
        self.pair = pair
        self.direction = direction
        self.transport: asyncio.Transport | None = None
        self.other_is_full = False
        self.waiting: deque[bytes] = deque()  # what it has read and the other end has not been given
        self.waiting_bytes = 0
        self.due_at_s = 0.0  # by the clock of the loop: when the last of them may arrive
        self.silent = False  # it has lost bytes

    @property
    def other(self) -> _End:
        return self.pair.server if self is self.pair.client else self.pair.client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.read_or_wait()

    def data_received(self, data: bytes) -> None:
        self._travel(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self._travel(b"")  # the end of the stream travels like its bytes

    def pause_writing(self) -> None:
        self.other.other_is_full = True
        self.other.read_or_wait()

    def resume_writing(self) -> None:
        self.other.other_is_full = False
        self.other.read_or_wait()

    def read_or_wait(self) -> None:
        """Read on, unless there is a reason to wait."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.other_is_full or self.waiting_bytes > WAITING_BYTES_MOST or not self._may_arrive():
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _travel(self, data: bytes) -> None:
        network = self.pair.network
        self.silent = self.silent or self.direction in network.swallows
        if self.silent:
            self.pair.forget_if_over()
            return
        if data and self.direction == REPLIES and network.doubles:
            self.pair.late_double = data if network.doubles == "late" else b""
            data *= 1 if network.doubles == "late" else 2
            network.doubles = ""
        elif self.direction == REQUESTS and self.pair.late_double:
            late, self.pair.late_double = self.pair.late_double, b""
            self.other._travel(late)
        self.waiting.append(data)
        self.waiting_bytes += len(data)
        delay_s = network.delay_s[self.direction]
        if delay_s or len(self.waiting) > 1:
            self.due_at_s = max(self.due_at_s, network.loop.time() + delay_s)
            network.loop.call_at(self.due_at_s, self._arrive)
        else:
            self._arrive()
        self.read_or_wait()

    def arrive_all(self) -> None:
        """Deliver what waits, whenever it was due, if anything may be delivered now."""
        while self.waiting and self._may_arrive():
            self._arrive()

    def _may_arrive(self) -> bool:
        return self.pair.is_complete and not self.pair.network.holds

    def _arrive(self) -> None:
        if not self.waiting or not self._may_arrive():
            return
        data = self.waiting.popleft()
        self.waiting_bytes -= len(data)
        receiver = self.other.transport
        if receiver is not None and not receiver.is_closing():
            if data:
                self._write(receiver, data)
            else:
                receiver.close()
        self.pair.forget_if_over()
        self.read_or_wait()

    def _write(self, receiver: asyncio.Transport, data: bytes) -> None:
        cut = self.pair.network.cut
        if cut is None or cut.direction != self.direction:
            receiver.write(data)
            return
        left = cut.count_bytes - cut.passed.get(self.pair, 0)
        cut.passed[self.pair] = cut.passed.get(self.pair, 0) + len(data)
        receiver.write(data[:left])
        if len(data) >= left:
            if cut.once:
                self.pair.network.cut = None
            self.pair.end()


class _Pair:
    """A connection from a client and the one that continues it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.client = _End(self, REQUESTS)
        self.server = _End(self, REPLIES)
        self.is_complete = False
        self.late_double = b""  # a reply that is still to be sent a second time

    async def begin(self, connection: socket.socket) -> None:
        """Take the client's connection and continue it; break it where the target does not take it."""
        network = self.network
        network.accepted += 1
        network.pairs.add(self)
        try:
            await network.loop.connect_accepted_socket(lambda: self.client, connection)
            if len(network.pairs) > CONNECTIONS_MOST:
                self.abort()
            elif REQUESTS in network.swallows:
                self.client.silent = True  # the target shall not even hear of the client
            else:
                await network.loop.create_connection(lambda: self.server, HOST, network.target_port)
        except OSError:
            self.abort()
        self.is_complete = True
        for end in (self.client, self.server):
            end.arrive_all()  # some loops read a little before they pause
            end.read_or_wait()
        if self.client.transport is None:
            self.end()  # it was dropped meanwhile

    def abort(self) -> None:
        """Break both connections at once, by RST."""
        for end in (self.client, self.server):
            if end.transport is not None:
                connection: socket.socket = end.transport.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.transport.abort()
        self.network.pairs.discard(self)

    def end(self) -> None:
        """Close both connections, once what was written has left."""
        for end in (self.client, self.server):
            end.silent = True
            if end.transport is not None:
                end.transport.close()
        self.forget_if_over()

    def forget_if_over(self) -> None:
        if self.client.transport is None and self.server.transport is None:
            self.network.pairs.discard(self)
