"""What one event loop has of a store: its connections, and the lane in which its callers travel together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from tidegate.core.outcome import Outcome
from tidegate.errors import StoreUnavailable
from tidegate.stores.lane import Lane
from tidegate.stores.postgres.address import Options
from tidegate.stores.postgres.asking import Asking
from tidegate.stores.postgres.ports import LoopPort, Port
from tidegate.stores.postgres.wire import Ask

BYTES_A_CHARGE = 220
BATCHES_MOST = 4
"""Calls of one event loop that are under way at once; each has a connection of its own."""


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
        self._staying = self._stay()

    async def begin(self) -> None:
        """From now on the end of the loop closes everything."""
        await anext(self._staying)

    async def ask(self, ask: Ask, now_us: int | None, until_s: float) -> list[Outcome]:
        """The outcomes of one request, which travels with others."""
        if self.asking.health.is_open:
            await self.asking.trips.check(until_s)
        weight = sum(BYTES_A_CHARGE + len(charge.key) for charge in ask.charges)
        outcomes: list[Outcome] = await self._lane.ask((ask, now_us), weight, until_s)
        return outcomes

    def close(self) -> None:
        """Close the lane and the connections. Called on the loop."""
        self._sides.pop(self._loop, None)
        self._lane.close()
        self._port.close()
        self.asking.trips.pool.close()

    async def _send(self, items: Sequence[tuple[Ask, int | None]], until_s: float) -> Sequence[Any]:
        """The answers to requests that travel together; those of one instant are one call."""
        answers: list[Any] = [None] * len(items)
        for instant in dict.fromkeys(now_us for _, now_us in items):
            places = [place for place, (_, now_us) in enumerate(items) if now_us == instant]
            decided = await self.asking.decide([items[place][0] for place in places], instant, until_s)
            for place, answer in zip(places, decided, strict=True):
                answers[place] = answer
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
