from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.contract.shared import Servers, close_all, had
from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike


@pytest.fixture(scope="session", autouse=True)
def servers(request: pytest.FixtureRequest, shared_redis: Callable[[str], RedisLike]) -> Iterator[None]:
    """Tell the sides where the servers are; a cluster and PostgreSQL start when they are first asked for."""

    def cluster() -> Cluster:
        found: Cluster = request.getfixturevalue("shared_cluster")
        return found

    had.servers = Servers(shared_redis, cluster, lambda: request.getfixturevalue("postgres"))
    yield
    close_all()
