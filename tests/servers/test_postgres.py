# The PostgreSQL that other tests rely on does what those tests will ask of it.

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import psycopg
import pytest

from tests.servers.postgres import Database, Postgres

pytestmark = pytest.mark.real_time


def test_the_shared_server_answers(postgres: Postgres):
    """It runs in its version, by TCP and by unix socket, on a port below the ephemeral ones."""
    ((version,),) = postgres.sql("SELECT version()")

    assert version.startswith("PostgreSQL 18.")
    assert 20_000 <= postgres.port < 30_000
    assert postgres.sql("SELECT 1", url=postgres.url) == postgres.sql("SELECT 1", url=postgres.unix_url)
    assert postgres.sql("SHOW max_connections") == [("200",)]


def test_a_database_belongs_to_its_role(postgres: Postgres, database: Database):
    """A test's role makes tables in its own database, is no superuser, and both are gone afterwards."""
    with postgres.database() as other:
        postgres.sql("CREATE TABLE t (a int)", url=other.url)
        assert postgres.sql("SELECT current_user::text", url=other.unix_url) == [(other.role,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres.sql("CREATE ROLE more", url=other.url)

    with pytest.raises(psycopg.errors.UndefinedTable):
        postgres.sql("SELECT * FROM t", url=database.url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        postgres.sql("SELECT 1", url=other.url)


def test_a_crash_empties_unlogged_tables(own_postgres: Callable[..., Postgres]):
    """An orderly restart keeps what an unlogged table holds, a crash does not; a logged one survives both."""
    server = own_postgres()
    url = server.url
    server.sql("CREATE UNLOGGED TABLE light AS SELECT 1 AS a")
    server.sql("CREATE TABLE logged AS SELECT 1 AS a")

    server.restart()
    assert (server.sql("TABLE light"), server.sql("TABLE logged")) == ([(1,)], [(1,)])

    server.kill()
    with pytest.raises(psycopg.OperationalError):
        server.sql("SELECT 1", url=url)
    server.start()
    assert (server.sql("TABLE light"), server.sql("TABLE logged")) == ([], [(1,)])
    assert server.url == url


def test_a_frozen_server_is_silent(own_postgres: Callable[..., Postgres]):
    """Old and new connections get no answer until it is thawed; frozen, it can be killed or stopped."""
    server = own_postgres()
    with psycopg.connect(server.url, autocommit=True) as connection:
        server.freeze()
        with socket.create_connection(("127.0.0.1", server.port), 0.2) as other:
            other.sendall(struct.pack("!ii", 8, 80_877_103))  # asks for encryption; a server says S or N
            with pytest.raises(TimeoutError):
                other.recv(1)

        server.thaw()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]

        server.freeze()
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

    server.start()
    server.freeze()
    server.stop()
    assert not server.is_running


def test_a_copy_follows(own_postgres: Callable[..., Postgres]):
    """A copy has what its original has, only reads, and takes over when it is told to."""
    original = own_postgres(password="it's so")
    copy = own_postgres(follows=original)
    original.sql("CREATE TABLE logged AS SELECT 1 AS a")
    copy.catch_up()

    assert copy.sql("TABLE logged", url=copy.url) == [(1,)]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        copy.sql("INSERT INTO logged VALUES (2)")
    with pytest.raises(psycopg.OperationalError, match="no password"):
        copy.sql("SELECT 1", url=copy.url.replace(":it%27s%20so@", "@"))

    original.kill()
    copy.sql("SELECT pg_promote()")
    copy.sql("INSERT INTO logged VALUES (2)")
    with copy.database() as created:
        assert copy.sql("SELECT 1", url=created.url) == [(1,)]
