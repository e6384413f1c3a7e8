# Every key expires, and not before nothing is lost by it.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.servers.redis_like import RedisLike
from tests.stores.redis.plain import PlainStore, the_outcome
from tidegate import FixedWindow, LeakyBucket, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge, Outcome
from tidegate.stores.redis import wire
from tidegate.units import US_PER_S

pytestmark = pytest.mark.real_time

LIMITS: list[Limit] = [
    TokenBucket(10, "7/s"),
    LeakyBucket(10, "1/min"),
    LeakyQueue(10, "3/s"),
    FixedWindow(10, "1min"),
    FixedWindow(10, "month", "Europe/Berlin"),
    SlidingWindow(10, "1min"),
    SlidingLog(10, "1min"),
]
NEVER = TokenBucket(10, "0/s")
ALLOWANCE_MS, ALLOWANCE_GIVEN_MS = 60_000, 3_600_000


def charge(limit: Limit, cost: int = 3_000, key: str = "x") -> Charge:
    return Charge("rule", key, limit, cost)


@pytest.fixture
def store(redis_like: RedisLike) -> PlainStore:
    return PlainStore(redis_like)


def decided_with_expiry(store: PlainStore, asked: Charge, name: bytes) -> tuple[Outcome, int]:
    """The outcome, and the expiry right after it: nothing comes in between."""
    sent = wire.encode_decide([[asked]], store.names, windows_at_us=store.now_us())
    (reply, left_ms) = store.together(store.deciding, sent, ("PTTL", name))
    return the_outcome(wire.decode_decide(reply, [[asked]], wire.echo_of(sent[1]))), left_ms


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_a_key_lives_until_it_is_fresh_and_a_minute(store: PlainStore, limit: Limit):
    """C041, C048: to the millisecond, rounded up, at the first use and at later ones."""
    longest: dict[str, list[int]] = {"first": [], "later": []}
    for number in range(30):
        name = store.names.key("rule", f"{number}")
        for use, seen in longest.items():
            outcome, left_ms = decided_with_expiry(store, charge(limit, key=f"{number}"), name)
            assert outcome.charged, use
            assert outcome.reset_after_us is not None
            seen.append(left_ms - -(-outcome.reset_after_us // 1_000))

    for use, seen in longest.items():
        assert max(seen) == ALLOWANCE_MS, (use, seen)


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_every_way_of_asking_leaves_an_expiry(store: PlainStore, limit: Limit):
    """C041: refused, given back, owed and reset keys expire too; looking and a cost of 0 write nothing."""
    name = store.names.key("rule", "x")
    for asked, take in ((charge(limit, 0), True), (charge(limit), False), (charge(limit, 99_000), True)):
        store.decide([asked], take=take)
        assert store.redis.get(name) is None, (asked, take)

    (taken,) = store.decide([charge(limit)])
    written = store.redis.get(name)
    store.decide([charge(limit, 99_000)])
    assert store.redis.get(name) == written

    kept = store.redis.pttl(name)
    owing = Adjustment(charge(limit), taken.receipt, 50_000 * limit.law.grain, debt=10_000)
    for change in (owing, Adjustment(charge(limit), taken.receipt, -1_000 * limit.law.grain)):
        assert store.adjust([change]) != [0]
        assert store.redis.pttl(name) > 0
    assert store.redis.pttl(name) >= kept - 1_000
    store.forget([("rule", "x")])
    assert store.redis.pttl(name) > 0


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_all_of_many_keys_expire(store: PlainStore, limit: Limit):
    """C041: a thousand keys, each with an expiry no later than it must be."""
    requests = [[charge(limit, key=f"{number}")] for number in range(1_000)]
    latest_ms = 0
    for (outcome,) in store.decide_many(requests):
        assert outcome.charged
        latest_ms = max(latest_ms, -(-outcome.reset_after_us // 1_000) + ALLOWANCE_MS)
    pipeline = store.redis.pipeline(transaction=False)
    for name in store.redis.keys("*"):
        pipeline.pttl(name)
    lives = pipeline.execute()

    assert len(lives) == 1_000
    assert 0 < min(lives) <= max(lives) <= latest_ms


def test_a_first_cost_of_nothing(store: PlainStore):
    """C051: 33 at once on one key, 0 and then 33 on another: both expire with the window and the margin."""
    limit = FixedWindow(100, "1min")
    store.decide([charge(limit, 33_000, "one")])
    store.decide([charge(limit, 0, "other")])
    assert store.redis.exists(store.names.key("rule", "other")) == 0
    store.decide([charge(limit, 33_000, "other")])

    for key in ("one", "other"):
        assert 0 < store.redis.pttl(store.names.key("rule", key)) <= 60_000 + ALLOWANCE_MS


def test_an_instant_that_was_given_gets_an_hour(store: PlainStore):
    """A virtual clock may run slower than real time, so its keys are kept for longer."""
    store.decide([charge(TokenBucket(10, "1/s"))], 0)

    left_ms = store.redis.pttl(store.names.key("rule", "x"))
    assert ALLOWANCE_GIVEN_MS < left_ms <= 3_000 + ALLOWANCE_GIVEN_MS


def test_a_clock_that_went_back_keeps_longer(store: PlainStore):
    """What drains only from a later instant on is kept until it has."""
    limit = TokenBucket(10, "1/s")
    store.decide([charge(limit)], 60 * US_PER_S)
    store.decide([charge(limit)], 10 * US_PER_S)

    left_ms = store.redis.pttl(store.names.key("rule", "x"))
    assert 55_000 + ALLOWANCE_GIVEN_MS < left_ms <= 56_000 + ALLOWANCE_GIVEN_MS


@pytest.mark.parametrize("way", ["refused", "cost 0", "not given back", "nothing owed", "shadowed"])
@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_a_missing_expiry_is_put_right(store: PlainStore, limit: Limit, way: str):
    """C038: whoever took a key's expiry away, the next call of any kind gives it one; looking does not."""
    name = store.names.key("rule", "x")
    (taken,) = store.decide([charge(limit, 9_000)])
    store.redis.persist(name)
    store.decide([charge(limit)], take=False)
    assert store.redis.pttl(name) == -1
    receipt = taken.receipt
    ways: dict[str, Callable[[], object]] = {
        "refused": lambda: store.decide([charge(limit, 99_000)]),
        "cost 0": lambda: store.decide([charge(limit, 0)]),
        "not given back": lambda: store.adjust(
            [Adjustment(charge(limit), receipt._replace(since_us=1), -1_000 * limit.law.grain)]
        ),
        "nothing owed": lambda: store.adjust(
            [Adjustment(charge(limit), receipt, 1_000 * limit.law.grain, debt=-1_000)]
        ),
        "shadowed": lambda: store.decide([charge(limit, 99_000)._replace(mode="shadow")]),
    }
    ways[way]()

    assert store.redis.pttl(name) > 0


@pytest.mark.parametrize("limit", [*LIMITS, NEVER], ids=repr)
def test_a_foreign_counter_is_used_up_and_then_free(store: PlainStore, limit: Limit):
    """C038: a counter of 7 without expiry refuses at first, gets one, and frees its key after a window."""
    name = store.names.key("rule", "x")
    store.redis.set(name, "7")
    now_us = store.now_us()
    (refused,) = store.decide([charge(limit)], now_us)
    left_ms = store.redis.pttl(name)

    assert (refused.allowed, refused.remaining) == (False, 0)
    if limit is NEVER:
        assert left_ms == -1
        return
    assert left_ms > 0
    (freed,) = store.decide([charge(limit)], now_us + (refused.retry_after_us or 0))
    assert freed.charged


def test_rate_0_never_expires(store: PlainStore):
    """C038: what no time refills is kept for ever, unless all of it was given back."""
    name = store.names.key("rule", "x")
    (taken,) = store.decide([charge(NEVER, 9_000)])
    assert store.redis.pttl(name) == -1
    store.decide([charge(NEVER, 9_000)])
    assert store.redis.pttl(name) == -1
    store.adjust([Adjustment(charge(NEVER), taken.receipt, -1_000 * NEVER.law.grain)])
    assert store.redis.pttl(name) == -1
    store.decide([charge(NEVER, 0)])
    assert store.redis.pttl(name) == -1

    store.adjust([Adjustment(charge(NEVER), taken.receipt, -8_000 * NEVER.law.grain, own=1_000_000)])
    assert 0 < store.redis.pttl(name) <= ALLOWANCE_MS


def test_a_limit_that_comes_to_rest_keeps_its_keys(store: PlainStore):
    """An expiry from before goes when the rate becomes 0, and comes when it does not stay so."""
    name = store.names.key("rule", "x")
    store.decide([charge(TokenBucket(10, "1/s"))])
    store.decide([charge(NEVER, 99_000)])
    assert store.redis.pttl(name) == -1
    store.decide([charge(TokenBucket(10, "1/s"), 0)])
    assert store.redis.pttl(name) == -1, "a cost of 0 writes nothing, so the state is still the other law's"

    store.decide([charge(TokenBucket(10, "1/s"), 99_000)])
    assert store.redis.pttl(name) > 0


def test_small_capacity_and_high_rate(store: PlainStore):
    """C048: short lives grant nothing: 1000 of 1500 at once; of 20000, 6000 and what refills."""
    slow = TokenBucket(1_000, "1000/min")
    answers = store.decide_many([[charge(slow, 1_000)]] * 1_500)
    assert sum(outcome.charged for (outcome,) in answers) == 1_000

    fast = TokenBucket(6_000, "6000/s")
    outcomes = []
    for _ in range(40):
        outcomes += [outcome for (outcome,) in store.decide_many([[charge(fast, 1_000, "fast")]] * 500)]
    elapsed_us = outcomes[-1].now_us - outcomes[0].now_us
    assert sum(outcome.charged for outcome in outcomes) <= 6_000 + 6_000 * elapsed_us / US_PER_S


def test_the_adjusted_expire_with_what_they_have(store: PlainStore):
    """Giving back shortens the life of a key, and owing makes it longer, to the millisecond."""
    limit = TokenBucket(100, "7/s")
    law: Any = limit.law
    name, shortest = store.names.key("rule", "x"), []
    for units in [-1_000 * limit.law.grain, 2_000 * limit.law.grain] * 15:
        (taken,) = store.decide([charge(limit, 2_000)])
        change = Adjustment(charge(limit), taken.receipt, units, debt=10**6)
        sent = wire.encode_adjust([change], store.names)
        reply, left_ms = store.together(store.adjusting, sent, ("PTTL", name))
        level = taken.state.level - wire.decode_adjust(reply, [change], wire.echo_of(sent[1]))[0]
        gone_us = int(reply.split()[0]) * US_PER_S + int(reply.split()[1]) - taken.state.at_us
        shortest.append(left_ms - -(-(level - gone_us * law.p) // (law.p * 1_000)))

    assert max(shortest) == ALLOWANCE_MS
