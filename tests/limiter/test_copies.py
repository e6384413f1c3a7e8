# Pickling and copying: what travels, and what says why it does not.

from __future__ import annotations

import copy
import multiprocessing
import pickle

import pytest

from tests.limiter.faces import FACES
from tidegate import (
    AsyncLimiter,
    Decision,
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    RateLimited,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
    open_store,
)
from tidegate.testing import ManualClock

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
WAYS = [
    *(lambda thing, protocol=protocol: pickle.loads(pickle.dumps(thing, protocol)) for protocol in PROTOCOLS),
    copy.deepcopy,
    copy.copy,
]
LIMITS = [
    TokenBucket(10, "1/s"),
    LeakyQueue(10, "1/s", "interval", 2),
    SlidingLog(10, "1min"),
    FixedWindow(10, "day", zone="Europe/Berlin"),
    SlidingWindow(10, "1min"),
]


@pytest.mark.parametrize("way", WAYS[:-1])
def test_a_limiter_with_an_embedded_store_says_why_it_does_not_travel(face, way):
    """C129: pickling or deep-copying a limiter on the embedded store, before and after use, says what to do
    instead.
    """
    limiter = face(TokenBucket(10, "1/s"))
    thing = getattr(limiter, "limiter", limiter)
    for _ in range(2):
        with pytest.raises(TypeError, match="Make the limiter in each process, or share a store"):
            way(thing)
        limiter.hit("k")
    for store in (limiter.store, open_store("memory://")):
        with pytest.raises(TypeError, match="second budget"):
            way(store)


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_shallow_copy_is_the_same_budget(kind):
    """C129: copy.copy shares the store, and so the budget."""
    limiter = kind(TokenBucket(10, "0/s"))
    twin = copy.copy(limiter)
    assert twin.store is limiter.store
    assert twin.policy == limiter.policy


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_limiter_as_an_argument_of_a_new_process(method):
    """C129: handing a limiter to a spawned process fails at once, and says what to do instead."""
    context = multiprocessing.get_context(method)
    process = context.Process(target=print, args=(Limiter(TokenBucket(1, "1/s")),))
    with pytest.raises(TypeError, match="Make the limiter in each process"):
        process.start()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm)
def test_decisions_travel(way, limit):
    """C129: a decision is the same after travelling: every figure, its hint, and what came back of it."""
    clock = ManualClock(1_000_000)
    for make in FACES.values():
        limiter = make(limit, clock=clock)
        for decision in (limiter.hit("k", 7), limiter.hit("k", 7, caller="c"), limiter.hit("k", 70)):
            twin = way(decision)
            assert twin == decision
            assert type(twin) is Decision
            for name in (
                "allowed",
                "rule",
                "limit",
                "remaining",
                "balance",
                "retry_after",
                "reset_after",
                "wait",
            ):
                assert getattr(twin, name) == getattr(decision, name)
            for name in ("retry_hint_us", "retry_hint_s", "cost", "source", "outcomes"):
                assert getattr(twin, name) == getattr(decision, name)
            assert str(twin) == str(decision)
        refused = way(RateLimited(decision))
        assert refused.decision == decision
        columns = limiter.hit_many(["k", "j"])
        assert list(way(columns)) == list(columns)


@pytest.mark.parametrize("way", WAYS)
def test_policies_travel(way):
    """C129: limits, rules and policies are equal after travelling, and a limiter made of them decides
    alike.
    """
    policy = Policy(
        [
            Rule(limit.algorithm, limit, by=("key",), match={"plan": None}, overrides={"a": limit})
            for limit in LIMITS
        ]
    )
    twin = way(policy)
    assert twin == policy
    clock = ManualClock()
    one, other = Limiter(policy, clock=clock), Limiter(twin, clock=clock)
    for _ in range(3):
        assert one.hit({"key": "a"}, 4) == other.hit({"key": "a"}, 4)


def test_a_policy_with_functions_travels_as_far_as_they_do():
    """C129: a rule with a function that cannot be pickled says so, and a deep copy keeps the function."""
    rule = Rule("r", TokenBucket(5, "1/s"), by=("key",), cost=lambda attributes: 2)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(rule)
    assert copy.deepcopy(rule).cost is rule.cost
