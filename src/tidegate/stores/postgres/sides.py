"""What one event loop has of a store: its connections, and the lane in which its callers travel together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from tidegate.core.outcome import Outcome
from tidegate.errors import StoreUnavailable
from tidegate.stores.lane import Lane
from tidegate.stores.postgres.address import Options
from tidegate.stores.postgres.asking import Asking, weight_of
from tidegate.stores.postgres.ports import LoopPort, Port
from tidegate.stores.postgres.wire import Ask, Held

BATCHES_MOST = 4
"""Calls of one event loop that are under way at once; each has a connection of its own."""
APART_MOST = 4
"""Calls that wait for rows which others hold, beside those; with so many under way one is busy at once."""


class LoopSide:
    """What one event loop has: its connections, and the lane in which its callers travel together."""

    def __init__(
        self,
        asking_by: Callable[[Port], Asking],
        options: Options,
        loop: asyncio.AbstractEventLoop,
        sides: dict[asyncio.AbstractEventLoop, LoopSide],
    ) -> None:
        self._port = LoopPort(loop)
        self.asking = asking_by(self._port)
        batches = min(BATCHES_MOST, options.max_connections)
        self._lane: Lane[tuple[Ask, int | None], Any] = Lane(
            self._send, late=self._late, batches_most=batches
        )
        self._loop, self._sides = loop, sides
        self._apart: set[asyncio.Task[list[Any]]] = set()
        self._apart_most = max(1, min(APART_MOST, options.max_connections - batches))
        self._staying = self._stay()

    async def begin(self) -> None:
        """From now on the end of the loop closes everything."""
        await anext(self._staying)

    async def ask(self, ask: Ask, now_us: int | None, until_s: float) -> list[Outcome]:
        """The outcomes of one request, which travels with others."""
        if self.asking.health.is_open:
            await self.asking.trips.check(until_s)
        outcomes: list[Outcome] = await self._lane.ask((ask, now_us), weight_of(ask.charges), until_s)
        return outcomes

    def close(self) -> None:
        """Close the lane and the connections. Called on the loop."""
        self._sides.pop(self._loop, None)
        self._lane.close()
        for task in self._apart:
            task.cancel()
        self._port.close()
        self.asking.trips.pool.close()

    async def _send(self, items: Sequence[tuple[Ask, int | None]], until_s: float) -> Sequence[Any]:
        """The answers to requests that travel together; those of one instant are one call."""
        answers: list[Any] = [None] * len(items)
        for instant in dict.fromkeys(now_us for _, now_us in items):
            places = [place for place, (_, now_us) in enumerate(items) if now_us == instant]
            decided = await self.asking.together([items[place][0] for place in places], instant, until_s)
            for place, answer in zip(places, decided, strict=True):
                answers[place] = answer
            held = [place for place in places if isinstance(answers[place], Held)]
            if held:
                later = self._asked_apart([items[place][0] for place in held], instant, until_s)
                for place, answer in zip(held, later, strict=True):
                    answers[place] = answer
        return answers

    def _asked_apart(self, asks: list[Ask], now_us: int | None, until_s: float) -> list[Any]:
        """What will be answered to requests for rows that others hold: nobody else waits for that."""
        if len(self._apart) >= self._apart_most:
            busy = StoreUnavailable("others hold the row, and some wait for such a row already", "busy")
            self.asking.trips.failed(busy, len(asks))
            return [busy] * len(asks)
        answers: list[asyncio.Future[Any]] = [self._loop.create_future() for _ in asks]

        def arrived(task: asyncio.Task[list[Any]]) -> None:
            self._apart.discard(task)
            for place, answer in enumerate(answers):
                if task.cancelled():
                    answer.cancel()
                else:
                    answer.set_result(task.exception() or task.result()[place])

        task = self._loop.create_task(self.asking.together(asks, now_us, until_s, waits=True))
        self._apart.add(task)
        task.add_done_callback(arrived)
        return answers

    def _late(self, items: int) -> None:
        if items:
            self.asking.trips.failed(StoreUnavailable("no answer came in time", "deadline"), items)

    async def _stay(self) -> AsyncGenerator[None]:
        """A generator that is never finished: a loop that ends in order finishes it, and so closes us."""
        try:
            yield
        finally:
            self.close()
