# The store that plays one on the network: both faces, away or not, and as seen from several nodes.

from __future__ import annotations

import asyncio

import pytest

from tidegate import AsyncLimiter, Limiter, StoreError, StoreUnavailable, TokenBucket
from tidegate.testing import DistantStore, ManualClock, run_traces, run_vectors

LIMIT = TokenBucket(3, "1/s")


def test_it_answers_as_a_store_must():
    """It passes the conformance tables and random traffic."""
    assert run_vectors(DistantStore).differing == 0
    assert run_traces(DistantStore, seed=1, traces=20).differing == 0


def test_both_faces_see_one_state_and_go_away_together():
    """What one face charged the other sees; while it is away every verb of both raises StoreUnavailable."""
    store = DistantStore(clock=ManualClock())
    blocking, awaited = Limiter(LIMIT, store=store), AsyncLimiter(LIMIT, store=store)
    decision = blocking.hit("k")
    assert asyncio.run(awaited.hit("k")).remaining == 1
    assert asyncio.run(awaited.hit_many(["k", "k"])).allowed == [True, False]

    store.is_away = True
    assert blocking.hit("k").source == asyncio.run(awaited.peek("k")).source == "outage"
    assert blocking.hit_many(["k", "l"]).allowed == [False, False]
    assert [blocking.refund(decision), asyncio.run(awaited.refund(decision))] == [0, 0]
    with pytest.raises(StoreUnavailable):
        asyncio.run(awaited.reset("k"))

    store.is_away = False
    blocking.reset("k")
    assert blocking.hit("k").remaining == 2
    asyncio.run(awaited.aclose())


def test_a_node_beside_it_has_the_same_state_and_its_own_way_there():
    """A store beside another shares what it holds, and is away or not by itself."""
    first = DistantStore(clock=ManualClock())
    second = DistantStore(beside=first)
    first.is_away = True

    assert Limiter(LIMIT, store=second).hit("k", 3)
    first.is_away = False
    assert not Limiter(LIMIT, store=first).hit("k")
    assert first.health.where != second.health.where


def test_a_mistake_among_many_stands_in_its_place():
    """Where one of many requests cannot be decided, its error is its answer and the others have theirs."""
    store = DistantStore()
    store.is_away = True
    answers = store.decide_many([[], []])
    assert all(isinstance(answer, StoreError) for answer in answers)
