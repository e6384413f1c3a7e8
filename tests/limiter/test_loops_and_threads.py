# One limiter from several event loops and threads, and how long it keeps a loop busy.

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tests.limiter.faces import SlowAsyncLimiter, SlowLimiter, awaited
from tests.stores.racing import together
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket
from tidegate.testing import ManualClock


@pytest.mark.parametrize("kind", [AsyncLimiter, SlowAsyncLimiter])
def test_one_limiter_in_three_runs(kind):
    """C120: used from asyncio.run three times, with calls left over when a loop ends: time and balance
    carry over.
    """
    clock = ManualClock()
    limiter = kind(TokenBucket(20, "20/s"), clock=clock)

    async def story():
        left_over = limiter.hit("k", 3)
        taken = sum([bool(await limiter.hit("k")) for _ in range(8)])
        left_over.close()
        return taken

    taken = []
    for _ in range(3):
        taken.append(asyncio.run(story()))
        clock.advance(0.1)
    assert taken == [8, 8, 8]
    assert awaited(limiter.peek("k")).remaining == 20 - 24 + 6


@pytest.mark.parametrize("kind", [AsyncLimiter, SlowAsyncLimiter])
def test_two_loops_and_a_thread(kind):
    """C121: 20 spends from each of two loops in threads and from a plain thread: exactly 10 of 60 come
    through.
    """
    asynchronous = kind(TokenBucket(10, "0/s"))
    blocking = Limiter(TokenBucket(10, "0/s"), store=asynchronous.store)

    async def spend():
        count = 0
        for _ in range(20):
            count += bool(await asynchronous.hit("k"))
            await asyncio.sleep(0)
        return count

    def loop():
        return asyncio.run(spend())

    def plain():
        return sum(bool(blocking.hit("k")) for _ in range(20))

    for _ in range(10):
        assert sum(together([loop, loop, plain])) == 10
        blocking.reset("k")


def test_a_hundred_tasks():
    """Of a hundred tasks on one budget of ten exactly ten come through, decided in the order in which they
    ask.
    """

    async def story():
        limiter = AsyncLimiter(TokenBucket(10, "0/s"))
        return await asyncio.gather(*(limiter.hit("k") for _ in range(100)))

    assert [bool(d) for d in awaited(story())] == [True] * 10 + [False] * 90


def test_no_call_holds_the_loop():
    """C122: no method waits: each coroutine of the embedded store ends at its first step."""
    limiter = AsyncLimiter(
        Policy([Rule("a", TokenBucket(1, "0/s"), by=("key",)), Rule("b", TokenBucket(1, "0/s"))])
    )
    for _ in range(3):
        for call in (limiter.hit("k"), limiter.peek("k"), limiter.explain("k"), limiter.hit_many(["k", "j"])):
            with pytest.raises(StopIteration):
                call.send(None)
            call.close()


def test_nothing_runs_in_the_background():
    """A limiter starts no thread and leaves none, however many keys it holds."""
    before = threading.active_count()
    limiters = [Limiter(TokenBucket(5, "1/s")) for _ in range(10)]
    for limiter in limiters:
        limiter.hit_many(f"k{number}" for number in range(200))
    assert threading.active_count() == before


@pytest.mark.parametrize("kind", [Limiter, SlowLimiter, AsyncLimiter])
def test_a_limiter_that_nobody_holds_goes_away(kind):
    """A limiter and its state can be collected when the last reference to it is gone."""
    import weakref

    limiter = kind(TokenBucket(5, "1/s"))
    gone = weakref.ref(limiter.store)
    del limiter
    gc.collect()
    assert gone() is None


def test_a_subclass_may_have_a_hit_of_its_own():
    """A subclass that overrides hit is asked, and what the class below it decides is the same budget."""

    class Counting(Limiter):
        calls = 0

        def hit(self, key, cost=1, *, caller=None):
            """Count, then decide."""
            self.calls += 1
            return super().hit(key, cost, caller=caller)

    limiter = Counting(TokenBucket(2, "0/s"))
    assert [bool(limiter.hit("k")) for _ in range(3)] == [True, True, False]
    assert limiter.calls == 3
