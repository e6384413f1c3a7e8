"""Whether a server is fit to hold limits, and what its settings mean for them, in plain words.

Each finding is "ok", a "warning" where credit could be lost or granted under some conditions, or an "error"
where limits cannot be kept there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.redis.causes import classified, is_no_script
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.epochs import instant_us, since
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.scripts import DECIDE
from tidegate.stores.redis.store import RedisStore
from tidegate.stores.redis.trust import Run, info, look, losses
from tidegate.stores.redis.ways import PROBE
from tidegate.units import duration_text

Grade: TypeAlias = Literal["ok", "warning", "error"]

WITHIN_S = 5.0
ROUND_TRIPS = 100
CLOCKS_ASKED = 5
OLDEST = (6, 2)
"""Redis 6.2 is the oldest version whose scripts have all that ours need; Valkey began at 7.2."""
CLOCK_OFF_US = 60_000_000


class Finding(NamedTuple):
    """One thing that was looked at. `where` is the server, `what` was looked at, `says` is what it means."""

    where: str
    what: str
    grade: Grade
    value: str
    says: str


def check(store: RedisStore) -> list[Finding]:
    """What was found, for each server that holds keys."""
    topology, line = store.servers.topology, ThreadLine()
    try:
        run_blocking(topology.link(0 if topology.is_cluster else None, line, line.now_s() + WITHIN_S))
    except StoreError as error:
        return [_unreachable(store.health.where, error)]
    return [finding for link in topology.links() for finding in _check(store, link)]


def reason_not_to_be_strict(store: RedisStore, within_us: int) -> str | None:
    """Why this store must not hold a strict budget; None if it may, or was told that it may forget."""
    if store.servers.options.may_forget:
        return None
    topology, line = store.servers.topology, ThreadLine()
    until_s = line.now_s() + within_us / 1_000_000
    run_blocking(topology.link(0 if topology.is_cluster else None, line, until_s))
    for link in topology.links():
        reason = run_blocking(link.trust.look(_runner(link, until_s)))
        if reason is not None:
            return reason
    return None


def _check(store: RedisStore, link: Link) -> Iterator[Finding]:
    where = link.health.where
    try:
        (reply,) = _asked(link, [(b"INFO",)])
    except StoreError as error:
        yield _unreachable(where, error)
        return
    facts = info(reply) if not isinstance(reply, Exception) else {}
    yield _version(where, facts)
    yield _mode(where, facts, is_cluster=store.servers.topology.is_cluster)
    try:
        yield _clock(link)
        yield _round_trip(link, store.servers.options.deadline_us)
        yield from _memory(store, link)
        if not store.servers.topology.is_cluster:
            yield _epoch(store, link)
    except StoreError as error:
        yield _unreachable(where, error)


def _unreachable(where: str, error: StoreError) -> Finding:
    cause = error.cause if isinstance(error, StoreUnavailable) else "mistake"
    return Finding(where, "connection", "error", cause, str(error))


def _version(where: str, facts: Mapping[str, str]) -> Finding:
    if not facts:
        return Finding(where, "version", "warning", "unknown", "the server does not let us see INFO")
    is_valkey = "valkey_version" in facts
    version = facts["valkey_version"] if is_valkey else facts.get("redis_version", "")
    shown = f"{'Valkey' if is_valkey else 'Redis'} {version}"
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST:
        return Finding(
            where, "version", "error", shown, "too old: Redis 6.2 and Valkey 7.2 are the first that work"
        )
    return Finding(where, "version", "ok", shown, "this version is supported")


def _mode(where: str, facts: Mapping[str, str], *, is_cluster: bool) -> Finding:
    mode = facts.get("redis_mode") or facts.get("server_mode") or "unknown"
    role = {"slave": "replica"}.get(facts.get("role", ""), facts.get("role", "unknown"))
    shown = f"{mode}, {role}"
    if role == "replica":
        return Finding(where, "mode", "error", shown, "a replica takes no charges; ask its master")
    if mode == "sentinel":
        return Finding(
            where, "mode", "error", shown, "a sentinel holds no keys; write redis+sentinel://host/name"
        )
    if facts.get("cluster_enabled") == "1" and not is_cluster:
        return Finding(where, "mode", "error", shown, "a node of a cluster; write redis+cluster://host")
    count = facts.get("connected_slaves", "0")
    means = "it stands alone: if it is lost, outage rules decide until it is back"
    if count != "0":
        means = f"{count} replicas follow it; what was charged last may be missing after one is promoted"
    return Finding(where, "mode", "ok", shown, means)


def _clock(link: Link) -> Finding:
    where = link.health.where
    best: tuple[int, int] | None = None
    for _ in range(CLOCKS_ASKED):
        sent_us = time.time_ns() // 1_000
        (reply,) = _asked(link, [(b"TIME",)])
        received_us = time.time_ns() // 1_000
        if isinstance(reply, Exception):
            return Finding(where, "clock", "warning", "unknown", f"it does not tell its time: {reply}")
        server_us = int(reply[0]) * 1_000_000 + int(reply[1])
        trip_us = received_us - sent_us
        if best is None or trip_us < best[1]:
            best = server_us - (sent_us + received_us) // 2, trip_us
    assert best is not None
    offset_us, trip_us = best
    shown = f"{offset_us / 1_000:+.1f} ms, give or take {trip_us / 2_000:.1f} ms"
    if abs(offset_us) > CLOCK_OFF_US:
        return Finding(
            where,
            "clock",
            "warning",
            shown,
            "decisions go by the server's clock and stay right; but its days and hours are not this host's",
        )
    return Finding(
        where, "clock", "ok", shown, "decisions go by the server's clock; this host's adds nothing"
    )


def _round_trip(link: Link, deadline_us: int) -> Finding:
    where = link.health.where
    (reply,) = _asked(link, [PROBE])
    if is_no_script(reply):
        (reply,) = _asked(link, [(b"EVAL", DECIDE.text.encode(), *PROBE[2:])])
    if isinstance(reply, Exception):
        return Finding(where, "scripts", "error", "refused", f"{classified(reply)}; limits are scripts")
    took_us = []
    for _ in range(ROUND_TRIPS):
        begin_ns = time.perf_counter_ns()
        _asked(link, [PROBE])
        took_us.append((time.perf_counter_ns() - begin_ns) / 1_000)
    took_us.sort()
    half_us, most_us = took_us[ROUND_TRIPS // 2], took_us[ROUND_TRIPS * 99 // 100]
    shown = f"half within {half_us / 1_000:.2f} ms, 99 of 100 within {most_us / 1_000:.2f} ms"
    deadline = duration_text(deadline_us)
    if half_us > deadline_us:
        return Finding(
            where, "scripts", "error", shown, f"slower than the deadline of {deadline}: raise that"
        )
    if most_us > deadline_us / 2:
        return Finding(
            where, "scripts", "warning", shown, f"near the deadline of {deadline}: some calls will miss it"
        )
    return Finding(where, "scripts", "ok", shown, f"well within the deadline of {deadline}")


def _memory(store: RedisStore, link: Link) -> Iterator[Finding]:
    where, line = link.health.where, ThreadLine()
    found = run_blocking(look(_runner(link, line.now_s() + WITHIN_S)))
    if found is None:
        yield Finding(
            where,
            "memory",
            "warning",
            "unknown",
            "the server does not let us see its settings (CONFIG GET), so strict rules refuse it",
        )
        return
    told = losses(found, store.servers.options.replicas)
    log = f", fsync {found.get('appendfsync')}" if found.get("appendonly") == "yes" else ""
    shown = (
        f"maxmemory {found.get('maxmemory', '0')}, {found.get('maxmemory-policy', 'unknown')}; "
        f"log {found.get('appendonly', 'unknown')}{log}; snapshots {found.get('save') or 'none'}"
    )
    for sentence in told:
        yield Finding(
            where,
            "memory",
            "warning",
            shown,
            f"{sentence}: a key may come back fresher than it was left, so strict rules refuse it",
        )
    if not told and found.get("appendonly") == "yes":
        yield Finding(where, "memory", "ok", shown, "what was charged outlives a restart")
    elif not told:
        yield Finding(
            where,
            "memory",
            "ok",
            shown,
            "a restart forgets everything: strict rules then start empty, the others full",
        )


def _epoch(store: RedisStore, link: Link) -> Finding:
    where = link.health.where
    (reply,) = _asked(link, [(b"GET", store.servers.names.epoch())])
    if isinstance(reply, Exception):
        return Finding(where, "epoch", "error", "unreadable", f"{classified(reply)}")
    if reply is None:
        return Finding(
            where,
            "epoch",
            "ok",
            "none",
            "strict rules will begin empty at their first request; `tidegate store init --full` has them "
            "begin full",
        )
    since_us = instant_us(reply)
    return Finding(
        where,
        "epoch",
        "ok",
        bytes(reply).decode("ascii", "replace")[:20] if since_us is None else since(since_us),
        "a strict key that is not there counts as used up then, and has been filling since",
    )


def _asked(link: Link, commands: list[Command]) -> list[Any]:
    line = ThreadLine()
    return run_blocking(line.run(link, commands, line.now_s() + WITHIN_S))


def _runner(link: Link, until_s: float) -> Run:
    line = ThreadLine()
    return lambda commands: line.run(link, commands, until_s)
