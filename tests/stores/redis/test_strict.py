# Strict charges: where the server could lose some of them and not all, they are refused beforehand.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.servers.redis_groups import Cluster, in_sync, wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tidegate import TokenBucket
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.redis.epochs import begin_full

Opened = Callable[..., Face]
Own = Callable[..., RedisLike]


def strict(key: str = "acme", **more: Any) -> list[Any]:
    return [charge(key, limit=TokenBucket(10, "1/h"), strict=True, **more)]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"maxmemory": "100mb", "maxmemory_policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"maxmemory": "100mb", "maxmemory_policy": "volatile-ttl"}, "maxmemory-policy is volatile-ttl"),
        ({"save": "900 1"}, "save is '900 1'"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"appendonly": "yes", "appendfsync": "no"}, "appendfsync is no"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_server_that_may_forget_single_charges(
    opened: Opened, own_redis: Own, options: dict[str, Any], named: str
):
    """A mistake that names the setting and the ways out; other rules are decided; `may_forget` accepts."""
    server = own_redis(**options)
    store = opened(server.url)
    with pytest.raises(StoreError, match="may_forget=True") as raised:
        store.decide(strict())

    assert not isinstance(raised.value, StoreUnavailable)
    assert named in str(raised.value)
    assert store.takes("other")
    assert store.decide(strict(), take=False)
    assert not opened(server.url + "?may_forget=yes").decide(strict())[0].allowed


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"appendonly": "yes", "appendfsync": "always"},
        {"maxmemory_policy": "allkeys-lru"},
        {"maxmemory": "100mb", "maxmemory_policy": "noeviction"},
    ],
    ids=str,
)
def test_a_server_that_forgets_all_or_nothing(opened: Opened, own_redis: Own, options: dict[str, Any]):
    """The first strict charge finds no epoch: the key starts empty, fills at its rate, and says so."""
    store = opened(own_redis(**options).url)
    first = store.decide(strict())[0]

    assert not first.allowed
    assert first.remaining == 0
    assert first.retry_after_us is not None
    assert 0 < first.retry_after_us <= 3_600_000_000


def test_replicas_that_may_be_promoted_too_early(opened: Opened, own_redis: Own):
    """A replica may lack the last charges: refused, unless charges wait for it."""
    master = own_redis()
    replica = own_redis(replicaof=("127.0.0.1", master.port))
    wait_for("the replica is in sync", lambda: in_sync(replica))
    master.command("SET", "tidegate:epoch", "0")
    with pytest.raises(StoreError, match="replicas=1"):
        opened(master.url).decide(strict())
    waiting = opened(master.url + "?replicas=1")

    assert waiting.decide(strict())[0].remaining == 9
    assert replica.command("EXISTS", "tidegate:{acme}:rule") == 1
    waiting_less = opened(master.url + "?replicas=1", deadline="300ms")
    waiting_less.reach()
    replica.freeze()
    assert waiting_less.cause("acme", limit=TokenBucket(10, "1/h"), strict=True) == "deadline"
    assert waiting_less.takes("other")
    assert waiting_less.decide(strict(cost=0), take=False)[0].remaining == 8


def test_a_server_that_does_not_let_us_look(opened: Opened, own_redis: Own):
    """Then we do not know, and say so."""
    server = own_redis()
    server.command("ACL", "SETUSER", "limits", "on", ">x", "~*", "+@all", "-config", "-info")
    store = opened(server.url.replace("redis://", "redis://limits:x@"))

    with pytest.raises(StoreError, match="does not let us see"):
        store.decide(strict())
    assert store.takes()


def test_a_mixed_batch(opened: Opened, own_redis: Own):
    """Of many requests only the strict ones are refused."""
    store = opened(own_redis(save="900 1").url)
    loose, tight = store.decide_many([[charge()], strict()])

    assert loose[0].allowed
    assert isinstance(tight, StoreError)


def test_an_outage_while_looking(opened: Opened, own_redis: Own):
    """It is an outage, and not taken for a server that may forget."""
    server = own_redis()
    store = opened(server.url, deadline="50ms")
    store.reach()
    server.freeze()

    with pytest.raises(StoreUnavailable):
        store.decide(strict())


def test_beginning_full(own_redis: Own):
    """Whoever sets up a server says so once: strict keys are full then. What was set before stays."""
    server = own_redis()
    with Face("blocking", server.url) as store:
        assert begin_full(store.store) == 1
        assert store.decide(strict())[0].remaining == 9
        assert begin_full(store.store) == 0

        server.flush()
        assert not store.decide(strict())[0].allowed
        assert begin_full(store.store) == 0
        assert not store.decide(strict())[0].allowed


def test_beginning_full_on_a_cluster(redis_cluster: Cluster):
    """Each slot has an epoch, on the master that serves it."""
    with Face("blocking", f"redis+cluster://127.0.0.1:{redis_cluster.nodes[0].port}") as store:
        assert begin_full(store.store) == 16_384
        assert all(store.decide(strict(f"key {number}"))[0].remaining == 9 for number in range(50))
        assert begin_full(store.store) == 0
