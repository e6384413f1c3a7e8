# The servers that other tests rely on do what those tests will ask of them.

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.redis_groups import Cluster, SentinelGroup, wait_for
from tests.servers.redis_like import KINDS, RedisLike
from tests.servers.wire import Refused, ask

pytestmark = pytest.mark.real_time

VERSIONS = {"valkey-9": "9.", "redis-8": "8.", "redis-6.2": "6.2."}


def test_a_shared_server_answers(redis_like: RedisLike):
    """Each kind runs in its version, on a port below the ephemeral ones, and is empty."""
    assert redis_like.version().startswith(VERSIONS[redis_like.kind])
    assert 20_000 <= redis_like.port < 30_000
    assert redis_like.command("DBSIZE") == 0
    assert redis_like.used_memory_bytes() > 0
    assert redis_like.cpu_us() > 0

    redis_like.command("SET", "left", "over")


def test_a_shared_server_is_emptied(redis_like: RedisLike):
    """Keys and scripts of one test are gone at the next use."""
    sha = redis_like.command("SCRIPT", "LOAD", "return 1")
    redis_like.command("SET", "a", 1)

    redis_like.flush()

    assert redis_like.command("DBSIZE") == 0
    with pytest.raises(Refused, match="NOSCRIPT"):
        redis_like.command("EVALSHA", sha, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_restarts_where_it_was(own_redis: Callable[..., RedisLike], kind: str):
    """After a stop and after a kill it comes back on its port; what it keeps depends on its options."""
    for appendonly, kept in (("no", None), ("yes", b"1")):
        server = own_redis(kind, appendonly=appendonly, appendfsync="always")
        url, pid = server.url, server.pid
        server.command("SET", "a", 1)

        server.restart()
        assert (server.command("GET", "a"), server.url) == (kept, url)
        assert server.pid != pid

        server.kill()
        server.start()
        assert (server.command("GET", "a"), server.url) == (kept, url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_server_is_silent(own_redis: Callable[..., RedisLike], kind: str):
    """It takes connections and answers nothing, until it is thawed; stopping it needs no thaw."""
    server = own_redis(kind)
    server.freeze()
    with pytest.raises(TimeoutError):
        server.command("PING", timeout_s=0.2)

    server.thaw()
    assert server.command("PING") == b"PONG"

    server.freeze()
    server.stop()
    assert not server.is_running


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_is_gone(own_redis: Callable[..., RedisLike], kind: str):
    """Its process is no more, and its port refuses."""
    server = own_redis(kind)
    server.kill()

    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
    with pytest.raises(ConnectionRefusedError):
        server.command("PING")


def test_options_hold(own_redis: Callable[..., RedisLike]):
    """A password and a bound on memory are set as asked, and the address carries the password."""
    server = own_redis(
        requirepass="so:secret", maxmemory="3mb", client_output_buffer_limit=("normal", 0, 0, 0)
    )

    assert server.command("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"3145728"]
    assert server.url == f"redis://:so%3Asecret@127.0.0.1:{server.port}/0"
    with pytest.raises(Refused, match="NOAUTH"):
        ask(server.port, "PING")


def test_a_closed_server_leaves_nothing():
    """Its folder goes with it."""
    with RedisLike() as server:
        folder = server.folder
        assert Path(server.unix_path).is_socket()

    assert not folder.exists()


def test_a_cluster_spreads_keys(redis_cluster: Cluster):
    """The shared cluster is whole, each master holds some keys, and whoever asks the wrong one is sent on."""
    for number in range(30):
        redis_cluster.master_of(f"k{number}").command("SET", f"k{number}", number)

    assert [node.command("DBSIZE") > 0 for node in redis_cluster.masters] == [True] * 3
    home = redis_cluster.master_of("k0")
    other = next(node for node in redis_cluster.masters if node is not home)
    with pytest.raises(Refused, match=f"MOVED {redis_cluster.slot_of('k0')} 127.0.0.1:{home.port}"):
        other.command("GET", "k0")


def test_a_cluster_fails_over(own_cluster: Callable[..., Cluster]):
    """With its master killed, a replica serves the slots."""
    cluster = own_cluster("redis-8", masters=3, replicas=1)
    (replica,) = cluster.replicas
    cluster.masters[0].kill()

    wait_for("the replica is promoted", lambda: replica.info("replication")["role"] == "master")
    cluster.wait_until_ok()
    assert Counter(cluster.master_of(f"k{number}") for number in range(30))[replica] > 0


def test_a_cluster_of_the_oldest(own_cluster: Callable[..., Cluster]):
    """The oldest kind makes a cluster too, even of one master."""
    cluster = own_cluster(KINDS[-1], masters=1)
    cluster.masters[0].command("SET", "a", 1)

    assert cluster.master_of("a") is cluster.masters[0]


def test_sentinels_promote(own_sentinels: Callable[..., SentinelGroup]):
    """With the master killed, the sentinels make the replica the master."""
    group = own_sentinels()
    assert group.master_port() == group.master.port
    group.master.kill()

    group.wait_for_master(group.replica)
    assert group.replica.command("SET", "a", 1) == b"OK"
