"""What the verbs of the store do, written once for both faces, over the way in which a face asks.

A verb finds the link that its keys live on, asks, and hands out the answers. Where keys live on several links
each is asked by itself, and one that fails is no hindrance to the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import SILENT
from tidegate.stores.lane import own
from tidegate.stores.redis.asking import REQUESTS_MOST
from tidegate.stores.redis.calls import Ask, Change, Forget, Item
from tidegate.stores.redis.link import Line, Link
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

    async def decide(
        self, link: Link, request: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome] | StoreError:
        """The outcomes of one request, or the StoreError that stands in their place."""

    async def ask(self, link: Link, item: Item, until_s: float) -> list[Any]:
        """What `Asking.answer` says to the item; what the link as a whole refuses is raised."""

    async def all_of(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Do all of it, at the same time if this face can."""


class Verbs:
    """The verbs of one store by one way. `deadline_us` holds where a call names none."""

    def __init__(self, topology: Topology, way: Way, deadline_us: int) -> None:
        self._topology = topology
        self._way = way
        self._deadline_s = deadline_us / US_PER_S
        self._now_s = way.line.now_s
        self._only_link = None if topology.is_cluster else topology.links()[0]

    async def decide(
        self, charges: Sequence[Charge], now_us: int | None, take: bool, deadline_us: int | None
    ) -> list[Outcome]:
        """Decide all-or-nothing. Raises StoreError for charges of several parts."""
        way = self._way
        until_s = self._until_s(deadline_us)
        link = self._only_link
        if link is None:
            link = await self._topology.link(self._common_slot(charges), way.line, until_s)
        answer = await way.decide(link, charges, now_us, take, until_s)
        if isinstance(answer, StoreError):
            await self._doubt([answer])
            raise answer
        return answer

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None,
        take: bool,
        deadline_us: int | None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide each by itself, all within the deadline. After a round trip that failed none follows."""
        answers: list[Any] = [None] * len(requests)
        by_link: dict[Link, list[int]] = defaultdict(list)
        until_s = self._until_s(deadline_us)
        for number, request in enumerate(requests):
            if self._only_link is not None:
                by_link[self._only_link].append(number)
                continue
            try:
                slot = self._common_slot(request)
                by_link[await self._topology.link(slot, self._way.line, until_s)].append(number)
            except StoreError as error:
                answers[number] = error

        async def on(link: Link, numbers: list[int]) -> None:
            failed: StoreUnavailable | None = None
            for chunk in _chunks(numbers, requests):
                if failed is None and self._way.line.now_s() >= until_s:  # the server is not to blame
                    failed = StoreUnavailable("no time is left to ask for the rest of many", "deadline")
                if failed is None:
                    asked = Ask([requests[number] for number in chunk], now_us, take)
                    got = await self._asked(link, asked, until_s)
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
        keys = [(one.charge.rule, one.charge.key) for one in adjustments]
        return await self._each(adjustments, keys, lambda some: Change(some, now_us), deadline_us)

    async def forget(self, keys: Sequence[tuple[str, Key]], deadline_us: int | None) -> None:
        """Make these keys fresh. Raises the error of one that failed, if any did."""
        await self._each(keys, keys, Forget, deadline_us)

    async def _each(
        self,
        entries: Sequence[T],
        keys: Sequence[tuple[str, Key]],
        item_of: Callable[[list[T]], Item],
        deadline_us: int | None,
    ) -> list[Any]:
        """The answers, in order, from wherever the keys live. Raises the error of the first that failed."""
        answers: list[Any] = [None] * len(entries)
        by_link: dict[Link, list[int]] = defaultdict(list)
        until_s = self._until_s(deadline_us)
        for number, (rule, key) in enumerate(keys):
            try:
                link = await self._topology.link(self._topology.slot(rule, key), self._way.line, until_s)
                by_link[link].append(number)
            except StoreError as error:
                answers[number] = error

        async def on(link: Link, numbers: list[int]) -> None:
            item = item_of([entries[number] for number in numbers])
            for number, answer in zip(numbers, await self._asked(link, item, until_s), strict=True):
                answers[number] = answer

        await self._way.all_of([on(link, numbers) for link, numbers in by_link.items()])
        for answer in answers:
            if isinstance(answer, StoreError):
                raise own(answer)
        return answers

    def _until_s(self, deadline_us: int | None) -> float:
        wanted_s = self._deadline_s if deadline_us is None else deadline_us / US_PER_S
        return self._now_s() + wanted_s

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
        await self._doubt(answers)
        return answers

    async def _doubt(self, answers: Sequence[Any]) -> None:
        if self._only_link is None and _silence(answers) is not None:
            await self._topology.doubt(self._way.line)


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
