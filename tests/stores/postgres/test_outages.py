# What the server says when it cannot serve, and what it means: an outage with a cause, or a mistake.

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.servers.network import REPLIES, Network
from tests.servers.ports import claim_port, release_port
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.conftest import make
from tests.stores.postgres.faces import Face, charge
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import FAILURES_TO_OPEN
from tidegate.stores.postgres.causes import Lost, Refused, TimeUp, classified

Opened = Callable[..., Face]
Own = Callable[..., Postgres]
Between = Callable[[int], Network]

pytestmark = pytest.mark.real_time


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port on which nothing listens."""
    port = claim_port()
    yield port
    release_port(port)


class TestCauses:
    """C139: by each face each trouble has its cause, and none escapes as another exception."""

    def test_connection_refused(self, opened: Opened, silent_port: int):
        """Nothing listens there."""
        store = opened(f"postgresql://127.0.0.1:{silent_port}/nobody")

        assert [store.cause() for _ in range(FAILURES_TO_OPEN + 1)] == [
            *["connection"] * FAILURES_TO_OPEN,
            "breaker",
        ]

    def test_name_not_found(self, opened: Opened):
        """The name of the host leads nowhere."""
        assert opened("postgresql://nowhere.invalid/nobody", deadline="20s").cause() == "connection"

    def test_no_such_socket(self, opened: Opened):
        """No server has a socket there."""
        assert opened("host=/nowhere dbname=nobody").cause() == "connection"

    def test_connection_reset(self, opened: Opened, postgres: Postgres, made: Database, network: Between):
        """The connection breaks while the reply is awaited."""
        way = network(postgres.port)
        store = opened(way.through(made.url))
        store.takes()
        way.hold()
        breaking = threading.Timer(0.05, way.drop)
        breaking.start()
        cause = store.cause()
        breaking.join()

        assert cause == "connection"

    def test_a_reply_that_breaks_off(
        self, opened: Opened, postgres: Postgres, made: Database, network: Between
    ):
        """The connection ends in the middle of a reply."""
        way = network(postgres.port)
        store = opened(way.through(made.url))
        store.takes()
        way.cut_after(5, REPLIES, once=True)

        assert store.cause() == "connection"
        assert store.cause() is None

    def test_time_out(self, opened: Opened, victim: Postgres):
        """A frozen server."""
        store = opened(victim.url)
        store.takes()
        victim.freeze()
        with pytest.raises(StoreUnavailable) as raised:
            store.decide([charge()], deadline_us=30_000)

        assert raised.value.cause == "deadline"

    def test_wrong_password(
        self, opened_blocking: Opened, own_postgres: Own, caplog: pytest.LogCaptureFixture
    ):
        """No password, a wrong one, a role that is not there; the log tells each once, and no password."""
        server = own_postgres(password="open sesame")
        make(server.url)
        right = server.url
        urls = [
            right.replace(":open%20sesame@", "@"),
            right.replace("open%20sesame", "guessed"),
            right.replace("postgres:open", "ali:open"),
            right,
        ]
        stores = [opened_blocking(url) for url in urls]

        assert [store.cause() for store in stores] == [*["authentication"] * 3, None]
        assert len(caplog.records) == 3
        assert "sesame" not in caplog.text + repr(stores[-1].store)
        assert "guessed" not in caplog.text

    def test_starting_up(self, opened_blocking: Opened, own_postgres: Own):
        """A standby that has not caught up takes no connections yet."""
        standby = Postgres(follows=own_postgres(), hot_standby="off")
        try:
            standby.start(wait=False)
            causes: set[str | None] = set()

            def is_loading() -> bool:
                causes.add(opened_blocking(standby.url).cause())
                return "loading" in causes

            wait_for("it listens", is_loading)
        finally:
            standby.close()

        assert causes <= {"connection", "loading"}

    def test_too_many_connections(self, opened_blocking: Opened, own_postgres: Own):
        """The server has no connection left for us."""
        server = own_postgres(max_connections=5, superuser_reserved_connections=0)
        make(server.url)
        held = [psycopg.connect(server.url) for _ in range(5)]
        cause = opened_blocking(server.url).cause()
        for connection in held:
            connection.close()

        assert cause == "busy"

    def test_a_standby(self, opened_blocking: Opened, own_postgres: Own):
        """C136: a standby takes no charges, and answers no looks; neither do LOGGED tables there."""
        primary = own_postgres()
        make(primary.url, logged=True)
        standby = own_postgres(follows=primary)
        store = opened_blocking(standby.url)

        assert [store.cause() for _ in range(5)] == ["read_only"] * 5
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.left()

    def test_a_primary_that_was_switched(self, opened_blocking: Opened, own_postgres: Own, network: Between):
        """C136: the name leads to the new primary; at most a few calls fail, and old connections are left."""
        old = own_postgres()
        make(old.url, logged=True)
        new = own_postgres(follows=old)
        way = network(old.port)
        store = opened_blocking(way.through(old.url))
        store.takes()
        old.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        old.sql("SELECT pg_reload_conf()")
        wait_for("the old one takes no more", lambda: store.cause() == "read_only")
        new.sql("SELECT pg_promote()")
        way.lead_to(new.port)
        failures = [store.cause() for _ in range(10)]

        assert set(failures[3:]) == {None}

    def test_a_locked_row(self, opened: Opened, postgres: Postgres, made: Database):
        """Somebody holds the row longer than the deadline: an outage of this call, and of no other."""
        store = opened(made.unix_url, deadline="100ms")
        wait_for("it answers", lambda: store.cause() is None)
        with psycopg.connect(made.unix_url) as holder:
            holder.execute("SELECT 1 FROM tidegate.state FOR UPDATE")
            cause = store.cause()

            assert cause in {"busy", "deadline"}
            assert store.decide([charge("another")], deadline_us=20_000_000)[0].allowed
        wait_for("it is free", lambda: store.cause() is None)

    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            (Refused("55P03", "canceling statement due to lock timeout"), "busy"),
            (Refused("57014", "canceling statement due to statement timeout"), "busy"),
            (Refused("40P01", "deadlock detected"), "busy"),
            (Refused("57P01", "terminating connection due to administrator command"), "loading"),
            (Refused("57P03", "the database system is shutting down"), "loading"),
            (Refused("53100", "could not extend file: No space left on device"), "out_of_memory"),
            (Refused("53200", "out of memory"), "out_of_memory"),
            (Refused("53300", "too many connections"), "busy"),
            (Refused("28000", "role is not permitted to log in"), "authentication"),
            (Refused("08P01", "server login failed"), "connection"),
            (Refused("25006", "cannot execute UPDATE in a read-only transaction"), "read_only"),
            (Refused("58030", "could not read block"), "broken_reply"),
            (Refused("XX001", "invalid page in block 0"), "broken_reply"),
            (Lost("FATAL:  the database system is starting up"), "loading"),
            (Lost("FATAL:  the database system is in recovery mode"), "loading"),
            (Lost("FATAL:  sorry, too many clients already"), "busy"),
            (Lost('FATAL:  password authentication failed for user "x"'), "authentication"),
            (Lost('FATAL:  no pg_hba.conf entry for host "1.2.3.4"'), "authentication"),
            (Lost("fe_sendauth: no password supplied"), "authentication"),
            (Lost("FATAL:  unbekanntes Unglück"), "connection"),
            (Lost("server closed the connection unexpectedly"), "connection"),
            (TimeUp(), "deadline"),
        ],
        ids=repr,
    )
    def test_what_it_says(self, error: Exception, cause: str):
        """Each error that means an outage has its cause."""
        meant = classified(error, "tidegate")

        assert isinstance(meant, StoreUnavailable)
        assert meant.cause == cause

    @pytest.mark.parametrize(
        "error",
        [
            Refused("42883", "function tidegate.decide() does not exist"),
            Refused("42P01", 'relation "state" does not exist'),
            Refused("42501", "permission denied for function decide"),
            Refused("22003", "bigint out of range"),
            Refused("25P02", "current transaction is aborted"),
            Lost('FATAL:  database "nobody" does not exist'),
        ],
        ids=repr,
    )
    def test_what_is_a_mistake(self, error: Exception):
        """C134: a mistake is never taken for an outage, so that nothing is let through because of a bug."""
        meant = classified(error, "tidegate")

        assert type(meant) is StoreError


class TestMistakes:
    """C134: mistakes are raised as plain StoreErrors, and do not open the breaker."""

    def test_not_initialised(self, opened: Opened, database: Database):
        """Without the schema the error says how to make it."""
        store = opened(database.url)
        for _ in range(FAILURES_TO_OPEN + 1):
            with pytest.raises(StoreError, match="tidegate store init URL") as raised:
                store.takes()

            assert not isinstance(raised.value, StoreUnavailable)

    def test_no_such_database(self, opened: Opened, postgres: Postgres):
        """A database that is not there is a mistake too."""
        with pytest.raises(StoreError, match="does not exist") as raised:
            opened(postgres.url.removesuffix("postgres") + "nobody").takes()

        assert not isinstance(raised.value, StoreUnavailable)

    def test_broken_functions(self, opened: Opened, database: Database, postgres: Postgres):
        """A function that was changed by hand to return something else gives no answer."""
        make(database.url)
        postgres.sql(
            "CREATE OR REPLACE FUNCTION tidegate.decide(of_rules bytea[], of_keys bytea[], numbers bigint[],"
            " calendars text[], edges_us bigint[]) RETURNS bigint[] LANGUAGE sql"
            " AS 'SELECT ARRAY[1,0,7]::bigint[]'",
            url=database.unix_url,
        )

        assert opened(database.url).cause() == "broken_reply"


class TestRestarts:
    """A server that comes back is used again, and what it lost is told by its tables."""

    def test_a_restart_costs_no_failure(self, opened: Opened, victim: Postgres):
        """C131: an idle connection that died meanwhile is noticed before anything is sent on it."""
        store = opened(victim.url, deadline="20s")
        store.takes()
        victim.restart()

        assert store.takes()
        assert store.left() == 8
        assert store.store.health.stats().unavailable == {}

    def test_a_crash_empties_unlogged_tables(self, opened: Opened, victim: Postgres):
        """Everything is forgotten: the key is full again, which is the bound that is documented."""
        store = opened(victim.url, deadline="20s")
        store.takes(cost=10)
        victim.kill()
        victim.start()

        assert store.left() == 10

    def test_a_crash_leaves_logged_tables(self, opened_blocking: Opened, own_postgres: Own):
        """Nothing is forgotten."""
        server = own_postgres(fsync="on")
        make(server.url, logged=True)
        store = opened_blocking(server.url, deadline="20s")
        store.takes(cost=10)
        server.kill()
        server.start()

        assert store.left() == 0

    def test_asked_all_the_time(self, opened: Opened, victim: Postgres):
        """Killed and restarted in the middle of a run: typed errors only, and soon after all is well."""
        store = opened(victim.url, deadline="100ms")
        wait_for("it answers", lambda: store.cause() is None)
        said: list[str | None] = []
        killing = threading.Timer(0.1, victim.kill)
        killing.start()
        while killing.is_alive() or None in said[-3:] or not said:
            said.append(store.cause("run"))
        killing.join()
        victim.start()
        wait_for("it answers again", lambda: store.cause() is None)

        assert set(said) <= {None, "connection", "loading", "deadline", "breaker"}
