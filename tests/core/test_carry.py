"""State carried across a changed limit: five ways, each with the bound that it states."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import admitted, at_once
from tests.oracle.bound import worst_excess
from tidegate import FixedWindow, LeakyQueue, Limiter, Policy, Rule, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.carry import WAYS, Carry, carry, is_change
from tidegate.core.law import EXACT
from tidegate.core.limits import Limit
from tidegate.testing import ManualClock


def policy(limit: Limit, way: str = "strict") -> Policy:
    return Policy([Rule("r", limit, by=("key",), carry=way)])  # type: ignore[arg-type]  # one of the five


def changing(first: Limit, way: str = "strict", start_s: int = 0) -> tuple[Limiter, ManualClock]:
    clock = ManualClock(start_s)
    return Limiter(policy(first, way), clock=clock), clock


@pytest.mark.parametrize(
    ("way", "smaller", "larger"),
    [
        ("strict", -2, 4),  # 8 of 12 used: of 6 there is a debt of 2; of 24 the same 4 are left
        ("keep_level", -2, 16),
        ("keep_tokens", 4, 4),
        ("proportional", 2, 8),
        ("reset", 6, 24),
    ],
)
def test_five_ways(way: str, smaller: int, larger: int):
    """What is left of 12 with 8 used, when the limit becomes 6 or 24."""
    for capacity, left in ((6, smaller), (24, larger)):
        limiter, _ = changing(TokenBucket(12, "0/s"), way)
        limiter.hit("key", 8)
        limiter.replace_policy(policy(TokenBucket(capacity, "0/s"), way))

        assert limiter.peek("key").balance == left


def test_a_smaller_limit_must_be_earned_back():
    """C067: 10 of 12 used, then 5: nothing is left, and spends are refused until usage has fallen below 5."""
    limiter, clock = changing(TokenBucket(12, "1/s"))
    limiter.hit("key", 10)
    limiter.replace_policy(policy(TokenBucket(5, "1/s")))

    assert limiter.peek("key").remaining == 0
    assert limiter.hit("key").retry_after == 6
    clock.advance(6)
    assert limiter.hit("key")
    assert not limiter.hit("key")


def test_there_and_back():
    """C165: in force at once for new calls; no change refills the balance."""
    limiter, clock = changing(TokenBucket(10, "1/s"))
    at_once(limiter, 10)
    limiter.replace_policy(policy(TokenBucket(10, "10/s")))
    assert not limiter.hit("key")
    clock.advance(0.5)
    assert admitted(at_once(limiter, 10)) == 5
    limiter.replace_policy(policy(TokenBucket(10, "1/s")))
    assert not limiter.hit("key")
    clock.advance(1)
    assert admitted(at_once(limiter, 10)) == 1


def test_the_smaller_rate_counts_until_the_first_touch():
    """Nobody knows when the change came: since the last touch the smaller of the rates counts."""
    for before, after in (("1/s", "5/s"), ("5/s", "1/s")):
        limiter, clock = changing(TokenBucket(10, before))
        limiter.hit("key", 10)
        clock.advance(1)
        limiter.replace_policy(policy(TokenBucket(10, after)))
        assert limiter.peek("key").balance == 1


def test_looking_does_not_carry():
    """A look at a changed limit, and a cost of 0, leave the state to the first hit."""
    limiter, clock = changing(TokenBucket(10, "1/s"))
    limiter.hit("key", 10)
    limiter.replace_policy(policy(TokenBucket(10, "5/s")))
    clock.advance(1)
    assert limiter.peek("key").balance == limiter.hit("key", 0).balance == 1
    limiter.replace_policy(policy(TokenBucket(10, "1/s")))
    clock.advance(1)

    assert limiter.peek("key").balance == 2


def test_an_equal_limit_is_no_change():
    """The same numbers in another spelling carry nothing and void nothing."""
    limiter, _ = changing(TokenBucket(10, "1/s"), "reset")
    decision = limiter.hit("key", 5)
    limiter.replace_policy(policy(TokenBucket(10.0, "60/min"), "reset"))
    assert limiter.peek("key").remaining == 5

    assert limiter.refund(decision) == 5


@pytest.mark.parametrize("way", WAYS)
def test_refunds_of_before_are_void(way: str):
    """What was taken under the old limit is not given back under the new, nor after a change back."""
    limiter, _ = changing(TokenBucket(10, "1/s"), way)
    decision = limiter.hit("key", 5)
    limiter.replace_policy(policy(TokenBucket(20, "1/s"), way))
    assert limiter.refund(decision) == 0
    limiter.hit("key", 1)
    assert limiter.refund(decision) == 0
    limiter.replace_policy(policy(TokenBucket(10, "1/s"), way))
    limiter.hit("key", 1)

    assert limiter.refund(decision) == 0


def test_a_settlement_is_charged_under_the_limit_in_force():
    """Settling for more after a change neither undoes it nor goes by the old capacity."""
    limiter, _ = changing(TokenBucket(10, "0/s"))
    reservation = limiter.reserve("key", 4)
    limiter.replace_policy(policy(TokenBucket(5, "0/s")))
    reservation.settle(100)

    assert limiter.peek("key").limit == TokenBucket(5, "0/s")
    assert limiter.peek("key").balance == -5


def test_a_log_keeps_its_entries():
    """From log to log, what was spent at t stops counting at t + window; strict adds an entry of now."""
    for way, later_s, left in (
        ("keep_level", 0, 3),
        ("keep_level", 10, 4),
        ("strict", 0, 1),
        ("strict", 10, 2),
        ("strict", 13, 3),
        ("strict", 16, 5),
    ):
        limiter, clock = changing(SlidingLog(3, "10s"), way)
        for _ in range(2):
            limiter.hit("key")
            clock.advance(3)
        limiter.replace_policy(policy(SlidingLog(5, "10s"), way))
        limiter.hit("key", 5)  # refused: the first touch
        clock.set(later_s or 6)
        assert limiter.peek("key").remaining == left


def test_a_fresh_key_has_nothing_to_carry():
    """As fresh by the limit that wrote it, it is fresh by the new one, whether or not a store has kept it."""
    for limit in (TokenBucket(2, "1/s"), FixedWindow(2, "2s"), SlidingLog(2, "2s"), LeakyQueue(2, "1/s")):
        limiter, clock = changing(limit)
        limiter.hit("key", 2)
        clock.advance(2)
        limiter.replace_policy(policy(TokenBucket(10, "1/30day")))
        assert limiter.peek("key").remaining == 10


KINDS = st.one_of(
    st.builds(TokenBucket, st.integers(1, 20), st.sampled_from(["1/s", "5/s", "1/3s", "0/s"])),
    st.builds(LeakyQueue, st.integers(1, 20), st.sampled_from(["1/s", "5/s", "1/3s"])),
    st.builds(SlidingLog, st.integers(1, 20), st.sampled_from(["1s", "10s"])),
    st.builds(FixedWindow, st.integers(1, 20), st.sampled_from(["1s", "10s"])),
    st.builds(SlidingWindow, st.integers(1, 20), st.sampled_from(["1s", "10s"])),
)


@given(
    KINDS,
    KINDS,
    st.sampled_from(WAYS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 5)), max_size=8),
)
def test_between_any_two_kinds(first: Limit, second: Limit, way: str, story: list[tuple[int, int]]):
    """At the instant of the change what is left follows the formula of its way, whatever the kinds."""
    limiter, clock = changing(first, way, 1_000)
    for gap_us, cost in story:
        clock.advance(Fraction(gap_us, 10**6))
        limiter.hit("key", cost)
    before = limiter.peek("key")
    had: Any = before.balance
    used = Fraction(first.capacity) - had
    limiter.replace_policy(policy(second, way))
    left: Any = limiter.peek("key").balance
    if before.reset_after == 0 or not is_change(first.law, second.law):
        assert left == (second.capacity if is_change(first.law, second.law) else before.balance)
        return
    used = Fraction(-(-used * 1000 // 1), 1000)
    kept = {
        "strict": min(second.capacity - used, max(Fraction(0), first.capacity - used)),
        "keep_level": second.capacity - used,
        "keep_tokens": min(Fraction(second.capacity), first.capacity - used),
        "proportional": second.capacity - Fraction(-(-used * second.capacity * 1000 // first.capacity), 1000),
        "reset": Fraction(second.capacity),
    }

    assert left <= second.capacity
    if not (isinstance(first, SlidingLog) and isinstance(second, SlidingLog)):
        assert left == kept[way]
    elif way == "strict":
        assert left <= max(had, Fraction(second.capacity) - used)


def excess(seed: int, way: str, changes: int, *, of_all: bool) -> Fraction:
    """How far a greedy caller gets beyond its bound, by brute force over all intervals."""
    chance = random.Random(seed)
    rates = [Fraction(chance.choice([1, 5, 7]), chance.choice([1, 3])) for _ in range(changes + 1)]
    capacities = [chance.choice([1, 2, 3, 5, 10, 20]) for _ in range(changes + 1)]
    limiter, clock = changing(TokenBucket(1, "1/s"), way)
    taken = []
    for capacity, rate in zip(capacities, rates, strict=True):
        text = f"{rate.numerator}/{rate.denominator}s"
        limiter.replace_policy(policy(TokenBucket(capacity, text), way))
        for _ in range(chance.randint(1, 8)):
            clock.advance(Fraction(chance.choice([0, 0, 1, 333_333, 10**6, 5 * 10**6]), 10**6))
            while chance.random() < 0.9:
                look = limiter.peek("key", 0)
                cost = min(look.remaining or 0, chance.choice([1, 2, 20])) or 1
                if not limiter.hit("key", cost):
                    break
                taken.append((clock.now_us(), Fraction(cost), Fraction(0)))
    bound = Fraction(sum(capacities) if of_all else max(capacities))
    return worst_excess(taken, bound, max(rates) / 10**6)


@pytest.mark.parametrize("changes", [1, 2, 5])
@pytest.mark.parametrize("way", ["strict", "keep_level"])
def test_what_keeps_the_level_keeps_the_larger_bound(way: str, changes: int):
    """Invariant 1: max(capacities) + the largest rate over the time, in every interval."""
    assert [seed for seed in range(60) if excess(seed, way, changes, of_all=False) > 0] == []


@pytest.mark.parametrize("changes", [1, 2, 5])
@pytest.mark.parametrize("way", WAYS)
def test_no_way_gives_more_than_all(way: str, changes: int):
    """Invariant 1: the sum of the capacities + the largest rate over the time, in every interval."""
    assert [seed for seed in range(60) if excess(seed, way, changes, of_all=True) > 0] == []


def test_reset_hands_out_the_new_capacity():
    """The bound of a reset is reached: a change is a second burst, which is what it says."""
    assert max(excess(seed, "reset", 1, of_all=False) for seed in range(60)) > 0


def log_excess(seed: int, way: str) -> int:
    """The most in any stretch of the shortest window beyond the largest limit, over changes of a log."""
    chance = random.Random(seed)
    limits = [(chance.choice([1, 3, 5, 10]), chance.choice([1, 3, 10])) for _ in range(4)]
    limiter, clock = changing(SlidingLog(1, "1s"), way)
    taken = []
    for limit, window_s in limits:
        limiter.replace_policy(policy(SlidingLog(limit, f"{window_s}s"), way))
        for _ in range(20):
            clock.advance(Fraction(chance.choice([0, 1, 250, 1000, 2999]), 1000))
            while limiter.hit("key"):
                taken.append(clock.now_us())
    window_us = min(window_s for _, window_s in limits) * 10**6
    return max(sum(at <= other < at + window_us for other in taken) for at in taken) - max(
        n for n, _ in limits
    )


@pytest.mark.parametrize("way", ["strict", "keep_level"])
def test_a_log_keeps_the_larger_bound(way: str):
    """Over several changes of a log no stretch of the shortest window holds more than the largest limit."""
    assert [seed for seed in range(60) if log_excess(seed, way) > 0] == []


@pytest.mark.parametrize(
    "limit",
    [FixedWindow(4_000_000_000_000, "1h"), SlidingLog(100_000, "1h"), TokenBucket(1_600, "1 per 30 days")],
)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_carried_passes_the_exact_integers(limit: Limit, way: Carry):
    """Whatever the numbers before and after, a state stays one that every store can hold."""
    before: Any = FixedWindow(Fraction(1, 1_000), "1h").law
    state = carry(before.holding(EXACT - 1, 0, 0), limit.law, 0, way)

    assert limit.law.used(state) * limit.law.grain < EXACT + limit.law.grain
    assert way == "reset" or not limit.law.fits(state, 1_000)
