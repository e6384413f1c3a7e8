# URLs and options: what is read, what is refused, and that no message repeats a password.

from __future__ import annotations

import pytest

from tidegate.errors import StoreError
from tidegate.stores.postgres.address import Address, Options, options_of, read_target
from tidegate.stores.postgres.store import PostgresStore, from_url

PLAIN = options_of(schema="tidegate", deadline="50ms", may_forget=False, prepare=True, max_connections=16)


def read(url: str) -> tuple[Address, Options]:
    return read_target(url, PLAIN)


def test_a_plain_url():
    """Host, port, user and database are libpq's; ours have their defaults."""
    address, options = read("postgresql://app:secret@db.internal:5433/limits")

    assert list(address.hosts()) == [("db.internal", "", "5433")]
    assert address.parameters["user"] == "app"
    assert options == PLAIN
    assert address.where == "postgres at db.internal:5433, database limits"


def test_options_in_a_url():
    """Ours are taken out, libpq's stay."""
    url = (
        "postgres://app@db/limits?sslmode=require&schema=mine&deadline=30ms&may_forget=yes&prepare=no"
        "&max_connections=3&application_name=shop"
    )
    address, options = read(url)

    assert options == Options("mine", 30_000, True, False, 3)
    assert address.parameters["sslmode"] == "require"
    assert address.parameters["application_name"] == "shop"
    assert "schema" not in address.parameters


def test_several_hosts():
    """They are tried in turn; one port serves all."""
    address, _ = read("postgresql://a:1,b:2/limits")
    others, _ = read("host=a,b,c port=5433 dbname=limits")

    assert list(address.hosts()) == [("a", "", "1"), ("b", "", "2")]
    assert list(others.hosts()) == [("a", "", "5433"), ("b", "", "5433"), ("c", "", "5433")]


def test_what_the_session_is_told():
    """Abandoned calls end on the server too; what the URL says itself is kept; a pooler is told nothing."""
    address, options = read("postgresql://app@db/limits?options=-c%20work_mem%3D1MB")
    told = address.conninfo(options, "db", "10.0.0.7", "5432").decode()
    pooled = address.conninfo(options._replace(prepare=False), "db", "", "").decode()

    assert "hostaddr=10.0.0.7" in told
    for setting in ("work_mem=1MB", "statement_timeout=40", "lock_timeout=30", "read\\\\ committed"):
        assert setting in told
    assert "statement_timeout" not in pooled
    assert "application_name=tidegate" in pooled


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2@db/limits?shema=x",
        "postgresql://app:hunter2@db/limits?deadline=30ms&deadline=40ms",
        "postgresql://app:hunter2@db/limits?deadline=soon",
        "postgresql://app:hunter2@db/limits?deadline=0s",
        "postgresql://app:hunter2@db/limits?deadline=2h",
        "postgresql://app:hunter2@db/limits?may_forget=perhaps",
        "postgresql://app:hunter2@db/limits?max_connections=none",
        "postgresql://app:hunter2@db/limits?max_connections=0",
        "postgresql://app:hunter2@db/limits?schema=",
        "postgresql://app:hunter2@db/limits#part",
        "postgresql://app:hun ter2@db/limits",
        "postgresql://app:hunter2@db:port/limits",
        "postgresql://app:hunter2@[db/limits",
        "mysql://app:hunter2@db/limits",
        "host=db password='hunter2",
        "host=db passwort=hunter2",
        "hunter2",
    ],
)
def test_what_is_refused(url: str):
    """Unknown, doubled or impossible options and broken URLs; the error never shows the password."""
    with pytest.raises(StoreError) as raised:
        from_url(url)

    assert "hunter2" not in str(raised.value)
    assert "ter2" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"schema": ""},
        {"schema": "x" * 64},
        {"schema": 7},
        {"deadline": "soon"},
        {"deadline": -1},
        {"may_forget": "yes"},
        {"prepare": 1},
        {"max_connections": True},
        {"max_connections": 0},
        {"max_connections": 2.5},
    ],
    ids=repr,
)
def test_options_that_are_refused(options: dict[str, object]):
    """Each names the bad value."""
    with pytest.raises(StoreError, match=next(iter(options))):
        PostgresStore("postgresql://db/limits", **options)  # type: ignore[arg-type]  # that is the point


def test_nothing_is_connected_before_it_is_asked():
    """Making a store needs no server, and its name shows no user or password."""
    store = PostgresStore("postgresql://app:hunter2@nowhere.invalid/limits")

    assert repr(store) == "<PostgresStore: postgres at nowhere.invalid:5432, database limits>"
    assert repr(store.awaited) == "<AwaitedPostgresStore: postgres at nowhere.invalid:5432, database limits>"
    store.close()
