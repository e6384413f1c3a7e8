"""Looking at what a server holds, for people: keys by rule and prefix, one key's state, many made fresh.

Keys are found by SCAN, a page at a time, so that a server with millions of them is never held up; on a
cluster all masters are gone through, one after another. A page may hold more or fewer keys than wanted, and
a key that is written meanwhile may be missed or come twice, as SCAN has it. Where there is a cursor there may
be more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidegate.core.keys import Key
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.state import StoredState, parse_state
from tidegate.stores.redis.store import RedisStore

WITHIN_S = 5.0
"""A person waits longer than a request does."""
STEPS_MOST = 50
"""Steps of SCAN for one page: where keys of others abound, a page may be empty and yet have a cursor."""
STEP_MOST = 1_000
FORGOTTEN_AT_ONCE = 100
VALUE_BYTES_MOST = 192


class Page(NamedTuple):
    """Some of the keys, each a rule and a key. `cursor` leads to the next page; None at the end."""

    keys: list[tuple[str, Key]]
    cursor: str | None


class Shown(NamedTuple):
    """What the server holds of one key: how its text begins, and when it expires (None: never)."""

    name: bytes
    value: bytes
    ttl_ms: int | None
    state: StoredState | None

    @property
    def core_state(self) -> Any:
        """The state as core knows it; None for one that cannot be read, or that a reset has left."""
        return None if self.state is None else self.state.state

    @property
    def is_reset(self) -> bool:
        """Whether only the note is left that the key was made fresh."""
        return self.state is not None and self.state.algorithm == "fresh"

    def forgotten_after_us(self, now_us: int) -> int | None:
        """How long it is kept if nobody touches it; None for good."""
        return None if self.ttl_ms is None else self.ttl_ms * 1_000


def list_keys(
    store: RedisStore,
    rule: str | None = None,
    key_prefix: str | None = None,
    *,
    cursor: str | None = None,
    most: int = 100,
) -> Page:
    """About `most` keys, of one rule and with one beginning if wanted. Raises StoreError for a bad cursor."""
    servers = store.servers
    links = _links(store)
    place, position = _read_cursor(cursor, len(links))
    pattern = servers.names.pattern(rule, key_prefix)
    step = b"%d" % max(10, min(most, STEP_MOST))
    found: dict[tuple[str, Key], None] = {}
    for _ in range(STEPS_MOST):
        (reply,) = _asked(links[place], [(b"SCAN", position, b"MATCH", pattern, b"COUNT", step)])
        position, names = reply[0], reply[1]
        for name in names:
            parsed = servers.names.parse(name)
            if parsed is not None and rule in {None, parsed[0]}:
                found[parsed] = None
        if position == b"0":
            place += 1
            if place == len(links):
                return Page(list(found), None)
        if len(found) >= most:
            break
    return Page(list(found), f"{place}-{position.decode()}")


def every_key(store: RedisStore, rule: str | None = None, key_prefix: str | None = None) -> Iterator[Page]:
    """All pages, one after another; keys that are read while they change may come twice."""
    cursor = None
    while True:
        page = list_keys(store, rule, key_prefix, cursor=cursor, most=STEP_MOST)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


def show_key(store: RedisStore, rule: str, key: Key) -> Shown | None:
    """What the server holds of this key; None if nothing."""
    servers = store.servers
    name = servers.names.key(rule, key)
    line = ThreadLine()
    until_s = line.now_s() + WITHIN_S
    link = run_blocking(servers.topology.link(servers.topology.slot(rule, key), line, until_s))
    value, ttl_ms = _asked(link, [(b"GETRANGE", name, b"0", b"%d" % (VALUE_BYTES_MOST - 1)), (b"PTTL", name)])
    if not value:
        return None
    return Shown(name, value, ttl_ms if ttl_ms >= 0 else None, parse_state(value))


def reset_keys(store: RedisStore, rule: str | None = None, key_prefix: str | None = None) -> int:
    """Make all these keys fresh; how many there were. A page at a time: others may be charged in between."""
    count = 0
    for page in every_key(store, rule, key_prefix):
        for start in range(0, len(page.keys), FORGOTTEN_AT_ONCE):
            chunk = page.keys[start : start + FORGOTTEN_AT_ONCE]
            store.forget(chunk, deadline_us=int(WITHIN_S * 1_000_000))
            count += len(chunk)
    return count


def _links(store: RedisStore) -> list[Link]:
    """The servers that hold keys, in an order that stays while the cluster does."""
    topology, line = store.servers.topology, ThreadLine()
    run_blocking(topology.link(0 if topology.is_cluster else None, line, line.now_s() + WITHIN_S))
    return sorted(topology.links(), key=lambda link: link.health.where)


def _asked(link: Link, commands: list[Command]) -> list[Any]:
    line = ThreadLine()
    replies = run_blocking(line.run(link, commands, line.now_s() + WITHIN_S))
    for reply in replies:
        if isinstance(reply, Exception):
            raise classified(reply)
    return replies


def _read_cursor(cursor: str | None, count: int) -> tuple[int, bytes]:
    if cursor is None:
        return 0, b"0"
    place, dash, position = cursor.partition("-")
    if not (dash and place.isdecimal() and position.isdecimal() and cursor.isascii() and int(place) < count):
        raise StoreError(f"cursor is {cursor[:40]!r}; give the one that the page before has named")
    return int(place), position.encode()
