# Slots of a cluster that move, as an operator moves them.

from __future__ import annotations

from typing import Any

from tests.servers.redis_groups import Cluster
from tidegate.stores.redis.names import Names


def url(cluster: Cluster) -> str:
    """The cluster by all its nodes."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)


def name(key: str, rule: str = "rule") -> bytes:
    """What a key is called there."""
    return Names().key(rule, key)


def move(cluster: Cluster, key: str, source: Any, target: Any) -> None:
    """Move the slot of the key, with all its keys, as an operator would."""
    slot = cluster.slot_of(name(key))
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
    while held := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *held)
    for node in (target, source, *cluster.masters):
        node.command("CLUSTER", "SETSLOT", slot, "NODE", target.command("CLUSTER", "MYID"))


def begin_to_move(cluster: Cluster, key: str) -> tuple[Any, Any]:
    """Say that the slot of the key moves, and from where to where; no key has moved yet."""
    source = cluster.master_of(name(key))
    target = next(node for node in cluster.masters if node is not source)
    slot = cluster.slot_of(name(key))
    target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
    source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
    return source, target
