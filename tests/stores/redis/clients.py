"""Clients of both libraries, as users make them."""

from __future__ import annotations

import asyncio
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
import valkey
import valkey.asyncio
import valkey.asyncio.cluster
import valkey.asyncio.sentinel
import valkey.cluster
import valkey.sentinel

LIBRARIES = ("redis-py", "valkey-py")

_SINGLE: dict[tuple[str, str], Any] = {
    ("redis-py", "blocking"): redis.Redis,
    ("redis-py", "awaited"): redis.asyncio.Redis,
    ("valkey-py", "blocking"): valkey.Valkey,
    ("valkey-py", "awaited"): valkey.asyncio.Valkey,
}
_CLUSTER: dict[tuple[str, str], Any] = {
    ("redis-py", "blocking"): redis.cluster.RedisCluster,
    ("redis-py", "awaited"): redis.asyncio.cluster.RedisCluster,
    ("valkey-py", "blocking"): valkey.cluster.ValkeyCluster,
    ("valkey-py", "awaited"): valkey.asyncio.cluster.ValkeyCluster,
}
_SENTINEL: dict[tuple[str, str], Any] = {
    ("redis-py", "blocking"): redis.sentinel.Sentinel,
    ("redis-py", "awaited"): redis.asyncio.sentinel.Sentinel,
    ("valkey-py", "blocking"): valkey.sentinel.Sentinel,
    ("valkey-py", "awaited"): valkey.asyncio.sentinel.Sentinel,
}


def client(library: str, face: str, port: int, **options: Any) -> Any:
    """A client of one server."""
    return _SINGLE[library, face](host="127.0.0.1", port=port, **options)


def cluster_client(library: str, face: str, port: int, **options: Any) -> Any:
    """A client of a cluster, of which this is a node."""
    return _CLUSTER[library, face](host="127.0.0.1", port=port, **options)


def master_client(
    library: str, face: str, sentinels: list[tuple[str, int]], name: str, **options: Any
) -> Any:
    """A client of the master that sentinels know by that name."""
    return _SENTINEL[library, face](sentinels, socket_timeout=1.0).master_for(name, **options)


def close(made: Any) -> None:
    """Close a client, awaited if need be."""
    if hasattr(made, "aclose"):
        asyncio.run(made.aclose())
    else:
        made.close()
