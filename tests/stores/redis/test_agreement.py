# The scripts answer as the core does, on every server: all tables, random traces, and random charges with
# every state compared.

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from tests.servers.redis_like import RedisLike
from tests.stores.redis.direct import EDGES, USUAL, Pair
from tests.stores.redis.plain import PlainStore
from tidegate.core.limits import Limit, SlidingLog
from tidegate.testing import run_vectors
from tidegate.testing.traces import run_traces

LOGS = tuple(limit for limit in USUAL if isinstance(limit, SlidingLog))
BUSY = (SlidingLog(30, "10s"),)
POOLS = {"usual": USUAL, "edges": EDGES, "both": USUAL + EDGES, "logs": LOGS}


@pytest.mark.timeout(180)
def test_every_table_holds(redis_like: RedisLike):
    """The conformance tables, to the last number."""
    report = run_vectors(lambda: PlainStore(redis_like))

    assert report, report
    assert report.total >= 374


def test_random_traces_agree(redis_like: RedisLike):
    """Policies as users write them, asked at random."""
    report = run_traces(lambda: PlainStore(redis_like), seed=4, traces=150)

    assert report, report


@pytest.mark.parametrize("pool", POOLS)
def test_random_charges_agree(redis_like: RedisLike, pool: str):
    """C034: whatever is charged, carried over, owed and given back, states are equal to the last number."""
    store = PlainStore(redis_like)
    for seed in range(40):
        play(store, f"{pool}/{seed}", POOLS[pool])


@pytest.mark.parametrize("pool", POOLS)
def test_random_strict_charges_agree(redis_like: RedisLike, pool: str):
    """What a strict charge does not find counts as used up since the epoch, by every law and way."""
    store = PlainStore(redis_like)
    for seed in range(20):
        play(store, f"strict {pool}/{seed}", POOLS[pool], strict=True)


def test_busy_logs_agree(redis_like: RedisLike):
    """A log that is always in use moves its rows, compacts them, and gives back in the middle."""
    store = PlainStore(redis_like)
    for seed in range(10):
        play(store, f"busy/{seed}", BUSY, steps=250, calm=True)


def play(
    store: PlainStore,
    seed: str,
    limits: Sequence[Limit],
    *,
    steps: int = 60,
    strict: bool = False,
    calm: bool = False,
) -> None:
    """Random steps on an empty server; the seed is told if they part."""
    store.redis.flushdb()
    pair = Pair(store, Random(seed), limits, strict=strict, calm=calm)
    for _ in range(steps):
        try:
            pair.step()
        except BaseException as error:
            error.add_note(f"seed {seed!r}")
            raise
