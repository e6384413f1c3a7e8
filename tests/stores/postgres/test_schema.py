# Making the schema: once, by whoever may; what another version means; and what a role needs to decide.

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest

from tests.servers.postgres import Database, Postgres
from tests.stores.postgres.faces import Face, charge
from tidegate import SlidingLog, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.errors import StoreError
from tidegate.stores.postgres import schema
from tidegate.stores.postgres.check import check
from tidegate.stores.postgres.making import Made
from tidegate.stores.postgres.store import PostgresStore

Opened = Callable[..., Face]


def test_it_is_made_once(opened: Opened, database: Database):
    """Making it again changes nothing and keeps all state."""
    store = opened(database.url)
    first = store.said("init")
    store.takes(cost=4)
    second = store.said("init")

    assert first == Made("tidegate", 0, 1, logged=False)
    assert second == Made("tidegate", 1, 1, logged=False, was_logged=False)
    assert "made" in str(first)
    assert "already" in str(second)
    assert store.left() == 6


def test_its_name_may_be_any(opened: Opened, database: Database):
    """Two schemas in one database are two stores, whatever their names hold."""
    names = ['Limits "of" 50%', "it's; DROP SCHEMA public; --"]
    stores = [opened(database.url, schema=name) for name in names]
    for store in stores:
        store.said("init")
    stores[0].takes(cost=7)

    assert [store.left() for store in stores] == [3, 10]
    assert all(finding.grade != "error" for finding in check(stores[0].store))


def test_tables_become_logged_and_stay_so(opened: Opened, database: Database):
    """UNLOGGED ones are changed where that is wanted; LOGGED ones are never made to forget."""
    store = opened(database.url)
    made = [store.said("init", logged=logged) for logged in (False, True, False)]

    assert [one.logged for one in made] == [False, True, True]
    assert [str(one).rpartition("its tables ")[2] for one in made] == [
        "are UNLOGGED",
        "were UNLOGGED and are LOGGED now; a later init leaves them so",
        "are LOGGED, and stay so",
    ]


def test_several_make_it_at_once(database: Database):
    """One of them is the first; the others find it there."""

    def make(_: int) -> Made:
        with closing(PostgresStore(database.url, deadline="10s")) as store:
            return store.init()

    with ThreadPoolExecutor(4) as workers:
        made = list(workers.map(make, range(4)))

    assert sorted(one.before for one in made) == [0, 1, 1, 1]


def test_a_newer_version_is_left_alone(opened: Opened, postgres: Postgres, database: Database):
    """Neither made nor asked: each says which version is there."""
    store = opened(database.url)
    store.said("init")
    for statement in (
        "INSERT INTO tidegate.version (number) VALUES (7)",
        "CREATE OR REPLACE FUNCTION tidegate.version_number() RETURNS int "
        "LANGUAGE sql IMMUTABLE AS 'SELECT 7'",
    ):
        postgres.sql(statement, url=database.unix_url)

    with pytest.raises(StoreError, match=r"has version 7.*upgrade tidegate"):
        store.said("init")
    with pytest.raises(StoreError, match="has version 7"):
        opened(database.url).takes()
    assert ("schema", "error") in [(finding.what, finding.grade) for finding in check(store.store)]


def test_an_older_version_is_brought_up_to_date(
    opened: Opened, postgres: Postgres, database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The steps that are missing are carried out, and state stays."""
    store = opened(database.url)
    store.said("init")
    store.takes(cost=4)
    step = "ALTER TABLE state ADD COLUMN note text;"
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, "next.sql"))
    monkeypatch.setattr("tidegate.stores.postgres.making.STEPS", schema.STEPS)
    monkeypatch.setattr("tidegate.stores.postgres.wire.VERSION", 2)
    source = schema.source
    monkeypatch.setattr(schema, "source", lambda name: step if name == "next.sql" else source(name))
    with pytest.raises(StoreError, match="tidegate store init URL"):
        opened(database.url).takes()
    made = store.said("init")

    assert made == Made("tidegate", 1, 2, logged=False, was_logged=False)
    assert opened(database.url).left() == 6
    assert postgres.sql("SELECT note FROM tidegate.state", url=database.unix_url) == [(None,)]


def test_what_is_not_ours_is_left_alone(opened: Opened, postgres: Postgres, database: Database):
    """A schema with other tables of our names stays as it is, and the error names one."""
    postgres.sql("CREATE SCHEMA tidegate CREATE TABLE entries (a int)", url=database.url)
    store = opened(database.url)
    with pytest.raises(StoreError, match="entries"):
        store.said("init")

    names = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'tidegate'"
    assert postgres.sql(names, url=database.unix_url) == [("entries",)]


def test_who_may_not_make_it(opened: Opened, postgres: Postgres, database: Database):
    """A role without CREATE is told so; so is one that would change the schema of another."""
    postgres.sql("CREATE ROLE guest LOGIN")
    postgres.sql(f"GRANT CONNECT ON DATABASE {database.name} TO guest")
    try:
        for is_there in (False, True):
            if is_there:
                opened(database.url).said("init")
                postgres.sql("GRANT USAGE ON SCHEMA tidegate TO guest", url=database.unix_url)
                postgres.sql("GRANT SELECT ON tidegate.version TO guest", url=database.unix_url)
            with pytest.raises(StoreError, match="permission denied") as raised:
                opened(database.url.replace(f"{database.role}@", "guest@")).said("init")
            assert "init needs a role that may create a schema" in str(raised.value)
            assert "EXECUTE" not in str(raised.value)
    finally:
        postgres.sql("DROP SCHEMA tidegate CASCADE", url=database.unix_url)
        postgres.sql(f"REVOKE ALL ON DATABASE {database.name} FROM guest")
        postgres.sql("DROP ROLE guest")


class TestRoles:
    """The role that services use may execute the functions, and nothing else."""

    @pytest.fixture
    def service_url(self, postgres: Postgres, made: Database) -> str:
        """The address for a role with the documented privileges."""
        if not postgres.sql("SELECT 1 FROM pg_roles WHERE rolname = 'service'"):
            postgres.sql("CREATE ROLE service LOGIN")
        named = [f"tidegate.{name}" for name in schema.FOR_SERVICES]
        for grant in (
            "GRANT USAGE ON SCHEMA tidegate TO service",
            f"GRANT EXECUTE ON FUNCTION {', '.join(named)} TO service",
        ):
            postgres.sql(grant, url=made.unix_url)
        return made.url.replace(f"{made.role}@", "service@")

    def test_it_decides(self, opened: Opened, service_url: str):
        """Every verb, on levels and on logs."""
        store = opened(service_url, may_forget=True)
        for limit in (TokenBucket(10, "0/s"), SlidingLog(10, "1h")):
            (outcome,) = store.decide([charge(rule=limit.algorithm, limit=limit, cost=4, strict=True)])
            grain = limit.law.grain

            assert store.adjust([Adjustment(outcome.charge, outcome.receipt, -1_000 * grain)]) == [
                1_000 * grain
            ]
        assert store.said("sweep") == 0
        assert [finding.value for finding in check(store.store) if finding.what == "privileges"] == [
            "functions only"
        ]

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT * FROM tidegate.state",
            "DELETE FROM tidegate.epoch",
            "CREATE TABLE tidegate.mine (a int)",
            "SELECT tidegate.forget('{}', '{}', '{}', NULL)",
            "SELECT tidegate.sweep_at(1000, 9000000000000000000)",
            "SELECT tidegate.listed('r', '', '', 10)",
            "CREATE FUNCTION tidegate.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ],
    )
    def test_it_may_do_nothing_else(self, postgres: Postgres, service_url: str, statement: str):
        """Neither read nor write the tables, nor put anything into the schema."""
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres.sql(statement, url=service_url)

    def test_it_deletes_nothing_that_counts(
        self, opened: Opened, postgres: Postgres, made: Database, service_url: str
    ):
        """Whatever it may call, and were it granted all there is: no row goes before its key is fresh."""
        store = opened(service_url)
        store.decide_many([[charge(f"{number}")] for number in range(5)])
        postgres.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA tidegate TO service", url=made.unix_url)
        try:
            assert postgres.sql("SELECT tidegate.sweep(1000)", url=service_url) == [(0,)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                postgres.sql("SELECT tidegate.sweep_at(1000, 9000000000000000000)", url=service_url)
        finally:
            postgres.sql("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tidegate FROM service", url=made.unix_url)

        assert postgres.sql("SELECT count(*) FROM tidegate.state", url=made.unix_url) == [(5,)]

    def test_an_operator_may_reset(
        self, opened: Opened, postgres: Postgres, made: Database, service_url: str
    ):
        """With the functions for that, which the service does not need."""
        store = opened(service_url)
        store.takes(cost=4)
        with pytest.raises(StoreError, match="grant it USAGE"):
            store.forget([("rule", "acme")])
        postgres.sql("GRANT EXECUTE ON FUNCTION tidegate.forget TO service", url=made.unix_url)
        try:
            store.forget([("rule", "acme")])
        finally:
            postgres.sql("REVOKE ALL ON FUNCTION tidegate.forget FROM service", url=made.unix_url)

        assert store.left() == 10

    def test_the_documented_grants_are_these(self):
        """The page names exactly the functions that are needed."""
        page = (Path(__file__).parents[3] / "docs" / "postgres.md").read_text()
        granted = page.partition("GRANT EXECUTE ON FUNCTION")[2].partition(" TO web")[0]

        assert (
            tuple(name.strip().removeprefix("tidegate.") for name in granted.split(","))
            == schema.FOR_SERVICES
        )

    def test_its_own_operators_are_not_run_by_the_owner(
        self, opened: Opened, postgres: Postgres, made: Database, service_url: str
    ):
        """What a role puts into its search path is not found by the functions, which run as their owner."""
        postgres.sql(
            "GRANT CREATE ON SCHEMA public TO PUBLIC",
            url=postgres.unix_url.replace("/postgres", f"/{made.name}"),
        )
        for statement in (
            "CREATE FUNCTION public.trap(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'trapped as %', current_user; END $$",
            "CREATE OPERATOR public.<= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = public.trap)",
            "ALTER ROLE service SET search_path = public, pg_catalog",
        ):
            postgres.sql(statement, url=service_url)
        try:
            assert opened(service_url).takes()
        finally:
            postgres.sql("ALTER ROLE service RESET search_path")
            postgres.sql("DROP OPERATOR public.<= (bigint, bigint)", url=service_url)
            postgres.sql("DROP FUNCTION public.trap", url=service_url)

    def test_the_error_says_what_to_grant(self, opened: Opened, postgres: Postgres, made: Database):
        """Without the privileges it is a mistake, with a way out; the check tells the same."""
        postgres.sql("CREATE ROLE stranger LOGIN")
        try:
            store = opened(made.url.replace(f"{made.role}@", "stranger@"))
            with pytest.raises(StoreError, match="grant it USAGE"):
                store.takes()
            found = {finding.what: finding for finding in check(store.store)}

            assert found["privileges"].grade == "error"
        finally:
            postgres.sql("DROP ROLE stranger")


def test_the_scripts_come_with_the_package():
    """Every file that is asked for lies beside the modules, where a wheel has it too."""
    folder = files("tidegate.stores.postgres")

    assert all((folder / name).is_file() for name in (*schema.STEPS, *schema.FUNCTIONS))
