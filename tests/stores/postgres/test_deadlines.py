# Every call ends by its deadline, whatever the server or the network does; and afterwards all is as before.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.promptness import GRACE_S, Stopwatch, best_s
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tests.stores.silence import PROMISED_S, Between, Healthy, Silence, timed
from tidegate.errors import StoreUnavailable
from tidegate.stores.lane import WEIGHT_MOST
from tidegate.stores.postgres.asking import CHARGES_MOST
from tidegate.stores.postgres.driver import Link

pytestmark = pytest.mark.real_time

Opened = Callable[..., Face]


class TestSilence(Silence):
    """PostgreSQL when nobody answers."""

    @pytest.fixture
    def mortal(self, victim: Postgres) -> Postgres:
        """The server that may be frozen."""
        return victim

    @pytest.fixture
    def healthy(self, postgres: Postgres, made: Database) -> Healthy:
        """The server behind a network."""
        return Healthy(postgres.port, made.url)


def connected(opened: Opened, url: str, deadline: str = "50ms", **options: object) -> Face:
    """A store that has a connection."""
    store = opened(url, deadline=deadline, **options)
    store.reach()
    return store


def test_connecting_that_takes_longer_than_a_call(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """Every step of connecting takes 60 ms, a call 50 ms at most: it connects beside, and all is well."""
    way = network(postgres.port)
    way.delay(0.06)
    store = opened(way.through(made.url), deadline="50ms")
    first = store.cause()
    time.sleep(0.4)
    way.heal()
    wait_for("it answers", lambda: store.cause() is None)

    assert first == "deadline"


def test_a_late_reply_is_no_answer_to_another_call(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """C137: every other reply comes after its call has ended; each answer that comes is to its own call."""
    way = network(postgres.port)
    store = connected(opened, way.through(made.url), deadline="10s")
    answers = []
    for number in range(6):
        late = bool(number % 2)
        if late:
            way.hold()
        (answer,) = store.decide_many(
            [[charge(f"key {number}", cost=number % 10)]], deadline_us=50_000 if late else None
        )
        way.heal()  # now the reply is there, and nobody waits for it
        answers.append(answer)

    assert all(isinstance(answer, Exception) == bool(number % 2) for number, answer in enumerate(answers))
    assert [
        (answer[0].charge.key, answer[0].remaining) for answer in answers if not isinstance(answer, Exception)
    ] == [(f"key {number}", 10 - number % 10) for number in range(0, 6, 2)]


def test_a_reply_that_trickles(opened: Opened, postgres: Postgres, made: Database, network: Between):
    """The deadline is for the whole reply, not for each piece of it: it hangs in the middle."""
    way = network(postgres.port)
    store = opened(way.through(made.url), deadline="50ms")

    def held() -> float:
        way.heal()
        store.reach()
        way.hold()
        cause, took_s = timed(store)
        assert cause == "deadline"
        return took_s

    assert best_s(held, within_s=PROMISED_S) < PROMISED_S


@contextmanager
def locked(url: str) -> Iterator[None]:
    """While it lasts, somebody holds the lock of every row that there is."""
    with psycopg.connect(url) as holder:
        holder.execute("SELECT 1 FROM tidegate.state FOR UPDATE")
        yield


def test_a_lock_that_somebody_holds(postgres: Postgres, opened: Opened, made: Database):
    """A caller waits for a row no longer than his deadline, and the server waits no longer either."""
    store = opened(made.unix_url, deadline="60ms")
    active = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'tidegate' AND state = 'active'"

    def waited() -> float:
        wait_for("the row is there", lambda: store.cause() is None)
        with locked(made.unix_url):
            cause, took_s = timed(store)
            wait_for("the server has given up", lambda: not postgres.sql(active))
            wait_for("another row is free", lambda: store.cause("another") is None)
        assert cause in {"deadline", "busy"}
        return took_s

    assert best_s(waited, within_s=0.06 + GRACE_S) < 0.06 + GRACE_S


def test_a_call_may_have_a_longer_deadline(postgres: Postgres, opened: Opened, made: Database):
    """Longer than the store's: the server, who was told of the store's, lets it wait for a lock."""
    store = connected(opened, made.unix_url, deadline="50ms")
    hold = "BEGIN; SELECT 1 FROM tidegate.state FOR UPDATE; SELECT pg_sleep(0.3); COMMIT"
    holding = threading.Thread(target=postgres.sql, args=(hold,), kwargs={"url": made.unix_url})
    holding.start()
    time.sleep(0.1)
    (outcome,) = store.decide([charge()], deadline_us=20_000_000)
    holding.join()

    assert outcome.allowed


def test_many_calls_have_one_deadline(opened: Opened, postgres: Postgres, made: Database, network: Between):
    """2,000 requests, each round trip 150 ms late: some are decided, the others told by the one deadline."""
    way = network(postgres.port)
    store = opened(way.through(made.url), deadline="500ms")
    requests = [[charge(f"key {number}")] for number in range(2_000)]

    def late() -> float:
        way.heal()
        store.reach()
        way.delay(0.15)
        with Stopwatch() as watch:
            answers = store.decide_many(requests)
        causes = {answer.cause for answer in answers if isinstance(answer, StoreUnavailable)}
        assert causes == {"deadline"}
        assert not store.store.health.stats().open
        # To write down and read so many is work, and takes a slow machine long; eight calls wait for 1.2 s.
        return float("inf") if isinstance(answers[0], StoreUnavailable) else watch.waited_s

    assert best_s(late, within_s=0.5 + 0.15) < 0.5 + 0.15


def test_many_may_be_looked_at(opened: Opened, made: Database):
    """`take=False` says what would be, and charges nothing."""
    store = opened(made.unix_url, deadline="5s")
    looked = store.decide_many([[charge()], [charge(cost=11)]], take=False)

    assert [(outcome.allowed, outcome.charged) for (outcome,) in looked] == [(True, False), (False, False)]
    assert store.decide([charge()])[0].remaining == 9


@pytest.mark.parametrize("size", [10, 4_000])
def test_many_travel_in_bounded_calls(
    opened: Opened, made: Database, monkeypatch: pytest.MonkeyPatch, size: int
):
    """A list of thousands is so many rows and bytes a call as a lane sends, one call after another."""
    sizes: list[tuple[int, int]] = []
    under_way = most = 0
    ask = Link.ask

    async def counted(
        link: Link, port: Any, to: Any, values: Sequence[bytes | None], *more: Any, **how: Any
    ) -> Any:
        nonlocal under_way, most
        whole = b"".join(value or b"" for value in values)
        sizes.append((whole.count(b"tkey "), len(whole)))
        under_way += 1
        most = max(most, under_way)
        try:
            return await ask(link, port, to, values, *more, **how)
        finally:
            under_way -= 1

    store = opened(made.unix_url, deadline="30s")
    store.takes()
    monkeypatch.setattr(Link, "ask", counted)
    answers = store.decide_many([[charge(f"key {number} {'x' * size}")] for number in range(2_000)])

    assert all(answer[0].charged for answer in answers)
    assert len(sizes) >= 2_000 // CHARGES_MOST
    assert max(rows for rows, _ in sizes) <= CHARGES_MOST
    assert max(weight for _, weight in sizes) <= WEIGHT_MOST + 4_096
    assert most == 1
