"""A store as flows see it: in this process, on the network and blocking, or on the network and awaited.

A port only hands over. It turns an instant until which an answer is wanted into the deadline that a store
takes, and answers itself, with StoreUnavailable, where no time is left.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar, cast

from tidegate.core.compose import Adjustment
from tidegate.core.hooks import is_async
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.flows.port import Port as FlowPort
from tidegate.stores.base import AwaitedStore, RemoteStore, Store

T = TypeVar("T")


class Port(FlowPort, Protocol):
    """A port as a limiter has it: to hand to flows, and to close at the end."""

    async def close(self) -> None:
        """Let go of the awaited face of the store; the blocking one is closed by itself."""


_VERBS = ("decide", "adjust", "forget", "name")


def is_store(store: object) -> bool:
    """Whether it has what a store must have."""
    return not isinstance(store, type) and all(hasattr(store, verb) for verb in _VERBS)


def is_remote(store: object) -> bool:
    """Whether it is a store on the network, of either face: one that has a health, and can be away."""
    return hasattr(store, "health")


def port_of(store: Store | AwaitedStore, deadline_us: int | None, *, awaited: bool) -> Port:
    """The port for a limiter that blocks, or for one that is awaited.

    Raises StoreError for a store that can only be awaited where calls block.
    """
    if is_async(store.decide):
        if not awaited:
            raise StoreError(
                f"store is {store!r}, which can only be awaited; use AsyncLimiter, or give another store"
            )
        return _AwaitedPort(cast(AwaitedStore, store), deadline_us)
    if awaited and hasattr(store, "awaited"):
        return _AwaitedPort(cast(RemoteStore, store).awaited, deadline_us)
    if is_remote(store):
        return _BlockingPort(cast(RemoteStore, store), deadline_us)
    return _InProcessPort(cast(Store, store))


class _InProcessPort:
    """A store that waits for nothing outside the process: its coroutines never suspend."""

    splits = False
    batches = False
    deadline_us = 0

    def __init__(self, store: Store) -> None:
        self.store = store
        self.name = store.name

    def ticks_us(self) -> int:
        return 0

    async def decide(
        self, charges: Sequence[Charge], now_us: int | None, *, take: bool, until_us: int | None = None
    ) -> list[Outcome]:
        return self.store.decide(charges, now_us, take=take)

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None,
        *,
        take: bool = True,
        until_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        return [self.store.decide(charges, now_us, take=take) for charges in requests]

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None, *, until_us: int | None = None
    ) -> list[int]:
        return self.store.adjust(adjustments, now_us)

    async def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        self.store.forget(keys)

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        return [range(len(charges))]

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def close(self) -> None:
        return None


class _NetworkPort:
    """What the two ports of the network have in common: deadlines and parts."""

    batches = True

    def __init__(self, store: RemoteStore | AwaitedStore, deadline_us: int | None) -> None:
        self.name = store.name
        self.splits = store.splits
        self.deadline_us = store.deadline_us if deadline_us is None else deadline_us
        self.parts = store.parts
        self._deadline_us = deadline_us  # None: the store's own

    def ticks_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def _left_us(self, until_us: int | None) -> int | None:
        if until_us is None:
            return self._deadline_us
        left_us = until_us - self.ticks_us()
        if left_us <= 0:
            raise StoreUnavailable("no time is left to ask this part of the store", "deadline")
        return left_us


class _BlockingPort(_NetworkPort):
    """The blocking face of a store on the network: its coroutines never suspend."""

    def __init__(self, store: RemoteStore, deadline_us: int | None) -> None:
        super().__init__(store, deadline_us)
        self.store = store

    async def decide(
        self, charges: Sequence[Charge], now_us: int | None, *, take: bool, until_us: int | None = None
    ) -> list[Outcome]:
        return self.store.decide(charges, now_us, take=take, deadline_us=self._left_us(until_us))

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None,
        *,
        take: bool = True,
        until_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        return self.store.decide_many(requests, now_us, take=take, deadline_us=self._left_us(until_us))

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None, *, until_us: int | None = None
    ) -> list[int]:
        return self.store.adjust(adjustments, now_us, deadline_us=self._left_us(until_us))

    async def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        self.store.forget(keys, deadline_us=self._deadline_us)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def close(self) -> None:
        return None


class _AwaitedPort(_NetworkPort):
    """The awaited face of a store on the network."""

    def __init__(self, store: AwaitedStore, deadline_us: int | None) -> None:
        super().__init__(store, deadline_us)
        self.store = store
        self._going_on: set[Any] = set()  # a task that nobody holds may vanish before its end

    async def decide(
        self, charges: Sequence[Charge], now_us: int | None, *, take: bool, until_us: int | None = None
    ) -> list[Outcome]:
        return await self.store.decide(charges, now_us, take=take, deadline_us=self._left_us(until_us))

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None,
        *,
        take: bool = True,
        until_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        return await self.store.decide_many(requests, now_us, take=take, deadline_us=self._left_us(until_us))

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None, *, until_us: int | None = None
    ) -> list[int]:
        return await self.store.adjust(adjustments, now_us, deadline_us=self._left_us(until_us))

    async def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        await self.store.forget(keys, deadline_us=self._deadline_us)

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio  # here, for deciding in process needs none of it

        task = asyncio.ensure_future(work)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        await self.store.close()
