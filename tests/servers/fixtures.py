# Real servers as fixtures, for the tests of every folder (tests/conftest.py makes them known).
#
# Shared ones start at their first use and live until the end of the run; each test finds them empty. A test
# that stops, kills, freezes or configures a server asks for one of its own. No server has its usual port.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.servers.network import Network
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import Cluster, SentinelGroup
from tests.servers.redis_like import KINDS, RedisLike


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Callable[[str], RedisLike]]:
    """The shared server of a kind, emptied now; started if it is the first use."""
    started: dict[str, RedisLike] = {}
    with ExitStack() as stack:

        def shared(kind: str) -> RedisLike:
            if kind not in started:
                started[kind] = stack.enter_context(RedisLike(kind))
            assert started[kind].is_running, "a test has ended the shared server; use own_redis"
            started[kind].flush()
            return started[kind]

        yield shared


@pytest.fixture(params=KINDS)
def redis_like(request: pytest.FixtureRequest, shared_redis: Callable[[str], RedisLike]) -> RedisLike:
    """Valkey 9, Redis 8 and Redis 6.2 in turn: running, empty, shared."""
    return shared_redis(request.param)


@pytest.fixture
def valkey(shared_redis: Callable[[str], RedisLike]) -> RedisLike:
    """Valkey 9: running, empty, shared."""
    return shared_redis("valkey-9")


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Cluster]:
    """A cluster of three Valkey masters; tests ask for `redis_cluster`."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(shared_cluster: Cluster) -> Cluster:
    """A cluster of three Valkey masters: whole, empty, shared."""
    assert all(node.is_running for node in shared_cluster.nodes), (
        "a test has ended a shared node; use own_cluster"
    )
    shared_cluster.flush()
    return shared_cluster


@pytest.fixture
def own_redis() -> Iterator[Callable[..., RedisLike]]:
    """Start a server for this test alone: `own_redis("redis-8", requirepass="secret")`."""
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(RedisLike(*args, **options))


@pytest.fixture
def own_cluster() -> Iterator[Callable[..., Cluster]]:
    """Start a cluster for this test alone: `own_cluster("redis-8", masters=3, replicas=1)`."""
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(Cluster(*args, **options))


@pytest.fixture
def own_sentinels() -> Iterator[Callable[..., SentinelGroup]]:
    """Start a master, a replica and three sentinels for this test alone: `own_sentinels("redis-8")`."""
    with ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(SentinelGroup(*args, **options))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL: running, shared; a test uses a database of its own in it, which `database` gives."""
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """A new database in the shared PostgreSQL, and the role that owns it; gone after the test."""
    assert postgres.is_running, "a test has ended the shared server; use own_postgres"
    with postgres.database() as created:
        yield created


@pytest.fixture
def own_postgres() -> Iterator[Callable[..., Postgres]]:
    """Start a server for this test alone: `own_postgres(work_mem="1MB")`, `own_postgres(follows=other)`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Postgres(**options))


@pytest.fixture
def network() -> Iterator[Callable[[int], Network]]:
    """Put a network that fails on demand before a port: `network(server.port)`."""
    with ExitStack() as stack:
        yield lambda target_port: stack.enter_context(Network(target_port))
