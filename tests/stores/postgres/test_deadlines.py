# Every call ends by its deadline, whatever the server or the network does; and afterwards all is as before.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.servers.network import REPLIES, Network
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tidegate.errors import StoreUnavailable
from tidegate.stores.health import FAILURES_TO_OPEN
from tidegate.stores.lane import WEIGHT_MOST
from tidegate.stores.postgres.asking import CHARGES_MOST
from tidegate.stores.postgres.driver import Link

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


def connected(opened: Opened, url: str, deadline: str = "50ms", **options: object) -> Face:
    """A store that has a connection."""
    store = opened(url, deadline=deadline, **options)
    wait_for("it answers", lambda: store.cause() is None, within_s=5)
    return store


def test_a_frozen_server(opened: Opened, victim: Postgres):
    """Calls end by the deadline, then at once while the breaker is open; soon after it all is well again."""
    store = connected(opened, victim.url)
    victim.freeze()
    waited = [timed(store) for _ in range(FAILURES_TO_OPEN)]
    refused = []
    until_s = time.monotonic() + 0.7
    while time.monotonic() < until_s:
        begin_s = time.thread_time()  # of this thread alone: the machine may have others to serve
        refused.append((store.cause(), time.thread_time() - begin_s))
    victim.thaw()
    thawed_s = time.perf_counter()
    wait_for("it answers again", lambda: store.cause() is None, within_s=5)
    recovered_s = time.perf_counter() - thawed_s

    assert [cause for cause, _ in waited] == ["deadline"] * FAILURES_TO_OPEN
    assert all(0.04 < took_s < 0.05 + GRACE_S + SCHEDULING_S for _, took_s in waited)
    assert {cause for cause, _ in refused} == {"breaker"}
    assert sorted(took_s for _, took_s in refused)[len(refused) * 99 // 100] < 0.001
    assert recovered_s < 1


@pytest.mark.parametrize("lost", [(), (REPLIES,)], ids=["all is lost", "replies are lost"])
def test_a_network_that_swallows(
    opened: Opened, postgres: Postgres, made: Database, network: Between, lost: tuple[str, ...]
):
    """C137: open connections, and then new ones too, get no answer; each call ends by its deadline."""
    way = network(postgres.port)
    store = connected(opened, way.through(made.url))
    way.swallow(*lost)
    took = []
    for _ in range(3):
        took += [timed(store) for _ in range(FAILURES_TO_OPEN + 20)]
        time.sleep(0.1)
    way.heal()
    healed_s = time.perf_counter()
    wait_for("it answers again", lambda: store.cause() is None, within_s=5)

    assert {cause for cause, _ in took} == {"deadline", "breaker"}
    assert slowest_but_one([took_s for _, took_s in took]) < 0.05 + GRACE_S + SCHEDULING_S
    assert time.perf_counter() - healed_s < 1


def test_a_server_that_was_never_reached(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """C137: connecting counts as part of the call; what connects at last is there for the next."""
    way = network(postgres.port)
    way.swallow()
    store = opened(way.through(made.url), deadline="50ms")
    took = [timed(store) for _ in range(10)]
    way.heal()
    wait_for("it answers", lambda: store.cause() is None, within_s=3)

    assert {cause for cause, _ in took} == {"deadline", "breaker"}
    assert slowest_but_one([took_s for _, took_s in took]) < 0.05 + GRACE_S + SCHEDULING_S


def test_connecting_that_takes_longer_than_a_call(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """Every step of connecting takes 60 ms, a call 50 ms at most: it connects beside, and all is well."""
    way = network(postgres.port)
    way.delay(0.06)
    store = opened(way.through(made.url), deadline="50ms")
    first = store.cause()
    time.sleep(0.4)
    way.heal()
    wait_for("it answers", lambda: store.cause() is None, within_s=3)

    assert first == "deadline"


def test_a_late_reply_is_no_answer_to_another_call(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """C137: every other reply comes too late; every answer that comes is that to its own call."""
    way = network(postgres.port)
    store = connected(opened, way.through(made.url), deadline="400ms")
    answers = []
    for number in range(6):
        way.delay(0.5 if number % 2 else 0)
        (answer,) = store.decide_many([[charge(f"key {number}", cost=number % 10)]])
        answers.append(answer)

    assert all(isinstance(answer, Exception) == bool(number % 2) for number, answer in enumerate(answers))
    assert [
        (answer[0].charge.key, answer[0].remaining) for answer in answers if not isinstance(answer, Exception)
    ] == [(f"key {number}", 10 - number % 10) for number in range(0, 6, 2)]


def test_a_reply_that_trickles(opened: Opened, postgres: Postgres, made: Database, network: Between):
    """The deadline is for the whole reply, not for each piece of it: it hangs in the middle."""
    way = network(postgres.port)
    store = connected(opened, way.through(made.url))
    way.hold()
    cause, took_s = timed(store)

    assert cause == "deadline"
    assert took_s < 0.05 + GRACE_S + SCHEDULING_S


def test_a_lock_that_somebody_holds(postgres: Postgres, opened: Opened, made: Database):
    """A caller waits for a row no longer than his deadline, and the server waits no longer either."""
    store = connected(opened, made.unix_url, deadline="60ms")
    hold = "BEGIN; SELECT 1 FROM tidegate.state FOR UPDATE; SELECT pg_sleep(0.6); COMMIT"
    holding = threading.Thread(target=postgres.sql, args=(hold,), kwargs={"url": made.unix_url})
    holding.start()
    time.sleep(0.15)
    cause, took_s = timed(store)
    time.sleep(0.15)
    still = postgres.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate' AND state = 'active'"
    )
    other = store.cause("another")
    holding.join()

    assert cause in {"deadline", "busy"}
    assert took_s < 0.06 + GRACE_S + SCHEDULING_S
    assert still == [(0,)]
    assert other is None
    assert store.cause() is None


def test_a_call_may_have_a_deadline_of_its_own(opened: Opened, victim: Postgres):
    """Shorter than the store's."""
    store = connected(opened, victim.url, deadline="5s")
    victim.freeze()
    begin_s = time.perf_counter()
    (answer,) = store.decide_many([[charge()]], deadline_us=30_000)
    took_s = time.perf_counter() - begin_s

    assert answer.cause == "deadline"
    assert took_s < 0.03 + GRACE_S + SCHEDULING_S


def test_a_call_may_have_a_longer_deadline(postgres: Postgres, opened: Opened, made: Database):
    """Longer than the store's: the server, who was told of the store's, lets it wait for a lock."""
    store = connected(opened, made.unix_url, deadline="50ms")
    hold = "BEGIN; SELECT 1 FROM tidegate.state FOR UPDATE; SELECT pg_sleep(0.3); COMMIT"
    holding = threading.Thread(target=postgres.sql, args=(hold,), kwargs={"url": made.unix_url})
    holding.start()
    time.sleep(0.1)
    (outcome,) = store.decide([charge()], deadline_us=5_000_000)
    holding.join()

    assert outcome.allowed


def test_what_was_charged_without_an_answer_is_not_charged_again(
    opened: Opened, postgres: Postgres, made: Database, network: Between
):
    """The reply is lost, the charge stays: nine are left, and not eight."""
    way = network(postgres.port)
    store = connected(opened, way.through(made.url), deadline="100ms")
    way.swallow(REPLIES)
    cause = store.cause("once")
    way.heal()
    wait_for("it answers again", lambda: store.cause("a third") is None, within_s=5)

    assert cause == "deadline"
    assert store.left("once") == 9


def test_many_calls_after_a_failure_end_with_it(opened: Opened, victim: Postgres):
    """Of 2,000 requests, eight calls long, the first call waits for its deadline and no other one does."""
    store = connected(opened, victim.url)
    victim.freeze()
    begin_s = time.perf_counter()
    answers = store.decide_many([[charge(f"key {number}")] for number in range(2_000)])

    assert {answer.cause for answer in answers} == {"deadline"}
    assert time.perf_counter() - begin_s < 0.2


def test_many_calls_have_one_deadline(opened: Opened, postgres: Postgres, made: Database, network: Between):
    """2,000 requests, each round trip 60 ms late: some are decided, the others told by the one deadline."""
    way = network(postgres.port)
    store = connected(opened, way.through(made.url), deadline="200ms")
    store.decide_many([[charge("a", cost=0)]] * 2)
    way.delay(0.06)
    begin_s = time.perf_counter()
    answers = store.decide_many([[charge(f"key {number}")] for number in range(2_000)])
    took_s = time.perf_counter() - begin_s

    assert took_s < 0.2 + 0.2  # to write down and read so many takes a busy machine long; 8 calls take more
    assert {answer.cause for answer in answers if isinstance(answer, StoreUnavailable)} == {"deadline"}
    assert not isinstance(answers[0], Exception)
    assert not store.store.health.stats().open


def test_many_may_be_looked_at(opened: Opened, made: Database):
    """`take=False` says what would be, and charges nothing."""
    store = opened(made.unix_url, deadline="5s")
    looked = store.decide_many([[charge()], [charge(cost=11)]], take=False)

    assert [(outcome.allowed, outcome.charged) for (outcome,) in looked] == [(True, False), (False, False)]
    assert store.decide([charge()])[0].remaining == 9


@pytest.mark.parametrize("size", [10, 4_000])
def test_many_travel_in_bounded_calls(
    opened: Opened, made: Database, monkeypatch: pytest.MonkeyPatch, size: int
):
    """A list of thousands is so many rows and bytes a call as a lane sends, one call after another."""
    sizes: list[tuple[int, int]] = []
    under_way = most = 0
    ask = Link.ask

    async def counted(
        link: Link, port: Any, to: Any, values: Sequence[bytes | None], *more: Any, **how: Any
    ) -> Any:
        nonlocal under_way, most
        whole = b"".join(value or b"" for value in values)
        sizes.append((whole.count(b"tkey "), len(whole)))
        under_way += 1
        most = max(most, under_way)
        try:
            return await ask(link, port, to, values, *more, **how)
        finally:
            under_way -= 1

    store = opened(made.unix_url, deadline="30s")
    store.takes()
    monkeypatch.setattr(Link, "ask", counted)
    answers = store.decide_many([[charge(f"key {number} {'x' * size}")] for number in range(2_000)])

    assert all(answer[0].charged for answer in answers)
    assert len(sizes) >= 2_000 // CHARGES_MOST
    assert max(rows for rows, _ in sizes) <= CHARGES_MOST
    assert max(weight for _, weight in sizes) <= WEIGHT_MOST + 4_096
    assert most == 1
