"""From a URL to a store: which there are, what each can be told, and who makes it.

This is the one place that knows the options of stores by name; configuration files read it too. Whatever
stands in a URL beside them (hosts, users, TLS) is for the store itself to read. A store on the network is
imported when it is first wanted, with the library that it needs. No message repeats what may be a password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import parse_qsl, urlsplit

from tidegate.errors import StoreError
from tidegate.nearest import nearest
from tidegate.stores.base import Store
from tidegate.stores.memory import MemoryStore


class Whole(NamedTuple):
    """An option that is a whole number between two bounds, both included."""

    least: int
    most: int


class Word(NamedTuple):
    """An option that is one of a few words."""

    words: tuple[str, ...]


class Text(NamedTuple):
    """An option that is any text but the empty one."""


class YesNo(NamedTuple):
    """An option that is yes or no."""


class Length(NamedTuple):
    """An option that is a length of time."""


Form: TypeAlias = Whole | Word | Text | YesNo | Length


class Option(NamedTuple):
    """What a store can be told: in which form, what holds unless it is (None: differs), what it means."""

    form: Form
    default: object
    says: str


OPTIONS: Final[Mapping[str, Option]] = {
    "max_keys": Option(Whole(1, 10**12), 1_000_000, "How many keys are kept at most."),
    "when_full": Option(
        Word(("refuse", "forget")),
        "refuse",
        "Whether a new key is refused, or a kept one forgotten, when all that are kept are live.",
    ),
    "prefix": Option(Text(), "tidegate", "How all keys in Redis begin."),
    "schema": Option(Text(), "tidegate", "The schema in PostgreSQL that holds the tables."),
    "deadline": Option(Length(), "50ms", "How long a decision may take, connecting included."),
    "may_forget": Option(
        YesNo(), False, "Whether strict rules may stand on a server that could lose what was charged."
    ),
    "replicas": Option(Whole(0, 100), 0, "How many replicas must have a strict charge before it counts."),
    "prepare": Option(
        YesNo(), True, "No behind a pooler that gives every transaction another session (pgbouncer)."
    ),
    "max_connections": Option(
        Whole(1, 1_000), None, "How many connections threads, or an event loop, may have."
    ),
}
"""The options of all stores, by name: one name means one thing, whichever store it is told."""


class Kind(NamedTuple):
    """One kind of store: how its URLs begin, what it can be told, and where it is made.

    `name` is what decisions call it. `maker` is the module and the class that is called with the URL; None
    for the embedded store.
    """

    name: str
    called: str
    schemes: tuple[str, ...]
    options: tuple[str, ...]
    maker: tuple[str, str] | None


KINDS: Final = (
    Kind("memory", "a memory store", ("memory",), ("max_keys", "when_full"), None),
    Kind(
        "redis",
        "a Redis store",
        tuple(
            f"{flavour}{form}"
            for form in ("", "+sentinel", "+cluster")
            for flavour in ("redis", "rediss", "valkey", "valkeys", *(("unix",) if not form else ()))
        ),
        ("prefix", "deadline", "may_forget", "replicas", "max_connections"),
        ("tidegate.stores.redis.store", "RedisStore"),
    ),
    Kind(
        "postgres",
        "a PostgreSQL store",
        ("postgresql", "postgres"),
        ("schema", "deadline", "may_forget", "prepare", "max_connections"),
        ("tidegate.stores.postgres.store", "PostgresStore"),
    ),
)
_USERS_ARE_SHOWN = ("postgresql", "postgres")
_DIGITS_MOST = 18
_MEANT = "memory://, redis://host:6379/0 or postgresql://host/database"


def kind_of(url: str) -> Kind | None:
    """The kind of store that a URL names; None if its beginning is not known."""
    scheme, colon, _ = url.partition(":")
    return next((kind for kind in KINDS if colon and scheme.lower() in kind.schemes), None)


def open_store(url: str) -> Store:
    """The store that the URL names, such as "memory://" or "redis://host:6379/0?deadline=20ms".

    Every call opens another store of its own, to be closed by whoever opened it; nothing is connected yet.
    Raises StoreError for what is not known, MissingDependency where a library is wanted.
    """
    if not isinstance(url, str):
        raise StoreError(f"store is {url!r}; write a URL such as 'memory://', or pass a store")
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may repeat what stands before the '@'
        raise StoreError("store URL cannot be read; write one such as 'memory://'") from None
    kind = kind_of(url)
    if kind is None:
        raise StoreError(f"store is {shown(url)!r}; write {_MEANT}")
    if kind.maker is not None:
        module, name = kind.maker
        return cast(Store, getattr(import_module(module), name)(url))
    if parts.netloc or parts.path or parts.fragment:
        raise StoreError(f"store is {shown(url)!r}; a memory store has no address, write 'memory://'")
    return MemoryStore(**_options(kind, parts.query))


def _options(kind: Kind, query: str) -> dict[str, Any]:
    """The options in the URL of the embedded store."""
    options: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in kind.options:
            raise unknown_option(name, kind.called, kind.options)
        if name in options:
            raise StoreError(f"store option {name!r} is given twice")
        options[name] = _read(name, text)
    return options


def _read(name: str, text: str) -> object:
    form = OPTIONS[name].form
    if isinstance(form, Whole):
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MOST:
            raise StoreError(f"{name} is {text[:40]!r}; write a whole number of keys, at least {form.least}")
        return int(text)
    return text


def unknown_option(name: str, called: str, known: Sequence[str], more: Iterable[str] = ()) -> StoreError:
    """The error for an option that no such store has. `more` may be meant too, and is not listed."""
    close = nearest(name, (*known, *more))
    way_out = f"did you mean {close!r}?" if close else f"{called} has {', '.join(known)}"
    if more and not close:
        way_out += ", and what its client library knows"
    return StoreError(f"store option {name[:40]!r} is unknown; {way_out}")


def shown(url: str) -> str:
    """The URL as messages may show it: without password, options, and a user that may be one.

    In Redis passwords are often written where the user belongs; PostgreSQL's users are what they seem.
    """
    head, _, options = url.partition("?")
    before, at, address = head.rpartition("@")
    scheme, _, user = (before or head).partition("://")
    if not at and "@" in options:  # what looks like options may be the end of a password
        return f"{scheme}://***"
    if not at or (scheme.lower() in _USERS_ARE_SHOWN and ":" not in user):
        return head
    return f"{scheme}://***@{address}"
