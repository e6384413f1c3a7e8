"""What the tests of the PostgreSQL store share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from tests.servers.postgres import Database, Postgres
from tests.stores.postgres.faces import FACES, Face
from tidegate.stores.postgres.store import PostgresStore


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    """Blocking and awaited, in turn."""
    return str(request.param)


@pytest.fixture
def opened(face: str) -> Iterator[Callable[..., Face]]:
    """Open a store on a URL or a pool: `opened(url, deadline="20ms")`; closed after the test."""
    with ExitStack() as stack:
        yield lambda target, **options: stack.enter_context(Face(face, target, **options))


@pytest.fixture
def opened_blocking() -> Iterator[Callable[..., Face]]:
    """The same by the blocking face alone, where a test is about the server and costs a server of its own."""
    with ExitStack() as stack:
        yield lambda target, **options: stack.enter_context(Face("blocking", target, **options))


@pytest.fixture(scope="session")
def made_database(postgres: Postgres) -> Iterator[Database]:
    """A database with the schema in it, for all tests that do not change that; they ask for `made`."""
    with postgres.database() as created:
        make(created.url)
        yield created


@pytest.fixture
def made(postgres: Postgres, made_database: Database) -> Database:
    """A database with the schema in it: shared, its tables empty, nothing lost."""
    inside = made_database.unix_url
    postgres.sql("TRUNCATE tidegate.state, tidegate.entries, tidegate.epoch", url=inside)
    postgres.sql("INSERT INTO tidegate.epoch (since_us) VALUES (0)", url=inside)
    return made_database


@pytest.fixture(scope="session")
def lasting_victim() -> Iterator[Postgres]:
    """A server that tests may freeze, kill and restart; they ask for `victim`."""
    with Postgres() as server:
        make(server.url)
        yield server


@pytest.fixture
def victim(lasting_victim: Postgres) -> Iterator[Postgres]:
    """A server with the schema in it, to be frozen, killed or restarted: running, its tables empty."""
    lasting_victim.sql("TRUNCATE tidegate.state, tidegate.entries, tidegate.epoch")
    lasting_victim.sql("INSERT INTO tidegate.epoch (since_us) VALUES (0)")
    yield lasting_victim
    lasting_victim.thaw()
    if not lasting_victim.is_running:
        lasting_victim.start()


def make(url: str, **options: object) -> None:
    """Make the schema where the URL leads."""
    with closing(PostgresStore(url, deadline="2s")) as store:
        store.init(**options)  # type: ignore[arg-type]  # whatever the test says
