# Eight processes on one key: never more than the bound, and no less than was there to be had.

from __future__ import annotations

import asyncio
import multiprocessing
import time
from typing import Any

import pytest

from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import charge
from tidegate import TokenBucket
from tidegate.core.outcome import Charge
from tidegate.stores.redis.store import RedisStore

pytestmark = pytest.mark.real_time

PROCESSES = 8
LASTS_S = 1.0

# Small ones at a high rate are what makes others unlimited, long ones what makes them grant unearned credit.
LIMITS = [TokenBucket(100, "100/s"), TokenBucket(5, "2/s"), TokenBucket(20, "1000/s")]


def hammered(url: str, requests: list[list[Charge]]) -> dict[int, tuple[int, int, float]]:
    """Eight processes, half of them awaited, ask for these in turn.

    Of each, how many passed, how many were left with the last one, and how long it took from the first to it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "redis.asyncio.cluster"])
    start, results = context.Barrier(PROCESSES), context.Queue()
    workers = [
        context.Process(target=_ask, args=(url, requests, number % 2 == 0, start, results))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=50) for _ in workers]
    for worker in workers:
        worker.join()
    return {
        place: (
            sum(counts[place] for counts, _, _ in told),
            -max(last[place] for _, _, last in told)[1],
            (max(last[place] for _, _, last in told)[0] - min(first[place] for _, first, _ in told)) / 1e6,
        )
        for place in range(len(requests))
    }


def test_one_server(redis_like: RedisLike):
    """On every server, three limits at once: what there was is admitted, and nothing beyond the bound."""
    requests = [[charge("all", limit=limit, rule=f"rule {n}")] for n, limit in enumerate(LIMITS)]

    _check(hammered(redis_like.url, requests), LIMITS)


def test_layered_requests(valkey: RedisLike):
    """A wide rule behind a narrow one is charged for what both admit, and for nothing else."""
    narrow, wide = TokenBucket(10, "50/s"), TokenBucket(5_000, "0/s")
    requests = [[charge("all", limit=narrow, rule="narrow"), charge("all", limit=wide, rule="wide")]]
    ((passed, _, _),) = hammered(valkey.url, requests).values()
    store = RedisStore(valkey.url, deadline="2s")
    (left,) = store.decide([charge("all", limit=wide, rule="wide")], take=False)
    store.close()

    assert left.remaining == 5_000 - passed


def test_a_cluster(redis_cluster: Cluster):
    """Three keys on three masters, each with its own limit."""
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in redis_cluster.nodes)
    requests = [[charge(f"key {n}", limit=limit, rule="rule")] for n, limit in enumerate(LIMITS)]

    _check(hammered(url, requests), LIMITS)


def _check(found: dict[int, tuple[int, int, float]], limits: list[TokenBucket]) -> None:
    for place, limit in enumerate(limits):
        passed, left, lasted_s = found[place]
        assert limit.rate is not None
        fills = float(limit.rate.per_microsecond) * 1e6 * lasted_s
        assert passed <= limit.capacity + fills, limit
        if limit.rate.per_microsecond * 1_000_000 <= limit.capacity:  # for a second nobody would have to ask
            assert passed + left >= limit.capacity + fills - 2, limit


def _ask(url: str, requests: list[list[Charge]], is_awaited: bool, start: Any, results: Any) -> None:
    store = RedisStore(url, deadline="20s")
    tally = _Tally(len(requests))
    if is_awaited:
        asyncio.run(_ask_awaited(store, requests, tally, start))
    else:
        store.decide(requests[0], take=False)
        start.wait()
        tally.begin()
        while not tally.is_over():
            for place, request in enumerate(requests):
                tally.count(place, store.decide(request)[0])
        store.close()
    results.put((tally.passed, tally.first_us, tally.last))


async def _ask_awaited(store: RedisStore, requests: list[list[Charge]], tally: _Tally, start: Any) -> None:
    await store.awaited.decide(requests[0], take=False)
    start.wait()
    tally.begin()

    async def caller() -> None:
        while not tally.is_over():
            for place, request in enumerate(requests):
                tally.count(place, (await store.awaited.decide(request))[0])

    await asyncio.gather(*(caller() for _ in range(5)))
    await store.awaited.close()


class _Tally:
    """What passed of each request, and when by the server's clock the first was asked, and the last.

    With the last goes how many were left, as a negative number: of two at one instant fewer are left later.
    """

    def __init__(self, count: int) -> None:
        self.passed = [0] * count
        self.first_us = [2**60] * count
        self.last = [(0, 0)] * count
        self._until_s = 0.0

    def begin(self) -> None:
        self._until_s = time.monotonic() + LASTS_S

    def is_over(self) -> bool:
        return time.monotonic() > self._until_s

    def count(self, place: int, outcome: Any) -> None:
        self.passed[place] += outcome.allowed
        self.first_us[place] = min(self.first_us[place], outcome.now_us)
        self.last[place] = max(self.last[place], (outcome.now_us, -outcome.remaining))
