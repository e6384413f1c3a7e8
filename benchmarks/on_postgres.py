"""Decisions over PostgreSQL: beside a `SELECT 1` of the same client, and beside a statement by hand.

    python -m benchmarks postgres

Client and server are pinned to the same processor. No other Python library keeps a bucket in PostgreSQL in
one round trip, so the comparison is with what one would write by hand.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from benchmarks.on_redis import CALLERS, CAPACITY, FORTY_EIGHT, FOUR, RATE
from benchmarks.round_trips import Call, latencies, show_latencies, show_together, together
from tests.servers.postgres import Postgres
from tidegate import AsyncLimiter, Limiter, Policy, TokenBucket
from tidegate.stores.postgres.store import PostgresStore

SELECT = "SELECT 1"
TABLE = "CREATE UNLOGGED TABLE by_hand (key text PRIMARY KEY, tokens double precision, at timestamptz)"
BY_HAND = """
INSERT INTO by_hand AS b VALUES (%s, 999999, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET
  tokens = least(1000000, b.tokens + extract(epoch FROM clock_timestamp() - b.at)) - 1, at = clock_timestamp()
WHERE least(1000000, b.tokens + extract(epoch FROM clock_timestamp() - b.at)) >= 1
RETURNING tokens
"""


def run(rounds: int, scale: int) -> None:
    """Measure and print; the server is started for it, and stopped."""
    import psycopg

    with Postgres() as server:
        store = PostgresStore(server.url, deadline="1s")
        store.init()
        connection = psycopg.connect(server.url, autocommit=True)
        (version,) = connection.execute("SHOW server_version").fetchone() or ("?",)
        print(f"\nPostgreSQL {version}, by TCP on the loopback interface, state in UNLOGGED tables")
        connection.execute(TABLE)
        calls = _blocking(store, connection)
        lines = latencies(calls, SELECT, rounds=rounds, times=1_000 // scale)
        show_latencies("One caller, psycopg: p50 and p99 of a call", lines, SELECT)
        asyncio.run(_at_once(server, store, max(3, rounds // 3), 50 // scale or 5))
        store.close()
        connection.close()


def _blocking(store: Any, connection: Any) -> dict[str, Call]:
    one = Limiter(TokenBucket(CAPACITY, RATE), store=store)
    four, many = Limiter(Policy(FOUR), store=store), Limiter(Policy(FORTY_EIGHT), store=store)
    return {
        SELECT: lambda: connection.execute("SELECT 1", prepare=True).fetchone(),
        "statement by hand": lambda: connection.execute(BY_HAND, ["org-42"], prepare=True).fetchone(),
        "tidegate, one limit": lambda: one.hit("org-42"),
        "tidegate, four limits": lambda: four.hit({"org": "org-42"}),
        "tidegate, 48 limits": lambda: many.hit({"org": "org-42"}),
    }


async def _at_once(server: Postgres, store: Any, rounds: int, each: int) -> None:
    import psycopg

    limiter, four = (
        AsyncLimiter(policy, store=store) for policy in (TokenBucket(CAPACITY, RATE), Policy(FOUR))
    )
    keys = itertools.cycle([f"org-{number}" for number in range(1_000)])
    connections = [await psycopg.AsyncConnection.connect(server.url, autocommit=True) for _ in range(10)]
    idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
    for connection in connections:
        idle.put_nowait(connection)

    async def select() -> None:
        connection = await idle.get()
        await connection.execute("SELECT 1", prepare=True)
        idle.put_nowait(connection)

    calls: dict[str, Callable[[], Any]] = {
        SELECT: select,
        "tidegate, one limit": lambda: limiter.hit(next(keys)),
        "tidegate, four limits": lambda: four.hit({"org": next(keys)}),
    }
    lines = await together(calls, SELECT, callers=CALLERS, rounds=rounds, each=each)
    show_together(
        f"{CALLERS} callers at once, asyncio, 1,000 keys (SELECT 1: ten connections)", lines, SELECT
    )
    for connection in connections:
        await connection.close()
    await store.awaited.close()
