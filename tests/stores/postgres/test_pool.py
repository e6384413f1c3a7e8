# Connections are made with care: few at once, warm before anybody has them, and kept where that costs less.

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.servers.network import Network
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tidegate import TokenBucket
from tidegate.errors import StoreUnavailable
from tidegate.stores.health import FAILURES_TO_OPEN
from tidegate.stores.postgres import pool
from tidegate.stores.postgres.causes import Lost
from tidegate.stores.postgres.driver import Link, Statement
from tidegate.stores.postgres.places import place_of
from tidegate.stores.postgres.warming import NOBODY
from tidegate.stores.postgres.wire import texts

Opened = Callable[..., Face]
Between = Callable[[int], Network]

pytestmark = pytest.mark.real_time

WIDE = TokenBucket(1_000, "0/s")


def sessions(server: Postgres, name: str) -> set[int]:
    """The process ids of our sessions in a database."""
    ours = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'tidegate'"
    return {pid for (pid,) in server.sql(ours, name)}


def test_a_session_is_warm_before_anybody_has_it(
    opened: Opened, made: Database, monkeypatch: pytest.MonkeyPatch
):
    """Its first calls are about nobody, and of each function that a decision asks."""
    asked: defaultdict[Link, list[tuple[str, bool]]] = defaultdict(list)
    ask = Link.ask
    nobody = place_of(NOBODY.rule, NOBODY.key)
    named = {nobody[1], texts([nobody[1]], 17)}

    async def told(
        link: Link, port: Any, to: Statement, values: Sequence[Any], *more: Any, **options: Any
    ) -> Any:
        asked[link].append((to.name.decode(), bool(named.intersection(values[1:3]))))
        return await ask(link, port, to, values, *more, **options)

    monkeypatch.setattr(Link, "ask", told)
    store = opened(made.unix_url)
    for _ in range(3):
        assert store.takes()

    assert asked
    for calls in asked.values():
        assert [is_nobody for _, is_nobody in calls[:3]] == [True, True, False][: len(calls)]
        assert calls[0][0].startswith("tidegate_decide")
        assert calls[1][0].startswith("tidegate_take_one")


def test_warming_writes_nothing(opened: Opened, postgres: Postgres, made: Database):
    """Not even a place that is held for later."""
    store = opened(made.unix_url)
    assert store.left() == 10

    assert postgres.sql("SELECT count(*) FROM tidegate.state", url=made.unix_url) == [(0,)]


def test_few_begin_at_once(made: Database, monkeypatch: pytest.MonkeyPatch):
    """Thirty threads that ask at the same moment have two connections made at a time, sixteen in all."""
    monkeypatch.setattr(pool, "OPENING_S", 60.0)
    lock = threading.Lock()
    opening = most = count = 0
    begin = Link.opened.__func__  # type: ignore[attr-defined]  # a class method is one

    async def counted(kind: type[Link], *args: Any, **options: Any) -> Link:
        nonlocal opening, most, count
        with lock:
            opening, count = opening + 1, count + 1
            most = max(most, opening)
        try:
            return await begin(kind, *args, **options)
        finally:
            with lock:
                opening -= 1

    monkeypatch.setattr(Link, "opened", classmethod(counted))
    with Face("blocking", made.unix_url, deadline="30s") as store, ThreadPoolExecutor(30) as workers:
        assert all(workers.map(lambda number: store.takes(f"{number % 50}", limit=WIDE), range(600)))

    assert most <= 2
    assert count <= 16


def test_what_takes_long_keeps_nobody_from_beginning(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """Connections that are swallowed while they are made do not stand in the way of one that succeeds."""
    way = network(postgres.port)
    store = opened(way.through(made.url), deadline="100ms")
    way.swallow()
    for _ in range(FAILURES_TO_OPEN):
        assert store.cause() == "deadline"
    way.heal()

    wait_for("it answers", lambda: store.cause() is None, within_s=pool.OPEN_WITHIN_S * 5)


def test_a_failure_is_told_to_all_who_wait(monkeypatch: pytest.MonkeyPatch):
    """Where none can be made it is not tried for each: who hoped for one of others is told that it failed."""
    monkeypatch.setattr(pool, "OPENING_S", 60.0)
    may_fail = threading.Event()
    tried: list[object] = []

    async def refused(*args: object, **_: object) -> Link:
        tried.append(args)
        may_fail.wait(20)
        raise Lost("connection refused")

    monkeypatch.setattr(Link, "opened", refused)
    with (
        Face("blocking", "postgresql://127.0.0.1:1/nobody", deadline="30s") as store,
        ThreadPoolExecutor(12) as workers,
    ):
        waiting = store.store.asking().trips.pool._queue  # type: ignore[attr-defined]  # our own pool
        asked = [workers.submit(store.cause) for _ in range(12)]
        wait_for("all wait", lambda: len(waiting) == 12, within_s=20)
        may_fail.set()
        causes = [one.result() for one in asked]

    assert causes == ["connection"] * 12
    assert len(tried) == 2


class TestLateReplies:
    """A session whose reply is late is not thrown away: another one would cost more than it."""

    def test_it_is_used_again(self, opened: Opened, postgres: Postgres, made: Database, network: Between):
        """Once the reply has been read; and the next call gets the answer to itself."""
        way = network(postgres.port)
        store = opened(way.through(made.url), deadline="10s", max_connections=1)
        store.takes("first")
        before = sessions(postgres, made.name)
        way.delay(0.3)
        with pytest.raises(StoreUnavailable, match="in time"):
            store.decide([charge("late", 7)], deadline_us=50_000)
        way.heal()
        (outcome,) = store.decide([charge("other", 2)])

        assert (outcome.charge.key, outcome.remaining) == ("other", 8)
        assert sessions(postgres, made.name) == before

    def test_the_server_was_silent(self, opened: Opened, victim: Postgres, monkeypatch: pytest.MonkeyPatch):
        """Sessions that were idle when the breaker opened are used on once they answer."""
        monkeypatch.setattr(pool, "LATE_MOST_S", 30.0)
        store = opened(victim.url, deadline="10s", max_connections=4)
        store.takes()
        before = sessions(victim, "postgres")
        victim.freeze()
        for _ in range(FAILURES_TO_OPEN):
            with pytest.raises(StoreUnavailable):
                store.decide([charge()], deadline_us=50_000)
        assert store.store.health.is_open
        victim.thaw()
        wait_for("it answers", lambda: store.cause() is None, within_s=10)

        assert before
        assert before <= sessions(victim, "postgres")

    def test_a_reply_that_never_comes(
        self,
        opened: Opened,
        postgres: Postgres,
        made: Database,
        network: Between,
        monkeypatch: pytest.MonkeyPatch,
    ):
        """Then the session is given up, and its place is another one's."""
        monkeypatch.setattr(pool, "LATE_MOST_S", 0.05)
        way = network(postgres.port)
        store = opened(way.through(made.url), deadline="10s", max_connections=1)
        store.takes("first")
        way.swallow()
        with pytest.raises(StoreUnavailable, match="in time"):
            store.decide([charge("late")], deadline_us=50_000)
        way.heal()

        assert store.takes("other")


def test_who_has_waited_longest_goes_first(made: Database, monkeypatch: pytest.MonkeyPatch):
    """Threads that wait for the only connection are served in the order in which they came."""
    ask = Link.ask
    served: list[bytes] = []
    is_held, may_go_on = threading.Event(), threading.Event()

    async def told(
        link: Link, port: Any, to: Statement, values: Sequence[Any], *more: Any, **options: Any
    ) -> Any:
        key = next(number for number in range(7) if f"tkey {number}".encode() in values[1])
        served.append(b"%d" % key)
        if key == 0:
            is_held.set()
            may_go_on.wait(20)
        return await ask(link, port, to, values, *more, **options)

    with (
        Face("blocking", made.unix_url, deadline="30s", max_connections=1) as store,
        ThreadPoolExecutor(7) as workers,
    ):
        store.takes("warm")
        monkeypatch.setattr(Link, "ask", told)
        asked = [workers.submit(store.takes, "key 0")]
        assert is_held.wait(20)
        waiting = store.store.asking().trips.pool._queue  # type: ignore[attr-defined]  # our own pool
        for number in range(1, 7):
            asked.append(workers.submit(store.takes, f"key {number}"))
            wait_for("it waits", lambda: len(waiting) == number, within_s=20)  # noqa: B023 - called at once
        may_go_on.set()

        assert all(one.result() for one in asked)
    assert served == [b"%d" % number for number in range(7)]
