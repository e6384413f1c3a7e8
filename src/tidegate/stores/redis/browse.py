"""Looking at what a server holds, for people: keys by rule and prefix, one key's state, many made fresh.

Keys are found by SCAN, a page at a time, so that a server with millions of them is never held up; on a
cluster all masters are gone through, one after another. A page never holds more keys than wanted, and may
hold fewer; a key that is there all the time comes at least once, as SCAN has it. Where there is a cursor
there may be more.

SCAN gives whole buckets. Where a step holds more than there is room for, a smaller one is taken in its place;
a single bucket that is too large is divided by the order of the names in it, and the cursor says how far.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from tidegate.core.keys import Key
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.redis.causes import classified
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.epochs import instant_us
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.state import StoredState, parse_state
from tidegate.stores.redis.store import RedisStore

WITHIN_S = 5.0
"""A person waits longer than a request does."""
STEPS_MOST = 50
"""Steps of SCAN for one page: where keys of others abound, a page may be empty and yet have a cursor."""
STEP_MOST = 1_000
COUNT_LEAST = 10
"""A step costs a round trip, so it looks at a few keys even where room for one is left."""
FORGOTTEN_AT_ONCE = 100
PAGES_MOST = 100
"""So many pages are looked through for the names of rules."""
VALUE_BYTES_MOST = 192


class Page(NamedTuple):
    """Some of the keys, each a rule and a key. `cursor` leads to the next page; None at the end."""

    keys: list[tuple[str, Key]]
    cursor: str | None


class _Listed(NamedTuple):
    """Of one bucket the names up to this one have been listed, if SCAN still goes on from it to `next`."""

    until: bytes
    next: bytes


class Shown(NamedTuple):
    """What the server holds of one key: how its text begins, and when it expires (None: never)."""

    name: bytes
    value: bytes
    ttl_ms: int | None
    state: StoredState | None
    foreign: str | None = None
    """What it is, a "list" for instance, where it is no text: then somebody else wrote it."""

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
    """At most `most` keys, of one rule and with one beginning if wanted. StoreError for a bad cursor."""
    servers = store.servers
    links = _links(store)
    place, position, listed = _read_cursor(cursor, len(links))
    pattern = servers.names.pattern(rule, key_prefix)
    found: dict[tuple[str, Key], None] = {}
    count_most = max(COUNT_LEAST, min(most, STEP_MOST))
    count = count_most if listed is None else 1
    for _ in range(STEPS_MOST):
        (reply,) = _asked(links[place], [(b"SCAN", position, b"MATCH", pattern, b"COUNT", b"%d" % count)])
        until = listed.until if listed is not None and listed.next == reply[0] else b""
        fresh = [
            (name, parsed)
            for name in sorted(reply[1])
            if name > until and (parsed := servers.names.parse(name)) and rule in {None, parsed[0]}
        ]
        room = most - len(found)
        if len(fresh) > room and count > 1:
            count = max(1, count // 4)
            continue
        found |= dict.fromkeys(parsed for _, parsed in fresh[:room])
        if len(fresh) > room:
            last, _ = fresh[room - 1]
            return Page(list(found), f"{place}-{position.decode()}-{reply[0].decode()}-{last.hex()}")
        position, listed, count = reply[0], None, min(count_most, 2 * count)
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


def rules_held(store: RedisStore, wanted: str) -> set[str]:
    """The rules of which keys are held; no others once `wanted` is found, or after `PAGES_MOST` pages."""
    found: set[str] = set()
    for page in islice(every_key(store), PAGES_MOST):
        found.update(rule for rule, _ in page.keys)
        if wanted in found:
            break
    return found


def show_key(store: RedisStore, rule: str, key: Key) -> Shown | None:
    """What the server holds of this key; None if nothing."""
    servers = store.servers
    name = servers.names.key(rule, key)
    line = ThreadLine()
    until_s = line.now_s() + WITHIN_S
    link = run_blocking(servers.topology.link(servers.topology.slot(rule, key), line, until_s))
    kind, ttl_ms = _asked(link, [(b"TYPE", name), (b"PTTL", name)])
    kept_ms = ttl_ms if ttl_ms >= 0 else None
    if kind not in {b"string", b"none"}:
        return Shown(name, b"", kept_ms, None, kind.decode())
    (value,) = _asked(link, [(b"GETRANGE", name, b"0", b"%d" % (VALUE_BYTES_MOST - 1))])
    return Shown(name, value, kept_ms, parse_state(value)) if value else None


def epoch_us(store: RedisStore, rule: str, key: Key) -> int | None:
    """Since when the server has lost nothing, where this key lies: 0 since ever, None if it does not know."""
    servers = store.servers
    line, slot = ThreadLine(), servers.topology.slot(rule, key)
    link = run_blocking(servers.topology.link(slot, line, line.now_s() + WITHIN_S))
    (reply,) = _asked(link, [(b"GET", servers.names.epoch(slot))])
    return instant_us(reply)


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


def _read_cursor(cursor: str | None, count: int) -> tuple[int, bytes, _Listed | None]:
    """Which server, where in it, and what of the bucket there has been listed already."""
    if cursor is None:
        return 0, b"0", None
    place, *positions = cursor.split("-")
    until = positions.pop() if len(positions) == 3 else ""
    is_whole = len(positions) == (2 if until else 1) and len(until) % 2 == 0
    numbers = [place, *positions]
    if is_whole and cursor.isascii() and all(map(str.isdecimal, numbers)) and int(place) < count:
        if not until:
            return int(place), positions[0].encode(), None
        if set(until) <= set("0123456789abcdef"):
            return int(place), positions[0].encode(), _Listed(bytes.fromhex(until), positions[1].encode())
    raise StoreError(f"cursor is {cursor[:40]!r}; give the one that the page before has named")
