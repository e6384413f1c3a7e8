# Every call ends by its deadline, whatever the server or the network does; and afterwards all is as before.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.servers.network import REPLIES, Network
from tests.servers.redis_groups import wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tidegate.errors import StoreUnavailable
from tidegate.stores.health import FAILURES_TO_OPEN
from tidegate.stores.redis.store import RedisStore

pytestmark = pytest.mark.real_time

Opened = Callable[..., Face]
Between = Callable[[int], Network]

GRACE_S = 0.01
SCHEDULING_S = 0.05
"""What a busy machine may add to the slowest of a few calls."""


def timed(store: Face, key: str = "acme") -> tuple[str | None, float]:
    """The cause, and how long it took to be told."""
    begin_s = time.perf_counter()
    cause = store.cause(key)
    return cause, time.perf_counter() - begin_s


def slowest_but_one(took_s: list[float]) -> float:
    return sorted(took_s)[-2]


def test_a_frozen_server(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Calls end by the deadline, then at once while the breaker is open; soon all is well again."""
    server = own_redis()
    store = opened(server.url, deadline="40ms")
    store.reach()
    server.freeze()
    waited = [timed(store) for _ in range(FAILURES_TO_OPEN)]
    refused = []
    until_s = time.monotonic() + 0.7
    while time.monotonic() < until_s:
        begin_s = time.thread_time()  # of this thread alone: the machine may have others to serve
        refused.append((store.cause(), time.thread_time() - begin_s))
    server.thaw()
    thawed_s = time.perf_counter()
    wait_for("it answers again", lambda: store.cause() is None, within_s=5)
    recovered_s = time.perf_counter() - thawed_s

    assert [cause for cause, _ in waited] == ["deadline"] * FAILURES_TO_OPEN
    assert all(0.03 < took_s < 0.04 + GRACE_S + SCHEDULING_S for _, took_s in waited)
    assert {cause for cause, _ in refused} == {"breaker"}
    assert sorted(took_s for _, took_s in refused)[len(refused) * 99 // 100] < 0.001
    assert recovered_s < 1


@pytest.mark.parametrize("lost", [(), (REPLIES,)], ids=["all is lost", "replies are lost"])
def test_a_network_that_swallows(opened: Opened, valkey: RedisLike, network: Between, lost: tuple[str, ...]):
    """C137: connections that are open, and new ones too, get no answer; each call ends by its deadline."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="40ms")
    store.reach()
    way.swallow(*lost)
    took = []
    for _ in range(3):
        took += [timed(store) for _ in range(FAILURES_TO_OPEN + 20)]
        time.sleep(0.1)
    way.heal()
    healed_s = time.perf_counter()
    wait_for("it answers again", lambda: store.cause() is None, within_s=5)

    assert {cause for cause, _ in took} == {"deadline", "breaker"}
    assert slowest_but_one([took_s for _, took_s in took]) < 0.04 + GRACE_S + SCHEDULING_S
    assert time.perf_counter() - healed_s < 1


def test_a_server_that_was_never_reached(opened: Opened, valkey: RedisLike, network: Between):
    """C137: connecting counts as part of the call; what connects at last is there for the next."""
    way = network(valkey.port)
    way.swallow()
    store = opened(way.through(valkey.url), deadline="40ms")
    took = [timed(store) for _ in range(10)]
    way.heal()
    wait_for("it answers", lambda: store.cause() is None, within_s=2)

    assert {cause for cause, _ in took} == {"deadline", "breaker"}
    assert slowest_but_one([took_s for _, took_s in took]) < 0.04 + GRACE_S + SCHEDULING_S


def test_a_late_reply_is_no_answer_to_another_call(opened: Opened, valkey: RedisLike, network: Between):
    """C137, C142: replies come 250 ms late, calls wait 120; each answer that comes is to its own call."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="120ms")
    store.reach()
    answers = []
    for number in range(8):
        way.delay(0.25 if number % 2 else 0)
        key = f"key {number}"
        (answer,) = store.decide_many([[charge(key, cost=number % 10)]])
        answers.append(answer)

    assert all(isinstance(answer, Exception) == bool(number % 2) for number, answer in enumerate(answers))
    assert [
        (answer[0].charge.key, answer[0].remaining) for answer in answers if not isinstance(answer, Exception)
    ] == [(f"key {number}", 10 - number % 10) for number in range(0, 8, 2)]


def test_a_reply_that_trickles(opened: Opened, valkey: RedisLike, network: Between):
    """The deadline is for the whole reply, and not for each of its pieces."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="40ms")
    store.reach()
    way.hold()
    cause, took_s = timed(store)

    assert cause == "deadline"
    assert took_s < 0.04 + GRACE_S + SCHEDULING_S


def test_a_call_may_have_a_deadline_of_its_own(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Shorter than the store's."""
    server = own_redis()
    store = opened(server.url, deadline="5s")
    store.reach()
    server.freeze()
    begin_s = time.perf_counter()
    (answer,) = store.decide_many([[charge()]], deadline_us=30_000)
    took_s = time.perf_counter() - begin_s

    assert answer.cause == "deadline"
    assert took_s < 0.03 + GRACE_S + SCHEDULING_S


def test_what_was_charged_without_an_answer_is_not_charged_again(
    opened: Opened, valkey: RedisLike, network: Between
):
    """The reply is lost, the charge stays: nine are left, and not eight."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="40ms")
    store.reach()
    way.swallow(REPLIES)
    cause = store.cause()
    way.heal()
    wait_for("it answers again", lambda: store.cause("a third") is None, within_s=5)

    assert cause == "deadline"
    assert store.decide([charge(cost=0)])[0].remaining == 9


def test_many_calls_after_a_failure_end_with_it(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Of 4,000 requests, 32 calls long, the first call waits for its deadline and no other one does."""
    server = own_redis()
    store = opened(server.url, deadline="40ms")
    store.reach()
    server.freeze()
    begin_s = time.perf_counter()
    answers = store.decide_many([[charge(f"key {number}")] for number in range(4_000)])

    assert {answer.cause for answer in answers} == {"deadline"}
    assert time.perf_counter() - begin_s < 0.6


def test_a_crowd_before_a_frozen_server(own_redis: Callable[..., RedisLike]):
    """Twenty threads and a hundred tasks: each is told by the deadline, and served soon after the thaw."""
    server = own_redis()
    store = RedisStore(server.url, deadline="100ms")
    took_s: list[float] = []

    def ask() -> None:
        begin_s = time.perf_counter()
        with pytest.raises(StoreUnavailable):
            store.decide([charge()])
        took_s.append(time.perf_counter() - begin_s)

    async def ask_awaited() -> None:
        begin_s = time.perf_counter()
        with pytest.raises(StoreUnavailable):
            await store.awaited.decide([charge()])
        took_s.append(time.perf_counter() - begin_s)

    async def crowd() -> None:
        await store.awaited.decide([charge()], deadline_us=5_000_000)
        server.freeze()
        await asyncio.gather(
            *(ask_awaited() for _ in range(100)), *(asyncio.to_thread(ask) for _ in range(20))
        )
        server.thaw()
        thawed_s = time.perf_counter()
        while time.perf_counter() < thawed_s + 1:
            try:
                await store.awaited.decide([charge("other")])
                break
            except StoreUnavailable:
                await asyncio.sleep(0.01)
        else:
            raise AssertionError("not served again within a second")
        await store.awaited.close()

    asyncio.run(crowd())

    assert len(took_s) == 120
    assert sorted(took_s)[118] < 0.1 + GRACE_S + SCHEDULING_S
