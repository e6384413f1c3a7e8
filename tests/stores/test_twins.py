# The compiled paths and the general one are twins: whatever is asked of them, in any order, they answer
# alike.

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.limiter.faces import FACES, SlowLimiter
from tidegate import (
    CostError,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limiter,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.stores.hot import HAS_GLOBAL_LOCK
from tidegate.stores.unread import HotDecision, TogetherDecision
from tidegate.testing import ManualClock

NAMES = ("a", "b", "c")
LIMITS = [
    TokenBucket(5, "1/s"),
    TokenBucket(3, "0/s"),
    TokenBucket(2.5, "7 per 3s"),
    LeakyBucket(9, "2/s"),
    LeakyQueue(4, "3/s"),
    LeakyQueue(6, "1/s", "interval", 2),
    SlidingLog(4, "3s"),
    FixedWindow(5, "4s"),
    FixedWindow(7, "day", zone="Europe/Berlin"),
    SlidingWindow(6, "5s"),
]


def a_rule(number: int, randomly: random.Random) -> Rule:
    limit = randomly.choice(LIMITS)
    named: dict[str, Any] = {"mode": randomly.choice(["enforce"] * 3 + ["shadow"])}
    by = tuple(randomly.sample(NAMES, randomly.randrange(3)))
    if randomly.random() < 0.3:
        named["match"] = {randomly.choice(NAMES): randomly.choice([["1", "2"], None, "1*"])}
    if randomly.random() < 0.3:
        named["cost"] = randomly.choice([1, 2, 0, {"/x": 2, "POST /y": 1}])
        if limit.algorithm != "sliding_log" and randomly.random() < 0.3:
            named["cost"] = randomly.choice([0.5, {"/x": 2, "POST /y": 0.5}])
    if by and randomly.random() < 0.3:
        value = "1" if len(by) == 1 else ("1",) * len(by)
        named["overrides"] = {value: randomly.choice(LIMITS)}
    if randomly.random() < 0.05:
        return Rule(f"r{number}", mode=randomly.choice(["deny", "bypass"]), match={"a": "3", "b": "3"})
    return Rule(f"r{number}", limit, by, **named)


def a_policy(randomly: random.Random) -> Policy:
    kind = randomly.random()
    if kind < 0.15:
        return Policy.of(randomly.choice(LIMITS))
    if kind < 0.3:
        rule = Rule(
            "one", randomly.choice(LIMITS), by=("a",), match=randomly.choice([None, {"b": ["1", "2"]}])
        )
        return Policy([rule])
    return Policy([a_rule(number, randomly) for number in range(randomly.randint(1, 6))])


def a_key(policy: Policy, randomly: random.Random) -> Any:
    if policy.bare and randomly.random() < 0.5:
        return randomly.choice(["1", "2", " ", ("1", "2"), b"1", 1])
    key = {name: randomly.choice(["1", "2", "3", "12", "", " ", None, 1, "x"]) for name in NAMES}
    key |= {"key": randomly.choice(["1", "2", None])}
    key |= {"method": "POST", "path": randomly.choice(["/x", "/y", "/z"])}
    return {name: value for name, value in key.items() if randomly.random() < 0.9 or name == "key"}


def told(ask: Callable[..., Any], *given: Any) -> Any:
    """The answer, or what the error says: a sliding log counts whole tokens."""
    try:
        return ask(*given)
    except CostError as error:
        return str(error)


def columns(face: Any, keys: list[Any], cost: Any) -> list[Any]:
    return list(face.hit_many(keys, cost))


def words(face: Any, key: Any, cost: Any) -> str:
    return str(face.explain(key, cost))


@pytest.mark.parametrize("seed", range(60))
def test_twins_agree(seed):
    """Random policies, requests, costs, refunds, settlings, resets, reloads and clocks: all faces
    answer alike, in every figure.
    """
    randomly = random.Random(seed)
    clock = ManualClock(1_000_000)
    policy = a_policy(randomly)
    faces = [make(policy, clock=clock) for make in FACES.values()]
    taken: list[Any] = []
    for _ in range(120):
        what = randomly.random()
        key, cost = a_key(policy, randomly), randomly.choice([1, 1, 1, 2, 3, 0, 0.5, 7])
        if what < 0.6:
            answers = [told(face.hit, key, cost) for face in faces]
            if not isinstance(answers[0], str):
                taken.append(answers)
        elif what < 0.65:
            answers = [told(columns, face, [key] * 3, cost) for face in faces]
        elif what < 0.75:
            answers = [told(face.peek, key, cost) for face in faces]
        elif what < 0.8:
            answers = [told(words, face, key, cost) for face in faces]
        elif what < 0.87 and taken:
            chosen = randomly.choice(taken)
            answers = [face.refund(d) for face, d in zip(faces, chosen, strict=True)]
        elif what < 0.9:
            answers = [face.reset(key) for face in faces]
        elif what < 0.93:
            reservations = [face.reserve(key, 2) for face in faces]
            actual = randomly.choice([0, 1, 2, 9])
            answers = [reservation.settle(actual) for reservation in reservations]
        elif what < 0.95:
            policy = a_policy(randomly)
            answers = [face.replace_policy(policy) for face in faces]
        else:
            clock.advance(randomly.choice([0, 0.1, 1, 2.5, 30, -0.5, -30, -100, 1000]))
            continue
        assert all(answer == answers[0] for answer in answers), (seed, what, key, cost, answers)
        if what < 0.6 and not isinstance(answers[0], str):
            for name in (
                *("rule", "remaining", "retry_after_us", "reset_after_us", "wait_us", "retry_hint_us"),
                *("brief", "limits_asked"),
            ):
                assert len({getattr(answer, name) for answer in answers}) == 1, (seed, name)


def test_each_policy_takes_its_path():
    """One plain rule is compiled without a lock, several level rules together, and whatever else goes the
    long way.
    """
    bucket = TokenBucket(5, "1/s")
    cases: list[tuple[Any, Any, type]] = [
        (bucket, "k", HotDecision),
        (Rule("r", bucket, by=("a",)), {"a": "k"}, HotDecision),
        (Rule("r", bucket, by=("a",), match={"b": None}), {"a": "k"}, HotDecision),
        ([Rule("r", bucket, by=("a",)), Rule("s", bucket)], {"a": "k"}, TogetherDecision),
        ([Rule("r", bucket, by=("key",)), Rule("s", bucket)], "k", TogetherDecision),
        (Rule("r", bucket, by=("a", "b")), {"a": "k"}, TogetherDecision),
        (Rule("r", bucket, by=("a",), cost=2), {"a": "k"}, TogetherDecision),
        (Rule("r", bucket, by=("a",), mode="shadow"), {"a": "k"}, TogetherDecision),
        ([Rule("r", bucket), Rule("s", SlidingLog(9, "1s"))], {}, TogetherDecision),
        (FixedWindow(9, "1h"), "k", TogetherDecision),
        (Rule("r", bucket, cost=lambda attributes: 1), {}, object),
    ]
    for policy, key, kind in cases:
        for make in (Limiter, SlowLimiter):
            limiter = make(policy)
            limiter.hit(key)
            expected = kind if make is Limiter and HAS_GLOBAL_LOCK else object
            assert isinstance(limiter.hit(key), expected)
            assert isinstance(limiter.hit(key), HotDecision | TogetherDecision) == (expected is not object)


def test_a_function_of_the_caller_is_asked_once():
    """A cost or override function is asked once for each request, on every path."""
    asked = []

    def cost(attributes):
        asked.append(attributes)
        return 1

    for make in (Limiter, SlowLimiter):
        asked.clear()
        limiter = make([Rule("r", TokenBucket(5, "1/s"), cost=cost), Rule("s", TokenBucket(5, "1/s"))])
        for number in range(1, 4):
            limiter.hit({})
            assert len(asked) == number
