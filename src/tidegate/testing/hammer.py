"""Real threads and processes on one key of a store: what gets through, and what should have.

Two bounds follow from the limit and a stopwatch alone. Above: capacity + rate * T, with T from before the
first call to after the last. Below: whoever is refused finds less than a cost left. So by the first refusal
all but a cost of the capacity has been admitted, and from then to the last refusal rate * T' less a cost,
provided that nobody paused for so long that the key could have become fresh. Without a refusal, or with
such a pause, demand did not saturate the limit and there is no bound below but 0.

A call that missed its deadline may have been charged or not. So all those may be missing from what was
admitted, and the lower bound is lower by what they would have taken; and while calls are missed nobody is
known to ask, so that counts as a pause.

Everything is bounded in time: a worker stops by its own watch, and one that does not is ended.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import uuid4

from tidegate.core.limits import TokenBucket
from tidegate.errors import StoreError, StoreUnavailable, TidegateError
from tidegate.limiter import Limiter
from tidegate.stores.opening import open_store

SECONDS_MOST = 3_600
WORKERS_MOST = 256
_GRACE_S = 30.0
_CALLS_BETWEEN_LOOKS = 16

Opener = Callable[[str], Any]


@dataclass(frozen=True)
class Hammered:
    """What came through, in tokens and seconds; `ok` iff lower <= admitted <= upper, and without errors."""

    store: str
    processes: int
    threads: int
    """In each process."""
    seconds: float
    """From before the first call to after the last."""
    capacity: float
    rate: str
    cost: float
    calls: int
    refused: int
    missed: int
    """Calls that the store did not answer in time: charged or not, and neither admitted nor refused."""
    admitted: float
    lower: float
    upper: float
    saturated: bool
    """Whether demand was above the limit throughout, so that there is a bound below."""
    errors: tuple[str, ...]
    ok: bool

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self) | {"errors": list(self.errors)}


class _Tally(NamedTuple):
    """What one thread saw, by the machine's monotonic clock in nanoseconds."""

    calls: int
    allowed: int
    missed: int
    first_began_ns: int
    last_ended_ns: int
    first_refused_ns: int
    """When the first refused call had ended; 0 if none was refused."""
    last_refused_ns: int
    """When the last refused call began."""
    longest_pause_ns: int
    """Between two calls that were answered, at most."""
    error: str = ""


class _Work(NamedTuple):
    """What each worker does; it travels to other processes."""

    url: str
    key: str
    capacity: Fraction
    rate: str
    cost: Fraction
    seconds: float
    threads: int
    opener: Opener


def hammer(
    url: str,
    *,
    processes: int = 1,
    threads: int = 1,
    seconds: float = 5.0,
    capacity: Fraction | int = 100,
    rate: str = "50/s",
    cost: Fraction | int = 1,
    opener: Opener = open_store,
) -> Hammered:
    """Ask for one key as fast as possible, from so many processes with so many threads each.

    `opener` makes the store of a URL and is called once in each process; it must be a function that other
    processes can import. Raises StoreError if the store cannot be opened, or if it lives in one process
    and several are asked for.
    """
    limit = TokenBucket(capacity, rate)
    with closing(opener(url)) as store:
        name = store.name
        if name == "memory" and processes > 1:
            raise StoreError(
                f"a memory store lives in one process, so {processes} processes would have a budget each; "
                f"hammer it with --threads {processes}, or name a store that they share"
            )
        work = _Work(
            url, f"hammer {uuid4().hex}", Fraction(capacity), rate, Fraction(cost), seconds, threads, opener
        )
        if processes == 1:
            tallies = _hammer_here(work, lambda: None, store)
        else:
            tallies = _hammer_apart(work, processes)
        try:
            Limiter(limit, store=store).reset(work.key)
        except StoreUnavailable:  # then it stays until it has expired
            if not any(tally.calls > tally.missed or tally.error for tally in tallies):
                raise
    return _judged(tallies, work, limit, name, processes)


def _hammer_here(work: _Work, ready: Callable[[], object], store: Any) -> list[_Tally]:
    """Let so many threads of this process hit the key until the time is over."""
    limiter = Limiter(TokenBucket(work.capacity, work.rate), store=store)
    found: list[_Tally] = []
    start = threading.Barrier(work.threads, action=ready)  # type: ignore[arg-type]  # what it returns is not read
    workers = [
        threading.Thread(target=lambda: found.append(_hit_until(limiter, work, start)), daemon=True)
        for _ in range(work.threads)
    ]
    for worker in workers:
        worker.start()
    until = time.monotonic() + work.seconds + _GRACE_S
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
    late = sum(worker.is_alive() for worker in workers)
    return found + [_failed(f"{late} threads did not come back from the store")] * bool(late)


def _hit_until(limiter: Limiter, work: _Work, start: threading.Barrier) -> _Tally:
    hit, key, cost, clock = limiter.hit, work.key, work.cost, time.monotonic_ns
    calls = allowed = missed = first_refused_ns = last_refused_ns = longest_ns = silent_since_ns = 0
    try:
        start.wait(_GRACE_S)
        first_began_ns = began_ns = clock()
        until_ns = first_began_ns + int(work.seconds * 1e9)
        while began_ns < until_ns:
            for _ in range(_CALLS_BETWEEN_LOOKS):
                decision = hit(key, cost)
                calls += 1
                if decision.source == "outage":
                    missed += 1
                    silent_since_ns = silent_since_ns or began_ns
                    continue
                if silent_since_ns:
                    longest_ns, silent_since_ns = max(longest_ns, clock() - silent_since_ns), 0
                allowed += decision.allowed
                if not decision.allowed:
                    first_refused_ns, last_refused_ns = first_refused_ns or clock(), began_ns
            ended_ns = clock()
            longest_ns = max(longest_ns, ended_ns - began_ns)
            began_ns = ended_ns
    except (TidegateError, threading.BrokenBarrierError) as error:
        return _failed(f"{type(error).__name__}: {error}", calls, allowed, missed)
    if silent_since_ns:
        longest_ns = max(longest_ns, began_ns - silent_since_ns)
    return _Tally(
        calls, allowed, missed, first_began_ns, began_ns, first_refused_ns, last_refused_ns, longest_ns
    )


def _failed(error: str, calls: int = 0, allowed: int = 0, missed: int = 0) -> _Tally:
    return _Tally(calls, allowed, missed, 0, 0, 0, 0, 0, error)


def _hammer_apart(work: _Work, processes: int) -> list[_Tally]:
    """Let so many processes hit the key, all from one moment on; each opens the store itself."""
    context = multiprocessing.get_context("spawn")  # a forked child would share what the parent has opened
    start = context.Barrier(processes)
    pipes = [context.Pipe(duplex=False) for _ in range(processes)]
    children = [
        context.Process(target=_child, args=(work, start, sender), daemon=True) for _, sender in pipes
    ]
    try:
        for child, (_, sender) in zip(children, pipes, strict=True):
            child.start()
            sender.close()
        until = time.monotonic() + work.seconds + 2 * _GRACE_S
        return [tally for receiver, _ in pipes for tally in _received(receiver, until)]
    finally:
        for child in children:
            if child.pid is not None:
                child.join(1.0)
                if child.is_alive():
                    child.terminate()
                    child.join(5.0)


def _received(receiver: Any, until: float) -> list[_Tally]:
    try:
        if receiver.poll(max(0.0, until - time.monotonic())):
            return [_Tally(*row) for row in receiver.recv()]
    except EOFError:
        return [_failed("a process ended without a result")]
    return [_failed("a process gave no result in time, and was ended")]


def _child(work: _Work, start: Any, sender: Any) -> None:
    logging.getLogger("tidegate").addHandler(logging.NullHandler())  # what is missed is counted, and told
    try:
        with closing(work.opener(work.url)) as store:
            tallies = _hammer_here(work, lambda: start.wait(_GRACE_S), store)
    except TidegateError as error:
        start.abort()
        tallies = [_failed(f"{type(error).__name__}: {error}")]
    sender.send([tuple(tally) for tally in tallies])
    sender.close()


def _judged(tallies: list[_Tally], work: _Work, limit: TokenBucket, name: str, processes: int) -> Hammered:
    """The bounds, and whether what was admitted lies between them."""
    errors = tuple(sorted({tally.error for tally in tallies if tally.error}))
    timed = [tally for tally in tallies if not tally.error]
    calls, allowed, missed = (sum(counts) for counts in zip(*(tally[:3] for tally in tallies), strict=True))
    per_ns = limit.rate.per_microsecond / 1_000
    admitted, size = allowed * work.cost, Fraction(limit.capacity)
    began_ns = min((tally.first_began_ns for tally in timed), default=0)
    ended_ns = max((tally.last_ended_ns for tally in timed), default=0)
    upper = size + per_ns * (ended_ns - began_ns)
    refusing = [tally for tally in timed if tally.first_refused_ns]
    pause_ns = min((tally.longest_pause_ns for tally in timed), default=0)
    saturated = bool(refusing) and pause_ns * per_ns < size - work.cost
    lower = Fraction(0)
    if saturated:
        first_ns = min(tally.first_refused_ns for tally in refusing)
        last_ns = max(tally.last_refused_ns for tally in refusing)
        lower = max(lower, size + per_ns * max(0, last_ns - first_ns) - (2 + missed) * work.cost)
    return Hammered(
        store=name,
        processes=processes,
        threads=work.threads,
        seconds=(ended_ns - began_ns) / 1e9,
        capacity=float(size),
        rate=str(limit.rate),
        cost=float(work.cost),
        calls=calls,
        refused=calls - allowed - missed,
        missed=missed,
        admitted=float(admitted),
        lower=float(lower),
        upper=float(upper),
        saturated=saturated,
        errors=errors,
        ok=not errors and lower <= admitted <= upper,
    )
