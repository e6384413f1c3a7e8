"""The two ways of a round trip: by a thread that waits, and by an event loop that does not.

The coroutines of `ThreadLine` never suspend. A `LoopLine` belongs to one loop, with connections of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import PROBE_EVERY_US
from tidegate.stores.redis.address import Host
from tidegate.stores.redis.connections import Command, Connection
from tidegate.stores.redis.link import PROBE_WITHIN_S, Link
from tidegate.stores.redis.opening import Opener
from tidegate.stores.redis.pool import LoopPool


class ThreadLine:
    """The blocking face's way: its coroutines never suspend."""

    def __init__(self) -> None:
        self._beside: dict[object, threading.Thread] = {}
        self.now_s = time.monotonic

    async def beside(
        self, what: object, work: Callable[[], Coroutine[Any, Any, None]], until_s: float | None
    ) -> None:
        """See `Line.beside`: by a thread."""
        doing = self._beside.get(what)
        if doing is None or not doing.is_alive():
            doing = threading.Thread(
                target=lambda: run_blocking(work()), name="tidegate-looking-up", daemon=True
            )
            try:
                doing.start()
            except RuntimeError:  # the interpreter ends
                return
            self._beside[what] = doing  # two at a time, if two come at once: the work is throttled itself
        if until_s is not None:
            doing.join(max(0.0, until_s - time.monotonic()))

    async def pause(self, for_s: float) -> None:
        """See `Line.pause`."""
        time.sleep(for_s)  # noqa: ASYNC251 - the thread is the caller's own, and nothing is awaited in it

    async def opened(self, opener: Opener, host: Host) -> Connection:
        """See `Line.opened`."""
        return opener.open(host)

    async def check(self, link: Link, until_s: float) -> None:
        """See `Line.check`."""
        if link.health.is_open:
            link.probe_by_thread(until_s)
            link.health.check()

    async def run(self, link: Link, commands: Sequence[Command], until_s: float, calls: int = 1) -> list[Any]:
        """See `Line.run`."""
        await self.check(link, until_s)
        pool = link.pool
        try:
            held = pool.take(until_s)
            try:
                replies = await held[1].call(commands, until_s)
            except BaseException:
                pool.drop(held)
                raise
        except StoreUnavailable as error:
            link.failed(error, calls)
            raise
        pool.give(held)
        return replies


class LoopLine:
    """The awaited face's way on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pools: dict[Link, tuple[int, LoopPool]] = {}
        self._probing: dict[Link, asyncio.Task[None] | asyncio.TimerHandle] = {}
        self._beside: dict[object, asyncio.Task[None]] = {}
        self.is_closed = False
        self.now_s = loop.time

    async def beside(
        self, what: object, work: Callable[[], Coroutine[Any, Any, None]], until_s: float | None
    ) -> None:
        """See `Line.beside`: by a task."""
        doing = self._beside.get(what)
        if doing is None or doing.done():
            doing = self._beside[what] = self._loop.create_task(work())
        if until_s is not None:
            await asyncio.wait([doing], timeout=max(0.0, until_s - self._loop.time()))

    async def pause(self, for_s: float) -> None:
        """See `Line.pause`."""
        await asyncio.sleep(for_s)

    async def opened(self, opener: Opener, host: Host) -> Connection:
        """See `Line.opened`."""
        return await opener.open_awaited(host)

    async def check(self, link: Link, until_s: float) -> None:
        """See `Line.check`. Nothing is awaited but a probe that is overdue."""
        health = link.health
        if health.is_open:
            if not health.is_overdue(_now_us()):
                self.probe_by_loop(link)
            else:
                # Twice, for one that was under way may have been sent long ago, if the loop stood still.
                for _ in range(2):
                    await self._probe_now(link, until_s)
            health.check()

    async def run(self, link: Link, commands: Sequence[Command], until_s: float, calls: int = 1) -> list[Any]:
        """See `Line.run`."""
        await self.check(link, until_s)
        try:
            return await self._by_deadline(self._call(link, commands, until_s), until_s)
        except StoreUnavailable as error:
            link.failed(error, calls)
            raise

    def close(self) -> None:
        """Close every connection of this loop, and end its probes. Called on the loop."""
        self.is_closed = True
        for _, pool in self._pools.values():
            pool.close()
        for pending in (*self._probing.values(), *self._beside.values()):
            pending.cancel()
        self._pools.clear()
        self._beside.clear()
        self._probing.clear()

    def probe_by_loop(self, link: Link) -> None:
        """Have the server probed beside the callers, until it answers or nobody asks any more."""
        link.demanded_at_s = time.monotonic()
        if link not in self._probing:
            self._probe_next(link)

    async def _probe_now(self, link: Link, until_s: float) -> None:
        """Wait for a probe, within the deadline, unless it is not time for one."""
        pending = self._probing.get(link)
        if isinstance(pending, asyncio.TimerHandle):
            pending.cancel()
            del self._probing[link]
        self.probe_by_loop(link)
        pending = self._probing.get(link)
        if isinstance(pending, asyncio.Task) and link.health.is_open:
            await asyncio.wait([pending], timeout=max(0.0, until_s - self._loop.time()))

    def _probe_next(self, link: Link) -> None:
        self._probing.pop(link, None)
        if self.is_closed or not link.wants_probe():
            return
        if link.health.take_probe(_now_us()):
            task = self._loop.create_task(self._probe_once(link))
            self._probing[link] = task
            task.add_done_callback(lambda _: self._probe_later(link))
        else:
            self._probe_later(link)

    def _probe_later(self, link: Link) -> None:
        if not self.is_closed and not self._loop.is_closed():
            self._probing[link] = self._loop.call_later(PROBE_EVERY_US / 2_000_000, self._probe_next, link)

    async def _probe_once(self, link: Link) -> None:
        try:
            until_s = self._loop.time() + PROBE_WITHIN_S
            replies = await self._by_deadline(self._call(link, [link.probe], until_s), until_s)
            link.judge_probe(replies[0])
        except StoreError:
            self._pool(link).clear()  # a connection that is just being made may still be the one that helps
        finally:
            link.health.probed()

    async def _call(self, link: Link, commands: Sequence[Command], until_s: float) -> list[Any]:
        pool = self._pool(link)
        connection = await pool.take()
        try:
            replies = await connection.call(commands, until_s)
        except BaseException:
            pool.drop(connection)
            raise
        pool.give(connection)
        return replies

    def _pool(self, link: Link) -> LoopPool:
        age, pool = self._pools.get(link, (-1, None))
        if pool is None:
            for gone in [other for other in self._pools if other.is_closed]:
                self._pools.pop(gone)[1].renew()
            pool = LoopPool(link.open_awaited, link.most)
        elif age != link.age:
            pool.renew()
        self._pools[link] = link.age, pool
        return pool

    async def _by_deadline(self, work: Coroutine[Any, Any, list[Any]], until_s: float) -> list[Any]:
        """The replies, unless the deadline comes first; what has arrived by then counts, also if unread.

        A loop that was busy finds the reply and the end of the deadline in the same turn. So the deadline
        takes effect a turn later, when whoever waited for the reply has had it.
        """
        task = asyncio.current_task()
        assert task is not None
        end = _End(task)
        timer = self._loop.call_at(until_s, end.soon, self._loop)
        try:
            return await work
        except asyncio.CancelledError:
            if end.has_come and task.uncancel() <= 0:
                raise StoreUnavailable("no answer came in time", "deadline") from None
            raise
        finally:
            timer.cancel()
            end.is_over = True


class _End:
    """The end of a deadline, which cancels a task unless that is done first."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.has_come = self.is_over = False

    def soon(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self.now)

    def now(self) -> None:
        if not self.is_over:
            self.has_come = True
            self._task.cancel()


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
