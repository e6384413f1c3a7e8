"""What one decision costs on one thread: hot keys, many keys, many at once, and awaited."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable

from benchmarks.contenders import CONTENDERS, FLOOR, Decide, Load, compiled, floor, limiter
from benchmarks.rounds import Measured, Work, measure, show
from tidegate import AsyncLimiter, Rate, TokenBucket
from tidegate.stores.memory import MemoryStore

ALLOWED = Load(1_000_000, 1, 1_000_000_000)
REFUSED = Load(1, 1000, 1)
LASTING = Load(1, 1000, 1_000)
"""So slow that no key is fresh again while it is measured; a fresh one would be forgotten."""


def works(load: Load, work_on: Callable[[Decide], Work], only: Iterable[str]) -> dict[str, Work]:
    """The work of every contender that is installed and wanted."""
    found: dict[str, Work] = {}
    for contender in CONTENDERS:
        if contender.name != FLOOR and only and not any(part in contender.name for part in only):
            continue
        try:
            found[contender.name] = work_on(contender.make(load))
        except ImportError as error:
            print(f"  {contender.name}: skipped, not installed ({error})", file=sys.stderr)
    return found


def hot(times: int) -> Callable[[Decide], Work]:
    """The same key again and again."""
    keys = ["user:1"] * times

    def work_on(decide: Decide) -> Work:
        def work() -> int:
            for key in keys:
                decide(key)
            return times

        return work

    return work_on


def spread(count: int, times: int) -> Callable[[Decide], Work]:
    """`count` keys that are all known, in random order."""
    keys = [f"user:{number}" for number in range(count)]
    order = random.Random(1).choices(keys, k=times)

    def work_on(decide: Decide) -> Work:
        for key in keys:
            decide(key)

        def work() -> int:
            for key in order:
                decide(key)
            return times

        return work

    return work_on


def first_touches(times: int) -> Callable[[Decide], Work]:
    """Keys that nobody has used before."""

    def work_on(decide: Decide) -> Work:
        names = iter(range(10**9))

        def work() -> int:
            for number in [f"new:{next(names)}" for _ in range(times)]:
                decide(number)
            return times

        return work

    return work_on


def many_works(load: Load, count: int, calls: int) -> dict[str, Work]:
    """So many calls of hit_many with so many keys, beside the same keys one by one."""
    keys = [f"user:{number}" for number in random.Random(2).choices(range(count), k=count)]
    one_by_one, at_once, bare = limiter(load), limiter(load), floor(load)
    for key in keys:
        bare(key)
        one_by_one.hit(key)
        at_once.hit(key)
    hit, hit_many = one_by_one.hit, at_once.hit_many

    def one_by_one_by(decide: Decide) -> Work:
        def work() -> int:
            for _ in range(calls):
                for key in keys:
                    decide(key)
            return calls * count

        return work

    def many() -> int:
        for _ in range(calls):
            hit_many(keys)
        return calls * count

    def many_read() -> int:
        for _ in range(calls):
            for decision in hit_many(keys):
                assert decision is not None
        return calls * count

    return {
        FLOOR: one_by_one_by(bare),
        "tidegate, hit": one_by_one_by(hit),
        "tidegate, hit_many": many,
        "tidegate, hit_many, each decision read": many_read,
    }


def awaited_works(load: Load, times: int) -> dict[str, Work]:
    """AsyncLimiter.hit beside an empty coroutine and the blocking hit."""
    import asyncio

    hit = compiled(load)
    asynchronous = AsyncLimiter(
        TokenBucket(load.burst, Rate(load.tokens, load.period_s)), store=MemoryStore()
    )
    bare = floor(load)

    async def nothing(key: str) -> None: ...

    def awaiting(function: Callable[[str], object]) -> Work:
        async def loop() -> None:
            for _ in range(times):
                await function("user:1")  # type: ignore[misc]  # each of these is awaitable

        def work() -> int:
            asyncio.run(loop())
            return times

        return work

    return {
        FLOOR: hot(times)(bare),
        "tidegate, hit": hot(times)(hit),
        "await of an empty coroutine": awaiting(nothing),
        "tidegate, AsyncLimiter.hit": awaiting(asynchronous.hit),
    }


def figures_read_work(load: Load, times: int) -> dict[str, Work]:
    """A hit whose decision is looked at: what lazy figures cost once they are wanted."""
    hit, bare = compiled(load), floor(load)

    def reading() -> int:
        for _ in range(times):
            decision = hit("user:1")
            assert (decision.remaining, decision.retry_after, decision.reset_after) is not None
        return times

    return {FLOOR: hot(times)(bare), "tidegate, hit and three figures read": reading}


def run(rounds: int, scale: int, only: Iterable[str]) -> None:
    """Measure and print everything of this file; `scale` divides the lengths."""
    times, count = 20_000 // scale, 100_000 // scale

    def table(title: str, chosen: dict[str, Work]) -> list[Measured]:
        measured = measure(chosen, FLOOR, rounds)
        show(title, measured)
        return measured

    table("One hot key, allowed", works(ALLOWED, hot(times), only))
    table("One hot key, refused", works(REFUSED, hot(times), only))
    table(f"{count} keys in random order", works(LASTING, spread(count, times), only))
    table("First touch of a key", works(LASTING, first_touches(times // 4), only))
    for size in (100, 1_000, count):
        table(f"{size} keys in one call", many_works(LASTING, size, max(1, times // size)))
    table("Awaited, one hot key", awaited_works(ALLOWED, times))
    table("One hot key, and the answer read", figures_read_work(ALLOWED, times))
