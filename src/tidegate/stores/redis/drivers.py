"""The client libraries, redis-py and valkey-py: what is given becomes classes and arguments of connections.

This is the only file that imports them. A URL, or a client of the user's, sync or async, alone, behind
sentinels or on a cluster, gives a `Target`: where the servers are, and how a connection to one of them is
made. The connections are our own, of the class and with the arguments that the client would use, but for
what would break a deadline: no retries (one of them could charge twice), no health checks, no timeouts of
their own. So the client's pool is never exhausted by us, and we close what we have opened and nothing else.

An async client serves the awaited face, a sync client the blocking one, a URL both.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Hashable, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from tidegate.errors import MissingDependency, StoreError
from tidegate.stores.redis.address import PORT, Address, Host, Kind
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import AwaitedConnection, BlockingConnection, deadlined

_NOT_OURS = frozenset(
    {
        *("retry", "retry_on_timeout", "retry_on_error", "health_check_interval"),
        *("socket_timeout", "socket_connect_timeout", "decode_responses", "timeout"),
        *("connection_pool", "connection_class", "parser_class", "max_connections", "response_callbacks"),
        *("himport_registry", "event_dispatcher", "client_cache", "maintenance_state", "ssl"),
        *("maintenance_notification_hash", "legacy_responses", "command_packer"),
    }
)
_NOT_OURS_EITHER = ("maint_notifications_", "orig_", "oss_cluster_", "cache_")
_OF_A_PLACE = ("host", "port", "path")


class Maker(NamedTuple):
    """How connections are made: of which class, with which arguments. Host and port are still to come."""

    kind: type[Any]
    arguments: Mapping[str, Any]

    def open(self, host: Host | None, within_s: float) -> BlockingConnection:
        """A connection to this server (None: the one in the arguments) that is ready for commands."""
        try:
            raw = deadlined(self.kind)(  # type: ignore[arg-type]  # a class is hashable
                **self._for(host, within_s)
            )
            raw.until_s = time.monotonic() + within_s
            raw.connect()
        except Exception as error:
            raise classified(error) from error
        return BlockingConnection(raw)

    async def open_awaited(self, host: Host | None, within_s: float) -> AwaitedConnection:
        """The same on the running event loop. Until it is `unhurried`, no reply may take longer than this."""
        try:
            raw = self.kind(**self._for(host, within_s))
            await raw.connect()
        except Exception as error:
            raise classified(error) from error
        return AwaitedConnection(raw)

    def _for(self, host: Host | None, within_s: float) -> dict[str, Any]:
        place = {} if host is None else {"host": host[0], "port": host[1]}
        hurry = dict.fromkeys(("socket_timeout", "socket_connect_timeout"), within_s)
        return {**self.arguments, **place, **hurry}


class Makers(NamedTuple):
    """For the two faces, as far as they are served."""

    blocking: Maker | None
    awaited: Maker | None


class Target(NamedTuple):
    """Where the servers are and how to connect. `hosts` are sentinels or nodes; a single server has none."""

    kind: Kind
    where: str
    servers: Makers
    hosts: tuple[Host, ...] = ()
    master: str = ""
    sentinels: Makers = Makers(None, None)

    @property
    def identity(self) -> Hashable:
        """What is equal wherever it leads to the same database by the same names."""
        made = self.servers.blocking or self.servers.awaited
        said = {} if made is None else made.arguments
        places: tuple[object, ...] = ()
        if self.kind == "single":
            places = said.get("path") or (said.get("host", "localhost"), int(said.get("port", PORT)))
        return self.kind, places, frozenset(self.hosts), self.master, int(said.get("db") or 0)


def target_of_address(address: Address) -> Target:
    """The target that a URL names. Raises MissingDependency if there is no client library."""
    # A URL asks by the older protocol, which needs no greeting: it is a round trip less.
    servers = _of_url(address, {"protocol": 2, **address.arguments})
    if address.kind == "single":
        place = (
            {"path": address.path}
            if address.path
            else dict(zip(("host", "port"), address.hosts[0], strict=True))
        )
        servers = Makers(
            *(maker and maker._replace(arguments={**maker.arguments, **place}) for maker in servers)
        )
        return Target("single", address.where, servers)
    sentinels = _of_url(address, {"protocol": 2, **address.sentinel_arguments})
    return Target(address.kind, address.where, servers, address.hosts, address.master, sentinels)


def target_of_client(client: Any) -> Target | None:
    """The target of a client; None for one that shows no connections, and is asked by its own methods."""
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None and hasattr(nodes, "startup_nodes"):
        return _of_cluster(client, nodes)
    pool = getattr(client, "connection_pool", None)
    kind, arguments = getattr(pool, "connection_class", None), getattr(pool, "connection_kwargs", None)
    if not (isinstance(kind, type) and isinstance(arguments, dict) and hasattr(kind, "read_response")):
        return None
    manager = getattr(pool, "sentinel_manager", None)
    if manager is not None:
        return _of_sentinels(pool, manager)
    where = arguments.get("path") or f"{arguments.get('host', 'localhost')}:{arguments.get('port', 6379)}"
    return Target("single", f"redis at {where}", _makers(kind, _clean(arguments)))


def _of_url(address: Address, arguments: dict[str, Any]) -> Makers:
    """The classes of whichever library is installed, redis-py before valkey-py."""
    if find_spec("redis") is not None:
        import redis.asyncio.connection as awaited
        import redis.connection as blocking
    elif find_spec("valkey") is not None:
        import valkey.asyncio.connection as awaited  # type: ignore[no-redef]  # either has the same classes
        import valkey.connection as blocking  # type: ignore[no-redef]  # as above
    else:
        raise MissingDependency(
            "a Redis or Valkey store needs a client library: pip install 'tidegate[redis]'"
        )
    name = "UnixDomainSocketConnection" if address.path else "SSLConnection" if address.tls else "Connection"
    return Makers(Maker(getattr(blocking, name), arguments), Maker(getattr(awaited, name), arguments))


def _of_sentinels(pool: Any, manager: Any) -> Target:
    if not getattr(pool, "is_master", True):
        raise StoreError(
            "the client asks a replica (slave_for); give one made by master_for: limits are written"
        )
    asked = [sentinel.connection_pool for sentinel in manager.sentinels]
    hosts = tuple((str(one.connection_kwargs["host"]), int(one.connection_kwargs["port"])) for one in asked)
    # The pool's own class asks the client's sentinels by the client's connections: we want what is below it.
    shown = ",".join(f"{host}:{port}" for host, port in hosts)
    kind = next(one for one in pool.connection_class.__mro__ if "Sentinel" not in one.__name__)
    return Target(
        "sentinel",
        f"redis master {pool.service_name!r} by the sentinels {shown}",
        _makers(kind, _clean(pool.connection_kwargs, but=_OF_A_PLACE)),
        hosts,
        str(pool.service_name),
        _makers(asked[0].connection_class, _clean(asked[0].connection_kwargs, but=_OF_A_PLACE)),
    )


def _of_cluster(client: Any, nodes: Any) -> Target:
    known = {**_by_name(nodes.startup_nodes), **_by_name(getattr(nodes, "nodes_cache", {}))}
    hosts = tuple((str(node.host), int(node.port)) for node in known.values())
    given = dict(nodes.connection_kwargs)
    kind = given.get("connection_class")
    if kind is None:
        is_awaited = inspect.iscoroutinefunction(type(client).execute_command)
        kind = _class_beside(client, is_awaited, "SSLConnection" if given.get("ssl") else "Connection")
    arguments = _clean(given, but=(*_OF_A_PLACE, "db"))
    for name in ("redis_connect_func", "valkey_connect_func"):
        if name in arguments:  # the client's own, which speaks to the client; what the user gave is behind it
            arguments[name] = getattr(client, "user_on_connect_func", None)
    where = "redis cluster at " + ",".join(f"{host}:{port}" for host, port in hosts[:6])
    return Target("cluster", where, _makers(kind, arguments), hosts)


def _class_beside(client: Any, is_awaited: bool, name: str) -> type[Any]:
    """A class of the library that the client comes from."""
    library = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    if "valkey" in library:
        import valkey.asyncio.connection as awaited
        import valkey.connection as blocking
    else:
        import redis.asyncio.connection as awaited  # type: ignore[no-redef]  # either has the same classes
        import redis.connection as blocking  # type: ignore[no-redef]  # as above
    found: type[Any] = getattr(awaited if is_awaited else blocking, name)
    return found


def _by_name(nodes: Any) -> dict[str, Any]:
    return dict(nodes) if isinstance(nodes, Mapping) else {node.name: node for node in nodes}


def _makers(kind: type[Any], arguments: dict[str, Any]) -> Makers:
    maker = Maker(kind, arguments)
    return Makers(None, maker) if inspect.iscoroutinefunction(kind.connect) else Makers(maker, None)


def _clean(arguments: Mapping[str, Any], but: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        name: value
        for name, value in arguments.items()
        if name not in _NOT_OURS and name not in but and not name.startswith(_NOT_OURS_EITHER)
    }
