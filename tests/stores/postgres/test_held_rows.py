# A row that another transaction holds for long: its callers are told that it is busy; nobody else notices.

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tidegate import TokenBucket
from tidegate.errors import StoreUnavailable
from tidegate.stores.postgres import asking
from tidegate.stores.postgres.asking import Asking
from tidegate.stores.postgres.sides import LoopSide
from tidegate.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.real_time

CALLERS, ROUNDS, FREE = 20, 51, 50
WIDE = TokenBucket(1_000_000, "0/s")


def key_of(caller: int, turn: int) -> str:
    """Fifty keys that are free and one that is held; each caller comes by all of them."""
    number = (caller * 7 + turn) % (FREE + 1)
    return "held" if number == FREE else f"key {number}"


@pytest.fixture
def held(made: Database) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A transaction of somebody else's that holds the row of the key "held"."""
    with Face("blocking", made.unix_url, deadline="20s") as store:
        store.decide_many([[charge(key_of(0, turn), limit=WIDE)] for turn in range(ROUNDS)])
    with psycopg.connect(made.unix_url) as holder:
        holder.execute("SELECT 1 FROM tidegate.state WHERE key = 'theld' FOR UPDATE")
        yield holder


def all_as_wanted(said: Counter[tuple[bool, str]], store: PostgresStore, count: int) -> bool:
    """The free keys' callers were admitted, and the others told that it is busy; the breaker is closed."""
    assert said == {(False, "ok"): count * FREE, (True, "busy"): count}
    assert store.health.stats().unavailable == {"busy": count}
    assert not store.health.is_open
    return True


def test_threads(made: Database, held: psycopg.Connection[tuple[object, ...]]):
    """Twenty threads: their calls for other keys are all answered, and the breaker stays closed."""
    store = PostgresStore(made.unix_url, deadline="2s")
    said: Counter[tuple[bool, str]] = Counter()

    def call(caller: int) -> list[tuple[bool, str]]:
        return [outcome_of(store, key_of(caller, turn)) for turn in range(ROUNDS)]

    with ThreadPoolExecutor(CALLERS) as workers:
        for some in workers.map(call, range(CALLERS)):
            said.update(some)
    store.close()

    assert all_as_wanted(said, store, CALLERS)


def outcome_of(store: PostgresStore, key: str) -> tuple[bool, str]:
    try:
        (outcome,) = store.decide([charge(key, limit=WIDE)])
    except StoreUnavailable as error:
        return key == "held", error.cause
    return key == "held", "ok" if outcome.charged else "refused"


def test_tasks(made: Database, held: psycopg.Connection[tuple[object, ...]]):
    """Twenty tasks, who travel together with those that want the row: they are not held up by these."""
    store = PostgresStore(made.unix_url, deadline="2s")
    said: Counter[tuple[bool, str]] = Counter()

    async def call(caller: int) -> None:
        for turn in range(ROUNDS):
            key = key_of(caller, turn)
            try:
                (outcome,) = await store.awaited.decide([charge(key, limit=WIDE)])
            except StoreUnavailable as error:
                said[key == "held", error.cause] += 1
            else:
                said[key == "held", "ok" if outcome.charged else "refused"] += 1

    async def all_call() -> None:
        await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
        await store.awaited.close()

    asyncio.run(all_call())

    assert all_as_wanted(said, store, CALLERS)


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_many_in_one_call(made: Database, held: psycopg.Connection[tuple[object, ...]], face: str):
    """Those that can be decided are, also new keys; a request of several rules is charged whole or not."""
    with Face(face, made.unix_url, deadline="2s") as store:
        requests = [[charge(key_of(0, turn), limit=WIDE)] for turn in range(ROUNDS)]
        requests += [[charge("new", 4)], [charge("held", limit=WIDE), charge("both", 4)], [charge("new", 4)]]
        answers = store.decide_many(requests)
        causes = [getattr(answer, "cause", "") for answer in answers]

        assert [bool(cause) for cause in causes] == ["held" in {one.key for one in some} for some in requests]
        assert Counter(causes)["busy"] == 2
        assert [store.left(key) for key in ("new", "both")] == [2, 10]


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_busy_also_where_the_server_had_no_time_to_tell(
    made: Database, held: psycopg.Connection[tuple[object, ...]], face: str, monkeypatch: pytest.MonkeyPatch
):
    """Who was left out for a held row and hears nothing more of it is busy: the server is not silent."""
    monkeypatch.setattr(asking, "HALF", 5)  # it would tell after the deadline
    with Face(face, made.unix_url, deadline="2s") as store:
        store.decide([charge("warm")])
        many = [[charge("held", limit=WIDE)], [charge("other", limit=WIDE)]]
        held_one, other = store.decide_many(many)

        assert (held_one.cause, other[0].charged) == ("busy", True)
        assert store.store.health.stats().unavailable == {"busy": 1}


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_it_becomes_free_in_time(
    postgres: Postgres, made: Database, held: psycopg.Connection[tuple[object, ...]], face: str
):
    """Who was left out is asked for once more, and admitted if the row is free by then."""
    with Face(face, made.unix_url, deadline="20s") as store, ThreadPoolExecutor(1) as workers:
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        requests = [[charge("held", limit=WIDE)], [charge("other", limit=WIDE)]]
        answers = workers.submit(store.decide_many, requests)
        wait_for("it waits", lambda: postgres.sql(waiting) == [(1,)], within_s=10)
        wait_for(
            "the other one is decided",
            lambda: made_count(postgres, made, "tother") == 1,
            within_s=15,
        )
        held.rollback()

        assert [answer[0].charged for answer in answers.result()] == [True, True]


def made_count(postgres: Postgres, made: Database, named: str) -> int:
    rows = postgres.sql(
        "SELECT count(*) FROM tidegate.state WHERE key = %s AND kind IS NOT NULL",
        named.encode(),
        url=made.unix_url,
    )
    return int(rows[0][0])


def test_few_wait_apart(
    made: Database, held: psycopg.Connection[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
):
    """A loop has few calls that wait for such rows; further ones are busy at once, and links stay free."""
    store = PostgresStore(made.unix_url, deadline="2s", max_connections=5)
    most = under_way = 0
    together = Asking.together

    async def counted(asked: Asking, *args: object, waits: bool = False) -> object:
        nonlocal most, under_way
        under_way += waits
        most = max(most, under_way)
        try:
            return await together(asked, *args, waits=waits)  # type: ignore[arg-type]  # as they came
        finally:
            under_way -= waits

    monkeypatch.setattr(Asking, "together", counted)

    async def call(number: int) -> str:
        try:
            await store.awaited.decide([charge("held" if number % 2 else f"key {number}", limit=WIDE)])
        except StoreUnavailable as error:
            return error.cause
        return "ok"

    async def all_call() -> list[str]:
        said: list[str] = []
        for _ in range(3):
            said += await asyncio.gather(*(call(number) for number in range(300)))
        await store.awaited.close()
        return said

    said = asyncio.run(all_call())

    assert Counter(said) == {"ok": 450, "busy": 450}
    assert most == 1
    assert not any(isinstance(side, LoopSide) for side in store.awaited._sides.values())
