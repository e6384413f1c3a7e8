"""The connections of one server: for any number of threads, and for each event loop.

The one used last is taken first, so that as few stay open as are needed. A connection is made beside
whoever wants it (a thread, or a task): looking up a name or a slow greeting may take longer than a deadline
allows, and what becomes ready too late for one caller is there for the next. Those waiting take what comes
first, a new connection or one given back. An error of making one is told to the caller who caused it. One
that has been made for longer than `OPENING_S` waits for something that may never come: a network that has
swallowed its greeting does not bring it after it has healed. So those who wait begin another one.

A forked child has none of its parent's connections: it forgets them unused and opens its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import AwaitedConnection, BlockingConnection

OPENING_S = 0.25


class Pool:
    """Blocking connections, at most `most`. Waiting for one ends by the caller's deadline."""

    def __init__(self, open_one: Callable[[], BlockingConnection], most: int) -> None:
        self._open_one = open_one
        self._most = most
        self._is_closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()  # reentrant: a signal handler may come in while it is held
        self._idle: list[tuple[int, BlockingConnection]] = []
        self._open = 0  # those in use and being made, too
        self._opening: list[float] = []  # since when
        self._waiting = 0
        self._age = 0  # connections of an earlier age are not used again

    def take(self, until_s: float) -> tuple[int, BlockingConnection]:
        """A connection that is open, as far as can be seen, to be given back or dropped.

        Raises StoreUnavailable if there is none in time. `until_s` is on the monotonic clock.
        """
        while True:
            try:
                held = self._idle.pop()  # one step, safe without the lock
            except IndexError:
                break
            if held[1].is_quiet() and held[0] == self._age:
                return held
            self.drop(held)
        return self._wait(until_s)

    def give(self, held: tuple[int, BlockingConnection]) -> None:
        """Put back a connection that has answered all it was asked."""
        if held[0] != self._age or self._is_closed:
            self.drop(held)
            return
        self._idle.append(held)
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def drop(self, held: tuple[int, BlockingConnection]) -> None:
        """Close a connection for good."""
        held[1].drop()
        with self._changed:
            self._open -= 1
            if self._waiting:
                self._changed.notify()

    def renew(self) -> None:
        """Use none of the present connections again: whoever has the name now is asked from here on."""
        self._age += 1
        self.clear()

    def clear(self) -> None:
        """Close what is idle."""
        while self._idle:
            try:
                self.drop(self._idle.pop())
            except IndexError:
                return

    def close(self) -> None:
        """Close what is idle; what is in use closes when it is given back."""
        self._is_closed = True
        self.renew()
        with self._changed:
            self._changed.notify_all()

    def _wait(self, until_s: float) -> tuple[int, BlockingConnection]:
        ended: list[StoreError | None] = []  # how it went, once the opening of this caller has ended
        is_opening = False
        with self._changed:
            self._waiting += 1
            try:
                while not self._is_closed:
                    if self._idle:
                        return self._idle.pop()
                    if ended:
                        is_opening, error = False, ended.pop()
                        if error is not None:
                            raise error
                    if not is_opening and self._is_another_wanted():
                        is_opening = True
                        self._start_opening(ended)
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        what = "is ready" if is_opening else f"of {self._most} is free"
                        raise StoreUnavailable(f"no connection {what} in time", "deadline")
                    self._changed.wait(left_s)
            finally:
                self._waiting -= 1
        raise StoreError("the store is closed")

    def _is_another_wanted(self) -> bool:
        return self._open < self._most and hopeful(self._opening) < self._waiting

    def _start_opening(self, ended: list[StoreError | None]) -> None:
        """Make a connection in a thread of its own. Called under the lock."""
        since_s = time.monotonic()
        self._open += 1
        self._opening.append(since_s)
        try:
            threading.Thread(
                target=self._open_beside,
                args=(ended, self._age, since_s),
                name="tidegate-connecting",
                daemon=True,
            ).start()
        except RuntimeError as error:  # the interpreter ends, or there is no room for a thread
            self._open -= 1
            self._opening.remove(since_s)
            raise StoreUnavailable(f"no connection can be made: {error}", "connection") from error

    def _open_beside(self, ended: list[StoreError | None], age: int, since_s: float) -> None:
        try:
            made = self._open_one()
        except Exception as error:  # noqa: BLE001 - told to the caller who waits for it
            with self._changed:
                self._open -= 1
                self._opening.remove(since_s)
                ended.append(classified(error))
                self._changed.notify_all()
            return
        with self._changed:
            self._opening.remove(since_s)
            ended.append(None)
            if age == self._age and not self._is_closed:
                self._idle.append((age, made))
                self._changed.notify_all()  # one of them takes it
                return
            self._open -= 1
            self._changed.notify_all()
        made.drop()


def hopeful(opening: Iterable[float]) -> int:
    """How many of the connections that are being made, since these instants, may be ready soon."""
    lately_s = time.monotonic() - OPENING_S
    return sum(since_s > lately_s for since_s in opening)


class LoopPool:
    """The connections of one event loop. Used on that loop alone, so nothing needs a lock."""

    def __init__(self, open_one: Callable[[], Awaitable[AwaitedConnection]], most: int) -> None:
        self._open_one = open_one
        self._most = most
        self._idle: list[AwaitedConnection] = []
        self._all: set[AwaitedConnection] = set()
        self._opening: dict[asyncio.Task[None], float] = {}  # since when
        self._waiting: deque[asyncio.Future[AwaitedConnection]] = deque()
        self._age = 0  # connections of an earlier age are not used again
        self._is_closed = False

    async def take(self) -> AwaitedConnection:
        """A connection that is open, as far as the loop has heard. Whoever awaits it minds the deadline."""
        while self._idle:
            taken = self._idle.pop()
            if taken.is_quiet():
                return taken
            self.drop(taken)
        if self._is_closed:
            raise StoreError("the store is closed")
        waiter: asyncio.Future[AwaitedConnection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._open_more()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give(waiter.result())
            raise

    def give(self, connection: AwaitedConnection) -> None:
        """Put back a connection that has answered all it was asked."""
        if connection not in self._all:
            connection.drop()  # its time has passed while it was in use
            self._open_more()
            return
        waiter = self._next_waiter()
        if waiter is None:
            self._idle.append(connection)
        else:
            waiter.set_result(connection)

    def drop(self, connection: AwaitedConnection) -> None:
        """Close a connection for good."""
        self._all.discard(connection)
        connection.drop()
        self._open_more()

    def renew(self) -> None:
        """Use none of the present connections again."""
        self.clear()
        self._all = set()
        self._age += 1

    def clear(self) -> None:
        """Close what is idle."""
        idle, self._idle = self._idle, []
        for connection in idle:
            self._all.discard(connection)
            connection.drop()

    def close(self) -> None:
        """Close everything at once; what is in use breaks off."""
        self._is_closed = True
        for task in self._opening:
            task.cancel()
        for connection in self._all:
            connection.drop()
        self.renew()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(StoreError("the store is closed"))

    def _next_waiter(self) -> asyncio.Future[AwaitedConnection] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None

    def _open_more(self) -> None:
        wanted = sum(not waiter.done() for waiter in self._waiting)
        if (
            self._is_closed
            or wanted <= hopeful(self._opening.values())
            or len(self._all) + len(self._opening) >= self._most
        ):
            return
        task = asyncio.get_running_loop().create_task(self._open_beside())
        self._opening[task] = time.monotonic()
        task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task, None)
        if not task.cancelled():
            self._open_more()

    async def _open_beside(self) -> None:
        age = self._age
        try:
            made = await self._open_one()
        except Exception as error:  # noqa: BLE001 - told to the caller who waits for it
            waiter = self._next_waiter()
            if waiter is not None:
                waiter.set_exception(classified(error))
            return
        if self._is_closed or age != self._age:
            made.drop()
            return
        self._all.add(made)
        self.give(made)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_connections() -> None:
    """In a forked child: its parent goes on using them."""
    for pool in list(_pools):
        pool._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_connections)
