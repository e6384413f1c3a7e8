# Threads and forked processes on one store.

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.promptness import Stopwatch, best_s
from tests.servers.network import Network
from tests.servers.redis_groups import wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tidegate import TokenBucket
from tidegate.errors import StoreError
from tidegate.stores.redis.store import RedisStore

Own = Callable[..., RedisLike]


def connections(server: RedisLike) -> int:
    """How many clients the server has, but for the one that asks."""
    return int(server.info("clients")["connected_clients"]) - 1


class TestThreads:
    """Connections are few, bounded, and shared."""

    def test_exactly_the_capacity_passes(self, valkey: RedisLike):
        """16 threads on one key; each answer is that of its own call."""
        limit = TokenBucket(500, "0/s")
        with Face("blocking", valkey.url, deadline="20s") as store, ThreadPoolExecutor(16) as workers:
            remaining = list(
                workers.map(lambda _: store.decide([charge(limit=limit)])[0].remaining, range(500))
            )

            assert sorted(remaining) == list(range(500))
            assert not store.takes(limit=limit)
            wait_for("no more connections than threads", lambda: connections(valkey) <= 16)

    def test_the_one_used_last_is_used_again(self, own_redis: Own):
        """One caller after another needs one connection."""
        server = own_redis()
        with Face("blocking", server.url, deadline="10s") as store:
            for _ in range(50):
                store.takes()

            assert connections(server) == 1

    def test_no_more_connections_than_wanted(self, own_redis: Own):
        """Sixteen threads share two: they wait for each other, and all are served."""
        server = own_redis()
        with (
            Face("blocking", server.url, deadline="20s", max_connections=2) as store,
            ThreadPoolExecutor(16) as workers,
        ):
            assert all(workers.map(lambda number: store.takes(f"key {number}"), range(300)))
            assert connections(server) <= 2

    def test_waiting_for_a_connection_counts(self, own_redis: Own):
        """C139, pool exhausted: two connections hang, and the third caller waits no longer than they do."""
        server = own_redis()
        with (
            Face("blocking", server.url, deadline="60ms", max_connections=2) as store,
            ThreadPoolExecutor(3) as workers,
        ):

            def crowded() -> float:
                list(workers.map(lambda _: store.reach(), "ab"))
                server.freeze()
                with Stopwatch() as watch:
                    causes = list(workers.map(store.cause, "abc"))
                server.thaw()
                assert set(causes) <= {
                    "deadline",
                    "breaker",
                }  # the third may begin when the others have ended
                return watch.took_s

            assert best_s(crowded, within_s=0.1) < 0.1

    def test_a_restart_costs_no_thread_a_failure(self, own_redis: Own):
        """Eight idle connections are dead; they are noticed before anything is sent on them."""
        server = own_redis()
        gate = threading.Barrier(8)

        def meet(number: int) -> bool:
            gate.wait()
            return store.takes(f"key {number}")

        with (
            Face("blocking", server.url, deadline="10s") as store,
            ThreadPoolExecutor(8) as workers,
        ):
            assert all(workers.map(meet, range(8)))
            server.restart()

            assert all(workers.map(meet, range(8)))
            assert store.store.health.stats().unavailable == {}

    def test_closed_while_threads_ask(self, valkey: RedisLike):
        """Each gets an answer, or is told that the store is closed; no connection stays."""
        before = connections(valkey)
        store = RedisStore(valkey.url, deadline="10s")
        said: list[str] = []

        def ask_on() -> None:
            while True:
                try:
                    store.decide([charge(cost=0)])
                except StoreError as error:
                    said.append(str(error))
                    return

        threads = [threading.Thread(target=ask_on) for _ in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        store.close()
        for thread in threads:
            thread.join()

        assert all("closed" in text for text in said)
        wait_for("the connections are gone", lambda: connections(valkey) == before)

    def test_an_interrupted_caller_spoils_no_connection(
        self, valkey: RedisLike, network: Callable[[int], Network]
    ):
        """A signal handler raises while the reply is awaited: the next answer is that to the next call."""
        way = network(valkey.port)
        with Face("blocking", way.through(valkey.url), deadline="20s") as store:
            store.takes()
            way.hold()
            before = signal.signal(signal.SIGALRM, _raise_interrupt)
            with pytest.raises(KeyboardInterrupt):
                _interrupted(lambda: store.takes("interrupted", cost=4))
            signal.signal(signal.SIGALRM, before)
            way.heal()

            assert store.decide([charge("other")])[0].remaining == 9


class TestForks:
    """C126: a forked child has connections of its own, and its parent keeps its."""

    def test_both_go_on(self, valkey: RedisLike):
        """Parent and four children ask at once, over a store used before: exactly what there is passes."""
        limit = TokenBucket(200, "0/s")
        with Face("blocking", valkey.url, deadline="20s") as store:
            store.decide([charge(limit=limit, cost=0)])
            children = [_fork(lambda: _count(store, limit, 100)) for _ in range(4)]
            passed = _count(store, limit, 100) + sum(map(_result, children))

        assert passed == 200

    def test_a_fork_while_a_thread_is_asking(self, valkey: RedisLike, network: Callable[[int], Network]):
        """Locks and half-read replies stay with the parent."""
        way = network(valkey.port)
        with Face("blocking", way.through(valkey.url), deadline="20s", max_connections=1) as store:
            store.takes("key 0")
            way.delay(0.2)
            asking = threading.Thread(target=store.takes, args=["key 1"])
            asking.start()
            time.sleep(0.05)
            child = _fork(lambda: store.decide([charge("key 2", cost=3)])[0].remaining)
            asking.join()

            assert _result(child) == 7
            assert store.decide([charge("key 1")])[0].remaining == 8

    def test_a_fork_during_an_outage(self, own_redis: Own):
        """The child's breaker closes by the child's own probe."""
        server = own_redis()
        with Face("blocking", server.url, deadline="30ms") as store:
            store.reach()
            server.freeze()
            for _ in range(5):
                store.cause()
            child = _fork(lambda: _recovers(store))
            time.sleep(0.15)
            server.thaw()

            assert _result(child) == 1

    def test_an_awaited_store_after_a_fork(self, valkey: RedisLike):
        """A loop of the child's own, while the parent's goes on."""
        store = RedisStore(valkey.url, deadline="10s")

        async def parent() -> int:
            await store.awaited.decide([charge()])
            child = _fork(lambda: asyncio.run(_remaining(store)))
            ended = await asyncio.to_thread(_result, child)
            assert (await store.awaited.decide([charge()]))[0].remaining == 7
            return ended

        assert asyncio.run(parent()) == 8
        store.close()


async def _remaining(store: RedisStore) -> int:
    return (await store.awaited.decide([charge()]))[0].remaining


def _count(store: Face, limit: TokenBucket, calls: int) -> int:
    return sum(store.takes(limit=limit) for _ in range(calls))


def _recovers(store: Face) -> int:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        if store.cause("other") is None:
            return 1
        time.sleep(0.01)
    return 0


def _fork(work: Callable[[], int]) -> int:
    """A child that does it, and ends with the result as its status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        status = 255
        try:
            status = work()
        finally:
            os._exit(status)
    return child


def _result(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _interrupted(work: Callable[[], object]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    work()


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt
