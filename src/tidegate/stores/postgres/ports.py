"""How one waits: for a descriptor, for a turn, for work done beside. All that faces and loops differ in.

What asks the server is written once, as coroutines over a `Port`. Those of a `ThreadPort` never suspend: they
block the thread. Those of a `LoopPort` are awaited on its event loop. Instants are seconds of a monotonic
clock, the loop's own on a loop; whoever waits says until when, and gets `TimeUp` then.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

from tidegate.drive import run_blocking
from tidegate.stores.postgres.causes import Lost, TimeUp

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class Gate(Protocol):
    """Where callers wait for what others give back. `held` guards what they look at meanwhile."""

    held: AbstractContextManager[object, bool | None]

    async def wait(self, until_s: float) -> None:
        """Let go of `held` until somebody opens, and hold it again. Raises TimeUp."""

    def open(self) -> None:
        """Wake all that wait. Called while `held`."""


class Port(Protocol):
    """A way to wait."""

    def now_s(self) -> float:
        """The instant on the clock that deadlines are told by."""

    async def ready(self, descriptor: int, until_s: float, *, to_write: bool = False) -> None:
        """Wait until something can be read, or with `to_write` also written. Raises TimeUp."""

    async def sleep(self, for_s: float) -> None:
        """Let some time pass."""

    async def addresses(self, host: str, port: str) -> list[str]:
        """The addresses of a host. May take long; raises Lost if it has none."""

    def gate(self) -> Gate:
        """A new gate."""

    def beside(self, work: Work) -> None:
        """Have work done beside the callers, which handles its own errors. Raises Lost if that cannot be."""


class ThreadPort:
    """Waits by blocking the thread; work beside is done by threads of its own."""

    def __init__(self) -> None:
        self._pollers: dict[int, Any] = {}  # by descriptor, which one thread at a time waits for
        _ports.add(self)

    def now_s(self) -> float:
        """See `Port`."""
        return time.monotonic()

    async def ready(self, descriptor: int, until_s: float, *, to_write: bool = False) -> None:
        """See `Port`."""
        left_s = max(0.0, until_s - time.monotonic())
        if hasattr(select, "poll"):
            poller = self._pollers.get(descriptor)
            if poller is None or to_write:
                poller = select.poll()
                poller.register(descriptor, select.POLLIN | (select.POLLOUT if to_write else 0))
                if not to_write:
                    self._pollers[descriptor] = poller
            is_ready = bool(poller.poll(left_s * 1_000))
        else:
            is_ready = any(select.select([descriptor], [descriptor] if to_write else [], [], left_s))
        if not is_ready:
            raise TimeUp

    async def sleep(self, for_s: float) -> None:
        """See `Port`."""
        time.sleep(for_s)  # noqa: ASYNC251 - on a thread of its own, where nothing else is awaited

    async def addresses(self, host: str, port: str) -> list[str]:
        """See `Port`."""
        try:
            return _addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            raise _unknown(host, error) from error

    def gate(self) -> Gate:
        """See `Port`."""
        return _ThreadGate()

    def beside(self, work: Work) -> None:
        """See `Port`."""
        thread = threading.Thread(target=lambda: run_blocking(work()), name="tidegate-postgres", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter ends, or there is no room for a thread
            raise Lost(f"no connection can be made: {error}") from error


_ports: weakref.WeakSet[ThreadPort] = weakref.WeakSet()


def _forget_pollers() -> None:
    """In a forked child: a thread of the parent's may have been waiting by one of them."""
    for port in list(_ports):
        port._pollers = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pollers)


class LoopPort:
    """Waits on one event loop, and is used on that loop alone; work beside is done by tasks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def now_s(self) -> float:
        """See `Port`."""
        return self._loop.time()

    async def ready(self, descriptor: int, until_s: float, *, to_write: bool = False) -> None:
        """See `Port`."""
        loop, ready = self._loop, self._loop.create_future()
        timer = loop.call_at(until_s, _late, loop, ready)
        loop.add_reader(descriptor, _set, ready, True)
        if to_write:
            loop.add_writer(descriptor, _set, ready, True)
        try:
            if not await ready:
                raise TimeUp
        finally:
            timer.cancel()
            loop.remove_reader(descriptor)
            if to_write:
                loop.remove_writer(descriptor)

    async def sleep(self, for_s: float) -> None:
        """See `Port`."""
        await asyncio.sleep(for_s)

    async def addresses(self, host: str, port: str) -> list[str]:
        """See `Port`."""
        try:
            return _addresses(await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            raise _unknown(host, error) from error

    def gate(self) -> Gate:
        """See `Port`."""
        return _LoopGate(self._loop)

    def beside(self, work: Work) -> None:
        """See `Port`."""
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Break off all work beside. Called on the loop."""
        for task in self._tasks:
            task.cancel()


class _ThreadGate:
    def __init__(self) -> None:
        self._condition = threading.Condition()  # reentrant: a signal handler may come in while it is held
        self.held: AbstractContextManager[object, bool | None] = self._condition

    async def wait(self, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not self._condition.wait(left_s):
            raise TimeUp

    def open(self) -> None:
        self._condition.notify_all()


class _LoopGate:
    held: AbstractContextManager[object, bool | None] = nullcontext()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def wait(self, until_s: float) -> None:
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        timer = self._loop.call_at(until_s, _late, self._loop, waiter)
        try:
            if not await waiter:
                raise TimeUp
        finally:
            timer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def open(self) -> None:
        while self._waiting:
            _set(self._waiting.popleft(), True)


def _set(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


def _late(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[bool]) -> None:
    """The time is up, a turn later: a loop that was busy finds the reply and this in the same turn."""
    loop.call_soon(_set, waiter, False)


def _addresses(found: list[Any]) -> list[str]:
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _unknown(host: str, error: Exception) -> Lost:
    return Lost(f"no address is known for {host}: {error}")
