# Strict charges: what the store does not hold may have been lost, so it begins used up, not full.

from __future__ import annotations

import pytest

from tests.servers.redis_like import RedisLike
from tests.stores.redis.plain import PlainStore
from tidegate import FixedWindow, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.law import Receipt
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge
from tidegate.units import US_PER_S

NOW_US = 1_700_000_000 * US_PER_S
BUCKET = TokenBucket(10, "1/s")
BUDGET = TokenBucket(10, "0/s")


def charge(limit: Limit = BUCKET, cost: int = 1_000, key: str = "x") -> Charge:
    return Charge("rule", key, limit, cost, strict=True)


@pytest.fixture
def store(redis_like: RedisLike) -> PlainStore:
    return PlainStore(redis_like)


def epoch(store: PlainStore) -> bytes | None:
    value: bytes | None = store.redis.get(store.names.epoch())
    return value


@pytest.mark.parametrize(
    "limit", [BUCKET, FixedWindow(10, "10s"), SlidingWindow(10, "10s"), SlidingLog(10, "10s")]
)
def test_a_new_store_begins_used_up(store: PlainStore, limit: Limit):
    """The first refusal sets the epoch; from then on every key refills as one that was used up at it."""
    (refused,) = store.decide([charge(limit)], NOW_US)
    assert (refused.allowed, refused.left) == (False, 0)
    assert epoch(store) == b"%d" % NOW_US
    assert store.redis.exists(store.names.key("rule", "x")) == 0

    at_us = NOW_US + (refused.retry_after_us or 0)
    assert not store.decide([charge(limit)], at_us - 1)[0].allowed
    assert store.decide([charge(limit)], at_us)[0].charged
    assert store.decide([charge(limit, key="another")], at_us)[0].charged
    assert store.decide([charge(limit, 10_000, "late")], NOW_US + 3_600 * US_PER_S)[0].charged


def test_the_epoch_does_not_expire(store: PlainStore):
    """It holds for as long as the store does."""
    store.decide([charge()])

    assert store.redis.pttl(store.names.epoch()) == -1


def test_what_loses_its_state_begins_again(store: PlainStore):
    """After everything is lost a key that was half used is not full; a rule that is not strict is."""
    store.decide([charge()], NOW_US - 60 * US_PER_S)
    assert store.decide([charge(cost=5_000)], NOW_US)[0].charged
    store.redis.flushdb()

    assert not store.decide([charge()], NOW_US)[0].allowed
    assert store.decide([charge()._replace(strict=False)], NOW_US)[0].left == 9_000


def test_looking_and_a_cost_of_nothing_write_nothing(store: PlainStore):
    """Without an epoch they see a key that is used up now, and leave no epoch."""
    for asked, take in ((charge(), False), (charge(cost=0), True)):
        (outcome,) = store.decide([asked], NOW_US, take=take)
        assert outcome.left == 0
        assert store.redis.dbsize() == 0


def test_a_store_that_was_told_to_begin_full_does(store: PlainStore):
    """An epoch of 0 says that nothing was ever lost: all budgets begin full, of any law and rate."""
    store.redis.set(store.names.epoch(), "0")
    slow = (TokenBucket(10, "1 per 365 days"), SlidingWindow(10, "36500 days"), SlidingLog(10, "36500 days"))

    for limit in (BUCKET, BUDGET, FixedWindow(10, "month", "Europe/Berlin"), SlidingLog(10, "1h"), *slow):
        assert store.decide([charge(limit, key=repr(limit))])[0].left == 9_000


def test_a_virtual_clock_at_its_beginning_sets_no_epoch_that_grants(store: PlainStore):
    """At the instant 0 a server of which nothing is known is as forgetful as at any other."""
    assert not store.decide([charge()], 0)[0].allowed
    assert not store.decide([charge(key="other")], 1)[0].allowed

    assert epoch(store) == b"1"


def test_a_budget_that_nothing_refills_is_refilled_by_a_reset(store: PlainStore):
    """After a loss it stays used up until it is reset, and a reset is not taken for a loss."""
    assert not store.decide([charge(BUDGET)])[0].allowed
    store.forget([("rule", "x")])
    assert 0 < store.redis.pttl(store.names.key("rule", "x")) <= 31 * 86_400_000
    store.forget([("rule", "x")])

    assert store.decide([charge(BUDGET, 10_000)])[0].charged
    store.forget([("rule", "x")])
    assert store.redis.pttl(store.names.key("rule", "x")) == -1
    assert store.decide([charge(BUDGET, 10_000)])[0].charged


def test_a_reset_lives_until_a_loss_would_be_refilled(store: PlainStore):
    """A key that was reset stays fresh for as long as an absent one would count as used."""
    store.decide([charge(key="y")])
    store.redis.set(store.names.epoch(), b"%d" % (store.now_us() - 1_000))
    store.decide([charge(cost=0)])
    store.redis.set(
        store.names.key("rule", "x"), b"L1 10000000 1000000 1 1 %d 0 0" % store.now_us(), px=1_000
    )
    store.forget([("rule", "x")])

    assert store.redis.pttl(store.names.key("rule", "x")) > 10_000 + 3_500_000


def test_without_strict_rules_a_reset_of_nothing_leaves_nothing(store: PlainStore):
    """Where there is no epoch nobody asks what was lost."""
    store.forget([("rule", "x"), ("rule", "y")])

    assert store.redis.dbsize() == 0


def test_an_epoch_ahead_of_the_clock(store: PlainStore):
    """A little ahead, keys wait for it; far ahead, the first refusal moves the key back, and it refills."""
    store.redis.set(store.names.epoch(), b"%d" % (NOW_US + 30 * US_PER_S))
    (refused,) = store.decide([charge()], NOW_US)
    assert refused.retry_after_us == 31 * US_PER_S

    store.redis.set(store.names.epoch(), b"%d" % (NOW_US + 3_600 * US_PER_S))
    (refused,) = store.decide([charge()], NOW_US)
    assert refused.retry_after_us == US_PER_S
    assert store.decide([charge()], NOW_US + US_PER_S)[0].charged


@pytest.mark.parametrize("value", [b"", b"x", b"1e400", b"12.5", b"9" * 40])
def test_an_epoch_that_cannot_be_read_is_now(store: PlainStore, value: bytes):
    """It is set anew: nothing is granted on its word."""
    store.redis.set(store.names.epoch(), value)
    assert not store.decide([charge()], NOW_US)[0].allowed

    assert epoch(store) == b"%d" % NOW_US


def test_an_epoch_of_another_type_is_an_error(store: PlainStore):
    """A mistake is told, and charges nothing."""
    store.redis.lpush(store.names.epoch(), "x")

    with pytest.raises(Exception, match="WRONGTYPE"):
        store.decide([charge()._replace(strict=False, key="y"), charge()])
    assert store.redis.dbsize() == 1
    assert store.decide([charge()._replace(strict=False)])[0].charged


def test_one_strict_rule_among_others(store: PlainStore):
    """Each rule of a request is strict for itself; a refusal by one charges none."""
    lenient = Charge("lenient", "x", BUCKET, 1_000)
    refused = store.decide([lenient, charge()], NOW_US)
    assert [outcome.allowed for outcome in refused] == [True, False]

    passed = store.decide([lenient, charge()], NOW_US + 2 * US_PER_S)
    assert [outcome.left for outcome in passed] == [9_000, 1_000]


def test_what_is_owed_is_owed_on_top_of_the_loss(store: PlainStore):
    """Settling for more charges a lost key from used up on; giving back finds nothing."""
    receipt = Receipt(1_000, NOW_US, NOW_US, 10**6)
    units = 1_000 * BUCKET.law.grain
    assert store.adjust([Adjustment(charge(), receipt, -units)], NOW_US) == [0]
    assert store.redis.dbsize() == 0

    assert store.adjust([Adjustment(charge(), receipt, units)], NOW_US) == [0]
    assert store.adjust([Adjustment(charge(), receipt, units, debt=5_000)], NOW_US) == [-units]
    assert store.decide([charge()], NOW_US, take=False)[0].left == -1_000
