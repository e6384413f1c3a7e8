"""From a URL, or the options of a call, to where the servers are and how they are to be asked.

    redis://user:password@host:6379/0       one server; rediss:// with TLS, unix:///path?db=0 by a socket
    redis+sentinel://host:26379,host2/name/0    the master that sentinels know by that name
    redis+cluster://host:6379,host2:6380    a cluster, of which any nodes are named
    valkey://...                            the same, in all its forms

Pure: nothing is connected or imported here, and no message repeats what may be a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tidegate.errors import RateError, StoreError
from tidegate.stores.opening import unknown_option
from tidegate.units import Duration, duration_text, duration_us

Kind: TypeAlias = Literal["single", "sentinel", "cluster"]
Host: TypeAlias = tuple[str, int]

DEADLINE_US_MOST = 600_000_000
CONNECTIONS_MOST = 1_000
REPLICAS_MOST = 100
PORT, SENTINEL_PORT = 6379, 26379

FLAVOURS = ("redis", "valkey")
OURS = ("prefix", "deadline", "may_forget", "replicas", "max_connections")
OF_DRIVERS: Mapping[str, type] = {
    "db": int,
    "client_name": str,
    "protocol": int,
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": bool,
}
"""What a URL may say to the client library, and what kind of value it is."""
OF_SENTINELS = ("sentinel_username", "sentinel_password")

_YES, _NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off")


class Options(NamedTuple):
    """How a store asks. `replicas` is how many must have acknowledged a strict charge."""

    prefix: str
    deadline_us: int
    may_forget: bool
    replicas: int
    max_connections: int


class Address(NamedTuple):
    """Where the servers are. `arguments` are those of a connection, but for host and port."""

    kind: Kind
    hosts: tuple[Host, ...]
    tls: bool
    arguments: Mapping[str, Any]
    path: str = ""
    master: str = ""
    sentinel_arguments: Mapping[str, Any] = {}

    @property
    def where(self) -> str:
        """Its name in messages and logs: without user and password."""
        if self.path:
            return f"redis at {self.path}"
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        if self.kind == "sentinel":
            return f"redis master {self.master!r} by the sentinels {hosts}"
        return f"redis cluster at {hosts}" if self.kind == "cluster" else f"redis at {hosts}"


def options_of(
    *, prefix: str, deadline: Duration, may_forget: bool, replicas: int, max_connections: int
) -> Options:
    """Checked options. Raises StoreError for what no store can do."""
    if not isinstance(prefix, str):
        raise StoreError(f"prefix is {prefix!r}; write a text, such as 'tidegate'")
    try:
        deadline_us = duration_us(deadline, "deadline")
    except RateError as error:
        raise StoreError(f"{error}; write one such as '50ms'") from None
    if deadline_us > DEADLINE_US_MOST:
        raise StoreError(f"deadline is {deadline!r}; at most {duration_text(DEADLINE_US_MOST)}")
    if not isinstance(may_forget, bool):
        raise StoreError(f"may_forget is {may_forget!r}; write True or False")
    return Options(
        prefix,
        deadline_us,
        may_forget,
        _count(replicas, "replicas", 0, REPLICAS_MOST),
        _count(max_connections, "max_connections", 1, CONNECTIONS_MOST),
    )


def read_url(url: str, options: Options) -> tuple[Address, Options]:
    """Where the URL leads, and the options with those that it names put in their place."""
    try:
        parts = urlsplit(url)
        flavour, _, form = parts.scheme.partition("+")
        said = _query(parts)
    except ValueError:  # its text may repeat what stands before the '@'
        raise StoreError("store URL cannot be read; write one such as 'redis://localhost:6379/0'") from None
    tls = flavour in {"rediss", "valkeys"}
    if form not in {"", "sentinel", "cluster"} or not (tls or flavour in {*FLAVOURS, "unix"}):
        raise StoreError(
            f"store URL begins with {parts.scheme!r}; write redis://, rediss://, unix://, "
            "redis+sentinel:// or redis+cluster://"
        )
    if parts.fragment:
        raise StoreError("store URL has a '#'; write %23 where one is meant")
    options = _put(options, {name: said.pop(name) for name in OURS if name in said})
    sentinel = {name.partition("_")[2]: said.pop(name) for name in OF_SENTINELS if name in said}
    arguments = {name: _value(name, text) for name, text in said.items()}
    user, _, hosts = parts.netloc.rpartition("@")
    username, _, password = user.partition(":")
    arguments |= {
        name: unquote(text) for name, text in (("username", username), ("password", password)) if text
    }
    if flavour == "unix":
        if form or hosts or not parts.path.strip("/"):
            raise StoreError("a unix:// URL is unix:///path/to/redis.sock?db=0, its three slashes included")
        return Address("single", (), False, arguments, path=unquote(parts.path)), options
    address = _networked(form, tls, hosts, parts.path, arguments)
    if sentinel and address.kind != "sentinel":
        raise StoreError("sentinel_username and sentinel_password belong to a redis+sentinel:// URL")
    return address._replace(sentinel_arguments=sentinel), options


def _networked(form: str, tls: bool, hosts: str, path: str, arguments: dict[str, Any]) -> Address:
    steps = [unquote(step) for step in path.split("/") if step]
    found = tuple(_host(text, SENTINEL_PORT if form == "sentinel" else PORT) for text in hosts.split(","))
    master = ""
    if form == "sentinel":
        if not steps:
            raise StoreError("a redis+sentinel:// URL names its master: redis+sentinel://host:26379/name/0")
        master = steps.pop(0)
    if len(steps) > 1 or (len(found) > 1 and not form):
        raise StoreError(
            "a redis:// URL is redis://host:port/db; several hosts go with redis+sentinel:// or redis+cluster://"
        )
    if steps:
        if "db" in arguments:
            raise StoreError("the store URL names its database twice")
        if not (steps[0].isascii() and steps[0].isdigit() and len(steps[0]) < 10):
            raise StoreError(
                "the database in the store URL is no whole number; in a password, write %2F for '/'"
            )
        arguments["db"] = int(steps[0])
    if form == "cluster" and arguments.pop("db", 0):
        raise StoreError("a cluster has one database, 0; leave it out of the URL")
    kind: Kind = "sentinel" if form == "sentinel" else "cluster" if form else "single"
    return Address(kind, found, tls, arguments, master=master)


def _query(parts: SplitResult) -> dict[str, str]:
    said: dict[str, str] = {}
    known = (*OURS, *OF_DRIVERS, *OF_SENTINELS)
    for name, text in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)):
        if name not in known:
            raise unknown_option(name, "a Redis store", known)
        if name in said:
            raise StoreError(f"store option {name!r} is given twice")
        said[name] = text
    return said


def _put(options: Options, said: dict[str, str]) -> Options:
    values: dict[str, Any] = dict(said)
    for name in ("replicas", "max_connections"):
        if name in said:
            values[name] = _value(name, said[name], int)
    if "may_forget" in said:
        values["may_forget"] = _value("may_forget", said["may_forget"], bool)
    kept = options._asdict()
    kept["deadline"] = kept.pop("deadline_us") / 1_000_000
    if "deadline" not in values:
        return options_of(**kept | values)._replace(deadline_us=options.deadline_us)
    return options_of(**kept | values)


def _value(name: str, text: str, kind: type | None = None) -> Any:
    kind = kind or OF_DRIVERS[name]
    if kind is int:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise StoreError(f"{name} is {text[:40]!r}; write a whole number")
        return int(text)
    if kind is bool:
        if text.lower() not in _YES + _NO:
            raise StoreError(f"{name} is {text[:40]!r}; write 'yes' or 'no'")
        return text.lower() in _YES
    return text


def _host(text: str, port: int) -> Host:
    host, colon, digits = text.rpartition(":")
    if not colon or digits.endswith("]"):
        host, digits = text, str(port)
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits[:9]) < 65_536):
        raise StoreError(
            "a port in the store URL is no number from 1 to 65535; "
            "a password ends with '@' and has %2F for '/'"
        )
    return unquote(host).strip("[]") or "localhost", int(digits)


def _count(value: int, name: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise StoreError(f"{name} is {value!r}; write a whole number from {least} to {most}")
    return value
