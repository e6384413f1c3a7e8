# What servers and libraries say when they cannot serve: an outage with a cause, or a mistake.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tests.promptness import Stopwatch, best_s
from tests.servers.network import REPLIES, Network
from tests.servers.ports import claim_port, release_port
from tests.servers.redis_groups import in_sync, wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.clients import LIBRARIES, client
from tests.stores.redis.faces import Face, charge
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import FAILURES_TO_OPEN

Opened = Callable[..., Face]
Own = Callable[..., RedisLike]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which nothing listens."""
    port = claim_port()
    yield port
    release_port(port)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """The client libraries, in turn."""
    return str(request.param)


class TestCauses:
    """C139: by each library and face, each trouble has its cause, and none escapes as another exception."""

    def test_connection_refused(self, opened: Opened, face: str, library: str, silent_port: int):
        """Nothing listens there."""
        store = opened(client(library, face, silent_port))

        assert [store.cause() for _ in range(FAILURES_TO_OPEN + 1)] == [
            *["connection"] * FAILURES_TO_OPEN,
            "breaker",
        ]

    def test_name_not_found(self, opened: Opened, face: str, library: str):
        """The name of the host leads nowhere."""
        store = opened(client(library, face, 6379).__class__(host="nowhere.invalid"), deadline="5s")

        assert store.cause() == "connection"

    def test_connection_reset(
        self, opened: Opened, face: str, library: str, valkey: RedisLike, network: Callable[[int], Network]
    ):
        """The connection breaks while the reply is awaited."""
        way = network(valkey.port)
        store = opened(client(library, face, way.port))
        store.takes()
        way.hold()
        breaking = threading.Timer(0.05, way.drop)
        breaking.start()
        cause = store.cause()
        breaking.join()

        assert cause == "connection"

    def test_a_reply_that_breaks_off(
        self, opened: Opened, face: str, library: str, valkey: RedisLike, network: Callable[[int], Network]
    ):
        """The connection ends in the middle of a reply."""
        way = network(valkey.port)
        store = opened(client(library, face, way.port))
        store.takes()
        way.cut_after(5, REPLIES, once=True)

        assert store.cause() == "connection"
        assert store.cause() is None

    def test_time_out(self, opened: Opened, face: str, library: str, own_redis: Own):
        """A frozen server."""
        server = own_redis()
        store = opened(client(library, face, server.port), deadline="30ms")
        store.reach()
        server.freeze()

        assert store.cause() == "deadline"

    def test_wrong_password(self, opened: Opened, face: str, library: str, own_redis: Own):
        """No password, and a wrong one."""
        server = own_redis(requirepass="secret")
        without = opened(client(library, face, server.port))
        wrong = opened(client(library, face, server.port, password="guessed"))
        right = opened(client(library, face, server.port, password="secret"))

        assert [store.cause() for store in (without, wrong, right)] == [
            "authentication",
            "authentication",
            None,
        ]

    def test_no_permission(self, opened: Opened, face: str, library: str, own_redis: Own):
        """C134: who may not run scripts, or not touch the keys, is a mistake in the set-up, and no outage."""
        server = own_redis()
        server.command("ACL", "SETUSER", "reader", "on", ">x", "~*", "+@read", "+@connection")
        server.command("ACL", "SETUSER", "elsewhere", "on", ">x", "~other:*", "+@all")
        users = [
            opened(client(library, face, server.port, username=user, password="x"))
            for user in ("reader", "elsewhere")
        ]

        for store in users:
            with pytest.raises(StoreError) as said:
                store.takes()
            assert not isinstance(said.value, StoreUnavailable)

    def test_out_of_memory(
        self, opened: Opened, face: str, library: str, own_redis: Own, caplog: pytest.LogCaptureFixture
    ):
        """No room and no eviction: an outage, told in the log once and not for each request."""
        server = own_redis(maxmemory_policy="noeviction")
        store = opened(client(library, face, server.port))
        store.takes()
        server.set("maxmemory", 1)
        causes = {store.cause(f"key {number}") for number in range(20)}
        server.set("maxmemory", 0)

        assert causes == {"out_of_memory"}
        assert store.cause() is None
        assert len(caplog.records) == 1
        assert caplog.records[0].levelname == "ERROR"
        assert store.store.health.stats().unavailable == {"out_of_memory": 20}

    def test_read_only(self, opened: Opened, face: str, own_redis: Own):
        """A replica takes no charges."""
        master = own_redis()
        replica = own_redis(replicaof=("127.0.0.1", master.port))
        wait_for("the replica is in sync", lambda: in_sync(replica))
        stores = [opened(client(library, face, replica.port)) for library in LIBRARIES]

        assert [store.cause() for store in stores * 5] == ["read_only"] * 10

    def test_loading(self, opened: Opened, face: str, own_redis: Own):
        """A server that reads its data from disk."""
        server = own_redis(save="900 1", rdbcompression="no", enable_debug_command="yes")
        server.command("DEBUG", "POPULATE", 100_000)
        server.command("SAVE", timeout_s=30)
        server.stop()
        server.options["loading-process-events-interval-bytes"] = 1024
        server.options["key-load-delay"] = 20
        server.start(wait=False)
        wait_for("it listens", lambda: _says_loading(server))
        stores = [opened(client(library, face, server.port)) for library in LIBRARIES]
        causes = [store.cause() for store in stores]
        server.set("key-load-delay", 0)
        wait_for("it has loaded", lambda: all(store.cause() is None for store in stores))

        assert causes == ["loading"] * len(LIBRARIES)

    def test_busy_with_a_script(self, opened: Opened, face: str, library: str, own_redis: Own):
        """Somebody else's script runs on and on."""
        server = own_redis(lua_time_limit=10)
        store = opened(client(library, face, server.port), deadline="300ms")
        store.takes()
        running = threading.Thread(target=_run_on, args=[server])
        running.start()
        wait_for("it says so", lambda: store.cause() == "busy")
        server.command("SCRIPT", "KILL")
        running.join()

    def test_too_many_clients(self, opened: Opened, face: str, library: str, own_redis: Own):
        """The server has no connection left for us."""
        server = own_redis(maxclients=1)
        held = client(library, "blocking", server.port)
        held.ping()
        store = opened(client(library, face, server.port))
        cause = store.cause()
        held.close()

        assert cause == "connection"


class TestMistakes:
    """C134: a mistake is raised as a plain StoreError, and is never taken for an outage."""

    def test_a_key_of_another_type(self, opened: Opened, redis_like: RedisLike):
        """Somebody keeps a list under that name."""
        redis_like.command("LPUSH", "tidegate:{acme}:rule", "x")
        store = opened(redis_like.url)

        with pytest.raises(StoreError, match="WRONGTYPE") as raised:
            store.takes()
        assert not isinstance(raised.value, StoreUnavailable)
        assert store.store.health.stats().outages == 0

    def test_a_command_that_the_server_does_not_know(self, opened: Opened, own_redis: Own):
        """A server whose scripting has been renamed away."""
        store = opened(own_redis(rename_command=("EVALSHA", '""')).url)

        with pytest.raises(StoreError, match="unknown command") as raised:
            store.takes()
        assert not isinstance(raised.value, StoreUnavailable)

    def test_charges_of_several_slots(self, opened: Opened, redis_cluster: Any):
        """They are to be decided part by part."""
        store = opened(f"redis+cluster://127.0.0.1:{redis_cluster.nodes[0].port}")

        with pytest.raises(StoreError, match="several slots") as raised:
            store.decide([charge("a"), charge("b")])
        assert not isinstance(raised.value, StoreUnavailable)


class TestScripts:
    """C131: a server that has lost the script gets it again, and nobody sees an error."""

    def test_flushed_under_twenty_workers(self, valkey: RedisLike):
        """Threads ask while the script cache is emptied again and again."""
        with Face("blocking", valkey.url) as store, ThreadPoolExecutor(20) as workers:
            asked = [workers.submit(store.takes, f"key {number % 80}") for number in range(800)]
            for _ in range(20):
                valkey.command("SCRIPT", "FLUSH")
                time.sleep(0.005)

            assert all(answer.result() for answer in asked)

    def test_flushed(self, opened: Opened, redis_like: RedisLike):
        """By both faces, on every server, for each verb."""
        store = opened(redis_like.url)
        store.takes()
        for _ in range(3):
            redis_like.command("SCRIPT", "FLUSH")
            assert store.takes()
            store.forget([("rule", "other")])

        assert store.decide([charge()], take=False)[0].remaining == 6

    def test_restarted(self, opened: Opened, own_redis: Own):
        """With a fresh balance, for this server keeps nothing; at once, though its connections are gone."""
        server = own_redis()
        store = opened(server.url)
        for _ in range(10):
            store.takes()
        server.restart()

        assert [store.takes() for _ in range(11)] == [True] * 10 + [False]
        assert store.store.health.stats().unavailable == {}

    def test_killed(self, opened: Opened, own_redis: Own):
        """Kill -9 and back: outages by cause, and well again within a second."""
        server = own_redis()
        store = opened(server.url)
        store.takes()

        def killed() -> float:
            server.kill()
            causes = {store.cause() for _ in range(50)}
            server.start()
            with Stopwatch() as watch:
                wait_for("it answers again", lambda: store.cause() is None)
            assert causes == {"connection", "breaker"}
            return watch.took_s

        assert best_s(killed, within_s=1) < 1


class TestNames:
    """C136: the name leads to another server by now."""

    def test_a_master_that_became_a_replica(
        self, opened: Opened, own_redis: Own, network: Callable[[int], Network]
    ):
        """It keeps its connections open; its read-only replies make us look where the name leads."""
        old = own_redis()
        new = own_redis()
        way = network(old.port)
        store = opened(way.through(old.url))
        assert store.takes()
        way.lead_to(new.port)
        old.command("REPLICAOF", "127.0.0.1", new.port)
        causes = [store.cause("other", cost=0) for _ in range(200)]

        assert causes.count("read_only") <= 3
        assert causes[-1] is None


def test_a_server_that_fails_some_and_serves_others_is_one_outage(
    opened: Opened, own_redis: Own, caplog: pytest.LogCaptureFixture
):
    """While it is full, looking works and charging does not: two log lines in all, not two a request."""
    server = own_redis()
    store = opened(server.url)
    store.takes()
    server.set("maxmemory", 1)
    for _ in range(20):
        store.cause()
        store.decide([charge()], take=False)
    server.set("maxmemory", 0)
    store.takes()
    time.sleep(1.05)
    store.takes()

    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "answers again" in caplog.records[1].message
    assert store.store.health.stats().outages == 1


def _says_loading(server: RedisLike) -> bool:
    try:
        server.command("PING")
    except Exception as error:  # noqa: BLE001 - not there yet, or loading, which is what is wanted
        return "LOADING" in str(error)
    return False


def _run_on(server: RedisLike) -> None:
    with suppress(Exception):  # it is killed
        server.command("EVAL", "while true do end", 0, timeout_s=30)
