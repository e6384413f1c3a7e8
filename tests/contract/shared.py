# Stores on real servers, as sides of the contract and of the agreement: a new one adds a line to `SHARED`.
#
# Every side finds its store empty: by a prefix of its own in Redis, in PostgreSQL by an emptied schema.
# `servers` is set by the fixture in conftest.py; the servers start at their first use.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count, cycle
from typing import Any, NamedTuple, TypeVar

from tests.servers.postgres import Postgres
from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike

T = TypeVar("T")

DEADLINE = "10s"
"""For tests that ask whether the store is right, not whether it is quick."""


class Servers(NamedTuple):
    """Where the servers are had."""

    redis: Callable[[str], RedisLike]
    cluster: Callable[[], Cluster]
    postgres: Callable[[], Postgres]


class Had:
    """What has been started and opened so far."""

    servers: Servers | None = None
    redis: dict[str, RedisLike] = {}  # noqa: RUF012  # filled while tests run
    schemas: list[Any] = []  # noqa: RUF012  # the same


had = Had()
_numbers = count()
_schemas = cycle(range(12))
_runner = asyncio.Runner()


def run(answer: Coroutine[Any, Any, T]) -> T:
    """The awaited answer, by one loop for all: a store's connections belong to the loop that opened them."""
    return _runner.run(answer)


def close_all() -> None:
    """Close what is kept for the whole run, and the loop."""
    for store in had.schemas:
        run(store.awaited.close())
        store.close()
    had.schemas.clear()
    _runner.close()


def _redis(kind: str) -> Any:
    from tidegate.stores.redis.store import RedisStore

    assert had.servers is not None
    if kind not in had.redis:
        had.redis[kind] = had.servers.redis(kind)
    return RedisStore(had.redis[kind].url, prefix=f"side-{next(_numbers)}", deadline=DEADLINE)


def _cluster() -> Any:
    from tidegate.stores.redis.store import RedisStore

    assert had.servers is not None
    address = had.servers.cluster().url.replace("redis:", "redis+cluster:").removesuffix("/0")
    return RedisStore(address, prefix=f"side-{next(_numbers)}", deadline=DEADLINE)


def _postgres() -> Any:
    """One of a few schemas, emptied: to make a new one each time would take most of the time."""
    from tidegate.stores.postgres.store import PostgresStore

    assert had.servers is not None
    server = had.servers.postgres()
    number = next(_schemas)
    if number >= len(had.schemas):
        store = PostgresStore(server.url, schema=f"side_{number}", deadline=DEADLINE)
        store.init()
        had.schemas.append(store)
    server.sql(f"TRUNCATE side_{number}.state, side_{number}.entries")
    return had.schemas[number]


SHARED: dict[str, Callable[[], Any]] = {
    "valkey-9": lambda: _redis("valkey-9"),
    "redis-8": lambda: _redis("redis-8"),
    "redis-6.2": lambda: _redis("redis-6.2"),
    "cluster": _cluster,
    "postgres": _postgres,
}

KEPT = ("postgres",)
"""Places whose stores serve one side after another."""
