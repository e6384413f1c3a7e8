# Whatever a session is set to, and whoever lends it: decisions are exact, and nothing of others changes.

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from tests.promptness import GRACE_S, Stopwatch, best_s
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.looping import on_a_loop
from tests.stores.postgres.faces import Face, charge
from tidegate import FixedWindow
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.postgres.store import PostgresStore

Opened = Callable[..., Face]

LEVELS = ("repeatable read", "serializable")


@pytest.fixture(params=LEVELS)
def strict_sessions(request: pytest.FixtureRequest, postgres: Postgres, made: Database) -> Any:
    """Sessions of the role begin at another isolation level."""
    postgres.sql(f"ALTER ROLE {made.role} SET default_transaction_isolation = '{request.param}'")
    yield request.param
    postgres.sql(f"ALTER ROLE {made.role} RESET default_transaction_isolation")


def admitted_at_once(store: Face, count: int = 24) -> int:
    with ThreadPoolExecutor(8) as workers:
        return sum(workers.map(lambda _: store.takes(), range(count)))


def last_statements(postgres: Postgres) -> set[str]:
    """What the sessions that are lent were asked last."""
    asked = "SELECT query FROM pg_stat_activity WHERE application_name = 'lent' AND query <> ''"
    return {query for (query,) in postgres.sql(asked)}


class TestIsolation:
    """C003: a default of REPEATABLE READ or SERIALIZABLE changes nothing."""

    def test_our_own_sessions(self, made: Database, strict_sessions: str):
        """They are told the level when they begin."""
        with Face("blocking", made.unix_url, deadline="10s") as store:
            assert admitted_at_once(store) == 10
            assert store.store.health.stats().unavailable == {}

    @pytest.mark.parametrize("how", ["a pool", "a pooler"])
    def test_sessions_of_others(self, postgres: Postgres, made: Database, strict_sessions: str, how: str):
        """They are left as they are: each call then brings its own transaction, in the same round trip."""
        options = {"application_name": "lent"}
        with ConnectionPool(made.unix_url, min_size=1, max_size=8, kwargs=options, open=True) as pool:
            target: Any = pool if how == "a pool" else f"{made.url}?prepare=no&application_name=lent"
            with Face("blocking", target, deadline="10s") as store:
                assert admitted_at_once(store) == 10
                assert "COMMIT" in last_statements(postgres)
                assert store.left() == 0
                store.forget([("rule", "acme")])
                assert store.left() == 10
                assert store.store.health.stats().unavailable == {}
            with pool.connection() as connection:
                level = connection.execute("SHOW transaction_isolation").fetchone()

        assert level == (strict_sessions,)

    def test_an_error_ends_the_transaction(self, postgres: Postgres, made: Database, strict_sessions: str):
        """After a lock that was not free in time the same connection serves the next call."""
        with Face("blocking", f"{made.url}?prepare=no&max_connections=1", deadline="300ms") as store:
            wait_for("it answers", lambda: store.cause() is None)
            with psycopg.connect(made.unix_url) as holder:
                holder.execute("SELECT 1 FROM tidegate.state FOR UPDATE")
                cause = store.cause()
                (other,) = store.decide([charge("another")], deadline_us=20_000_000)

            assert cause in {"busy", "deadline"}
            assert other.allowed


class TestPoolers:
    """`prepare=no`: nothing is left in the session, so every call may get another one."""

    def test_nothing_is_left_in_the_session(self, opened: Opened, postgres: Postgres, made: Database):
        """No prepared statement, no setting; the lock timeout goes along with the call."""
        store = opened(f"{made.url}?prepare=no&application_name=pooled", deadline="700ms")
        store.takes()
        store.decide([charge(limit=FixedWindow(10, "day"), rule="daily")])
        told = postgres.sql(
            "SELECT query FROM pg_stat_activity WHERE application_name = 'pooled'", url=made.unix_url
        )

        assert told
        assert all("decide" in query for (query,) in told)

    def test_an_abandoned_call_ends(self, postgres: Postgres, made: Database):
        """The server does not wait for the lock longer than the caller did."""
        with Face("blocking", f"{made.url}?prepare=no&application_name=pooled", deadline="150ms") as store:
            wait_for("it answers", lambda: store.cause() is None)
            with psycopg.connect(made.unix_url) as holder:
                holder.execute("SELECT 1 FROM tidegate.state FOR UPDATE")
                store.cause()
                active = (
                    "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pooled' AND state = 'active'"
                )
                wait_for("it has ended", lambda: not postgres.sql(active))


class TestBlockingPool:
    """A ConnectionPool of the user's: borrowed, given back, never changed or closed."""

    def test_it_decides(self, made: Database):
        """By one connection after another, for threads, with prepared statements where the user has them."""
        with (
            ConnectionPool(made.unix_url, min_size=2, max_size=4, open=True) as pool,
            Face("blocking", pool, deadline="10s") as store,
        ):
            assert admitted_at_once(store) == 10
            assert pool.get_stats().get("requests_errors", 0) == 0
            store.close()
            with pool.connection() as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)

    def test_two_stores_on_one_pool(self, made: Database):
        """Their statements do not meet, be it the same schema or another one."""
        with ConnectionPool(made.unix_url, min_size=1, max_size=1, open=True) as pool:
            stores = [Face("blocking", pool, schema=schema) for schema in ("tidegate", "tidegate", "other")]
            stores[2].said("init")
            for _ in range(2):
                for store in stores:
                    store.takes()

            assert [store.left() for store in stores] == [6, 6, 8]
            for store in stores:
                store.close()
            with pool.connection() as connection:
                connection.execute("DROP SCHEMA other CASCADE")

    def test_without_prepared_statements(self, made: Database):
        """Where the user has switched them off, none is prepared."""
        options = {"prepare_threshold": None}
        with ConnectionPool(made.unix_url, min_size=1, max_size=1, kwargs=options, open=True) as pool:
            with Face("blocking", pool) as store:
                assert store.takes()
            with pool.connection() as connection:
                assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)

    def test_statements_that_are_gone(self, made: Database):
        """A pool that discards everything between two users costs a second round trip, and no error."""

        def reset(connection: psycopg.Connection[Any]) -> None:
            connection.autocommit = True
            connection.execute("DISCARD ALL")

        with (
            ConnectionPool(made.unix_url, min_size=1, max_size=1, reset=reset, open=True) as pool,
            Face("blocking", pool) as store,
        ):
            assert [store.takes() for _ in range(11)] == [True] * 10 + [False]
            assert store.store.health.stats().unavailable == {}

    def test_connections_that_are_gone_are_forgotten(self, made: Database, caplog: pytest.LogCaptureFixture):
        """A store keeps nothing of a connection that its pool has closed."""
        caplog.set_level("CRITICAL", logger="psycopg.pool")  # or what is logged keeps the connection
        with (
            ConnectionPool(made.unix_url, min_size=1, max_size=1, open=True) as pool,
            Face("blocking", pool) as store,
        ):
            gone = []

            def close_one() -> None:
                store.takes()
                with pool.connection() as connection:
                    gone.append(weakref.ref(connection))
                    connection.close()

            for _ in range(3):
                close_one()
            store.takes()
            gc.collect()

            assert [reference() for reference in gone] == [None] * 3

    def test_a_transaction_of_the_users(self, made: Database):
        """A connection that is in a transaction is refused and left alone."""
        with ConnectionPool(
            made.unix_url, min_size=1, max_size=1, open=True, configure=lambda connection: None
        ) as pool:
            lend = pool.getconn

            def lend_busy(timeout: float | None = None) -> psycopg.Connection[Any]:
                connection = lend(timeout)
                connection.execute("SELECT 1")
                return connection

            pool.getconn = lend_busy  # type: ignore[method-assign]  # as a user's own pool may do
            with Face("blocking", pool) as store, pytest.raises(StoreError, match="transaction") as raised:
                store.takes()
            assert not isinstance(raised.value, StoreUnavailable)

    @pytest.mark.real_time
    def test_an_exhausted_pool(self, made: Database):
        """C139: nobody gives a connection back in time."""
        with (
            ConnectionPool(made.unix_url, min_size=1, max_size=1, open=True) as pool,
            Face("blocking", pool, deadline="60ms") as store,
        ):

            def exhausted() -> float:
                wait_for("it answers", lambda: store.cause() is None)
                with pool.connection(), Stopwatch() as watch:
                    cause = store.cause()
                assert cause == "deadline"
                return watch.took_s

            assert best_s(exhausted, within_s=0.06 + GRACE_S) < 0.06 + GRACE_S

    def test_a_closed_pool(self, made: Database):
        """That is a mistake."""
        pool = ConnectionPool(made.unix_url, min_size=1, open=False)
        with Face("blocking", pool) as store, pytest.raises(StoreError, match="not open"):
            store.takes()

    @pytest.mark.real_time
    def test_a_frozen_server(self, victim: Postgres):
        """The deadline holds, what was borrowed is closed and given back, and the pool makes another one."""
        with (
            ConnectionPool(victim.url, min_size=1, max_size=2, open=True) as pool,
            Face("blocking", pool, deadline="60ms") as store,
        ):

            def frozen() -> float:
                wait_for("it answers", lambda: store.cause() is None)
                victim.freeze()
                with Stopwatch() as watch:
                    cause = store.cause()
                victim.thaw()
                wait_for("it answers again", lambda: store.cause() is None)
                assert cause == "deadline"
                return watch.took_s

            assert best_s(frozen, within_s=0.06 + GRACE_S) < 0.06 + GRACE_S

    def test_it_serves_the_blocking_face_only(self, made: Database):
        """The awaited face says what to give it."""
        with ConnectionPool(made.unix_url, min_size=1, open=True) as pool:
            with Face("awaited", pool) as store, pytest.raises(StoreError, match="AsyncConnectionPool"):
                store.takes()
            with pytest.raises(StoreError, match="cannot be pickled"):
                store.store.__reduce__()


class TestAwaitedPool:
    """An AsyncConnectionPool of the user's."""

    @on_a_loop
    async def test_it_decides(self, made: Database):
        """Callers travel together over its connections; it is given back open."""
        async with AsyncConnectionPool(made.unix_url, min_size=2, max_size=4, open=False) as pool:
            store = PostgresStore(pool, deadline="10s")
            outcomes = await asyncio.gather(*(store.awaited.decide([charge()]) for _ in range(50)))
            await store.awaited.forget([("rule", "acme")])
            again = await store.awaited.decide([charge()])
            await store.awaited.close()
            async with pool.connection() as connection:
                cursor = await connection.execute("SELECT 1")

                assert await cursor.fetchone() == (1,)

        assert sum(outcome.allowed for (outcome,) in outcomes) == 10
        assert again[0].remaining == 9

    @pytest.mark.real_time
    @on_a_loop
    async def test_an_exhausted_pool(self, made: Database):
        """C139: nobody gives a connection back in time."""
        async with AsyncConnectionPool(made.unix_url, min_size=1, max_size=1, open=False) as pool:
            store = PostgresStore(pool, deadline="60ms")
            async with pool.connection():
                causes = await asyncio.gather(*(_cause(store.awaited.decide([charge()])) for _ in range(5)))
            await store.awaited.close()

        assert causes == ["deadline"] * 5

    @pytest.mark.real_time
    @on_a_loop
    async def test_it_is_probed(self, victim: Postgres):
        """While the breaker is open a task probes by the pool, and closes it again, though nobody asks."""
        async with AsyncConnectionPool(victim.url, min_size=1, max_size=2, open=False) as pool:
            store = PostgresStore(pool, deadline="100ms")
            while await _cause(store.awaited.decide([charge()])) is not None:
                pass
            victim.freeze()
            while not store.health.is_open:
                await _cause(store.awaited.decide([charge()]))
            await _cause(store.awaited.decide([charge()]))
            victim.thaw()
            async with asyncio.timeout(30):
                while store.health.is_open:  # noqa: ASYNC110 - a probe closes it
                    await asyncio.sleep(0.01)
            await store.awaited.close()

    def test_it_serves_the_awaited_face_only(self, made: Database):
        """The blocking face says what to give it."""

        async def pool() -> AsyncConnectionPool[Any]:
            return AsyncConnectionPool(made.unix_url, open=False)

        with (
            Face("blocking", asyncio.run(pool())) as store,
            pytest.raises(StoreError, match="a ConnectionPool"),
        ):
            store.takes()


def test_what_is_no_pool():
    """Anything else is refused by its type."""
    with pytest.raises(StoreError, match="this is a int"):
        PostgresStore(7)


async def _cause(answer: Awaitable[object]) -> str | None:
    try:
        await answer
    except StoreUnavailable as error:
        return error.cause
    return None
