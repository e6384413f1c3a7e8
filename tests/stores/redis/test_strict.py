# Strict charges: where the server could lose some of them and not all, they are refused beforehand.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.servers.redis_groups import Cluster, in_sync, wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tests.stores.redis.moving import begin_to_move, move, name, url
from tidegate import TokenBucket
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores import health
from tidegate.stores.redis import trust
from tidegate.stores.redis.epochs import begin_full
from tidegate.stores.redis.store import RedisStore

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
        assert begin_full(store.store).written == 1
        assert store.decide(strict())[0].remaining == 9
        assert begin_full(store.store).written == 0

        server.flush()
        assert not store.decide(strict())[0].allowed
        assert begin_full(store.store).written == 0
        assert not store.decide(strict())[0].allowed


def test_beginning_full_on_a_cluster(redis_cluster: Cluster):
    """Each slot has an epoch, on the master that serves it."""
    with Face("blocking", f"redis+cluster://127.0.0.1:{redis_cluster.nodes[0].port}") as store:
        assert begin_full(store.store).written == 16_384
        assert all(store.decide(strict(f"key {number}"))[0].remaining == 9 for number in range(50))
        assert begin_full(store.store).written == 0


class TestLookedAtAgain:
    """A server that was trusted is looked at again: it may be set, or started, otherwise."""

    def test_a_setting_that_changes_while_it_runs(
        self, opened: Opened, own_redis: Own, monkeypatch: pytest.MonkeyPatch
    ):
        """Noticed beside the callers; strict rules refuse from then on, until it is set back."""
        monkeypatch.setattr(trust, "LOOK_EVERY_S", 0.0)
        server = own_redis(maxmemory="100mb")
        store = opened(server.url)
        store.decide(strict())
        server.set("maxmemory-policy", "allkeys-lru")
        wait_for("it is noticed", lambda: mistake(store) is not None)
        told = mistake(store)
        assert store.takes("other")
        server.set("maxmemory-policy", "noeviction")

        assert "maxmemory-policy is allkeys-lru" in str(told)
        assert mistake(store) is None

    def test_callers_do_not_look(self, opened: Opened, own_redis: Own):
        """The first strict charge does; those after it are one round trip each."""
        server = own_redis()
        store = opened(server.url)
        store.decide(strict())
        looked = server.info("commandstats")["cmdstat_config|get"].partition(",")[0]
        for _ in range(100):
            store.decide(strict())

        assert server.info("commandstats")["cmdstat_config|get"].partition(",")[0] == looked

    def test_a_server_that_was_started_otherwise(self, opened: Opened, own_redis: Own):
        """The very first charge by a new connection is refused, though its key is not there any more."""
        server = own_redis()
        begin_full(RedisStore(server.url))
        store = opened(server.url)
        assert store.decide(strict())[0].allowed
        server.options |= {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
        server.restart()

        assert "maxmemory-policy is allkeys-lru" in str(mistake(store))
        assert store.store.health.stats().unavailable == {}
        assert store.takes("other")


class TestRedirected:
    """Whoever is sent to another server looks at that one, too, before he charges there strictly."""

    def test_to_a_server_that_evicts(self, opened: Opened, own_cluster: Callable[..., Cluster]):
        """ASK while the slot moves, MOVED once it has: strict requests are refused, the others decided."""
        cluster = own_cluster(masters=3)
        with Face("blocking", url(cluster)) as first:
            begin_full(first.store)
        store = opened(url(cluster))
        asked = [[charge("acme", strict=True)], [charge("acme", rule="loose")]]
        before = store.decide_many(asked)
        source, target = begin_to_move(cluster, "acme")
        target.set("maxmemory", "100mb")
        target.set("maxmemory-policy", "allkeys-lru")
        while held := source.command("CLUSTER", "GETKEYSINSLOT", cluster.slot_of(name("acme")), 100):
            source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *held)
        meanwhile = [store.decide_many(asked) for _ in range(3)]
        move(cluster, "acme", source, target)
        after = [store.decide_many(asked) for _ in range(3)]

        assert [outcome.remaining for (outcome,) in before] == [9, 9]
        assert all("maxmemory-policy is allkeys-lru" in str(strictly) for strictly, _ in meanwhile + after)
        assert [loosely[0].remaining for _, loosely in meanwhile + after] == [8, 7, 6, 5, 4, 3]


def test_what_replicas_did_not_acknowledge_is_counted(
    opened: Opened, own_redis: Own, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Each is a call without an answer; the breaker stays closed, and it is one outage until one is kept."""
    monkeypatch.setattr(health, "QUIET_US", 0)
    master = own_redis()
    replica = own_redis(replicaof=("127.0.0.1", master.port))
    wait_for("the replica is in sync", lambda: in_sync(replica))
    master.command("SET", "tidegate:epoch", "0")
    store = opened(master.url + "?replicas=1", deadline="1s")  # a server ends a WAIT a tenth late
    wait_for("it is kept", lambda: store.cause(strict=True, cost=2) is None)
    caplog.clear()
    before = store.store.health.stats()
    replica.freeze()
    for number in range(2):
        assert store.cause(f"key {number}", strict=True) == "deadline"
        for _ in range(3):
            assert store.takes(f"other {number}")
    replica.thaw()
    stats = store.store.health.stats()

    assert stats.unavailable["deadline"] - before.unavailable.get("deadline", 0) == 2
    assert stats.outages - before.outages == 1
    assert not stats.open
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_an_old_snapshot_that_somebody_puts_back(own_redis: Own):
    """Nobody sees that, for its epoch comes back with it. Emptied, it has strict rules begin empty."""
    server = own_redis(dbfilename="dump.rdb")
    with Face("blocking", server.url) as store:
        begin_full(store.store)
        store.decide(strict(cost=2))
        server.command("SAVE")
        store.decide(strict(cost=6))
        server.kill()
        server.start()
        came_back = store.decide(strict(cost=0), take=False)[0].remaining
        assert begin_full(store.store).written == 0
        server.flush()
        emptied = store.decide(strict())[0]

    assert came_back == 8
    assert (emptied.allowed, emptied.remaining) == (False, 0)


def mistake(store: Face) -> StoreError | None:
    """Why a strict charge is refused by mistake of the set-up; None if it is decided."""
    try:
        store.decide(strict())
    except StoreUnavailable:
        raise
    except StoreError as error:
        return error
    return None
