"""The contract of a store, in one class: every store is asked by every path, and must answer the same.

A new store adds a line to `players.STORES` or `shared.SHARED`, not a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from tests.contract.players import STORES, Side, ways
from tidegate import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.limits import Limit
from tidegate.testing import ManualClock

KINDS: list[Limit] = [
    TokenBucket(10, "1/s"),
    LeakyBucket(10, "1/s"),
    LeakyQueue(10, "1/s"),
    SlidingLog(10, "10s"),
    FixedWindow(10, "10s"),
    SlidingWindow(10, "10s"),
]
Start = Callable[..., Side]
SOURCES = dict.fromkeys(STORES, "memory") | {"postgres": "postgres"}


@pytest.mark.parametrize(("store", "path"), ways())
class TestStore:
    """What every store keeps, whatever the path to it."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(1_000)

    @pytest.fixture
    def start(self, store: str, path: str, clock: ManualClock) -> Iterator[Start]:
        """Opens the store behind a limiter of these rules."""
        opened: list[Side] = []

        def started(*rules: Rule | Limit) -> Side:
            policy = Policy.of(rules[0] if len(rules) == 1 else rules)  # type: ignore[arg-type]  # one limit, or rules
            opened.append(Side(path, policy, clock, store))
            return opened[-1]

        yield started
        for side in opened:
            side.close()

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_a_refused_spend_costs_nothing(self, start: Start, limit: Limit):
        """C016: the same five answers by every algorithm, store and path."""
        side = start(limit)
        decisions = [side.hit("key", cost) for cost in (8, 5, 1, 1, 1)]

        assert [d.allowed for d in decisions] == [True, False, True, True, False]
        assert [d.remaining for d in decisions] == [2, 2, 1, 0, 0]

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_every_result_is_whole(self, start: Start, limit: Limit, store: str):
        """C059, C065: limit, remaining, time to full, who decided; an admission has retry_after 0."""
        decision = start(limit).hit("key", 3)

        assert [decision.limit, decision.cost, decision.remaining, decision.retry_after] == [limit, 3, 7, 0]
        assert decision.reset_after is not None
        assert 0 < decision.reset_after <= 20
        assert decision.source == SOURCES.get(store, "redis")
        assert decision.rule == "limit"

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_a_cost_above_the_limit_never_passes(self, start: Start, limit: Limit):
        """C075, C076: on an empty key and with 5 used; usage is unchanged."""
        side = start(limit)
        assert side.hit("key", 11).retry_after is None
        side.hit("key", 5)

        assert side.hit("key", 11).retry_after is None
        assert side.peek("key").remaining == 5

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_a_cost_of_nothing(self, start: Start, limit: Limit):
        """C081: on a fresh key, a used one and an empty one: the law's answer, and no change."""
        side = start(limit)
        for left in (10, 4, 0):
            decisions = [side.hit("key", 0) for _ in range(100)]
            assert {(d.allowed, d.remaining) for d in decisions} == {(True, left)}
            side.hit("key", 6 if left == 10 else 4)

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_looking_takes_nothing(self, start: Start, limit: Limit):
        """C068: a thousand looks leave what there is."""
        side = start(limit)
        side.hit("key", 4)

        assert {side.peek("key", 6).allowed for _ in range(1000)} == {True}
        assert side.hit("key", 6)

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_giving_back(self, start: Start, limit: Limit):
        """C082: what was taken comes back once, never more than is used; then ten pass and one is refused."""
        side = start(limit)
        decision = side.hit("key", 3)
        assert side.refund(decision, 2) == 2
        assert side.refund(decision, 5) == 1
        assert side.refund(decision) == 0

        assert sum(side.hit("key").allowed for _ in range(11)) == 10

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_a_refused_request_has_nothing_to_give_back(self, start: Start, limit: Limit):
        """Neither has a look."""
        side = start(limit)
        side.hit("key", 8)

        assert side.refund(side.hit("key", 5)) == 0
        assert side.refund(side.peek("key", 1)) == 0
        assert side.peek("key").remaining == 2

    def test_settling(self, start: Start):
        """C089: less than reserved comes back; more is charged, into debt, which time pays off."""
        side = start(TokenBucket(100, "1/s"))
        assert side.settle(side.hit("key", 30), 12) == 18
        assert side.peek("key").remaining == 88
        assert side.settle(side.hit("key", 30), 50) == -20
        assert side.settle(side.hit("key", 30), 60) == -30

        look = side.peek("key")
        assert [look.allowed, look.balance, look.retry_after] == [False, -22, 23]

    def test_a_window_that_has_ended_gives_nothing_back(self, start: Start, clock: ManualClock):
        """C047: five late refunds do nothing, and five pass in the new window."""
        side = start(FixedWindow(5, "1s"))
        clock.set(1_000.9)
        decisions = [side.hit("key") for _ in range(5)]
        clock.set(1_001.1)

        assert [side.refund(decision) for decision in decisions] == [0] * 5
        assert sum(side.hit("key").allowed for _ in range(20)) == 5

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_a_reset_key_is_as_one_never_seen(self, start: Start, limit: Limit, clock: ManualClock):
        """A reset gives all back, voids what was decided before, and leaves no instant behind."""
        side = start(limit)
        before = side.hit("key", 10)
        side.reset("key")
        clock.advance(-5)
        side.hit("key", 4)

        assert side.refund(before) == 0
        other = start(limit)
        assert side.peek("key").reset_after == other.hit("key", 4).reset_after
        assert side.peek("key").remaining == 6

    def test_all_or_nothing(self, start: Start):
        """C020: what one limit refuses is charged in none."""
        side = start(
            Rule("owner", TokenBucket(10, "0/s"), by=("owner",)),
            Rule("log", SlidingLog(3, "10s"), by=("owner",)),
            Rule("key", TokenBucket(1, "0/s"), by=("key",)),
        )
        for key in "aabb":
            side.hit({"owner": "o", "key": key})
        look = side.peek({"owner": "o", "key": "c"})

        assert [outcome.remaining for outcome in look.outcomes] == [8, 1, 1]

    def test_keys_and_rules_are_apart(self, start: Start):
        """C147: one key under two rules is two budgets; keys that look alike are different."""
        side = start(
            Rule("a", TokenBucket(1, "0/s"), by=("x",), match={"in": "a"}),
            Rule("b", TokenBucket(1, "0/s"), by=("x",), match={"in": "b"}),
        )
        values: list[Any] = ["k", b"k", 1, "1", ("k", "k"), None, "s1:k", "\ud800", "é", "e\u0301"]

        assert all(side.hit({"in": rule, "x": value}) for rule in "ab" for value in values)
        assert not any(side.hit({"in": rule, "x": value}) for rule in "ab" for value in values)

    def test_a_changed_limit_is_carried_over(self, start: Start):
        """C067: 10 of 12 used; of 5 then nothing is left, and 10 go back to 0 before anything passes."""
        side = start(Rule("r", TokenBucket(12, "0/s"), by=("key",)))
        side.hit("key", 10)
        side.replace_policy(Policy.of(Rule("r", TokenBucket(5, "0/s"), by=("key",))))

        assert [side.peek("key").remaining, side.peek("key").balance] == [0, -5]
        assert not side.hit("key")

    @pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
    def test_a_clock_that_steps(self, start: Start, limit: Limit, clock: ManualClock):
        """C023: up to 60 s back nothing is earned or lost; beyond, the key moves along."""
        side = start(limit)
        side.hit("key", 10)
        clock.advance(-60)
        frozen = side.hit("key")
        assert not frozen
        assert frozen.retry_after is not None
        assert 60 < frozen.retry_after <= 80
        clock.advance(-60)
        moved = side.hit("key")
        assert not moved
        assert moved.retry_after is not None
        assert moved.retry_after <= 20
        clock.advance(Fraction(moved.retry_after_us or 0, 10**6))
        assert side.hit("key")

    def test_a_shadow_never_blocks(self, start: Start):
        """It reports, and the others decide."""
        side = start(Rule("trial", TokenBucket(1, "0/s"), mode="shadow"), Rule("r", TokenBucket(3, "0/s")))
        decisions = [side.hit({}) for _ in range(4)]

        assert [d.allowed for d in decisions] == [True, True, True, False]
        assert [d.outcomes[0].allowed for d in decisions] == [True, False, False, False]

    def test_exactly_the_capacity_passes_among_many(self, start: Start):
        """C001, C002: eight threads or tasks on a key that is new: as many pass as there is room for."""
        passed = start(TokenBucket(50, "0/s")).ask_at_once("key", callers=8, each=25)

        assert (len(passed), sum(passed)) == (200, 50)

    def test_explicit_instants_take_the_place_of_the_clock(self, start: Start):
        """The store's verb takes an instant, for tests and simulation; its own clock then has no say."""
        side = start(TokenBucket(1, "1/s"))
        policy, store = side.limiter.policy, side.limiter.store
        charges, _ = policy.plan(policy.attributes("other"), 1_000)

        assert store.decide(charges, 5_000_000)[0].allowed
        assert store.decide(charges, 5_999_999)[0].retry_after_us == 1
        assert store.decide(charges, 5_999_999, take=False)[0].now_us == 5_999_999
        assert store.decide(charges, 6_000_000)[0].allowed
        store.forget([("limit", charges[0].key)])
        assert store.decide(charges, 6_000_000)[0].allowed
