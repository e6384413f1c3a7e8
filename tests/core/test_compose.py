"""Several limits on one request: all-or-nothing, shadows that touch nobody, and which rule is named."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import admitted
from tidegate import (
    Decision,
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.limits import Limit
from tidegate.testing import ManualClock


def limiter_of(*rules: Rule, start_s: int = 0) -> tuple[Limiter, ManualClock]:
    clock = ManualClock(start_s)
    return Limiter(Policy(rules), clock=clock), clock


def left(limiter: Limiter, key: dict[str, object] | None = None) -> list[int]:
    """What each rule has left."""
    return [outcome.remaining for outcome in limiter.peek(key or {}).outcomes]


def test_a_refusal_by_one_leaves_all_as_they_were():
    """C020: the owner pays only for what the key admits, also where the clock moves between."""
    limiter, clock = limiter_of(
        Rule("owner", TokenBucket(10, "0/s"), by=("owner",)),
        Rule("key", TokenBucket(1, "0/s"), by=("owner", "key")),
    )
    passed = 0
    for _ in range(10):
        passed += limiter.hit({"owner": "o", "key": "a"}).allowed
        clock.advance(0.01)

    assert passed == 1
    assert left(limiter, {"owner": "o", "key": "a"}) == [9, 0]
    assert limiter.hit({"owner": "o", "key": "b"}).outcomes[0].remaining == 8


def test_a_thousand_refusals_change_no_later_answer():
    """Invariant 2: with limits of every kind, later answers are as if they had never been asked."""
    kinds: list[Limit] = [
        TokenBucket(3, "1/s"),
        LeakyQueue(4, "1/s"),
        SlidingLog(3, "10s"),
        FixedWindow(4, "10s"),
        SlidingWindow(3, "10s"),
    ]

    def story(refusals: int) -> list[tuple[object, ...]]:
        limiter, clock = limiter_of(*[Rule(f"r{n}", kind) for n, kind in enumerate(kinds)], start_s=100)
        answers: list[tuple[object, ...]] = []
        for step in range(40):
            clock.advance(Fraction(step % 7, 10))
            for _ in range(refusals):
                assert not limiter.hit({}, 5)
            decision = limiter.hit({})
            answers += [
                (o.allowed, o.balance, o.wait, o.retry_after, o.reset_after) for o in decision.outcomes
            ]
        return answers

    assert story(0) == story(25)


def test_forty_eight_rules_decide_together():
    """Over address, tenant, user and route: charged in all or in none, and the binding one is named."""
    names = ("address", "tenant", "user", "route")
    rules = [
        Rule(f"{name} {number}", TokenBucket(20 + number, "1/s"), by=(name,))
        for number in range(12)
        for name in names
    ]
    limiter, _ = limiter_of(*rules[:30], Rule("tightest", TokenBucket(7, "1/min"), by=("user",)), *rules[30:])
    key: dict[str, object] = dict.fromkeys(names, "x")
    decisions = [limiter.hit(key) for _ in range(20)]

    assert admitted(decisions) == 7
    assert {d.rule for d in decisions} == {"tightest"}
    assert len(decisions[0].outcomes) == 49
    assert left(limiter, key)[:4] == [13, 13, 13, 13]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_shadow_touches_nobody(place: int):
    """It reports; it never refuses, never blocks, and is charged only where the request passes."""
    rules = [Rule("a", TokenBucket(3, "0/s")), Rule("b", TokenBucket(5, "0/s"))]
    rules.insert(place, Rule("shadow", TokenBucket(2, "0/s"), mode="shadow"))
    limiter, _ = limiter_of(*rules)
    decisions = [limiter.hit({}) for _ in range(5)]
    shadow = [decision.outcomes[place] for decision in decisions]

    assert admitted(decisions) == 3
    assert [outcome.allowed for outcome in shadow] == [True, True, False, False, False]
    assert [outcome.remaining for outcome in shadow] == [1, 0, 0, 0, 0]
    assert {decision.rule for decision in decisions} == {"a"}
    assert decisions[2].retry_after == 0
    alone, _ = limiter_of(Rule("shadow", TokenBucket(2, "0/s"), mode="shadow"))
    assert admitted([alone.hit({}) for _ in range(9)]) == 9


def test_a_shadow_is_not_charged_by_what_another_refuses():
    """An enforced refusal leaves the shadow's budget whole too."""
    limiter, _ = limiter_of(
        Rule("a", TokenBucket(1, "0/s")), Rule("shadow", TokenBucket(9, "0/s"), mode="shadow")
    )
    for _ in range(5):
        limiter.hit({})

    assert left(limiter) == [0, 8]


def test_a_shadow_holds_no_work():
    """The wait of a queue in shadow is not the decision's."""
    limiter, _ = limiter_of(Rule("q", LeakyQueue(5, "1/s"), mode="shadow"), Rule("r", LeakyQueue(5, "2/s")))
    limiter.hit({})
    decision = limiter.hit({})

    assert decision.wait == 0.5
    assert [outcome.wait for outcome in decision.outcomes] == [1, 0.5]


def test_the_rule_that_frees_last_is_named():
    """C069: of several refusing the one that frees last, with its own remaining and reset; never first."""
    limiter, clock = limiter_of(
        Rule("a", FixedWindow(60, "1min")),
        Rule("b", TokenBucket(100, "1/s")),
        Rule("c", FixedWindow(4, "1h")),
        Rule("d", TokenBucket(5, "1/s")),
        start_s=600,
    )
    for _ in range(4):
        assert limiter.hit({})
    clock.set(648)
    decision = limiter.hit({})
    assert (decision.rule, decision.remaining, decision.retry_after, decision.reset_after) == (
        "c",
        0,
        2952,
        2952,
    )

    never = limiter.hit({}, 6)
    assert (never.rule, never.retry_after) == ("c", None)
    equal, _ = limiter_of(*[Rule(name, TokenBucket(1, "1/s")) for name in "xyz"])
    equal.hit({})
    assert equal.hit({}).rule == "x"


def test_the_fewest_requests_left_are_named():
    """An admission shows the limit with the fewest requests of its own cost left; ties go to the first."""
    limiter, _ = limiter_of(
        Rule("tokens", TokenBucket(1000, "1/s"), cost=lambda a: a["tokens"]),
        Rule("calls", TokenBucket(20, "1/s"), cost=1),
    )

    assert limiter.hit({"tokens": 10}).rule == "calls"
    assert limiter.hit({"tokens": 100}).rule == "tokens"
    assert limiter.hit({"tokens": 0}).rule == "calls"


def test_where_nothing_is_charged_the_least_left_is_named():
    """A look at no cost shows the tightest; a limit that is charged nothing binds beside no other."""
    limiter, _ = limiter_of(
        Rule("wide", TokenBucket(50, "1/s")),
        Rule("tight", TokenBucket(3, "1/s")),
        Rule("free", TokenBucket(1, "1/s"), cost=0),
    )

    assert limiter.peek({}, 0).rule == "free"
    assert limiter.peek({}, 1).rule == "tight"


def test_the_longest_wait_counts():
    """Admitted by several queues, the work is held for the longest."""
    limiter, _ = limiter_of(Rule("a", LeakyQueue(5, "2/s")), Rule("b", LeakyQueue(5, "1/s", "interval")))

    assert [limiter.hit({}).wait for _ in range(3)] == [1, 2, 3]


limits = st.one_of(
    st.builds(TokenBucket, st.integers(1, 6), st.sampled_from(["1/s", "3/s", "7/min", "0/s"])),
    st.builds(LeakyQueue, st.integers(1, 6), st.sampled_from(["1/s", "3/s", "7/min"])),
    st.builds(SlidingLog, st.integers(1, 6), st.sampled_from(["1s", "7s", "333333us"])),
    st.builds(FixedWindow, st.integers(1, 6), st.sampled_from(["1s", "7s", "333333us"])),
    st.builds(SlidingWindow, st.integers(1, 6), st.sampled_from(["1s", "7s", "333333us"])),
)


@given(
    st.lists(st.tuples(limits, st.integers(0, 4)), min_size=1, max_size=5),
    st.lists(st.integers(0, 3 * 10**6), max_size=15),
)
def test_retrying_as_told_succeeds(layers, gaps_us: list[int]):
    """Invariant 3: over any mix of limits and costs, retry_after is enough, and a microsecond less is not."""
    limiter, clock = limiter_of(
        *[Rule(f"r{n}", limit, cost=min(cost, limit.quota)) for n, (limit, cost) in enumerate(layers)]
    )
    for gap_us in gaps_us:
        clock.advance(Fraction(gap_us, 10**6))
        limiter.hit({})
    decision: Decision = limiter.peek({})
    told_us = decision.retry_after_us
    singles = [outcome.retry_after_us for outcome in decision.outcomes]

    if told_us is None:
        assert None in singles
        clock.advance(10**9)
        assert not limiter.peek({})
        return
    assert told_us == max(us or 0 for us in singles)
    if told_us:
        clock.advance(Fraction(told_us - 1, 10**6))
        assert not limiter.peek({})
        clock.advance(Fraction(1, 10**6))
    assert limiter.hit({})
