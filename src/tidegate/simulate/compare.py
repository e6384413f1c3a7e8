"""Runs the same traffic through every algorithm in virtual time: the real limiter on a clock moved by hand.

All are given the same two numbers. A window has the capacity as its limit and lasts as long as the bucket
takes to refill, so that in the long run all of them let the same through; what differs is when.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from random import Random

from tidegate.core.limits import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.errors import LimitError
from tidegate.limiter import Limiter
from tidegate.simulate.traffic import Traffic, app_launch, bursts, script
from tidegate.stores.memory import MemoryStore
from tidegate.testing.clock import ManualClock
from tidegate.units import US_PER_S, Rate, div_ceil

CAPACITY_MOST = 2_000
_KEY = "client"
_KEYS_WEIGHED = 400
_SPENDS_WEIGHED = 4_000


@dataclass(frozen=True)
class Passage:
    """What one algorithm did with one kind of traffic. `departures_us` is when admitted work begins."""

    algorithm: str
    sent: int
    departures_us: tuple[int, ...]
    worst_second: int
    worst_window: int
    longest_wait_us: int

    @property
    def admitted(self) -> int:
        """How many requests were admitted."""
        return len(self.departures_us)


@dataclass(frozen=True)
class Scene:
    """One kind of traffic, and what each algorithm did with it."""

    traffic: Traffic
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class Servers:
    """One client whose requests are spread over several servers by chance: what these admit together."""

    servers: int
    sent: int
    apart: int
    """With a memory of its own in each server."""
    together: int
    """With one store for all of them."""
    bound: Fraction
    """What the limit promises for the time: capacity + rate * T."""
    watched_us: int


@dataclass(frozen=True)
class Comparison:
    """Everything that was run, and what a key of each algorithm weighs, in bytes beside the key itself."""

    capacity: int
    rate: Rate
    window_us: int
    limits: tuple[Limit, ...]
    scenes: tuple[Scene, ...]
    bytes_per_key: tuple[int, ...]
    servers: Servers


def compare(capacity: int = 20, rate: Rate | str = "5/s", *, servers: int = 4) -> Comparison:
    """Run an app launch, a script at full speed and bursts at boundaries through every algorithm.

    Raises LimitError for numbers that some algorithm cannot have: a capacity that is not a whole number up
    to 2,000, or a rate of 0.
    """
    flow = Rate.parse(rate)
    limits = limits_alike(capacity, flow)
    window_us = limits[-1].quota_window_us
    assert window_us is not None
    traffics = (app_launch(window_us), script(capacity, window_us), bursts(capacity, window_us))
    return Comparison(
        capacity=capacity,
        rate=flow,
        window_us=window_us,
        limits=limits,
        scenes=tuple(
            Scene(traffic, tuple(passage(limit, traffic.arrivals_us, window_us) for limit in limits))
            for traffic in traffics
        ),
        bytes_per_key=tuple(bytes_per_key(limit) for limit in limits),
        servers=spread(TokenBucket(capacity, flow), traffics[1], servers),
    )


def limits_alike(capacity: int, rate: Rate) -> tuple[Limit, ...]:
    """Every algorithm with the same capacity and the same rate in the long run."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= CAPACITY_MOST:
        raise LimitError(
            f"capacity is {capacity}; compare takes a whole number from 1 to {CAPACITY_MOST:,}. For more, "
            "divide capacity and rate by the same number: the picture stays the same"
        )
    bucket = TokenBucket(capacity, rate)
    if bucket.quota_window_us is None:
        raise LimitError(f"rate is {rate}; to be compared a limit must give something back over time")
    whole_ms = div_ceil(bucket.quota_window_us, 1_000) * 1_000
    window = timedelta(microseconds=whole_ms)
    return (
        bucket,
        LeakyBucket(capacity, rate),
        LeakyQueue(capacity, rate),
        SlidingLog(capacity, window),
        FixedWindow(capacity, window),
        SlidingWindow(capacity, window),
    )


def passage(limit: Limit, arrivals_us: Sequence[int], window_us: int) -> Passage:
    """Send requests of cost 1 at these instants through the limiter, and watch what comes out."""
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    departures, longest_us = [], 0
    for at_us in arrivals_us:
        clock.set(Fraction(at_us, US_PER_S))
        decision = limiter.hit(_KEY)
        if decision:
            departures.append(at_us + decision.wait_us)
            longest_us = max(longest_us, decision.wait_us)
    departures.sort()
    return Passage(
        algorithm=type(limit).__name__,
        sent=len(arrivals_us),
        departures_us=tuple(departures),
        worst_second=most_within(departures, US_PER_S),
        worst_window=most_within(departures, window_us),
        longest_wait_us=longest_us,
    )


def most_within(instants_us: Sequence[int], length_us: int) -> int:
    """The most of these sorted instants in any stretch of that length, its end not counted."""
    most = start = 0
    for end, instant in enumerate(instants_us):
        while instants_us[start] <= instant - length_us:
            start += 1
        most = max(most, end - start + 1)
    return most


def spread(limit: Limit, traffic: Traffic, servers: int, *, seed: int = 1) -> Servers:
    """Send one client's traffic to servers picked by chance: a memory in each, then one store for all."""
    if servers < 1:
        raise LimitError(f"servers is {servers}; write at least 1")
    clock = ManualClock()
    apart = [Limiter(limit, clock=clock) for _ in range(servers)]
    store = MemoryStore(clock=clock)
    together = [Limiter(limit, store=store) for _ in range(servers)]
    chance = Random(seed)  # noqa: S311 - which server is asked guards nothing, and must be repeatable
    by_own = by_shared = 0
    for at_us in traffic.arrivals_us:
        clock.set(Fraction(at_us, US_PER_S))
        picked = chance.randrange(servers)
        by_own += apart[picked].hit(_KEY).allowed
        by_shared += together[picked].hit(_KEY).allowed
    last_us = traffic.arrivals_us[-1]
    assert limit.rate is not None
    bound = Fraction(limit.capacity) + limit.rate.per_microsecond * last_us
    return Servers(servers, len(traffic.arrivals_us), by_own, by_shared, bound, last_us)


def bytes_per_key(limit: Limit) -> int:
    """What the embedded store allocates for one more key that has spent its capacity in single requests.

    Measured in this process: the state and its place in the table, without the key's own text. A log
    grows with the spends that it remembers.
    """
    singles = int(limit.capacity) if isinstance(limit, SlidingLog) else 1
    cost = 1 if isinstance(limit, SlidingLog) else limit.capacity
    count = max(8, min(_KEYS_WEIGHED, _SPENDS_WEIGHED // singles))
    clock = ManualClock(1_000_000_007)
    limiter = Limiter(limit, clock=clock)
    keys = [f"client {number}" for number in range(count + 1)]
    _spend(limiter, clock, keys[:1], singles, cost)
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    _spend(limiter, clock, keys[1:], singles, cost)
    after, _ = tracemalloc.get_traced_memory()
    if not was_tracing:
        tracemalloc.stop()
    return (after - before) // count


def _spend(
    limiter: Limiter, clock: ManualClock, keys: Sequence[str], times: int, cost: int | Fraction
) -> None:
    for key in keys:
        for _ in range(times):
            limiter.hit(key, cost)
            clock.advance(Fraction(1, US_PER_S))
