"""How decisions over a network are timed: by the wall, call by call, beside a bare round trip.

Client and server share one processor here, so a round trip is what both of them do and nothing waits for a
wire. Every round runs all contenders one after another, and a ratio is the median over the rounds of the
ratio to the base *in the same round*.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

Call = Callable[[], object]
AwaitedCall = Callable[[], Awaitable[object]]


class Latency(NamedTuple):
    """Microseconds a call, medians over the rounds, and how they compare with the base of each round."""

    name: str
    p50_us: float
    p99_us: float
    p50_ratio: float
    p99_ratio: float


def latencies(calls: Mapping[str, Call], base: str, *, rounds: int, times: int) -> list[Latency]:
    """Time each call so often in every round, after a round that does not count. The quickest first."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for name, call in calls.items():
        try:
            _percentiles_us(call, max(20, times // 10))
        except Exception as error:
            print(f"  {name}: skipped, {type(error).__name__}: {error}", file=sys.stderr)
            del taken[name]
    for _ in range(rounds):
        for name, found in taken.items():
            gc.collect()
            found.append(_percentiles_us(calls[name], times))
    bases = taken[base]
    told = [
        Latency(
            name,
            statistics.median(p50 for p50, _ in found),
            statistics.median(p99 for _, p99 in found),
            statistics.median(mine[0] / theirs[0] for mine, theirs in zip(found, bases, strict=True)),
            statistics.median(mine[1] / theirs[1] for mine, theirs in zip(found, bases, strict=True)),
        )
        for name, found in taken.items()
    ]
    return sorted(told, key=lambda line: line.p50_ratio)


def _percentiles_us(call: Call, times: int) -> tuple[float, float]:
    clock, taken_ns = time.perf_counter_ns, []
    for _ in range(times):
        began_ns = clock()
        call()
        taken_ns.append(clock() - began_ns)
    taken_ns.sort()
    return taken_ns[times // 2] / 1e3, taken_ns[times * 99 // 100] / 1e3


def show_latencies(title: str, lines: list[Latency], base: str) -> None:
    """Print a table: name, p50, p99, ratios to the base."""
    print(f"\n{title}")
    width = max(len(line.name) for line in lines)
    for line in lines:
        print(
            f"  {line.name:{width}}  p50 {line.p50_us:7.1f} us  x {line.p50_ratio:4.2f} of {base}"
            f"   p99 {line.p99_us:7.1f} us  x {line.p99_ratio:4.2f}"
        )


class Together(NamedTuple):
    """Decisions a second with many callers at once, and the ratio to the base of each round."""

    name: str
    per_s: float
    ratio: float


async def together(
    calls: Mapping[str, AwaitedCall], base: str, *, callers: int, rounds: int, each: int
) -> list[Together]:
    """Let so many tasks ask one after another, so often each; the first round opens connections."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name in list(taken):
            gc.collect()
            try:
                per_s = await _per_s(calls[name], callers, each)
            except Exception as error:
                print(f"  {name}: skipped, {type(error).__name__}: {error}", file=sys.stderr)
                del taken[name]
                continue
            if number:
                taken[name].append(per_s)
    bases = taken[base]
    told = [
        Together(
            name,
            statistics.median(found),
            statistics.median(mine / theirs for mine, theirs in zip(found, bases, strict=True)),
        )
        for name, found in taken.items()
    ]
    return sorted(told, key=lambda line: -line.ratio)


async def _per_s(call: AwaitedCall, callers: int, each: int) -> float:
    async def ask() -> None:
        for _ in range(each):
            await call()

    began_s = time.perf_counter()
    await asyncio.gather(*[ask() for _ in range(callers)])
    return callers * each / (time.perf_counter() - began_s)


def show_together(title: str, lines: list[Together], base: str) -> None:
    """Print a table: name, decisions a second, ratio to the base."""
    print(f"\n{title}")
    width = max(len(line.name) for line in lines)
    for line in lines:
        print(f"  {line.name:{width}} {line.per_s:9,.0f} a second   x {line.ratio:5.2f} of {base}")
