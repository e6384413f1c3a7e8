"""Whether a server is fit to hold limits, and what its settings mean for them, in plain words.

Each finding is "ok", a "warning" where credit could be lost or granted under some conditions, or an "error"
where limits cannot be kept there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.postgres.schema import FACTS, FOR_SERVICES, facts_statement
from tidegate.stores.postgres.store import PostgresStore
from tidegate.stores.postgres.trips import Trips
from tidegate.stores.postgres.wire import VERSION
from tidegate.units import duration_text

Grade: TypeAlias = Literal["ok", "warning", "error"]

WITHIN_US = 5_000_000
ROUND_TRIPS = 100
OLDEST = 130_000
"""The functions were written for PostgreSQL 13 and later."""
CLOCK_OFF_US = 60_000_000


class Finding(NamedTuple):
    """One thing that was looked at. `where` is the server, `what` was looked at, `says` is what it means."""

    where: str
    what: str
    grade: Grade
    value: str
    says: str


def check(store: PostgresStore) -> list[Finding]:
    """What was found."""
    where = store.health.where
    try:
        return [Finding(where, *found) for found in _check(store, store.asking().trips)]
    except StoreError as error:
        cause = error.cause if isinstance(error, StoreUnavailable) else "mistake"
        return [Finding(where, "connection", "error", cause, str(error))]


def reason_not_to_be_strict(store: PostgresStore, within_us: int) -> str | None:
    """None: whatever is decided is asked by the server itself, and is refused there with the reason."""
    return None


_Found: TypeAlias = tuple[str, Grade, str, str]


def _check(store: PostgresStore, trips: Trips) -> Iterator[_Found]:
    options = store.options
    sent_us = time.time_ns() // 1_000
    (row,) = run_blocking(trips.rows(facts_statement(options.schema), (), trips.until_s(WITHIN_US)))
    received_us = time.time_ns() // 1_000
    facts = {name: (value or b"").decode("utf-8", "replace") for name, value in zip(FACTS, row, strict=True)}
    yield _version(facts)
    yield _mode(facts)
    yield _clock(int(facts["now_us"]), sent_us, received_us)
    yield _schema(facts, options.schema)
    yield from _commits(facts)
    if facts["version"] != str(VERSION) or facts["is_standby"] == "true":
        return
    yield _privileges(facts, options.schema)
    if facts["may_execute"] != "true":
        return
    ((is_logged, since_us, rows),) = run_blocking(trips.function("facts", (), trips.until_s(WITHIN_US)))
    yield _tables(is_logged == b"\x01", int.from_bytes(rows or b"", "big"))
    yield _epoch(since_us)
    yield _round_trip(trips, options.deadline_us)


def _version(facts: Mapping[str, str]) -> _Found:
    shown = f"PostgreSQL {facts['server_version']}"
    if int(facts["server_version_num"]) < OLDEST:
        return "version", "error", shown, "too old: PostgreSQL 13 is the first that works"
    return "version", "ok", shown, "this version is supported"


def _mode(facts: Mapping[str, str]) -> _Found:
    if facts["is_standby"] == "true":
        return "mode", "error", "standby", "a standby takes no charges; ask the primary"
    if facts["read_only"] == "on":
        return (
            "mode",
            "error",
            "read-only",
            "the session may not write; look at default_transaction_read_only",
        )
    return (
        "mode",
        "ok",
        "primary",
        f"sessions begin at {facts['isolation']}; decisions are made at read committed",
    )


def _clock(server_us: int, sent_us: int, received_us: int) -> _Found:
    offset_us = server_us - (sent_us + received_us) // 2
    shown = f"{offset_us / 1_000:+.1f} ms, give or take {(received_us - sent_us) / 2_000:.1f} ms"
    if abs(offset_us) > CLOCK_OFF_US:
        says = "decisions go by the server's clock and stay right; but its days and hours are not this host's"
        return "clock", "warning", shown, says
    return "clock", "ok", shown, "decisions go by the server's clock; this host's adds nothing"


def _schema(facts: Mapping[str, str], schema: str) -> _Found:
    if not facts["version"]:
        return (
            "schema",
            "error",
            "none",
            f"there is no schema {schema!r} of ours; run: tidegate store init URL",
        )
    shown = f"version {facts['version']}"
    if facts["version"] != str(VERSION):
        says = f"this tidegate speaks to version {VERSION}; run: tidegate store init URL, or upgrade tidegate"
        return "schema", "error", shown, says
    return "schema", "ok", shown, f"{schema!r} is what this tidegate speaks to"


def _commits(facts: Mapping[str, str]) -> Iterator[_Found]:
    shown = ", ".join(f"{name} {facts[name]}" for name in ("synchronous_commit", "fsync", "full_page_writes"))
    told = []
    if facts["synchronous_commit"] == "off":
        told.append(
            "commits do not wait for the disk: a crash loses the latest charges, so strict rules refuse it"
        )
    if facts["fsync"] == "off":
        told.append(
            "the disk is not waited for: a crash of the machine may damage the whole database, so strict "
            "rules refuse it"
        )
    if facts["full_page_writes"] == "off":
        told.append(
            "a crash of the machine may damage the whole database, unless its disk never tears a page"
        )
    for says in told:
        yield "commits", "warning", shown, says
    if not told:
        yield "commits", "ok", shown, "a commit is on disk when it is answered"


def _privileges(facts: Mapping[str, str], schema: str) -> _Found:
    role = facts["role"]
    if facts["may_execute"] != "true":
        says = f"{role} needs USAGE on the schema {schema!r} and EXECUTE on {', '.join(FOR_SERVICES)}"
        return "privileges", "error", "missing", says
    if facts["may_write"] == "true":
        says = f"{role} could write the tables itself; for services EXECUTE on the functions is enough"
        return "privileges", "ok", "more than needed", says
    return "privileges", "ok", "functions only", f"{role} may decide, and nothing else"


def _tables(is_logged: bool, rows: int) -> _Found:
    shown = f"{'LOGGED' if is_logged else 'UNLOGGED'}, about {rows:,} keys"
    if is_logged:
        return "tables", "ok", shown, "what was charged outlives a crash"
    says = (
        "a crash or a switch to a standby forgets everything: each key may pass its capacity once more, "
        "and strict rules refuse these tables"
    )
    return "tables", "warning", shown, says


def _epoch(since_us: bytes | None) -> _Found:
    if since_us is None:
        says = "what there was has been lost; strict rules will begin empty at their first request"
        return "epoch", "ok", "none", says
    us = int.from_bytes(since_us, "big", signed=True)
    shown = time.strftime("since %Y-%m-%d %H:%M:%S UTC", time.gmtime(us // 1_000_000)) if us else "since ever"
    return (
        "epoch",
        "ok",
        shown,
        "a strict key that is not there counts as used up then, and has been filling since",
    )


def _round_trip(trips: Trips, deadline_us: int) -> _Found:
    took_us = []
    for _ in range(ROUND_TRIPS):
        begin_ns = time.perf_counter_ns()
        run_blocking(trips.nothing(trips.until_s(WITHIN_US)))
        took_us.append((time.perf_counter_ns() - begin_ns) / 1_000)
    took_us.sort()
    half_us, most_us = took_us[ROUND_TRIPS // 2], took_us[ROUND_TRIPS * 99 // 100]
    shown = f"half within {half_us / 1_000:.2f} ms, 99 of 100 within {most_us / 1_000:.2f} ms"
    deadline = duration_text(deadline_us)
    if half_us > deadline_us:
        return "functions", "error", shown, f"slower than the deadline of {deadline}: raise that"
    if most_us > deadline_us / 2:
        return "functions", "warning", shown, f"near the deadline of {deadline}: some calls will miss it"
    return "functions", "ok", shown, f"well within the deadline of {deadline}"
