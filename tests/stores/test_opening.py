# From a URL to a store: what is understood, and what each wrong one is told.

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from tidegate import Limiter, StoreError, TokenBucket, open_store
from tidegate.stores.opening import KINDS, OPTIONS, shown


@pytest.mark.parametrize(
    ("url", "max_keys", "when_full"),
    [
        ("memory://", 1_000_000, "refuse"),
        ("memory:", 1_000_000, "refuse"),
        ("MEMORY://", 1_000_000, "refuse"),
        ("memory://?max_keys=5", 5, "refuse"),
        ("memory://?when_full=forget", 1_000_000, "forget"),
        ("memory://?when_full=refuse&max_keys=007", 7, "refuse"),
    ],
)
def test_a_memory_store(url, max_keys, when_full):
    """A memory URL names the bound and what happens at it; what is left out has its default."""
    store = open_store(url)
    assert repr(store) == f"MemoryStore(max_keys={max_keys}, when_full={when_full!r})"
    assert store.name == "memory"


def test_every_opening_is_another_store():
    """Two limiters given the same URL have two budgets, two given one store have one."""
    one, other = (Limiter(TokenBucket(1, "0/s"), store="memory://") for _ in range(2))
    assert one.hit("k")
    assert other.hit("k")
    shared = open_store("memory://")
    one, other = (Limiter(TokenBucket(1, "0/s"), store=shared) for _ in range(2))
    assert one.hit("k")
    assert not other.hit("k")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "store is ''"),
        (" ", "store is ' '"),
        ("memory", "'memory'"),
        ("mem://", "'mem://'"),
        ("memory://localhost", "no address"),
        ("memory:///var/state", "no address"),
        ("memory://user:secret@host", "no address"),
        ("memory://#x", "no address"),
        ("memory://[", "cannot be read"),
        ("memory://?max_keys=", "max_keys is ''"),
        ("memory://?max_keys", "max_keys is ''"),
        ("memory://?max_keys=0", "at least 1"),
        ("memory://?max_keys=-1", "max_keys is '-1'"),
        ("memory://?max_keys=1e6", "max_keys is '1e6'"),
        ("memory://?max_keys=1_000", "max_keys is '1_000'"),
        ("memory://?max_keys=\u0665", "max_keys is"),
        ("memory://?max_keys=%20" + "5", "max_keys is ' 5'"),
        ("memory://?max_keys=" + "9" * 5000, "max_keys is '999"),
        ("memory://?max_keys=5&max_keys=6", "twice"),
        ("memory://?when_full=drop", "when_full is 'drop'"),
        ("memory://?when_full=Refuse", "when_full is 'Refuse'"),
        ("memory://?maxkeys=5", "'maxkeys' is unknown; did you mean 'max_keys'?"),
        ("memory://?max_keys=5&x", "'x' is unknown; a memory store has max_keys, when_full"),
        ("redis://h?deadlin=50ms", "'deadlin' is unknown; did you mean 'deadline'?"),
        ("redis+cluster://h?x=1", "'x' is unknown; a Redis store has prefix, deadline, may_forget"),
        ("redis+sentinel://h/m?sentinel_pasword=x", "did you mean 'sentinel_password'?"),
        ("postgresql://h/d?deadlin=50ms", "'deadlin' is unknown; did you mean 'deadline'?"),
        ("postgresql://h/d?sslmod=require", "'sslmod' is unknown; did you mean 'sslmode'?"),
        ("postgresql://h/d?x=1", "max_connections, and what its client library knows"),
        ("http://localhost:6379/0", "memory://"),
        ("mysql://localhost/limits", "postgresql://"),
        ("zone:///dev/shm/limits", "memory://"),
        ("http://[::1", "cannot be read"),
    ],
)
def test_a_bad_url(url, says):
    """A URL that cannot be opened is a StoreError at once, which names what is wrong with it."""
    for opens in (open_store, lambda url: Limiter(TokenBucket(1, "1/s"), store=url)):
        with pytest.raises(StoreError) as error:
            opens(url)
        assert says in str(error.value)
        assert len(str(error.value)) < 320


@pytest.mark.parametrize(
    ("url", "maker"),
    [
        *((f"{scheme}://host", "tidegate.stores.redis.store.RedisStore") for scheme in (
            *("redis", "rediss", "valkey", "valkeys", "redis+sentinel", "rediss+sentinel", "valkey+sentinel"),
            *("valkeys+sentinel", "redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster"),
        )),
        ("unix:///run/redis.sock?db=1", "tidegate.stores.redis.store.RedisStore"),
        ("REDIS://host?prefix=limits", "tidegate.stores.redis.store.RedisStore"),
        ("postgresql://host/limits", "tidegate.stores.postgres.store.PostgresStore"),
        ("postgres://host/limits?schema=limits", "tidegate.stores.postgres.store.PostgresStore"),
    ],
)  # fmt: skip
def test_a_store_on_the_network_is_made_of_its_url(monkeypatch, url, maker):
    """The scheme says which store is imported, and it is handed the URL as it stands."""
    module, _, name = maker.rpartition(".")
    made = ModuleType(module)
    setattr(made, name, lambda url: ("made of", url))
    monkeypatch.setitem(sys.modules, module, made)
    opened: Any = open_store(url)
    assert opened == ("made of", url)


def test_every_option_of_every_kind_is_known():
    """What a kind of store can be told stands in the table of options, and nothing else does."""
    named = {name for kind in KINDS for name in kind.options}
    assert named == set(OPTIONS)


@pytest.mark.parametrize(
    "url", [None, 5, b"memory://", pytest.param(object(), id="an object"), ["memory://"]], ids=repr
)
def test_what_is_no_url(url: Any):
    """Whatever is no text is an error that says what to write."""
    with pytest.raises(StoreError, match="memory://"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "amqp://user:secret@host/0",
        "amqp://:secret@host/0",
        "amqp://:se:cr@et@host",
        "amqp://host/0?password=secret",
        "memory://user:secret@",
        "memory://?password=secret",
        "http://[::1?password=secret",
    ],
)
def test_no_message_shows_a_password(url):
    """However a URL carries a password, the error does not repeat it."""
    with pytest.raises(StoreError) as error:
        open_store(url)
    for part in ("secret", "se:cr", "cr@et"):
        assert part not in str(error.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://web@db/limits?deadline=1s", "postgresql://web@db/limits"),
        ("postgres://web@db/limits", "postgres://web@db/limits"),
        ("postgresql://web:sesame@db/limits", "postgresql://***@db/limits"),
        ("postgresql://:sesame@db/limits", "postgresql://***@db/limits"),
        ("redis://sesame@db/0", "redis://***@db/0"),
        ("redis://:sesame@db/0", "redis://***@db/0"),
        ("redis://db/0?prefix=shop", "redis://db/0"),
        ("redis://:se?same@db/0?prefix=shop", "redis://***"),
        ("postgresql://web:se?same@db/limits", "postgresql://***"),
    ],
)
def test_no_password_is_shown(url: str, says: str):
    """A lone user of PostgreSQL is shown; in Redis it may be a password in the wrong place."""
    assert shown(url) == says
