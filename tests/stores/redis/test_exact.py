# Numbers at the edge of the exact integers, and a long run near the present.

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.redis_like import RedisLike
from tests.stores.redis.plain import PlainStore
from tidegate import TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.law import EXACT
from tidegate.core.outcome import Charge
from tidegate.stores.redis.state import parse_state
from tidegate.testing.reference import ReferenceStore
from tidegate.units import US_PER_S

SLOW = TokenBucket(1_600, "1 per 30 days")
NOW_US = 1_700_000_000 * US_PER_S


@pytest.fixture
def store(redis_like: RedisLike) -> PlainStore:
    return PlainStore(redis_like)


def test_spends_near_the_present(store: PlainStore):
    """C034: 2000 spends over two seconds all pass, and each state reads back to the microsecond."""
    limit, reference = TokenBucket(1_000, "1000/s"), ReferenceStore()
    charge = Charge("rule", "x", limit, 1_000)
    start_us = store.now_us()
    for number in range(2_000):
        now_us = start_us + number * 1_000
        (outcome,) = store.decide([charge], now_us)
        assert [outcome] == reference.decide([charge], now_us)
        assert outcome.charged
        stored = parse_state(store.redis.get(store.names.key("rule", "x")))
        assert stored is not None
        assert stored.state == outcome.state


def test_refunds_are_counted_beyond_the_exact_integers(store: PlainStore):
    """What is given back within one busy period may pass 2^53, and late refunds still end where they must."""
    reference = ReferenceStore()
    held, cycled = Charge("rule", "x", SLOW, 200_000), Charge("rule", "x", SLOW, 1_000_000)

    def both(charge: Charge) -> Any:
        (outcome,) = store.decide([charge], NOW_US)
        assert [outcome] == reference.decide([charge], NOW_US)
        return outcome

    def given_back(charge: Charge, receipt: Any, now_us: int) -> int:
        change = [Adjustment(charge, receipt, -charge.cost * SLOW.law.grain)]
        units = reference.adjust(change, now_us)
        assert store.adjust(change, now_us) == units
        return units[0]

    first = both(held)
    given = 0
    while given < 3 * EXACT:
        second = both(held)
        for _ in range(3):
            given += given_back(cycled, both(cycled).receipt, NOW_US)
        assert given_back(held, second.receipt, NOW_US) == 200_000 * SLOW.law.grain
        given += 200_000 * SLOW.law.grain
    stored = parse_state(store.redis.get(store.names.key("rule", "x")))

    assert stored is not None
    assert stored.state.given_back == given
    assert given_back(held, first.receipt, NOW_US + 10**11) < 200_000 * SLOW.law.grain


def test_levels_of_every_size_are_exact(store: PlainStore):
    """The largest level that there is, and each unit near the capacity: as the core says."""
    law: Any = SLOW.law
    edges = (EXACT - 1, law.room, law.room - law.q, law.room - 7 * law.q)
    for level in [edge - less for edge in edges for less in (0, 1, 2)]:
        value = b"L1 %d %d %d %d %d 0 0" % (law.room, law.q, law.p, level, NOW_US)
        store.redis.set(store.names.key("rule", "x"), value)
        state = parse_state(value)
        assert state is not None
        for now_us in (NOW_US, NOW_US + 1, NOW_US + 7_777_777):
            charge = Charge("rule", "x", SLOW, 1_000)
            reference = ReferenceStore()
            reference._states["rule", "x"] = state.state
            answered = store.decide([charge], now_us, take=False)
            assert answered == reference.decide([charge], now_us, take=False)
