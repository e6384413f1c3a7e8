# Threads, forks and event loops on one store.

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.promptness import GRACE_S, Stopwatch, best_s
from tests.servers.network import Network
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tests.stores.test_interruptions import interrupting
from tidegate import Limiter, TokenBucket
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.postgres.ports import ThreadPort
from tidegate.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.real_time

WIDE = TokenBucket(300, "0/s")


def connections(postgres: Postgres, made: Database) -> int:
    """How many sessions of ours the server has."""
    return int(
        postgres.sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'tidegate'",
            made.name,
        )[0][0]
    )


class TestThreads:
    """Connections are few, bounded, and shared."""

    def test_exactly_the_capacity_passes(self, postgres: Postgres, made: Database):
        """16 threads on one key; each answer is that of its own call."""
        with Face("blocking", made.unix_url, deadline="20s") as store, ThreadPoolExecutor(16) as workers:
            remaining = list(
                workers.map(lambda _: store.decide([charge(limit=WIDE)])[0].remaining, range(300))
            )

            assert sorted(remaining) == list(range(300))
            assert not store.takes(limit=WIDE)
            assert connections(postgres, made) <= 16

    def test_the_one_used_last_is_used_again(self, postgres: Postgres, made: Database):
        """One caller after another needs one connection."""
        with Face("blocking", made.unix_url) as store:
            for _ in range(30):
                store.takes()

            assert connections(postgres, made) == 1
        wait_for("it is gone", lambda: connections(postgres, made) == 0)

    def test_no_more_connections_than_wanted(self, postgres: Postgres, made: Database):
        """Sixteen threads share two: they wait for each other, and all are served."""
        with (
            Face("blocking", made.unix_url, deadline="20s", max_connections=2) as store,
            ThreadPoolExecutor(16) as workers,
        ):
            assert all(workers.map(lambda number: store.takes(f"key {number}"), range(200)))
            assert connections(postgres, made) <= 2

    def test_waiting_for_a_connection_counts(self, made: Database, postgres: Postgres):
        """C139, pool exhausted: the only connection hangs, and another waits no longer than he said."""
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
        with (
            Face("blocking", made.unix_url, deadline="20s", max_connections=1) as store,
            ThreadPoolExecutor(2) as workers,
        ):

            def exhausted() -> float:
                assert store.takes(cost=0)
                with psycopg.connect(made.unix_url) as holder:
                    holder.execute("SELECT 1 FROM tidegate.state FOR UPDATE")
                    waiting = workers.submit(store.takes)
                    wait_for("one waits for the row", lambda: postgres.sql(waits, made.name) != [])
                    with (
                        Stopwatch() as watch,
                        pytest.raises(StoreUnavailable, match="no connection of 1 was free"),
                    ):
                        store.decide([charge("another")], deadline_us=50_000)
                waiting.result()
                return watch.took_s

            store.takes()
            assert best_s(exhausted, within_s=0.05 + GRACE_S) < 0.05 + GRACE_S

    def test_closed_while_threads_ask(self, postgres: Postgres, made: Database):
        """Each gets an answer, or is told that the store is closed; no connection stays."""
        store = PostgresStore(made.unix_url, deadline="20s")
        said: list[str] = []

        def ask_on() -> None:
            while True:
                try:
                    store.decide([charge(cost=0)])
                except StoreError as error:
                    said.append(str(error))
                    return

        threads = [threading.Thread(target=ask_on) for _ in range(6)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        store.close()
        for thread in threads:
            thread.join()

        assert len(said) == 6
        assert all("closed" in text for text in said)
        wait_for("the connections are gone", lambda: connections(postgres, made) == 0)

    def test_an_interrupted_caller_spoils_no_connection(
        self, postgres: Postgres, made: Database, network: Callable[[int], Network]
    ):
        """A signal handler raises while the reply is awaited: the next answer is that to the next call."""
        way = network(postgres.port)
        with Face("blocking", way.through(made.url), deadline="10s") as store:
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

    def test_both_go_on(self, made: Database):
        """Parent and three children ask at once, over a store that was used before: exactly what there is."""
        limit = TokenBucket(100, "0/s")
        with Face("blocking", made.unix_url, deadline="20s") as store:
            store.takes(limit=limit)
            children = [_forked(lambda: sum(store.takes(limit=limit) for _ in range(30))) for _ in range(3)]
            admitted = 1 + sum(store.takes(limit=limit) for _ in range(30))
            admitted += sum(_result(child) for child in children)

            assert admitted == 100
            assert store.store.health.stats().unavailable == {}

    def test_while_threads_wait_for_answers(self, made: Database):
        """Whatever threads of the parent's were waiting for at the fork, a child waits for its own."""
        with Face("blocking", made.unix_url, deadline="20s") as store:
            ended = threading.Event()

            def ask_on() -> None:
                while not ended.is_set():
                    store.takes("parent")

            threads = [threading.Thread(target=ask_on) for _ in range(3)]
            for thread in threads:
                thread.start()
            children = [_forked(lambda: int(store.takes(f"child {number}"))) for number in range(20)]  # noqa: B023 - at once
            results = [_result(child) for child in children]
            ended.set()
            for thread in threads:
                thread.join()

            assert results == [1] * 20

    def test_a_child_of_a_loop(self, made: Database):
        """Forked while a loop runs, a child has a loop and connections of its own, and the parent's go on."""
        store = PostgresStore(made.unix_url, deadline="20s")

        async def ask() -> int:
            return (await store.awaited.decide([charge()]))[0].remaining

        async def fork_between() -> tuple[int, int]:
            await ask()
            child = _forked(lambda: asyncio.run(ask()))
            return _result(child), await ask()

        remaining = asyncio.run(fork_between())
        store.close()

        assert remaining == (8, 7)


class TestLoops:
    """The awaited face serves any number of loops, one after another and at once."""

    def test_one_after_another(self, postgres: Postgres, made: Database):
        """Each loop has its own connections, which are gone with it."""
        store = PostgresStore(made.unix_url, deadline="10s")

        async def ask() -> int:
            return (await store.awaited.decide([charge()]))[0].remaining

        remaining = [asyncio.run(ask()) for _ in range(3)]
        gc.collect()

        assert remaining == [9, 8, 7]
        wait_for("they are gone", lambda: connections(postgres, made) == 0)
        store.close()

    def test_at_once(self, made: Database):
        """Four threads with a loop each, and the blocking face beside them."""
        store = PostgresStore(made.unix_url, deadline="20s")

        async def ask() -> int:
            answers = await asyncio.gather(*(store.awaited.decide([charge(limit=WIDE)]) for _ in range(50)))
            return sum(outcome.allowed for (outcome,) in answers)

        with ThreadPoolExecutor(4) as workers:
            running = [workers.submit(asyncio.run, ask()) for _ in range(4)]
            blocking = sum(store.decide([charge(limit=WIDE)])[0].allowed for _ in range(50))
            admitted = blocking + sum(one.result() for one in running)
        store.close()

        assert admitted == 250

    def test_a_cancelled_caller_leaves_the_others_alone(self, made: Database):
        """Ten ask together, three leave: the others are answered."""

        async def ask() -> list[object]:
            store = PostgresStore(made.unix_url, deadline="10s").awaited
            await store.decide([charge(cost=0)])
            tasks = [asyncio.ensure_future(store.decide([charge(f"{number}")])) for number in range(10)]
            await asyncio.sleep(0)
            for task in tasks[::4]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            await store.close()
            return list(answers)

        answers = asyncio.run(ask())

        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [
            number % 4 == 0 for number in range(10)
        ]

    def test_an_abandoned_call_by_adjust(self, made: Database):
        """A cancelled call drops its connection; the next one has another, and its own answer."""

        async def ask() -> int:
            store = PostgresStore(made.unix_url, deadline="10s").awaited
            await store.decide([charge(cost=2)])
            task = asyncio.ensure_future(store.forget([("rule", "acme")]))
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            outcomes = await store.decide([charge("other")])
            await store.close()
            return outcomes[0].remaining

        assert asyncio.run(ask()) == 9


def test_a_limiter_on_the_store(made: Database):
    """A limiter takes the store as it is given, and names it as the source of its decisions."""
    with Face("blocking", made.unix_url) as face:
        limiter = Limiter(TokenBucket(3, "0/s"), store=face.store)
        decision = limiter.hit("acme")

        assert decision.allowed
        assert decision.source == "postgres"
        assert limiter.refund(decision) == 1
        assert limiter.peek("acme").remaining == 3


def test_a_copy_for_another_process(made: Database):
    """A store made of a URL can be pickled, and is made again with its options."""
    with Face("blocking", made.unix_url, deadline="7s", max_connections=3) as face:
        again = pickle.loads(pickle.dumps(face.store))

        assert again.options == face.store.options
        assert again.decide([charge()])[0].allowed
        again.close()


def test_closed(made: Database):
    """A closed store says so, on both faces."""
    store = PostgresStore(made.unix_url)
    store.close()

    with pytest.raises(StoreError, match="closed"):
        store.decide([charge()])
    with pytest.raises(StoreError, match="closed"):
        asyncio.run(store.awaited.decide([charge()]))


def _interrupted(work: Callable[[], object]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    work()


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _forked(work: Callable[[], int]) -> int:
    """The process id of a child that does the work; its result is the exit status."""
    pid = os.fork()
    if pid:
        return pid
    status = 255
    try:
        status = work()
    finally:
        os._exit(status)


def _result(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_signal_handler_that_asks(made: Database):
    """A handler that asks while its own thread waits or holds the pool: no hang, and exactly the capacity."""
    store = PostgresStore(made.unix_url, deadline="20s")
    results: list[bool] = []
    is_inside = False

    def handler(*_: object) -> None:
        nonlocal is_inside
        if not is_inside:  # a knock takes less time than a decision: they would pile up without end
            is_inside = True
            results.append(store.decide([charge(limit=WIDE)])[0].allowed)
            is_inside = False

    inside = 0
    with interrupting(handler) as goes_on:
        while goes_on(len(results), 300):
            inside += store.decide([charge(limit=WIDE)])[0].allowed
    while store.decide([charge(limit=WIDE)])[0].allowed:
        inside += 1
    store.close()

    assert results.count(True) + inside == 300


def test_a_pool_is_held_twice_by_one_thread():
    """The gate of threads is reentrant, so a signal handler that comes in while it is held goes through."""
    gate = ThreadPort().gate()
    through: list[bool] = []

    def twice() -> None:
        with gate.held, gate.held:
            through.append(True)

    thread = threading.Thread(target=twice, daemon=True)
    thread.start()
    thread.join(30)

    assert through == [True]
