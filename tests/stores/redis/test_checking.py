# What `check` finds on servers of every kind, and what it says of it.

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.servers.redis_groups import Cluster, in_sync, wait_for
from tests.servers.redis_like import RedisLike
from tidegate.stores.redis import check as checking
from tidegate.stores.redis.check import Finding, check
from tidegate.stores.redis.store import RedisStore

Own = Callable[..., RedisLike]


def found(url: str, **options: Any) -> dict[str, Finding]:
    """The findings by what was looked at; the last of several."""
    store = RedisStore(url, **options)
    try:
        return {finding.what: finding for finding in check(store)}
    finally:
        store.close()


def test_a_server_that_is_fit(redis_like: RedisLike):
    """All is well, and each finding says what it means."""
    findings = found(redis_like.url)

    assert {what: finding.grade for what, finding in findings.items()} == dict.fromkeys(
        ("version", "mode", "clock", "scripts", "memory", "epoch"), "ok"
    )
    assert findings["version"].value.partition(" ")[2] == redis_like.version()
    assert "full" in findings["memory"].says
    assert "give or take" in findings["clock"].value
    assert "within" in findings["scripts"].value


def test_what_would_lose_credit(own_redis: Own):
    """Eviction, a log that is written late, replicas: each is a warning that names the setting."""
    server = own_redis(maxmemory="100mb", maxmemory_policy="allkeys-lru", appendonly="yes")
    store = RedisStore(server.url)
    warnings = [finding.says for finding in check(store) if finding.grade == "warning"]
    store.close()

    assert any("allkeys-lru" in text for text in warnings)
    assert any("appendfsync is everysec" in text for text in warnings)


def test_a_log_that_is_written_always(own_redis: Own):
    """What was charged outlives a restart."""
    assert "outlives" in found(own_redis(appendonly="yes", appendfsync="always").url)["memory"].says


def test_a_replica(own_redis: Own):
    """It takes no charges; and its master says that it is followed."""
    master = own_redis()
    replica = own_redis(replicaof=("127.0.0.1", master.port))
    wait_for("the replica is in sync", lambda: in_sync(replica))

    assert found(replica.url)["mode"].grade == "error"
    assert "1 replicas" in found(master.url)["mode"].says
    assert "promoted" in found(master.url)["memory"].says


def test_a_cluster(redis_cluster: Cluster):
    """Each master is looked at; a node by itself is told to be one."""
    store = RedisStore(f"redis+cluster://127.0.0.1:{redis_cluster.nodes[0].port}")
    findings = check(store)
    store.close()

    assert len({finding.where for finding in findings}) == 3
    assert {finding.grade for finding in findings} == {"ok"}
    assert "redis+cluster" in found(redis_cluster.url)["mode"].says


def test_nobody_there():
    """One finding, with the cause."""
    (finding,) = found("redis://127.0.0.1:1").values()

    assert (finding.what, finding.grade, finding.value) == ("connection", "error", "connection")


def test_a_server_that_shows_nothing(own_redis: Own):
    """Warnings where we cannot know, and an error where scripts are not allowed."""
    server = own_redis()
    server.command("ACL", "SETUSER", "blind", "on", ">x", "~*", "+@all", "-info", "-config", "-time")
    server.command("ACL", "SETUSER", "mute", "on", ">x", "~*", "+@all", "-@scripting")
    blind = found(server.url.replace("redis://", "redis://blind:x@"))
    mute = found(server.url.replace("redis://", "redis://mute:x@"))

    assert [blind[what].grade for what in ("version", "clock", "memory")] == ["warning"] * 3
    assert mute["scripts"].grade == "error"


def test_a_host_whose_clock_is_off(valkey: RedisLike, monkeypatch: pytest.MonkeyPatch):
    """Two minutes: decisions stay right, and it is told."""
    now_ns = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: now_ns() + 120_000_000_000)
    finding = found(valkey.url)["clock"]

    assert finding.grade == "warning"
    assert finding.value.startswith("-1200") or finding.value.startswith("-1199")


def test_a_deadline_that_is_too_short(valkey: RedisLike, network: Callable[[int], Any]):
    """Round trips take longer than it: an error that says so."""
    way = network(valkey.port)
    way.delay(0.004)

    assert found(way.through(valkey.url), deadline="2ms")["scripts"].grade == "error"


def test_an_old_version():
    """Redis 6.0 is too old, whatever else it says."""
    grades = [
        checking._version("there", facts).grade
        for facts in ({"redis_version": "6.0.16"}, {"redis_version": "6.2.0"}, {"redis_version": "10.0"}, {})
    ]

    assert grades == ["error", "ok", "ok", "warning"]
    assert (
        checking._version("there", {"redis_version": "7.2.4", "valkey_version": "9.1.2"}).value
        == "Valkey 9.1.2"
    )
