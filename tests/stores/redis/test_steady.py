# Spending for a long time: a window's key always has an end, and nobody waits longer than for it.

from __future__ import annotations

import threading
import time
from fractions import Fraction

import pytest

from tests.servers.redis_like import RedisLike
from tidegate import FixedWindow, Limiter
from tidegate.stores.redis.store import RedisStore
from tidegate.testing import ManualClock

LIMIT = FixedWindow(10, "1s")


def _endless(server: RedisLike, prefix: str) -> list[bytes]:
    """The keys of the prefix that never expire; one that has just gone is none of them."""
    names = server.command("KEYS", f"{prefix}:*")
    return [name for name in names if server.command("PTTL", name) == -1]


@pytest.mark.parametrize("every_ms", [999, 1_000])
def test_a_steady_caller(redis_like: RedisLike, every_ms: int):
    """C039: a spend every 0.999 s or 1.000 s for ten minutes: all pass, and the key always has an end."""
    clock = ManualClock(1_000)
    store = RedisStore(redis_like.url, prefix="steady", deadline="10s")
    limiter = Limiter(LIMIT, store=store, clock=clock)
    for number in range(600):
        clock.set(1_000 + Fraction(number * every_ms, 1_000))
        assert limiter.hit("key")
        if number % 20 == 0:
            assert _endless(redis_like, "steady") == []

    assert _endless(redis_like, "steady") == []
    store.close()


@pytest.mark.real_time
def test_callers_at_full_speed(valkey: RedisLike):
    """C039: twelve threads for 2 s: never a key without an end, and no refusal longer than its window."""
    store = RedisStore(valkey.url, prefix="rush", deadline="10s")
    limiter = Limiter(LIMIT, store=store)
    waits: list[float] = []
    endless: list[bytes] = []
    began_s = time.monotonic()
    until_s = began_s + 2.0

    def ask() -> None:
        while time.monotonic() < until_s:
            waits.append(limiter.hit("key").retry_after or 0.0)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    while time.monotonic() < until_s:
        endless += _endless(valkey, "rush")
    for thread in threads:
        thread.join(20)
    took_s = time.monotonic() - began_s

    assert endless == []
    assert 0 < max(waits) <= 1.0
    assert 20 <= waits.count(0.0) <= 10 * (int(took_s) + 2)  # so many windows, or parts of them
    store.close()
