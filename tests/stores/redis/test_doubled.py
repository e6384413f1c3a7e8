# C143: something on the way sends a reply twice. It is never taken for the answer to another call.

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.servers.network import Network
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tidegate.errors import StoreUnavailable
from tidegate.stores.redis.link import RENEWED_EVERY_S

Opened = Callable[..., Face]
Between = Callable[[int], Network]


@pytest.mark.parametrize("late", [False, True], ids=["in a row", "when the next call is under way"])
def test_each_caller_has_his_own_answer(opened: Opened, valkey: RedisLike, network: Between, late: bool):
    """At most one call is an outage, of a broken reply; all others are answered, each by its own key."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), max_connections=1)
    costs = [number % 5 + 1 for number in range(12)]
    told: list[int | str] = []
    for number, cost in enumerate(costs):
        if number == 4:
            way.double(late=late)
        try:
            told.append(10 - store.decide([charge(f"key {number}", cost)])[0].remaining)
        except StoreUnavailable as error:
            told.append(error.cause)
    looked = [store.decide([charge(f"key {number}")], take=False)[0].remaining for number in range(12)]

    if told[5] == "broken_reply":  # else it was seen before the next was sent
        told[5] = costs[5]
    assert told == costs
    assert looked == [10 - cost for cost in costs]  # each was charged once, answered or not


def test_what_was_made_fresh_answers_no_decision(opened: Opened, valkey: RedisLike, network: Between):
    """Nor the other way round: the verbs echo their tags, too."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), max_connections=1)
    store.takes()
    store.forget([("rule", "acme")])
    store.takes()
    way.double(late=True)
    store.takes()
    with pytest.raises(StoreUnavailable) as while_forgetting:
        store.forget([("rule", "acme")])
    time.sleep(RENEWED_EVERY_S)
    store.takes()
    way.double(late=True)
    store.forget([("rule", "acme")])

    assert while_forgetting.value.cause == "broken_reply"
    assert store.cause() == "broken_reply"
    assert store.cause() is None
    assert store.decide([charge()], take=False)[0].remaining == 8
