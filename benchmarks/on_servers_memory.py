"""Bytes a key in Valkey and in PostgreSQL: a million keys of one bucket, by the servers' own accounts.

python -m benchmarks redis-memory postgres-memory
"""

from __future__ import annotations

from tests.servers.postgres import Postgres
from tests.servers.redis_like import RedisLike
from tidegate import Limiter, TokenBucket
from tidegate.stores.postgres.store import PostgresStore
from tidegate.stores.redis.store import RedisStore

AT_ONCE = 1_000
SLOW = TokenBucket(20, "1 per 1 h")
"""So slow that no key becomes fresh while it is counted."""


def on_valkey(count: int) -> None:
    """Print what a key takes in Valkey, its name and its expiry included."""
    with RedisLike("valkey-9") as server:
        store = RedisStore(server.url, deadline="10s")
        before = server.used_memory_bytes()
        _fill(Limiter(SLOW, store=store), count)
        keys = int(server.command("DBSIZE"))
        used = server.used_memory_bytes() - before
        print(f"\nValkey {server.version()}: {keys:,} keys, {used / keys:.0f} bytes each (used_memory)")
        name = server.command("RANDOMKEY")
        print(f"  one of them: {len(name)} bytes of name, {server.command('STRLEN', name)} of state,")
        print(f"  {server.command('MEMORY', 'USAGE', name)} bytes by MEMORY USAGE")
        store.close()


def on_postgres(count: int) -> None:
    """Print what a row takes in PostgreSQL, its share of the indexes included."""
    import psycopg

    with Postgres() as server:
        store = PostgresStore(server.url, deadline="10s")
        store.init()
        _fill(Limiter(SLOW, store=store), count)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("VACUUM FULL tidegate.state")
            row = connection.execute(
                "SELECT count(*), pg_table_size('tidegate.state'), pg_indexes_size('tidegate.state') "
                "FROM tidegate.state"
            ).fetchone()
        assert row is not None
        rows, table, indexes = row
        print(f"\nPostgreSQL: {rows:,} rows, {table / rows:.0f} bytes each in the table,")
        print(f"  {indexes / rows:.0f} in its indexes (after VACUUM FULL)")
        store.close()


def _fill(limiter: Limiter, count: int) -> None:
    for start in range(0, count, AT_ONCE):
        decided = limiter.hit_many([f"user-{number}" for number in range(start, start + AT_ONCE)])
        assert all(decided.allowed)
