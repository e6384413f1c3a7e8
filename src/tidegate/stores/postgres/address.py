"""From a URL, or the options of a call, to where the server is and how it is to be asked.

    postgresql://user:password@host:5432/database?schema=limits&deadline=30ms     postgres:// is the same
    host=/run/postgresql dbname=app                                               libpq's other form

Whatever libpq knows may stand in the URL too (sslmode, service, several hosts ...). No message repeats what
may be a password.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from tidegate.errors import RateError, StoreError
from tidegate.stores.opening import unknown_option
from tidegate.stores.postgres import driver
from tidegate.units import Duration, duration_text, duration_us

DEADLINE_US_MOST = 600_000_000
CONNECTIONS_MOST = 1_000
NAME_BYTES_MOST = 63
"""The longest name that PostgreSQL does not cut."""

SCHEMES = ("postgresql", "postgres")
OURS = ("schema", "deadline", "may_forget", "prepare", "max_connections")
_YES, _NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off")


class Options(NamedTuple):
    """How a store asks. `prepare` is False behind a pooler that gives each transaction another session."""

    schema: str
    deadline_us: int
    may_forget: bool
    prepare: bool
    max_connections: int


class Address(NamedTuple):
    """Where the servers are: parameters for libpq, to be tried in turn."""

    parameters: Mapping[str, str]

    @property
    def where(self) -> str:
        """Its name in messages and logs: without user and password."""
        places = [f"{host}:{port}" if port else host for host, _, port in self.hosts()]
        name = self.parameters.get("dbname") or driver.default_of("dbname")
        return (
            f"postgres at {','.join(places) or 'the default address'}{f', database {name}' if name else ''}"
        )

    @property
    def identity(self) -> Hashable:
        """What is equal wherever it leads to the same database by the same names."""
        user, name, service = (
            self.parameters.get(each) or driver.default_of(each) for each in ("user", "dbname", "service")
        )
        return tuple(self.hosts()), name or user, service

    def hosts(self) -> Iterator[tuple[str, str, str]]:
        """Host, address if it is given, and port of each server; a host may be the folder of a socket."""
        hosts = self._listed("host")
        addresses = self._listed("hostaddr")
        ports = self._listed("port")
        count = max(len(hosts), len(addresses))
        for number in range(count):
            yield (
                hosts[number] if number < len(hosts) else "",
                addresses[number] if number < len(addresses) else "",
                ports[number] if number < len(ports) else ports[0] if ports else "",
            )

    def _listed(self, name: str) -> list[str]:
        text = self.parameters.get(name) or driver.default_of(name)
        return text.split(",") if text else []

    def conninfo(self, options: Options, host: str, address: str, port: str) -> bytes:
        """What libpq is told to connect to one of the servers."""
        parameters = {"application_name": "tidegate", **self.parameters}
        for name in ("host", "hostaddr", "port", "connect_timeout"):
            parameters.pop(name, None)
        parameters |= {
            name: value for name, value in (("host", host), ("hostaddr", address), ("port", port)) if value
        }
        if options.prepare:  # a pooler for transactions does not pass settings on
            parameters["options"] = f"{parameters.get('options', '')} {_settings(options)}".strip()
        return driver.write_conninfo(parameters)


def options_of(
    *, schema: str, deadline: Duration, may_forget: bool, prepare: bool, max_connections: int
) -> Options:
    """Checked options. Raises StoreError for what no store can do."""
    if not isinstance(schema, str) or not schema or "\0" in schema:
        raise StoreError(f"schema is {schema!r}; write a name, such as 'tidegate'")
    if len(schema.encode("utf-8", "replace")) > NAME_BYTES_MOST:
        raise StoreError(f"schema is {schema[:70]!r}; a name has at most {NAME_BYTES_MOST} bytes")
    try:
        deadline_us = duration_us(deadline, "deadline")
    except RateError as error:
        raise StoreError(f"{error}; write one such as '50ms'") from None
    if deadline_us > DEADLINE_US_MOST:
        raise StoreError(f"deadline is {deadline!r}; at most {duration_text(DEADLINE_US_MOST)}")
    for name, value in (("may_forget", may_forget), ("prepare", prepare)):
        if not isinstance(value, bool):
            raise StoreError(f"{name} is {value!r}; write True or False")
    if (
        isinstance(max_connections, bool)
        or not isinstance(max_connections, int)
        or not 1 <= max_connections <= CONNECTIONS_MOST
    ):
        raise StoreError(
            f"max_connections is {max_connections!r}; write a whole number from 1 to {CONNECTIONS_MOST}"
        )
    return Options(schema, deadline_us, may_forget, prepare, max_connections)


def read_target(target: str, options: Options) -> tuple[Address, Options]:
    """Where a URL or connection string leads, and the options with those that it names put in their place."""
    scheme = target.partition("://")[0]
    if scheme not in SCHEMES:
        if "=" not in target or "://" in target:
            raise StoreError(
                "store URL is none of PostgreSQL's; write postgresql://user@host:5432/database, or libpq's "
                "'host=... dbname=...'"
            )
        return _checked(Address(driver.read_conninfo(target))), options
    try:
        parts = urlsplit(target)
        said = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:  # its text may repeat what stands before the '@'
        raise StoreError(
            "store URL cannot be read; write one such as postgresql://user@host:5432/database"
        ) from None
    if parts.fragment:
        raise StoreError("store URL has a '#'; write %23 where one is meant")
    known = driver.parameter_names()
    ours: dict[str, str] = {}
    seen = set()
    for name, text in said:
        if name not in OURS and name not in known:
            raise unknown_option(name, "a PostgreSQL store", OURS, known)
        if name in seen:
            raise StoreError(f"store option {name!r} is given twice")
        seen.add(name)
        if name in OURS:
            ours[name] = text
    rest = "&".join(part for part in parts.query.split("&") if part.partition("=")[0] not in OURS)
    address = Address(driver.read_conninfo(urlunsplit(parts._replace(query=rest))))
    return _checked(address), _put(options, ours)


def _checked(address: Address) -> Address:
    for _, _, port in address.hosts():
        if port and not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65_536):
            raise StoreError(
                "a port in the store's URL is no number from 1 to 65535; a password is followed by '@'"
            )
    return address


def _put(options: Options, said: Mapping[str, str]) -> Options:
    kept = options._asdict()
    deadline_us = kept.pop("deadline_us")
    values: dict[str, Any] = {**kept, "deadline": deadline_us / 1_000_000, **said}
    for name in ("may_forget", "prepare"):
        if name in said:
            values[name] = _yes_or_no(name, said[name])
    if "max_connections" in said:
        text = said["max_connections"]
        values["max_connections"] = (
            int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
        )
    made = options_of(**values)
    return made if "deadline" in said else made._replace(deadline_us=deadline_us)


def _yes_or_no(name: str, text: str) -> bool:
    if text.lower() not in _YES + _NO:
        raise StoreError(f"{name} is {text[:40]!r}; write 'yes' or 'no'")
    return text.lower() in _YES


def allowed_ms(options: Options) -> int:
    """How long our own sessions let a call take, so that one nobody waits for any more ends; 0: not told."""
    return -(-options.deadline_us // 1_000) if options.prepare else 0


def _settings(options: Options) -> str:
    """What our own sessions are told."""
    timeouts = driver.timeouts_ms(allowed_ms(options))
    told = " ".join(f"-c {name}={ms}" for name, ms in timeouts.items())
    return f"{told} -c default_transaction_isolation=read\\ committed"
