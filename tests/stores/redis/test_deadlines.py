# Every call ends by its deadline, whatever the server or the network does; and afterwards all is as before.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.promptness import GRACE_S, Stopwatch, best_s, percentile
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

DEADLINE_S = 0.04
PROMISED_S = DEADLINE_S + GRACE_S


def timed(store: Face, key: str = "acme") -> tuple[str | None, float]:
    """The cause, and how long it took to be told."""
    with Stopwatch() as watch:
        cause = store.cause(key)
    return cause, watch.took_s


def opened_breaker(store: Face) -> None:
    """Ask until nobody is sent to the server any more."""
    wait_for("the breaker opens", lambda: store.cause() == "breaker")


def test_a_frozen_server(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Calls end by the deadline, and not before it; three of them open the breaker."""
    server = own_redis()
    store = opened(server.url, deadline="40ms")

    def frozen() -> float:
        store.reach()
        server.freeze()
        waited = [timed(store) for _ in range(FAILURES_TO_OPEN)]
        then = store.cause()
        server.thaw()

        assert [cause for cause, _ in waited] == ["deadline"] * FAILURES_TO_OPEN
        assert min(took_s for _, took_s in waited) > 0.03
        assert then == "breaker"
        return max(took_s for _, took_s in waited)

    assert best_s(frozen, within_s=PROMISED_S) < PROMISED_S


def test_refused_while_the_breaker_is_open(opened: Opened, own_redis: Callable[..., RedisLike]):
    """For as long as the server is frozen, and at once: 99 of 100 refusals cost less than a millisecond."""
    server = own_redis()
    store = opened(server.url, deadline="40ms")
    store.reach()
    server.freeze()
    opened_breaker(store)

    def refused() -> float:
        busy_s, until_s = [], time.monotonic() + 0.5
        while time.monotonic() < until_s:
            begin_s = time.thread_time()  # of this thread alone: the machine may have others to serve
            assert store.cause() == "breaker"
            busy_s.append(time.thread_time() - begin_s)
        return percentile(busy_s, 99)

    assert best_s(refused, within_s=0.001) < 0.001


def test_served_again_after_a_thaw(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Within a second, without anybody's doing."""
    server = own_redis()
    store = opened(server.url, deadline="40ms")
    store.reach()

    def recovered() -> float:
        server.freeze()
        opened_breaker(store)
        server.thaw()
        with Stopwatch() as watch:
            store.reach()
        return watch.took_s

    assert best_s(recovered, within_s=1) < 1


@pytest.mark.parametrize("lost", [(), (REPLIES,)], ids=["all is lost", "replies are lost"])
def test_a_network_that_swallows(opened: Opened, valkey: RedisLike, network: Between, lost: tuple[str, ...]):
    """C137: connections that are open, and new ones too, get no answer; each call ends by its deadline."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="40ms")

    def swallowed() -> float:
        way.heal()
        store.reach()
        way.swallow(*lost)
        took = []
        for _ in range(3):
            took += [timed(store) for _ in range(FAILURES_TO_OPEN + 20)]
            time.sleep(0.1)
        assert {cause for cause, _ in took} == {"deadline", "breaker"}
        return max(took_s for _, took_s in took)

    assert best_s(swallowed, within_s=PROMISED_S) < PROMISED_S


def test_served_again_by_a_healed_network(opened: Opened, valkey: RedisLike, network: Between):
    """C137: within a second, whatever connections are still being made in vain."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="40ms")
    store.reach()

    def recovered() -> float:
        way.swallow()
        opened_breaker(store)
        way.heal()
        with Stopwatch() as watch:
            store.reach()
        return watch.took_s

    assert best_s(recovered, within_s=1) < 1


def test_a_server_that_was_never_reached(opened: Opened, valkey: RedisLike, network: Between):
    """C137: connecting counts as part of the call; what connects at last is there for the next."""
    way = network(valkey.port)

    def never_reached() -> float:
        way.swallow()
        store = opened(way.through(valkey.url), deadline="40ms")
        took = [timed(store) for _ in range(10)]
        way.heal()
        store.reach()
        assert {cause for cause, _ in took} == {"deadline", "breaker"}
        return max(took_s for _, took_s in took)

    assert best_s(never_reached, within_s=PROMISED_S) < PROMISED_S


def test_a_late_reply_is_no_answer_to_another_call(opened: Opened, valkey: RedisLike, network: Between):
    """C137, C142: every other reply comes after its call has ended; each answer that comes is to its own."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="10s")
    store.reach()
    answers = []
    for number in range(8):
        late = bool(number % 2)
        if late:
            way.hold()
        (answer,) = store.decide_many(
            [[charge(f"key {number}", cost=number % 10)]], deadline_us=50_000 if late else None
        )
        way.heal()  # now the reply is there, and nobody waits for it
        answers.append(answer)

    assert all(isinstance(answer, Exception) == bool(number % 2) for number, answer in enumerate(answers))
    assert [
        (answer[0].charge.key, answer[0].remaining) for answer in answers if not isinstance(answer, Exception)
    ] == [(f"key {number}", 10 - number % 10) for number in range(0, 8, 2)]


def test_a_reply_that_trickles(opened: Opened, valkey: RedisLike, network: Between):
    """The deadline is for the whole reply, and not for each of its pieces."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="40ms")

    def held() -> float:
        way.heal()
        store.reach()
        way.hold()
        cause, took_s = timed(store)
        assert cause == "deadline"
        return took_s

    assert best_s(held, within_s=PROMISED_S) < PROMISED_S


def test_a_call_may_have_a_deadline_of_its_own(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Shorter than the store's."""
    server = own_redis()
    store = opened(server.url, deadline="20s")

    def frozen() -> float:
        store.reach()
        server.freeze()
        with Stopwatch() as watch:
            (answer,) = store.decide_many([[charge()]], deadline_us=30_000)
        server.thaw()
        assert answer.cause == "deadline"
        return watch.took_s

    assert best_s(frozen, within_s=0.03 + GRACE_S) < 0.03 + GRACE_S


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
    wait_for("it answers again", lambda: store.cause("a third") is None)

    assert cause == "deadline"
    assert store.decide([charge(cost=0)])[0].remaining == 9


def test_many_calls_after_a_failure_end_with_it(opened: Opened, own_redis: Callable[..., RedisLike]):
    """Of 4,000 requests, 32 calls long, the first call waits for its deadline and no other one does."""
    server = own_redis()
    store = opened(server.url, deadline="40ms")
    requests = [[charge(f"key {number}")] for number in range(4_000)]

    def frozen() -> float:
        store.reach()
        server.freeze()
        with Stopwatch() as watch:
            answers = store.decide_many(requests)
        server.thaw()
        assert {answer.cause for answer in answers} == {"deadline"}
        return watch.waited_s  # to write down so many is work, and takes a slow machine long

    assert best_s(frozen, within_s=2 * DEADLINE_S) < 2 * DEADLINE_S


def test_a_crowd_before_a_frozen_server(own_redis: Callable[..., RedisLike]):
    """Twenty threads and a hundred tasks: each is told by the deadline, and served soon after the thaw."""
    server = own_redis()
    store = RedisStore(server.url, deadline="100ms")
    took_s: list[float] = []

    def ask() -> None:
        with Stopwatch() as watch, pytest.raises(StoreUnavailable):
            store.decide([charge()])
        took_s.append(watch.took_s)

    async def ask_awaited() -> None:
        begin_s = time.perf_counter()
        with pytest.raises(StoreUnavailable):
            await store.awaited.decide([charge()])
        took_s.append(time.perf_counter() - begin_s)

    async def crowd() -> None:
        await reached()
        server.freeze()
        await asyncio.gather(
            *(ask_awaited() for _ in range(100)), *(asyncio.to_thread(ask) for _ in range(20))
        )
        server.thaw()
        await reached()
        await store.awaited.close()

    async def reached() -> None:
        while True:  # the time that a test may take is its bound
            with suppress(StoreUnavailable):
                await store.awaited.decide([charge("other")], deadline_us=5_000_000)
                return
            await asyncio.sleep(0.01)

    def met() -> float:
        took_s.clear()
        asyncio.run(crowd())
        assert len(took_s) == 120
        return sorted(took_s)[118]

    assert best_s(met, within_s=0.1 + 4 * GRACE_S) < 0.1 + 4 * GRACE_S  # there are many to be told


def test_many_calls_have_one_deadline(opened: Opened, valkey: RedisLike, network: Between):
    """2,000 requests, each round trip 150 ms late: some are decided, the others told by the one deadline."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="500ms")
    requests = [[charge(f"key {number}")] for number in range(2_000)]

    def late() -> float:
        way.heal()
        store.reach()
        way.delay(0.15)
        with Stopwatch() as watch:
            answers = store.decide_many(requests)
        causes = {answer.cause for answer in answers if isinstance(answer, StoreUnavailable)}
        assert causes == {"deadline"}
        assert not store.store.health.stats().open
        # To write down and read so many is work, and takes a slow machine long; 16 calls wait for 2.4 s.
        return float("inf") if isinstance(answers[0], StoreUnavailable) else watch.waited_s

    assert best_s(late, within_s=0.5 + 0.15) < 0.5 + 0.15


def test_many_may_be_looked_at(opened: Opened, valkey: RedisLike):
    """`take=False` says what would be, and charges nothing."""
    store = opened(valkey.url, deadline="5s")
    looked = store.decide_many([[charge()], [charge(cost=11)]], take=False)

    assert [(outcome.allowed, outcome.charged) for (outcome,) in looked] == [(True, False), (False, False)]
    assert store.decide([charge()])[0].remaining == 9
