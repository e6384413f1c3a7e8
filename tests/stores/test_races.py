# Races with real threads: exactly the capacity passes, whatever paths the threads take and whatever else
# goes on.
#
# The limits here give nothing back by themselves, so "exactly" is exact.

from __future__ import annotations

import random
import sys
import threading
import time
from functools import partial

import pytest

from tests.limiter.faces import SlowLimiter
from tests.stores.racing import racing, together
from tidegate import (
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.stores.hot import HAS_GLOBAL_LOCK
from tidegate.stores.memory import MemoryStore
from tidegate.testing import ManualClock

pytestmark = pytest.mark.real_time

LIMITS = [
    TokenBucket(100, "0/s"),
    LeakyQueue(100, "1/day"),
    SlidingLog(100, "30 days"),
    FixedWindow(100, "30 days"),
    SlidingWindow(100, "30 days"),
]


def count(hit, times, key="k", cost=1):
    admitted = 0
    for _ in range(times):
        if hit(key, cost):
            admitted += cost
    return admitted


def test_the_compiled_path_is_the_one_that_races():
    """On this interpreter a plain limiter is compiled, and the slow twin is not: both kinds are raced
    below.
    """
    fast, slow = Limiter(LIMITS[0]), SlowLimiter(LIMITS[0])
    assert ("hit" in vars(fast)) is HAS_GLOBAL_LOCK
    assert "hit" not in vars(slow)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm)
@pytest.mark.parametrize("paths", ["fast", "slow", "mixed"])
def test_exactly_the_capacity_passes(limit, paths):
    """C001, C007: 20 threads, 500 spends in all of a budget of 100: exactly 100, on each path and on both
    at once.
    """
    for _ in range(5):
        store = MemoryStore()
        kinds = [Limiter] * (paths != "slow") + [SlowLimiter] * (paths != "fast")
        limiters = [kind(limit, store=store) for kind in kinds]
        works = [lambda hit=limiter.hit: count(hit, 25) for limiter in limiters * (20 // len(limiters))]
        assert sum(together(works)) == 100


def test_the_first_use_of_a_key():
    """C001: on a key that nobody used before, as on later ones, exactly the capacity passes."""
    limiter = Limiter(TokenBucket(3, "0/s"))
    for number in range(200):
        works = [lambda key=f"k{number}": count(limiter.hit, 1, key)] * 5
        assert sum(together(works)) == 3


def test_costs_of_every_size():
    """Costs of 1, 2 and 5 at once never take more than there is, and leave nothing that would fit."""
    for _ in range(10):
        limiter = Limiter(TokenBucket(100, "0/s"))
        works = [lambda cost=cost, hit=limiter.hit: count(hit, 20, cost=cost) for cost in (1, 2, 5) * 3]
        assert sum(together(works)) == 100
        assert limiter.peek("k").balance == 0


def test_many_and_singles_at_once():
    """hit_many beside hit and peek: exactly the capacity of each key passes."""
    for _ in range(5):
        limiter = Limiter(TokenBucket(50, "0/s"))
        keys = ["a", "b", "c"] * 15

        def many(limiter=limiter, keys=keys):
            return sum(limiter.hit_many(keys).allowed)

        def singles(limiter=limiter, keys=keys):
            return sum(bool(limiter.hit(key)) and limiter.peek(key) is not None for key in keys)

        assert sum(together([many, singles] * 4)) == 150


def test_refunds_mixed_in():
    """Threads that take and give back: what is out at any moment is at most the capacity, and in the end
    all is back.
    """
    limiter = Limiter(TokenBucket(100, "0/s"))
    out = 0
    most = 0
    lock = threading.Lock()

    def work(seed):
        nonlocal out, most
        randomly = random.Random(seed)
        for _ in range(60):
            cost = randomly.randint(1, 40)
            reservation = limiter.reserve("k", cost)
            if not reservation:
                continue
            with lock:
                out += cost
                most = max(most, out)
            with lock:
                out -= cost
            actual = randomly.choice([0, 0, 1])
            assert reservation.settle(actual) == cost - actual
            if actual:
                assert limiter.refund(reservation.decision) == actual

    together([partial(work, seed) for seed in range(8)])
    assert most <= 100
    assert limiter.peek("k").balance == 100


def test_resets_mixed_in():
    """While one thread resets again and again, the others never get more than the capacity for each reset
    and one.
    """
    limiter = Limiter(TokenBucket(10, "0/s"))
    resets = 0
    done = threading.Event()

    def reset():
        nonlocal resets
        while not done.is_set() and resets < 300:
            resets += 1
            limiter.reset("k")

    def work():
        try:
            return count(limiter.hit, 400)
        finally:
            done.set()

    _, *admitted = together([reset] + [work] * 5)
    assert 10 <= sum(admitted) <= 10 * (resets + 1)


def test_a_full_store_under_threads():
    """Threads with ever new keys at the bound: the bound holds, live keys keep their state, none fails."""
    store = MemoryStore(50)
    limiter = Limiter(TokenBucket(2, "1/h"), store=store)
    limiter.hit("X", 2)
    works = [lambda n=n: sum(bool(limiter.hit(f"{n} {i}")) for i in range(100)) for n in range(6)]
    assert sum(together(works)) == 49
    assert store.stats() == (50, 50, 551, 0)
    assert not limiter.hit("X")


def test_rules_together_under_threads():
    """Requests of several rules from many threads are all-or-nothing: no rule is charged for what another
    refused.
    """
    policy = Policy(
        [
            Rule("each", TokenBucket(30, "0/s"), by=("user",)),
            Rule("log", SlidingLog(80, "30 days")),
            Rule("tried", TokenBucket(10, "0/s"), by=("user",), mode="shadow"),
        ]
    )
    for _ in range(3):
        limiter = Limiter(policy)

        def work(user, limiter=limiter):
            return sum(bool(limiter.hit({"user": user})) for _ in range(20))

        works = [partial(work, str(n % 4)) for n in range(8)]
        admitted = sum(together(works))
        assert admitted == 80
        balances = [limiter.peek({"user": str(n)}).outcomes[0].balance for n in range(4)]
        assert sum(30 - balance for balance in balances) == 80
        assert all(balance >= 0 for balance in balances)


def test_a_clock_that_is_moved_meanwhile():
    """Threads while the clock leaps to and fro by less than a minute: never more than the capacity and what
    it earned.
    """
    clock = ManualClock(1000)
    limiter = Limiter(TokenBucket(50, "1/s"), clock=clock)

    def move():
        for step in range(400):
            clock.set(1000 + (step % 7) * 5)

    _, *admitted = together([move] + [lambda: count(limiter.hit, 200)] * 6)
    assert 50 <= sum(admitted) <= 50 + 30


@pytest.mark.parametrize("paths", ["fast", "mixed"])
def test_a_high_rate_in_real_time(paths):
    """C036: bucket(1, 200000) hit by 8 threads for half a second: at most 1 + 200000 x the time passes."""
    store = MemoryStore()
    kinds = [Limiter, Limiter if paths == "fast" else SlowLimiter] * 4
    limiters = [kind(TokenBucket(1, "200000/s"), store=store) for kind in kinds]
    start_ns = time.monotonic_ns()

    def work(limiter):
        admitted = 0
        while time.monotonic_ns() - start_ns < 500_000_000:
            admitted += bool(limiter.hit("k"))
        return admitted

    admitted = sum(together([partial(work, limiter) for limiter in limiters]))
    elapsed_us = (time.monotonic_ns() - start_ns) // 1_000 + 1
    assert 1 <= admitted <= 1 + elapsed_us * 200_000 // 1_000_000


def test_a_switch_interval_that_bites():
    """The races above change threads: a counter that reads and writes in two steps loses counts."""
    counter = 0

    def nothing(): ...

    def bad():
        nonlocal counter
        for _ in range(2000):
            read = counter
            nothing()
            counter = read + 1

    for _ in range(50):
        counter = 0
        together([bad] * 4)
        if counter < 8000:
            break
    assert counter < 8000
    with racing():
        assert sys.getswitchinterval() < 1e-5
