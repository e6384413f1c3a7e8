"""The two faces of a Redis store with the same verbs, so that a test speaks to either."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from tests.servers.redis_groups import wait_for
from tidegate import TokenBucket
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreUnavailable
from tidegate.stores.redis.store import RedisStore

FACES = ("blocking", "awaited")

TEN = TokenBucket(10, "0/s")
"""Ten, and never more."""


def charge(
    key: str = "acme", cost: int = 1, *, rule: str = "rule", limit: Limit = TEN, **more: Any
) -> Charge:
    """A charge of whole tokens."""
    return Charge(rule, key, limit, cost * 1_000, **more)


class Face:
    """One face of a store of its own; a context manager that closes it. An awaited one has its own loop.

    A call has ten seconds here, for machines are busy; a test of deadlines says its own.
    """

    def __init__(self, face: str, target: Any, *, deadline: str = "10s", **options: Any) -> None:
        self.face = face
        self.store = RedisStore(target, deadline=deadline, **options)
        self._runner = asyncio.Runner() if face == "awaited" else None

    def decide(self, charges: Sequence[Charge], *args: Any, **options: Any) -> list[Outcome]:
        return self._said("decide", charges, *args, **options)

    def decide_many(self, requests: Sequence[Sequence[Charge]], **options: Any) -> list[Any]:
        return self._said("decide_many", requests, **options)

    def adjust(self, *args: Any, **options: Any) -> list[int]:
        return self._said("adjust", *args, **options)

    def forget(self, *args: Any, **options: Any) -> None:
        self._said("forget", *args, **options)

    def takes(self, key: str = "acme", **more: Any) -> bool:
        """Whether one more passes."""
        return self.decide([charge(key, **more)])[0].allowed

    def cause(self, key: str = "acme", **more: Any) -> str | None:
        """Why no usable answer came; None if one did."""
        try:
            self.takes(key, **more)
        except StoreUnavailable as error:
            return error.cause
        return None

    def reach(self) -> None:
        """The server has answered: on a busy machine a first call may miss a short deadline."""
        wait_for("the server is reached", lambda: self.cause("somebody", cost=0) is None)

    def close(self) -> None:
        """Close the store, and the loop."""
        if self._runner is None:
            self.store.close()
        else:
            self._runner.run(self.store.awaited.close())
            self._runner.close()

    def _said(self, verb: str, *args: Any, **options: Any) -> Any:
        if self._runner is None:
            return getattr(self.store, verb)(*args, **options)
        return self._runner.run(getattr(self.store.awaited, verb)(*args, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
