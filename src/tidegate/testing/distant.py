"""A store on the network, played in this process, so that what happens when it is away can be tested.

    store = DistantStore(clock=clock)
    limiter = Limiter(policy, store=store, clock=clock)
    store.is_away = True            # from now on it gives no answer

It is bounded by nothing but memory and exact, and has both faces, as stores on the network have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from tidegate.clock import Clock
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import Health
from tidegate.stores.memory import MemoryStore

R = TypeVar("R")

_number = count(1)


class DistantStore:
    """A store that can be away. Each plays another address, also where several have one state.

    Args:
        clock: its own clock, for tests (`ManualClock`).
        beside: another one whose state it shares, as seen from another node of the same service.
    """

    name = "distant"
    splits = False
    deadline_us = 50_000

    def __init__(self, *, clock: Clock | None = None, beside: DistantStore | None = None) -> None:
        self.is_away = False
        """Whether it gives no answer."""
        self.identity = ("distant", next(_number))
        self.health = Health(f"a distant store, number {self.identity[1]}")
        self.awaited = AwaitedDistantStore(self)
        self._state: MemoryStore = MemoryStore(clock=clock) if beside is None else beside._state

    def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing, or raise StoreUnavailable."""
        return self._asked(lambda: self._state.decide(charges, now_us, take=take))

    def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests; where one failed its error stands in its place."""
        answers: list[list[Outcome] | StoreError] = []
        for charges in requests:
            try:
                answers.append(self.decide(charges, now_us, take=take))
            except StoreError as error:
                answers.append(error)
        return answers

    def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable."""
        return self._asked(lambda: self._state.adjust(adjustments, now_us))

    def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        self._asked(lambda: self._state.forget(keys))

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """All charges can be decided together."""
        return [range(len(charges))]

    def close(self) -> None:
        """Nothing was opened; the state stays."""

    def _asked(self, work: Callable[[], R]) -> R:
        if self.is_away:
            raise StoreUnavailable(f"{self.health.where} is away", "connection")
        return work()


class AwaitedDistantStore:
    """The awaited face of a `DistantStore`."""

    name = "distant"
    splits = False
    deadline_us = 50_000

    def __init__(self, store: DistantStore) -> None:
        self.identity = store.identity
        self.health = store.health
        self.parts = store.parts
        self._store = store

    async def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing, or raise StoreUnavailable."""
        return self._store.decide(charges, now_us, take=take)

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests; where one failed its error stands in its place."""
        return self._store.decide_many(requests, now_us, take=take)

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable."""
        return self._store.adjust(adjustments, now_us)

    async def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        self._store.forget(keys)

    async def close(self) -> None:
        """Nothing was opened; the state stays."""
