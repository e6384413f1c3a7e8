# Servers that act as one: a cluster, whose keys are spread over masters, and a master watched by sentinels.
#
# All is set for a failover within seconds: a node counts as lost after one second.

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from tests.servers.process import WITHIN_S
from tests.servers.redis_like import Option, RedisLike
from tests.servers.wire import Refused

SLOTS = 16_384
LOST_AFTER_MS = 1_000


def wait_for(what: str, is_so: Callable[[], bool], *, within_s: float = WITHIN_S) -> None:
    """Return once it is so; an error that names it otherwise. A server that does not answer is not so yet."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            if is_so():
                return
        except (OSError, Refused):
            pass
        assert time.monotonic() < until_s, f"not within {within_s:g} s: {what}"
        time.sleep(0.01)


def in_sync(replica: RedisLike) -> bool:
    """Whether it has all that its master has, and hears of the rest."""
    return replica.info("replication").get("master_link_status") == "up"


class Cluster:
    """Masters with about as many slots each, and a replica for the first `replicas` of them."""

    def __init__(
        self, kind: str = "valkey-9", *, masters: int = 3, replicas: int = 0, **options: Option
    ) -> None:
        self._open = ExitStack()
        options = {"cluster_enabled": "yes", "cluster_node_timeout": LOST_AFTER_MS, **options}
        self.nodes = [self._node(kind, options) for _ in range(masters + replicas)]
        self.masters, self.replicas = self.nodes[:masters], self.nodes[masters:]

    def _node(self, kind: str, options: dict[str, Option]) -> RedisLike:
        node = RedisLike(kind, **options)
        self._open.callback(node.close)
        return node

    @property
    def url(self) -> str:
        """The address of its first node, from which a client learns the others."""
        return self.nodes[0].url

    def start(self) -> Self:
        """Start the nodes and make them one; the cluster is whole and writable afterwards."""
        for node in self.nodes:
            node.start(wait=False)
        first, others = self.nodes[0], self.nodes[1:]
        for node in self.nodes:
            node.wait_until_ready()
        for number, node in enumerate(self.nodes, 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number)  # none alike: no election about slots
        for number, node in enumerate(self.masters):
            slots = range(SLOTS * number // len(self.masters), SLOTS * (number + 1) // len(self.masters))
            node.command("CLUSTER", "ADDSLOTS", *slots)  # 6.2 knows no ADDSLOTSRANGE
        for node in others:
            first.command("CLUSTER", "MEET", "127.0.0.1", node.port)
        wait_for("all nodes know each other", lambda: all(self._known(node) for node in self.nodes))
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.command("CLUSTER", "REPLICATE", master.command("CLUSTER", "MYID"))
        self.wait_until_ok()
        return self

    def _known(self, node: RedisLike) -> bool:
        lines = node.command("CLUSTER", "NODES").splitlines()
        return len(lines) == len(self.nodes) and not any(b"handshake" in line for line in lines)

    def wait_until_ok(self) -> None:
        """Every node that runs says that the cluster is whole, and every replica is in sync."""

        def is_ok() -> bool:
            running = [node for node in self.nodes if node.is_running]
            return all(b"cluster_state:ok" in node.command("CLUSTER", "INFO") for node in running) and all(
                in_sync(node) for node in running if node.info("replication")["role"] == "slave"
            )

        wait_for("the cluster is ok", is_ok)

    def slot_of(self, key: str | bytes) -> int:
        """The slot to which the key belongs."""
        return int(self.nodes[0].command("CLUSTER", "KEYSLOT", key))

    def master_of(self, key: str | bytes) -> RedisLike:
        """The node that serves the key, by the word of the first that runs."""
        asked = next(node for node in self.nodes if node.is_running)
        slot = int(asked.command("CLUSTER", "KEYSLOT", key))
        for first, last, master, *_ in asked.command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError(f"slot {slot} is served by nobody")

    def flush(self) -> None:
        """No keys, scripts or functions on any master."""
        for node in self.nodes:
            if node.info("replication")["role"] == "master":
                node.flush()

    def close(self) -> None:
        """Kill all nodes and remove their folders."""
        self._open.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


class Sentinel(RedisLike):
    """One watcher of a master; it keeps what it knows in its configuration file."""

    def __init__(self, kind: str, *, name: str, master: RedisLike, quorum: int) -> None:
        super().__init__(kind)
        (self.folder / "sentinel.conf").write_text(
            f"bind 127.0.0.1\nport {self.port}\ndir {self.folder}\nunixsocket {self.unix_path}\n"
            f"sentinel monitor {name} 127.0.0.1 {master.port} {quorum}\n"
            f"sentinel down-after-milliseconds {name} {LOST_AFTER_MS}\n"
            f"sentinel failover-timeout {name} 5000\n"
        )

    def arguments(self) -> list[str]:
        """The program in its watching mode."""
        return [str(self.program), str(self.folder / "sentinel.conf"), "--sentinel"]


class SentinelGroup:
    """A master, a replica and three sentinels, two of which must agree that the master is lost."""

    name = "tidegate"

    def __init__(self, kind: str = "valkey-9", **options: Option) -> None:
        self._open = ExitStack()
        self.master = RedisLike(kind, **options)
        self._open.callback(self.master.close)
        self.replica = RedisLike(kind, replicaof=("127.0.0.1", self.master.port), **options)
        self._open.callback(self.replica.close)
        self.sentinels: list[Sentinel] = []
        for _ in range(3):
            self.sentinels.append(Sentinel(kind, name=self.name, master=self.master, quorum=2))
            self._open.callback(self.sentinels[-1].close)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where the sentinels are."""
        return [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]

    def start(self) -> Self:
        """Start all five; the sentinels know each other and the replica afterwards."""
        self.master.start()
        self.replica.start()
        wait_for("the replica is in sync", lambda: in_sync(self.replica))
        for sentinel in self.sentinels:
            sentinel.start(wait=False)
        for sentinel in self.sentinels:
            sentinel.wait_until_ready()
        wait_for(
            "the sentinels know all", lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels)
        )
        return self

    def _knows_all(self, sentinel: Sentinel) -> bool:
        said = sentinel.info("sentinel")["master0"]
        return "status=ok" in said and "slaves=1" in said and said.endswith("sentinels=3")

    def master_port(self) -> int:
        """The port of the master, by the word of the first sentinel that runs."""
        asked = next(sentinel for sentinel in self.sentinels if sentinel.is_running)
        return int(asked.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def wait_for_master(self, server: RedisLike) -> None:
        """This server is the master, by its own word and that of all sentinels."""

        def is_master() -> bool:
            return server.info("replication")["role"] == "master" and all(
                int(sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)[1]) == server.port
                for sentinel in self.sentinels
                if sentinel.is_running
            )

        wait_for("the sentinels agree on the new master", is_master)

    def close(self) -> None:
        """Kill all five and remove their folders."""
        self._open.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
