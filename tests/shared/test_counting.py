# What passes a shared store in real time, against the law alone: capacity + rate x time, and no less.

from __future__ import annotations

import math
import multiprocessing
import time
from typing import Any

import pytest

from tidegate import FixedWindow, Limiter, Policy, Rule, TokenBucket
from tidegate.testing.hammer import hammer

pytestmark = pytest.mark.real_time


def test_eight_processes_on_one_key(address: str):
    """C001, C011: eight processes together get capacity + rate x time, and no less than saturation owes."""
    result = hammer(address, processes=8, seconds=1.5, capacity=100, rate="50/s")

    assert result.errors == ()
    assert result.saturated
    assert result.lower <= result.admitted <= result.upper


def test_a_small_capacity_at_a_high_rate(address: str):
    """C048: a bucket that refills in 5 ms is a limit still: lives in the store are rounded up."""
    result = hammer(address, processes=2, seconds=1.0, capacity=5, rate="1000/s")

    assert result.errors == ()
    assert result.admitted <= result.upper


@pytest.mark.parametrize(
    ("limit", "asked", "burst"),
    [(TokenBucket(1000, "1000/min"), 1_500, 1_000), (TokenBucket(6000, "6000/s"), 20_000, 6_000)],
    ids=["slow", "fast"],
)
def test_a_burst_gets_the_capacity(address: str, limit: TokenBucket, asked: int, burst: int):
    """C048: of 1,500 (20,000) at once the capacity passes, and at most what refilled during the run."""
    limiter = Limiter(limit, store=address)
    limiter.hit("warm")
    began = time.monotonic()
    decided = [limiter.hit_many(["key"] * 500) for _ in range(asked // 500)]
    took_s = time.monotonic() - began

    admitted = sum(sum(each.allowed) for each in decided)
    assert burst <= admitted <= burst + float(limit.rate.per_second) * took_s
    limiter.close()


def test_a_steady_caller_within_its_window_is_never_refused(address: str):
    """C019: half of each second's window, for three seconds: one that ends in between is a new one."""
    limiter = Limiter(FixedWindow(1_000, "1s"), store=address)
    refused = 0
    for _ in range(75):
        refused += limiter.hit_many(["key"] * 20).allowed.count(False)
        time.sleep(0.04)  # from the last one on: who was held up does not catch up

    assert refused == 0
    limiter.close()


def test_many_first_uses_at_the_same_moment(address: str):
    """C002: of 25 first uses of a key at one moment by five processes, 10 pass; after 9 of 10, one more."""
    fresh = _together(address, "fresh", spent=0, processes=5, each=5)
    used = _together(address, "used", spent=9, processes=5, each=2)

    assert (fresh, used) == (10, 1)


def _together(address: str, key: str, *, spent: int, processes: int, each: int) -> int:
    limit = TokenBucket(10, "0/s")
    limiter = Limiter(limit, store=address)
    assert all(limiter.hit(key) for _ in range(spent))
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(processes), context.Queue()
    children = [
        context.Process(target=_spend, args=(address, key, each, start, told)) for _ in range(processes)
    ]
    for child in children:
        child.start()
    admitted = sum(told.get(timeout=60) for _ in children)
    for child in children:
        child.join(10)
    limiter.reset(key)
    limiter.close()
    return admitted


def _spend(address: str, key: str, times: int, start: Any, told: Any) -> None:
    limiter = Limiter(TokenBucket(10, "0/s"), store=address)
    limiter.hit("warm")  # the connection is there
    start.wait(30)
    told.put(sum(bool(limiter.hit(key)) for _ in range(times)))
    limiter.close()


def test_hosts_with_wrong_clocks(address: str):
    """C011: one host 30 s fast and one 30 s slow change nothing: the store's own clock decides."""
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(2), context.Queue()
    children = [
        context.Process(target=_spend_with_clock, args=(address, off_s, start, told)) for off_s in (30, -30)
    ]
    for child in children:
        child.start()
    rows = [told.get(timeout=60) for _ in children]
    for child in children:
        child.join(10)

    admitted = sum(passed for passed, _, _ in rows)
    refusing_s, took_s = (max(each) for each in list(zip(*rows, strict=True))[1:])
    assert 10 + 10 * refusing_s - 1 <= admitted <= 10 + 10 * took_s


def _spend_with_clock(address: str, off_s: int, start: Any, told: Any) -> None:
    right = time.time
    time.time = lambda: right() + off_s
    right_ns = time.time_ns
    time.time_ns = lambda: right_ns() + off_s * 10**9
    limiter = Limiter(TokenBucket(10, "10/s"), store=address)
    limiter.hit("warm")
    start.wait(30)
    passed, first_refused_s, last_refused_s = 0, math.inf, 0.0
    began_s = asked_s = time.monotonic()
    while asked_s - began_s < 1.5:
        if limiter.hit("key"):
            passed += 1
        else:
            first_refused_s = min(first_refused_s, time.monotonic())
            last_refused_s = asked_s
        asked_s = time.monotonic()
    told.put((passed, last_refused_s - first_refused_s, asked_s - began_s))
    limiter.close()


def test_layers_from_several_processes(address: str):
    """Two limits on one request: the tighter one decides, and the other pays for nothing that was refused."""
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(4), context.Queue()
    children = [context.Process(target=_spend_layers, args=(address, start, told)) for _ in range(4)]
    for child in children:
        child.start()
    admitted = sum(told.get(timeout=60) for _ in children)
    for child in children:
        child.join(10)

    limiter = Limiter(_layers(), store=address)
    left = limiter.peek({"org": "acme"}, 0)
    assert 19 <= admitted <= 20  # on a cluster a refusal may be spurious, never an admission
    assert [outcome.balance for outcome in left.outcomes] == [20 - admitted, 50 - admitted]
    limiter.close()


def _layers() -> Policy:
    return Policy(
        [
            Rule("org", TokenBucket(20, "0/s"), by=("org",)),
            Rule("everyone", TokenBucket(50, "0/s"), by=()),
        ]
    )


def _spend_layers(address: str, start: Any, told: Any) -> None:
    limiter = Limiter(_layers(), store=address)
    limiter.peek({"org": "acme"})
    start.wait(30)
    told.put(sum(bool(limiter.hit({"org": "acme"})) for _ in range(25)))
    limiter.close()


def test_two_stores_in_one_process(address: str):
    """C144: each key is found in its own store only; after a change of store new counts go to the new one."""
    ours, theirs = Limiter(TokenBucket(3, "0/s"), store=address), Limiter(TokenBucket(3, "0/s"))
    spent = [bool(limiter.hit("key")) for limiter in (ours, ours, theirs)]
    moved = Limiter(TokenBucket(3, "0/s"), store="memory://")

    assert spent == [True] * 3
    assert [limiter.peek("key").remaining for limiter in (ours, theirs, moved)] == [1, 2, 3]
    assert moved.hit("key")
    assert [limiter.peek("key").remaining for limiter in (ours, moved)] == [1, 2]
    ours.reset("key")
    ours.close()
