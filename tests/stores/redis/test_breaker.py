# The breaker between callers and servers: it answers in the caller's own step, does not outlive its reasons,
# and one outage is one line in the log.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.servers.redis_groups import Cluster, wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tidegate.errors import StoreUnavailable
from tidegate.stores import health
from tidegate.stores.redis import link
from tidegate.stores.redis.store import RedisStore

pytestmark = pytest.mark.real_time

Opened = Callable[..., Face]
Own = Callable[..., RedisLike]


async def opened_breaker(store: RedisStore) -> None:
    """Ask until the breaker answers."""
    for _ in range(100):
        try:
            await store.awaited.decide([charge()])
        except StoreUnavailable as error:
            if error.cause == "breaker":
                return
    raise AssertionError("it never opened")


def test_an_open_breaker_answers_in_the_callers_own_step(own_redis: Own):
    """An awaited call that it refuses takes no seat in a lane, and waits for no turn of the loop."""
    server = own_redis()
    store = RedisStore(server.url, deadline="50ms")

    async def ask() -> list[str]:
        causes = []
        server.freeze()
        await opened_breaker(store)
        for step in (
            store.awaited.decide([charge()]),
            store.awaited.decide_many([[charge()]]),
            store.awaited.forget([("rule", "acme")]),
        ):
            try:
                step.send(None)
            except StoreUnavailable as error:
                causes.append(error.cause)
            except StopIteration as answered:
                causes += [one.cause for one in answered.value]
        server.thaw()
        await store.awaited.close()
        return causes

    assert asyncio.run(ask()) == ["breaker"] * 3


class TestIdle:
    """Probing ends where nobody asks. Then the breaker knows nothing any more, and says nothing by itself."""

    @pytest.fixture(autouse=True)
    def ends_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(link, "PROBED_WITHOUT_DEMAND_S", 0.05)

    def test_the_first_call_after_it_is_decided(self, opened: Opened, own_redis: Own):
        """The server came back while nobody asked: the next caller has his answer, and not an outage."""
        server = own_redis()
        store = opened(server.url)
        store.takes()
        server.kill()
        wait_for("the breaker is open", lambda: store.cause() == "breaker")
        server.start()
        time.sleep(health.OVERDUE_US / 1e6 + 0.05)

        assert store.cause() is None

    def test_one_caller_waits_for_the_probe(self, own_redis: Own):
        """The server is still away: one caller waits, by his deadline; all others are answered at once."""
        server = own_redis()
        store = RedisStore(server.url, deadline="100ms")

        async def cause() -> str | None:
            try:
                await store.awaited.decide([charge()])
            except StoreUnavailable as error:
                return error.cause
            return None

        async def ask() -> tuple[list[bool], list[str | None]]:
            server.freeze()
            await opened_breaker(store)
            await asyncio.sleep(health.OVERDUE_US / 1e6 + 0.05)
            asked = [asyncio.create_task(cause()) for _ in range(20)]
            await asyncio.sleep(0)
            waiting = [not one.done() for one in asked]
            causes = await asyncio.wait_for(asyncio.gather(*asked), 5)
            server.thaw()
            await store.awaited.close()
            return waiting, causes

        waiting, causes = asyncio.run(ask())

        assert waiting == [True] + [False] * 19
        assert causes == ["breaker"] * 20

    def test_a_probe_that_a_caller_waits_for_minds_his_deadline(self, opened: Opened, own_redis: Own):
        """A frozen server: he is told when his own time is over, which is less than a probe may take."""
        server = own_redis()
        store = opened(server.url, deadline="20ms")
        store.reach()
        server.freeze()
        wait_for("the breaker is open", lambda: store.cause() == "breaker")
        took_s = []
        for _ in range(3):
            time.sleep(health.OVERDUE_US / 1e6 + 0.05)
            begin_s = time.perf_counter()
            assert store.cause() == "breaker"
            took_s.append(time.perf_counter() - begin_s)
        server.thaw()

        assert min(took_s) < link.PROBE_WITHIN_S


class TestOneLine:
    """An outage is over when decisions are answered again: those that write, where writes were refused."""

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if all that follows one upon the other here had a second between."""
        monkeypatch.setattr(health, "QUIET_US", 0)

    def test_writes_are_refused_and_looking_works(
        self, opened: Opened, own_redis: Own, caplog: pytest.LogCaptureFixture
    ):
        """Full, without its replicas, or a replica itself: budgets that are used up are told meanwhile."""
        troubles: dict[str, tuple[tuple[str | int, ...], tuple[str | int, ...]]] = {
            "out_of_memory": (("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)),
            "read_only": (
                ("CONFIG", "SET", "min-replicas-to-write", 1),
                ("CONFIG", "SET", "min-replicas-to-write", 0),
            ),
            "a replica": (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
        }
        server = own_redis()
        store = opened(server.url)
        store.decide([charge("used up", 10)])
        levels = []
        for trouble, (begins, ends) in troubles.items():
            server.command(*begins)
            for number in range(5):
                assert store.cause(f"new {number}") in {trouble, "read_only"}
                for _ in range(3):
                    assert not store.decide([charge("used up")], take=False)[0].allowed
            server.command(*ends)
            for _ in range(2):
                assert store.cause(trouble) is None
            levels.append([record.levelname for record in caplog.records])
            caplog.clear()

        assert levels == [["ERROR", "WARNING"]] * 3
        assert store.store.health.stats().outages == 3

    def test_everything_is_refused(self, opened: Opened, own_redis: Own, caplog: pytest.LogCaptureFixture):
        """MASTERDOWN: a replica that lost its master, and does not serve what is old."""
        server = own_redis(replica_serve_stale_data="no")
        store = opened(server.url)
        store.takes()
        server.command("REPLICAOF", "127.0.0.1", 1)
        causes = {store.cause() for _ in range(10)}
        server.command("REPLICAOF", "NO", "ONE")
        wait_for("it answers again", lambda: store.cause(cost=0) is None)
        store.takes()
        store.takes()

        assert causes == {"read_only"}
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]

    def test_a_probe_does_not_end_it(self, opened: Opened, own_redis: Own, caplog: pytest.LogCaptureFixture):
        """A server that lets itself be looked at, and answers no decision in time, is one outage."""
        server = own_redis()
        store = opened(server.url, deadline="50ms")
        store.reach()
        caplog.clear()
        for _ in range(3):
            server.freeze()
            wait_for("the breaker is open", lambda: store.cause() == "breaker")
            server.thaw()
            for _ in range(2):
                store.store.health.answered(time.monotonic_ns() // 1_000, health.PROBED)

        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_a_slot_that_nobody_serves(
        self, opened: Opened, own_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
    ):
        """CLUSTERDOWN: others are decided meanwhile, and the map is read again and again."""
        cluster = own_cluster(cluster_require_full_coverage="no")
        slot = cluster.slot_of(b"tidegate:{lost}:rule")
        owner = cluster.master_of(b"tidegate:{lost}:rule")
        for node in cluster.nodes:
            node.command("CLUSTER", "DELSLOTS", slot)
        store = opened(f"redis+cluster://127.0.0.1:{cluster.nodes[0].port}")
        causes = set()
        for _ in range(3):
            causes.add(store.cause("lost"))
            for number in range(3):
                assert store.cause(f"key {number}") is None
            time.sleep(0.3)  # until the map may be read again
        lines = [record.levelname for record in caplog.records]
        owner.command("CLUSTER", "ADDSLOTS", slot)
        wait_for("the slot is served", lambda: store.cause("lost") is None)
        for _ in range(2):
            store.takes("lost")

        assert causes == {"cluster_down"}
        assert lines == ["ERROR"]
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
