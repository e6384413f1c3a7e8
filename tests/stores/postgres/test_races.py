# Many callers at the same moment: exactly what there is passes, and nobody waits for ever.

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import psycopg
import pytest

from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import TEN, Face, charge
from tidegate import FixedWindow, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.limits import Limit
from tidegate.stores.postgres.store import PostgresStore, from_url
from tidegate.testing.hammer import hammer

pytestmark = pytest.mark.real_time

KINDS: list[Limit] = [
    TokenBucket(10, "1/h"),
    FixedWindow(10, "1h"),
    FixedWindow(10, "month"),
    SlidingWindow(10, "1h"),
    SlidingLog(10, "1h"),
]


def at_once(store: Face, count: int, key: str, limit: Limit) -> int:
    """How many of so many threads, all beginning at the same moment, are admitted."""
    gate = threading.Barrier(count)

    def spend(_: int) -> bool:
        gate.wait()
        return store.takes(key, limit=limit)

    with ThreadPoolExecutor(count) as workers:
        return sum(workers.map(spend, range(count)))


def deadlocks(postgres: Postgres, made: Database) -> int:
    """How many the server has broken up; sessions tell it when they end, so they have ended."""
    ours = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    wait_for("no session is left", lambda: not postgres.sql(ours, made.name))
    return int(postgres.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", made.name)[0][0])


@pytest.mark.parametrize("limit", KINDS, ids=repr)
def test_the_first_use_of_a_key_is_not_lost(made: Database, limit: Limit):
    """C002 (a): a fresh key of 10, 25 at the same moment, three times: exactly 10 each."""
    with Face("blocking", made.unix_url, deadline="10s", max_connections=25) as store:
        admitted = [at_once(store, 25, f"key {number}", limit) for number in range(3)]

    assert admitted == [10] * 3


@pytest.mark.parametrize("limit", KINDS, ids=repr)
def test_the_last_one_is_given_once(made: Database, limit: Limit):
    """C002 (b): 9 one after another, then 10 at the same moment: exactly 1 more."""
    with Face("blocking", made.unix_url, deadline="10s", max_connections=10) as store:
        before = [store.takes(limit=limit) for _ in range(9)]

        assert all(before)
        assert at_once(store, 10, "acme", limit) == 1


def test_the_newest_version_of_a_row_decides(made: Database):
    """C003: 5 in 60 s, 20 at once on a key that exists already, and again when its window has just ended."""
    limit = FixedWindow(5, "60s")
    minute_us = 60 * 10**6
    start_us = 28_000_000 * minute_us
    with Face("blocking", made.unix_url, deadline="10s", max_connections=20) as store:
        store.decide([charge(limit=limit)], start_us - 1)

        def spend(now_us: int) -> int:
            gate = threading.Barrier(20)

            def one(_: int) -> bool:
                gate.wait()
                return store.decide([charge(limit=limit)], now_us)[0].allowed

            with ThreadPoolExecutor(20) as workers:
                return sum(workers.map(one, range(20)))

        admitted = [spend(start_us + turn * minute_us) for turn in range(3)]

    assert admitted == [5, 5, 5]


def test_a_row_that_is_held_is_read_again(postgres: Postgres, made: Database):
    """C003: whoever waited for a lock decides by what the holder left, not by what it saw before."""
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    with (
        Face("blocking", made.unix_url, deadline="20s") as store,
        psycopg.connect(made.unix_url) as holder,
        ThreadPoolExecutor(1) as workers,
    ):
        store.decide([charge(cost=9)])
        holder.execute("UPDATE tidegate.state SET used = used + 1000")
        admitted = workers.submit(store.takes)
        wait_for("it waits for the row", lambda: postgres.sql(waits, made.name) != [])
        holder.commit()

        assert not admitted.result()


def test_no_two_layered_requests_wait_for_each_other(postgres: Postgres, made: Database):
    """Requests name the same keys in opposite orders, fresh and known ones: no deadlock, exact totals."""
    before = deadlocks(postgres, made)
    one = [charge(f"key {number}", rule=f"rule {number % 3}") for number in range(6)]
    with Face("blocking", made.unix_url, deadline="20s", max_connections=12) as store:

        def spend(number: int) -> bool:
            request = one if number % 2 else one[::-1]
            return all(outcome.allowed for outcome in store.decide(request))

        with ThreadPoolExecutor(12) as workers:
            admitted = sum(workers.map(spend, range(120)))

        assert admitted == 10
        assert store.store.health.stats().unavailable == {}
    assert deadlocks(postgres, made) == before


def test_new_keys_below_a_shared_one(postgres: Postgres, made: Database):
    """A stampede of new keys under one budget that all share: no deadlock, and exactly the budget passes."""
    before = deadlocks(postgres, made)
    wide = TokenBucket(100, "0/s")
    with Face("blocking", made.unix_url, deadline="20s", max_connections=12) as store:

        def spend(number: int) -> bool:
            request = [charge(f"{number // 4}"), charge("", rule="zz everyone", limit=wide)]
            return all(outcome.allowed for outcome in store.decide(request))

        with ThreadPoolExecutor(12) as workers:
            admitted = sum(workers.map(spend, range(200)))

        assert admitted == 100
        assert store.store.health.stats().unavailable == {}
    assert deadlocks(postgres, made) == before


def test_swept_while_it_is_asked_for(postgres: Postgres, made: Database):
    """A row that goes between looking and locking is made again; no answer is wrong or missing."""
    with Face("blocking", made.unix_url, deadline="20s", max_connections=4) as store:
        stop = threading.Event()

        def delete() -> None:
            while not stop.is_set():
                postgres.sql("DELETE FROM tidegate.state", url=made.unix_url)

        deleting = threading.Thread(target=delete)
        deleting.start()
        with ThreadPoolExecutor(4) as workers:
            admitted = list(workers.map(lambda number: store.takes(f"{number % 7}"), range(400)))
        stop.set()
        deleting.join()

        assert sum(admitted) >= 70
        assert store.store.health.stats().unavailable == {}


def test_eight_processes_on_one_key(made: Database):
    """Eight processes for a while: capacity + rate x T is not passed, and is reached."""
    result = hammer(
        f"{made.unix_url}&deadline=20s",
        processes=8,
        seconds=1.0,
        capacity=Fraction(20),
        rate="50/s",
        opener=from_url,
    )

    assert result.ok, result
    assert result.saturated


def test_tasks_that_ask_together(made: Database):
    """Tasks that ask at once, on fresh keys and known ones, travel together and get exactly what there is."""

    async def spend() -> tuple[list[bool], list[bool]]:
        store = PostgresStore(made.unix_url, deadline="20s").awaited
        narrow = await asyncio.gather(*(store.decide([charge("narrow")]) for _ in range(100)))
        wide = await asyncio.gather(*(store.decide([charge(f"{number % 50}")]) for number in range(1_000)))
        await store.close()
        return [outcome.allowed for (outcome,) in narrow], [outcome.allowed for (outcome,) in wide]

    narrow, wide = asyncio.run(spend())

    assert sum(narrow) == TEN.capacity
    assert sum(wide) == 50 * 10
