"""The ways in which a request can reach a store, each played as the same side of an agreement.

A new store adds a line to `STORES` (in this process) or to `SHARED` of shared.py (on a server); a new path to
a decision adds one to `PATHS`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from tests.contract.shared import KEPT, SHARED, run
from tidegate import AsyncLimiter, Decision, Limiter, Policy
from tidegate.drive import run_blocking
from tidegate.reservation import AsyncReservation, Reservation
from tidegate.stores.base import Store
from tidegate.stores.memory import MemoryStore
from tidegate.testing import ManualClock

STORES: dict[str, Callable[[ManualClock], Store]] = {
    "memory": lambda clock: MemoryStore(clock=clock),
    "memory, forgetting when full": lambda clock: MemoryStore(10_000, "forget", clock=clock),
    "memory, refusing when full": lambda clock: MemoryStore(10_000, "refuse", clock=clock),
}
"""Every store, opened so that it asks this clock."""

PLACES = (*STORES, *SHARED)

PATHS = ("compiled", "layered", "instants from outside", "awaited")
"""By the closure that a limiter compiles; by the store's own verb; with explicit instants; asynchronously."""

SHARED_PATHS = ("instants from outside", "awaited")
"""A server has a clock of its own, so instants always come from outside; blocking, and asynchronously."""


def ways(places: Iterable[str] = PLACES) -> list[tuple[str, str]]:
    """Every place with every path to it."""
    return [(place, path) for place in places for path in (PATHS if place in STORES else SHARED_PATHS)]


Amount = int | Fraction


class Side:
    """One limiter on one store, asked by one path."""

    def __init__(self, path: str, policy: Policy, clock: ManualClock, store: str = "memory") -> None:
        self.path, self.store = path, store
        self._is_shared = store in SHARED
        opened = SHARED[store]() if self._is_shared else STORES[store](clock)
        told = clock if self._is_shared or path == "instants from outside" else None
        kind: Any = AsyncLimiter if path == "awaited" else Limiter
        self.limiter: Any = kind(policy, store=opened, clock=told)

    def hit(self, key: Any, cost: Amount = 1, caller: Any = None) -> Decision:
        """Take it."""
        if self.path == "layered":
            return Limiter.hit(self.limiter, key, cost, caller=caller)
        return self._result(self.limiter.hit(key, cost, caller=caller))

    def peek(self, key: Any, cost: Amount = 1) -> Decision:
        """Ask what a hit would be answered."""
        return self._result(self.limiter.peek(key, cost))

    def refund(self, decision: Decision, cost: Amount | None = None) -> Fraction:
        """Give back."""
        return self._result(self.limiter.refund(decision, cost))

    def settle(self, decision: Decision, actual: Amount) -> Fraction:
        """Settle, as a reservation of this decision would."""
        if self.path == "awaited":
            return self._result(AsyncReservation(self.limiter, decision).settle(actual))
        return Reservation(self.limiter, decision).settle(actual)

    def reset(self, key: Any) -> None:
        """Make the key fresh."""
        self._result(self.limiter.reset(key))

    def replace_policy(self, policy: Policy) -> None:
        """Decide by another policy."""
        self.limiter.replace_policy(policy)

    def ask_at_once(self, key: Any, callers: int, each: int) -> list[bool]:
        """Let so many callers hit the key at once, so often each: threads, or tasks if it is awaited."""
        passed: list[bool] = []
        if self.path == "awaited" and self._is_shared:

            async def ask_in_turn() -> None:
                passed.extend([(await self.limiter.hit(key)).allowed for _ in range(each)])

            async def all_of_them() -> None:
                await asyncio.gather(*[ask_in_turn() for _ in range(callers)])

            run(all_of_them())
            return passed
        ready = threading.Barrier(callers)

        def ask() -> None:
            ready.wait(timeout=30)
            passed.extend([self.hit(key).allowed for _ in range(each)])

        threads = [threading.Thread(target=ask) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        return passed

    def close(self) -> None:
        """Let go of a store that was opened for this side alone."""
        if self._is_shared and self.store not in KEPT:
            run(self.limiter.store.awaited.close())

    def _result(self, answer: Any) -> Any:
        if not hasattr(answer, "send"):
            return answer
        return run(answer) if self._is_shared else run_blocking(answer)
