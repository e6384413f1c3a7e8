# What tells stores apart, and so which limiters of one process share what it owns.

from __future__ import annotations

from typing import Any

import psycopg_pool
import pytest
import redis

from tidegate import Limiter, TokenBucket, open_store
from tidegate.own import own
from tidegate.stores.postgres.store import PostgresStore
from tidegate.stores.redis.store import RedisStore
from tidegate.testing import DistantStore

SAME = [
    ("redis://h/0", "valkey://user:secret@h:6379?db=0&deadline=1s"),
    ("redis://h/0?prefix=a", "redis://h/0?prefix=a&replicas=1"),
    ("unix:///run/r.sock?db=1", "unix:///run/r.sock?db=1&client_name=me"),
    ("redis+cluster://a:1,b:2", "redis+cluster://b:2,a:1?max_connections=3"),
    ("redis+sentinel://a,b/main/1", "redis+sentinel://b,a/main/1"),
    ("postgresql://me:secret@h/app", "postgresql://other@h/app?schema=tidegate&deadline=1s"),
    ("postgresql://me@h/app", "postgres://me@h:5432/app?application_name=shop"),
    ("postgresql://app@h", "postgresql://me@h/app"),
]
APART = [
    ("redis://h/0", "redis://h/1"),
    ("redis://h/0?prefix=a", "redis://h/0?prefix=b"),
    ("redis://h", "redis://h:6380"),
    ("redis://localhost", "redis://127.0.0.1"),
    ("redis://h", "redis+cluster://h"),
    ("unix:///run/r.sock?db=1", "unix:///run/r.sock?db=2"),
    ("redis+sentinel://a/main/1", "redis+sentinel://a/main/2"),
    ("redis+sentinel://a/main/1", "redis+sentinel://a/other/1"),
    ("postgresql://me@h/app", "postgresql://me@h/app?schema=b"),
    ("postgresql://me@h/app", "postgresql://me@h/other"),
    ("postgresql://me@h/app", "postgresql://me@h:5433/app"),
    ("postgresql://me@h", "postgresql://other@h"),
]


def identity(url: str) -> Any:
    store: Any = open_store(url)
    assert store.identity == store.awaited.identity
    return store.identity


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_state_is_one_identity(one: str, other: str):
    """Where the state is the same, who asks and how make no difference."""
    assert identity(one) == identity(other)
    assert hash(identity(one)) == hash(identity(other))


@pytest.mark.parametrize(("one", "other"), APART)
def test_other_state_is_another_identity(one: str, other: str):
    """A database, a prefix, a schema or a port of its own is a store of its own."""
    assert identity(one) != identity(other)


def test_no_identity_shows_a_password():
    """An identity may be printed."""
    for url in ("redis://u:secret@h", "redis+cluster://u:secret@h", "postgresql://u:secret@h/app"):
        assert "secret" not in str(identity(url))


def test_a_client_is_where_it_leads_to():
    """A client of the user's has the identity of the URL that it was made of, sync or async."""
    for client in (redis.Redis.from_url("redis://h:1/2"), redis.asyncio.Redis.from_url("redis://h:1/2")):
        assert RedisStore(client).identity == identity("redis://h:1/2")
        assert RedisStore(client, prefix="b").identity == identity("redis://h:1/2?prefix=b")
    assert RedisStore(redis.Redis("h", db=1)).identity != RedisStore(redis.Redis("h")).identity


def test_a_pool_is_where_it_leads_to():
    """So has a pool, and its keywords count; one that does not show where it leads to is known by itself."""
    pool = psycopg_pool.ConnectionPool("host=h", kwargs={"dbname": "app", "autocommit": True}, open=False)
    assert PostgresStore(pool).identity == identity("postgresql://me@h/app")
    assert PostgresStore(pool, schema="b").identity == identity("postgresql://me@h/app?schema=b")

    class Hidden:
        def getconn(self) -> Any: ...
        def putconn(self, connection: Any) -> Any: ...

    one, other = Hidden(), Hidden()
    assert PostgresStore(one).identity == PostgresStore(one).identity != PostgresStore(other).identity


class Stub:
    """A client that shows no connections."""

    def execute_command(self, *words: Any) -> Any: ...


def test_a_stub_is_known_by_itself():
    """Two stubs are two stores, and so is one stub with two prefixes."""
    one, other = Stub(), Stub()
    assert RedisStore(one).identity == RedisStore(one).identity != RedisStore(other).identity
    assert RedisStore(one).identity != RedisStore(one, prefix="b").identity


def test_limiters_share_by_identity():
    """What a process owns is one for stores of one identity; for a store that tells none, for that store."""
    stores: list[Any] = [open_store("redis://h"), open_store("redis://h/0"), open_store("redis://h/1")]
    first, second, third = (own(store, None) for store in stores)
    assert first is second is not third

    class Plain:
        name = "plain"
        decide = adjust = forget = lambda *_: None

    plain: Any = Plain()
    kept = own(plain, None)
    assert kept is own(plain, None) is not own(Plain(), None)
    assert Limiter(TokenBucket(1, "1/s"), store=plain)._own is kept


def test_distant_stores_are_apart():
    """Each plays another node."""
    first = DistantStore()
    assert first.identity == first.awaited.identity != DistantStore(beside=first).identity
