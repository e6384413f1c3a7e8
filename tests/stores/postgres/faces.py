"""The two faces of a PostgreSQL store with the same verbs, so that a test speaks to either."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from tests.servers.redis_groups import wait_for
from tidegate import TokenBucket
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreUnavailable
from tidegate.stores.postgres.store import PostgresStore

FACES = ("blocking", "awaited")

TEN = TokenBucket(10, "0/s")
"""Ten, and never more."""


def charge(
    key: str | bytes = "acme", cost: int = 1, *, rule: str = "rule", limit: Limit = TEN, **more: Any
) -> Charge:
    """A charge of whole tokens."""
    return Charge(rule, key, limit, cost * 1_000, **more)


class Face:
    """One face of a store of its own; a context manager that closes it. An awaited one has a loop of its own.

    A call has ten seconds here, for machines are busy; a test of deadlines says its own.
    """

    def __init__(self, face: str, target: Any, **options: Any) -> None:
        self.face = face
        self.store = PostgresStore(target, **{"deadline": "10s", **options})
        self.runner = asyncio.Runner() if face == "awaited" else None

    def decide(self, charges: Sequence[Charge], *args: Any, **options: Any) -> list[Outcome]:
        return self.said("decide", charges, *args, **options)

    def decide_many(self, requests: Sequence[Sequence[Charge]], **options: Any) -> list[Any]:
        return self.said("decide_many", requests, **options)

    def adjust(self, *args: Any, **options: Any) -> list[int]:
        return self.said("adjust", *args, **options)

    def forget(self, *args: Any, **options: Any) -> None:
        self.said("forget", *args, **options)

    def takes(self, key: str | bytes = "acme", **more: Any) -> bool:
        """Whether one more passes."""
        return self.decide([charge(key, **more)])[0].allowed

    def left(self, key: str | bytes = "acme", **more: Any) -> int:
        """How many are left, without taking any."""
        return self.decide([charge(key, **more)], take=False)[0].remaining

    def cause(self, key: str | bytes = "acme", **more: Any) -> str | None:
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
        if self.runner is None:
            self.store.close()
        else:
            self.runner.run(self.store.awaited.close())
            self.runner.close()

    def said(self, verb: str, *args: Any, **options: Any) -> Any:
        """What a verb of the face says."""
        if self.runner is None:
            return getattr(self.store, verb)(*args, **options)
        return self.runner.run(getattr(self.store.awaited, verb)(*args, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
