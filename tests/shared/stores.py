# Every shared store there is, as an address that any process can open; a new store adds a line to ADDRESSES.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate import open_store


def _redis(kind: str) -> Callable[[pytest.FixtureRequest], str]:
    return lambda request: request.getfixturevalue("shared_redis")(kind).url


def _cluster(request: pytest.FixtureRequest) -> str:
    address = request.getfixturevalue("redis_cluster").url
    return address.replace("redis://", "redis+cluster://").removesuffix("/0")


def _postgres(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue("database").url
    store: Any = open_store(url)
    store.init()
    store.close()
    return url


ADDRESSES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "valkey-9": _redis("valkey-9"),
    "redis-8": _redis("redis-8"),
    "redis-6.2": _redis("redis-6.2"),
    "cluster": _cluster,
    "postgres": _postgres,
}


def at_ease(url: str) -> str:
    """The address with a deadline for tests that ask whether the store is right, not whether it is quick."""
    return f"{url}{'&' if '?' in url else '?'}deadline=10s"
