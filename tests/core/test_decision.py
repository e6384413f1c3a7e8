"""A decision: a value that is true iff allowed, computes its figures when they are read, and travels."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest

from tidegate import (
    Decision,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limiter,
    Policy,
    RateLimited,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.testing import ManualClock

FIGURES = (
    "allowed rule limit cost remaining balance retry_after retry_after_us reset_after reset_after_us "
    "wait wait_us retry_hint retry_hint_us retry_hint_s source outcomes returned"
).split()
LIMITS = [
    TokenBucket(2, "1/s"),
    TokenBucket(2, "0/s"),
    LeakyBucket(2, "1/3s"),
    LeakyQueue(2, "1/s"),
    SlidingLog(2, "10s"),
    FixedWindow(2, "10s"),
    FixedWindow(2, "day", "Europe/Berlin"),
    SlidingWindow(2, "10s"),
]


def figures(decision: Decision) -> dict[str, object]:
    return {name: getattr(decision, name) for name in FIGURES}


def decided(limit, *, slow: bool) -> list[Decision]:
    """An admission, one more, a refusal, one that can never pass, and a look."""
    limiter = Limiter(limit, clock=ManualClock(1_000))

    def hit(cost: int) -> Decision:
        return (
            Limiter.hit(limiter, "key", cost, caller="me") if slow else limiter.hit("key", cost, caller="me")
        )

    return [hit(1), hit(1), hit(1), hit(5), limiter.peek("key")]


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        *[lambda d, p=p: pickle.loads(pickle.dumps(d, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)],
    ],
)
def test_a_decision_travels(limit, slow: bool, copied):
    """C129: copies and pickles of every protocol say the same, and reading them needs no store."""
    for decision in decided(limit, slow=slow):
        other = copied(decision)

        assert figures(other) == figures(decision)
        assert other == decision
        assert (str(other), repr(other), bool(other)) == (str(decision), repr(decision), bool(decision))


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_the_compiled_path_leaves_the_same_figures(limit):
    """What is computed of the numbers it left is what the layered function says."""
    for fast, slow in zip(decided(limit, slow=False), decided(limit, slow=True), strict=True):
        assert figures(fast) | {"outcomes": 0} == figures(slow) | {"outcomes": 0}
        for ours, theirs in zip(fast.outcomes, slow.outcomes, strict=True):
            assert ours.charge == theirs.charge
            assert (ours.allowed, ours.charged, ours.now_us, ours.mode) == (
                theirs.allowed,
                theirs.charged,
                theirs.now_us,
                theirs.mode,
            )


def test_figures_do_not_move():
    """A decision is about its own instant: later calls and later readings change nothing in it."""
    clock = ManualClock()
    limiter = Limiter(TokenBucket(5, "1/s"), clock=clock)
    first = limiter.hit("key", 2)
    limiter.hit("key", 3)
    clock.advance(100)

    assert (first.remaining, first.reset_after) == (3, 2)


def test_truth_is_the_verdict():
    """True iff allowed, and nothing else is."""
    limiter = Limiter(TokenBucket(1, "1/s"), clock=ManualClock())

    assert bool(limiter.hit("key")) is True
    assert bool(limiter.hit("key")) is False


def test_a_decision_in_words():
    """Printed, it says who decided what, what is left, and what to do."""
    limiter = Limiter(Rule("api", TokenBucket(2, "1/s")), clock=ManualClock())
    queue = Limiter(Rule("line", LeakyQueue(2.5, "1/s")), clock=ManualClock())
    queue.hit("key")

    assert str(limiter.hit("key")) == "allowed by api: 1 of 2 left"
    limiter.hit("key")
    assert str(limiter.hit("key")) == "refused by api: 0 of 2 left, retry after 1 s"
    assert str(limiter.hit("key", 3)) == "refused by api: 0 of 2 left, can never pass"
    assert str(queue.hit("key")) == "allowed by line: 0 of 2.5 left, wait 1 s"
    assert repr(limiter.hit("key")) == "<Decision refused by api: 0 of 2 left, retry after 1 s>"


def test_a_debt_is_told_exactly():
    """`remaining` is never negative; `balance` is signed and exact."""
    limiter = Limiter(TokenBucket(100, "1/s"), clock=ManualClock())
    reservation = limiter.reserve("key", 30)
    limiter.hit("key", 50)
    reservation.settle(60.5)
    look = limiter.peek("key")

    assert (look.remaining, look.balance, look.retry_after) == (0, Fraction(-21, 2), 11.5)


def test_every_first_result_is_whole():
    """C065: the first result carries what every other does: what is left and the time to full."""
    for limit, reset_after in (
        (TokenBucket(10, "1/s"), 3),
        (FixedWindow(10, "1min"), 20),
        (SlidingLog(10, "1min"), 60),
    ):
        decision = Limiter(limit, clock=ManualClock(1_000)).hit("key", 3)
        assert (decision.remaining, decision.cost, decision.limit) == (7, 3, limit)
        assert decision.reset_after == reset_after


def test_equality_is_by_what_was_decided():
    """Two of one story are equal, another is not; as what changes by refunds it is no key of a dictionary."""
    one, other = (Limiter(TokenBucket(5, "1/s"), clock=ManualClock()).hit("key") for _ in range(2))

    assert one == other
    assert one != Limiter(TokenBucket(5, "1/s"), clock=ManualClock()).hit("key", 2)
    assert one != "allowed"
    with pytest.raises(TypeError):
        hash(one)


def test_a_refusal_as_an_error():
    """RateLimited carries its decision, says the same, and pickles."""
    limiter = Limiter(TokenBucket(1, "1/s"), clock=ManualClock())
    limiter.hit("key")
    error = RateLimited(limiter.hit("key"))
    other = pickle.loads(pickle.dumps(error))

    assert str(other) == str(error) == str(error.decision)
    assert other.decision == error.decision
    assert other.retry_after == 1


def test_refunds_by_a_copy_count_their_own():
    """A pickled decision can be given back: the amount that was returned before travels with it."""
    limiter = Limiter(TokenBucket(10, "0/s"), clock=ManualClock())
    decision = limiter.hit("key", 5)
    limiter.refund(decision, 2)
    other = pickle.loads(pickle.dumps(decision))

    assert limiter.refund(other) == 3
    assert limiter.refund(other) == 0


def test_several_rules_are_all_told():
    """The outcomes stand in the order of the policy, each with its own figures."""
    limiter = Limiter(
        Policy([Rule("a", TokenBucket(5, "1/s")), Rule("b", TokenBucket(3, "1/s"), cost=2, mode="shadow")]),
        clock=ManualClock(),
    )
    a, b = limiter.hit({}).outcomes

    assert [(o.rule, o.mode, o.cost, o.remaining) for o in (a, b)] == [
        ("a", "enforce", 1, 4),
        ("b", "shadow", 2, 1),
    ]
