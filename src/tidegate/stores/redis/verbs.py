"""What the verbs of the store do, written once for both faces, over the way in which a face asks.

A verb finds the link that its keys live on, asks, and hands out the answers. Where keys live on several links
each is asked by itself, and one that fails is no hindrance to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import SILENT
from tidegate.stores.redis.asking import REQUESTS_MOST, Ask, Asking, Change, Item
from tidegate.stores.redis.link import Line, Link
from tidegate.stores.redis.names import Names
from tidegate.stores.redis.topology import Topology
from tidegate.units import US_PER_S

WEIGHT_MOST = 65_536
"""Bytes in one call, about, however many requests it holds."""

T = TypeVar("T")


class Way(Protocol):
    """How a face reaches the servers."""

    @property
    def line(self) -> Line:
        """The way to the servers, for what is not asked by `ask`."""

    @property
    def asking(self) -> Asking:
        """Who asks them."""

    async def ask(self, link: Link, item: Item, until_s: float) -> list[Any]:
        """What `Asking.answer` says to the item; what the link as a whole refuses is raised."""

    async def all_of(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Do all of it, at the same time if this face can."""


class Verbs:
    """The verbs of one store by one way. `deadline_us` holds where a call names none."""

    def __init__(self, topology: Topology, names: Names, way: Way, deadline_us: int) -> None:
        self._topology = topology
        self._names = names
        self._way = way
        self._deadline_us = deadline_us

    async def decide(
        self, charges: Sequence[Charge], now_us: int | None, take: bool, deadline_us: int | None
    ) -> list[Outcome]:
        """Decide all-or-nothing. Raises StoreError for charges of several parts."""
        until_s = self._until_s(deadline_us)
        link = await self._topology.link(self._common_slot(charges), self._way.line, until_s)
        (answer,) = await self._asked(link, Ask((charges,), now_us, take), until_s)
        if isinstance(answer, StoreError):
            raise answer
        outcomes: list[Outcome] = answer
        return outcomes

    async def decide_many(
        self, requests: Sequence[Sequence[Charge]], now_us: int | None, deadline_us: int | None
    ) -> list[list[Outcome] | StoreError]:
        """Decide each by itself. The deadline is that of each round trip; after one that failed none follows."""
        answers: list[Any] = [None] * len(requests)
        by_link: dict[Link, list[int]] = defaultdict(list)
        until_s = self._until_s(deadline_us)
        for number, request in enumerate(requests):
            try:
                slot = self._common_slot(request)
                by_link[await self._topology.link(slot, self._way.line, until_s)].append(number)
            except StoreError as error:
                answers[number] = error

        async def on(link: Link, numbers: list[int]) -> None:
            failed: StoreUnavailable | None = None
            for chunk in _chunks(numbers, requests):
                if failed is None:
                    asked = Ask([requests[number] for number in chunk], now_us)
                    got = await self._asked(link, asked, self._until_s(deadline_us))
                    failed = _silence(got)
                else:
                    got = [failed] * len(chunk)
                for number, answer in zip(chunk, got, strict=True):
                    answers[number] = answer

        await self._way.all_of([on(link, numbers) for link, numbers in by_link.items()])
        return answers

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None, deadline_us: int | None
    ) -> list[int]:
        """Give back or charge on top, each for itself. Raises the error of one that failed, if any did."""
        units: list[Any] = [0] * len(adjustments)
        by_link: dict[Link, list[int]] = defaultdict(list)
        until_s = self._until_s(deadline_us)
        for number, one in enumerate(adjustments):
            slot = self._topology.slot(one.charge.rule, one.charge.key)
            by_link[await self._topology.link(slot, self._way.line, until_s)].append(number)

        async def on(link: Link, numbers: list[int]) -> None:
            item = Change([adjustments[number] for number in numbers], now_us)
            for number, answer in zip(numbers, await self._asked(link, item, until_s), strict=True):
                units[number] = answer

        await self._way.all_of([on(link, numbers) for link, numbers in by_link.items()])
        for answer in units:
            if isinstance(answer, StoreError):
                raise answer
        return units

    async def forget(self, keys: Sequence[tuple[str, Key]], deadline_us: int | None) -> None:
        """Make these keys fresh. Raises the error of one that failed, if any did."""
        by_link: dict[Link, list[bytes]] = defaultdict(list)
        until_s = self._until_s(deadline_us)
        for rule, key in keys:
            link = await self._topology.link(self._topology.slot(rule, key), self._way.line, until_s)
            by_link[link].append(self._names.key(rule, key))
        failures: list[StoreError] = []

        async def on(link: Link, names: list[bytes]) -> None:
            try:
                await self._way.asking.forget(link, names, until_s)
            except StoreError as error:
                failures.append(error)

        await self._way.all_of([on(link, names) for link, names in by_link.items()])
        if failures:
            raise failures[0]

    def _until_s(self, deadline_us: int | None) -> float:
        wanted_us = self._deadline_us if deadline_us is None else deadline_us
        return self._way.line.now_s() + wanted_us / US_PER_S

    def _common_slot(self, charges: Sequence[Charge]) -> int | None:
        if not self._topology.is_cluster or not charges:
            return None
        slots = {self._topology.slot(charge.rule, charge.key) for charge in charges}
        if len(slots) > 1:
            raise StoreError("these charges live in several slots of the cluster; decide each part by itself")
        return slots.pop()

    async def _asked(self, link: Link, item: Item, until_s: float) -> list[Any]:
        """An answer or an error for each part of the item. Silence makes us doubt where the servers are."""
        try:
            answers = await self._way.ask(link, item, until_s)
        except StoreError as error:
            answers = [error] * len(item[0])
        if _silence(answers) is not None:
            await self._topology.doubt(self._way.line)
        return answers


def _silence(answers: Sequence[Any]) -> StoreUnavailable | None:
    """The error, if a server did not answer as one should that has these keys."""
    for answer in answers:
        if isinstance(answer, StoreUnavailable) and answer.cause in {
            *SILENT,
            "breaker",
            "cluster_down",
            "read_only",
        }:
            return answer
    return None


def _chunks(numbers: list[int], requests: Sequence[Sequence[Charge]]) -> Iterator[list[int]]:
    """The numbers in bundles that one call may hold."""
    chunk: list[int] = []
    weight = 0
    for number in numbers:
        own = Ask((requests[number],)).weight
        if chunk and (len(chunk) == REQUESTS_MOST or weight + own > WEIGHT_MOST):
            yield chunk
            chunk, weight = [], 0
        chunk.append(number)
        weight += own
    if chunk:
        yield chunk
