"""Looking at what the tables hold, for people: keys by rule and prefix, one key's state, many made fresh.

Keys come in the order of their rules, a page at a time, so that a database with millions of them is never
held up, and a key that is there all the time comes exactly once. A page may hold fewer keys than wanted;
where there is a cursor there may be more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidegate.core.calendar import Local
from tidegate.core.keys import Key
from tidegate.core.level import Level, LevelState
from tidegate.core.log import Log
from tidegate.core.windows import Calendar, Even, Fixed, FixedState, Sliding, SlidingState
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.postgres.driver import Row
from tidegate.stores.postgres.places import key_in, place_of, rule_in
from tidegate.stores.postgres.store import PostgresStore
from tidegate.stores.postgres.wire import numbers_in

WITHIN_US = 5_000_000
"""A person waits longer than a request does."""
ROWS_MOST = 1_000
STEPS_MOST = 50
"""Steps for one page: where few keys have the prefix, a page may be empty and yet have a cursor."""
FORGOTTEN_AT_ONCE = 100
RULES_MOST = 1_000

_BEYOND_ALL_KEYS = b"\xff"
"""Each key of a rule begins with a letter, and so comes before this."""

_ALGORITHMS = {b"L": "level", b"F": "fixed_window", b"S": "sliding_window", b"G": "sliding_log"}


class Page(NamedTuple):
    """Some of the keys, each a rule and a key. `cursor` leads to the next page; None at the end."""

    keys: list[tuple[str, Key]]
    cursor: str | None


class StoredState(NamedTuple):
    """What the row of a key holds. `state` is the core's, and names the law that wrote it.

    Bucket, meter and queue share a law, so all three are "level". `used` thousandths counted against the
    `capacity` at the instant `at_us`; of a log that is the sum, taken as spent at its newest entry. The row
    may go at `swept_at_us`, None for never.
    """

    algorithm: str
    capacity: int
    used: int
    at_us: int
    busy_since_us: int
    state: Any
    swept_at_us: int | None

    @property
    def is_reset(self) -> bool:
        """Whether all that is known is that the key was made fresh, after what there was had been lost."""
        return self.algorithm == "fresh"

    @property
    def foreign(self) -> str | None:
        """None: whatever lies in the tables is ours."""
        return None

    @property
    def core_state(self) -> Any:
        """The state as core knows it; None if `is_reset`."""
        return self.state

    def forgotten_after_us(self, now_us: int) -> int | None:
        """How long it is kept if nobody touches it; None for good."""
        return None if self.swept_at_us is None else max(0, self.swept_at_us - now_us)


def list_keys(
    store: PostgresStore,
    rule: str | None = None,
    key_prefix: str | None = None,
    *,
    cursor: str | None = None,
    most: int = 100,
) -> Page:
    """At most `most` keys, of one rule and with one beginning if wanted. Raises StoreError for a bad cursor.

    A key of several values begins as its first value does.
    """
    after = _read_cursor(cursor)
    prefix = None if key_prefix is None else key_prefix.encode("utf-8", "surrogatepass")
    found: list[tuple[str, Key]] = []
    for _ in range(STEPS_MOST):
        rows = _listed(store, rule, after, most - len(found) if prefix is None else ROWS_MOST)
        for *place, whole in rows:
            named_rule, _ = after = place[0], place[1]
            if prefix is None or _beginning(whole).startswith(prefix):
                found.append((rule_in(named_rule), key_in(whole)))
                if len(found) >= most:
                    return Page(found, f"{after[0].hex()}-{after[1].hex()}")
        if not rows:
            return Page(found, None)
    return Page(found, f"{after[0].hex()}-{after[1].hex()}")


def every_key(store: PostgresStore, rule: str | None = None, key_prefix: str | None = None) -> Iterator[Page]:
    """All pages, one after another."""
    cursor = None
    while True:
        page = list_keys(store, rule, key_prefix, cursor=cursor, most=ROWS_MOST)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


def rules_held(store: PostgresStore, wanted: str) -> set[str]:
    """The rules of which keys are held; no others once `wanted` is found, or `RULES_MOST`."""
    found: set[str] = set()
    after = b"", b""
    while wanted not in found and len(found) < RULES_MOST:
        rows = _listed(store, None, after, 1)
        if not rows:
            break
        ((rule, *_),) = rows
        found.add(rule_in(rule))
        after = rule, _BEYOND_ALL_KEYS
    return found


def show_key(store: PostgresStore, rule: str, key: Key) -> StoredState | None:
    """What the tables hold of this key; None if nothing."""
    rows = _rows(store, "shown", place_of(rule, key))
    return _stored(rows[0]) if rows else None


def epoch_us(store: PostgresStore, rule: str, key: Key) -> int | None:
    """Since when the tables have lost nothing: 0 since ever, None if that is not known."""
    ((_, since_us, _),) = _rows(store, "facts", ())
    return None if since_us is None else int.from_bytes(since_us, "big", signed=True)


def reset_keys(store: PostgresStore, rule: str | None = None, key_prefix: str | None = None) -> int:
    """Make all these keys fresh; how many there were. A page at a time: others may be charged in between."""
    count = 0
    for page in every_key(store, rule, key_prefix):
        for start in range(0, len(page.keys), FORGOTTEN_AT_ONCE):
            chunk = page.keys[start : start + FORGOTTEN_AT_ONCE]
            store.forget(chunk, deadline_us=WITHIN_US)
            count += len(chunk)
    return count


def _listed(
    store: PostgresStore, rule: str | None, after: tuple[bytes, bytes], most: int
) -> list[tuple[bytes, bytes, bytes]]:
    """Rule, key, and the key in full, as they are named."""
    named = None if rule is None else place_of(rule, "")[0]
    return [
        (one or b"", other or b"", whole or other or b"")
        for one, other, whole in _rows(store, "listed", (named, *after, most.to_bytes(4, "big")))
    ]


def _rows(store: PostgresStore, name: str, parameters: tuple[bytes | None, ...]) -> list[Row]:
    trips = store.asking().trips
    return run_blocking(trips.function(name, parameters, trips.until_s(WITHIN_US)))


def _beginning(named_key: bytes) -> bytes:
    """The text that a key begins with: itself, or its first value if that is a text."""
    if named_key[:1] == b"t":
        return named_key[1:]
    if named_key[:2] != b"bs":
        return b""
    digits, _, rest = named_key[2:].partition(b":")
    return rest[: int(digits)] if digits.isdigit() else b""


def _stored(row: Row) -> StoredState:
    kind, calendar, packed, sweep_at_us = row
    numbers = numbers_in(packed)
    room, q, p, length_us, parts, used, before, at_us, since_us, given_back, start_us, end_us = numbers
    swept_at_us: int | None = int.from_bytes(sweep_at_us or b"", "big", signed=True)
    if swept_at_us == 2**63 - 1:
        swept_at_us = None
    if kind == b"N":
        return StoredState("fresh", 0, 0, 0, 0, None, swept_at_us)
    law: Any
    state: Any
    if kind == b"L":
        law = Level(room, q, p)
        state = LevelState(used, at_us, since_us, given_back, law)
    elif kind == b"F":
        windows: Calendar = Even(length_us) if calendar is None else _calendar(calendar.decode())
        law = Fixed(room, windows)
        state = FixedState(used, at_us, since_us, start_us, end_us, law)
    elif kind == b"S":
        law = Sliding(room, length_us // parts, parts)
        state = SlidingState(before, used, at_us, since_us, start_us, law)
    else:
        law = Log(room, length_us)
        state = law.holding(used - before, end_us, since_us)
    return StoredState(
        _ALGORITHMS[kind or b"G"],
        law.capacity,
        law.used(state),
        at_us,
        since_us,
        state,
        swept_at_us,
    )


def _calendar(text: str) -> Local:
    unit, _, zone = text.partition(":")
    return Local(unit, zone)  # type: ignore[arg-type]  # a unit, for it was written by us


def _read_cursor(cursor: str | None) -> tuple[bytes, bytes]:
    if cursor is None:
        return b"", b""
    rule, dash, key = cursor.partition("-")
    try:
        return bytes.fromhex(rule), bytes.fromhex(key if dash else "none")
    except ValueError:
        raise StoreError(f"cursor is {cursor[:40]!r}; give the one that the page before has named") from None
