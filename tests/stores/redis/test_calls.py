# One call of a script: many requests, each all-or-nothing and none disturbed by another, errors of the
# server, calendar windows, and one round trip however many rules.

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike
from tests.stores.redis.direct import USUAL
from tests.stores.redis.plain import PlainStore, the_outcome
from tidegate import FixedWindow, SlidingLog, StoreUnavailable, TokenBucket
from tidegate.core.compose import Adjustment, decide
from tidegate.core.outcome import Charge
from tidegate.errors import StoreError
from tidegate.stores.redis import wire
from tidegate.stores.redis.names import Names, slot
from tidegate.stores.redis.scripts import ADJUST, DECIDE, FORGET
from tidegate.testing.reference import ReferenceStore
from tidegate.units import US_PER_S

BUCKET = TokenBucket(10, "1/s")
DAY = FixedWindow(10, "day", "Europe/Berlin")
MANY = [Charge(f"rule {number}", "x", limit, 1_000) for number, limit in enumerate((USUAL * 3)[:48])]


def charge(key: str, cost: int = 1_000, **more: Any) -> Charge:
    return Charge("rule", key, BUCKET, cost)._replace(**more)


@pytest.fixture
def store(redis_like: RedisLike) -> PlainStore:
    return PlainStore(redis_like)


def stored(store: PlainStore, *keys: str) -> list[Any]:
    return [store.redis.get(store.names.key("rule", key)) for key in keys]


def test_a_key_may_come_again_in_one_call(store: PlainStore):
    """Each request sees what earlier ones of its call took: ten pass, however they are mixed."""
    requests = [[charge("x")], [charge("x", 2_000), charge("y")]] * 10
    answers = store.decide_many(requests)
    reference = ReferenceStore()
    now_us = answers[0][0].now_us

    assert answers == [reference.decide(request, now_us) for request in requests]
    assert {outcome.now_us for outcomes in answers for outcome in outcomes} == {now_us}


def test_a_wrong_key_disturbs_nobody_else(store: PlainStore):
    """C134: its request fails as a whole, before anything is written; the others are decided."""
    store.redis.lpush(store.names.key("rule", "list"), "x")
    requests = [
        [charge("a")],
        [charge("b"), charge("list")],
        [charge("list")],
        [charge("c"), Charge("rule", "list", SlidingLog(5, "1s"), 1_000), charge("d")],
        [charge("a")],
    ]
    first, *failed, last = store.decide_many(requests)

    assert [type(answer) for answer in failed] == [StoreError] * 3
    assert all("WRONGTYPE" in str(answer) for answer in failed)
    assert [outcome.charged for outcome in (*first, *last)] == [True, True]
    assert last[0].state.level > first[0].state.level
    assert stored(store, "b", "c", "d") == [None] * 3


def test_entries_of_one_call_stand_for_themselves(store: PlainStore):
    """A key of another type is the answer of its entry; what is given back twice comes back once."""
    store.redis.lpush(store.names.key("rule", "list"), "x")
    (taken,) = store.decide([charge("x", 4_000)])
    back = Adjustment(charge("x"), taken.receipt, -3_000 * BUCKET.law.grain, full=True)
    entries = [back, back._replace(charge=charge("list")), back._replace(units=10**6), back]
    sent = wire.encode_adjust(entries, store.names)
    first, failed, owed, again = wire.decode_adjust(
        store.call(store.adjusting, *sent), entries, wire.echo_of(sent[1])
    )

    assert first == 3_000 * BUCKET.law.grain
    assert type(failed) is StoreError
    assert owed == -(10**6)
    assert isinstance(again, int)
    assert 0 < again < first


def test_forty_eight_rules_are_one_call(store: PlainStore):
    """All limits of a request, of every algorithm, in one round trip, all-or-nothing."""
    now_us = store.now_us()
    outcomes = store.decide(MANY, now_us)
    assert all(outcome.charged for outcome in outcomes)
    before = {name: store.redis.get(name) for name in store.redis.keys("*")}

    refused = store.decide([*MANY, charge("x", 99_000)], now_us)
    assert len(before) == 48
    assert not any(outcome.charged for outcome in refused)
    assert {name: store.redis.get(name) for name in store.redis.keys("*")} == before


def test_a_request_may_have_255_charges(store: PlainStore):
    """As many as a request can say, several requests of that size in one call."""
    requests = [[charge(f"{number}") for number in range(255)]] * 3

    assert all(outcome.charged for outcomes in store.decide_many(requests) for outcome in outcomes)
    assert store.decide_many([[], [charge("x")], []])[::2] == [[], []]


def test_a_call_of_many_requests(store: PlainStore):
    """A thousand decisions in one call answer as a thousand calls would."""
    random, reference = Random(5), ReferenceStore()
    requests = [
        [Charge(f"rule {number}", random.choice("xyz"), USUAL[number], 1_000) for number in chosen]
        for chosen in (random.sample(range(len(USUAL)), random.randrange(4)) for _ in range(1_000))
    ]
    now_us = store.now_us()
    answers = store.decide_many(requests, now_us)

    for request, answer in zip(requests, answers, strict=True):
        expected = reference.decide(request, now_us)
        assert [(o.charged, o.left, o.retry_after_us, o.reset_after_us) for o in answer] == [
            (o.charged, o.left, o.retry_after_us, o.reset_after_us) for o in expected
        ]


def test_a_flushed_script_is_a_script_again(store: PlainStore):
    """Losing the scripts loses no state and no decision."""
    store.decide([charge("x")])
    store.redis.script_flush()

    assert store.decide([charge("x")])[0].left < 9_000


def test_windows_that_were_missed_charge_nothing(store: PlainStore):
    """Where the clock is outside the windows that were sent it is told; others are decided."""
    requests = [[charge("a"), charge("b", limit=DAY)], [charge("a")], [charge("b", 0, limit=DAY)]]
    elsewhere_us = store.now_us() - 3 * 86_400 * US_PER_S
    sent = wire.encode_decide(requests, store.names, windows_at_us=elsewhere_us)
    missed, decided, looked = wire.decode_decide(
        store.call(store.deciding, *sent), requests, wire.echo_of(sent[1])
    )

    assert isinstance(missed, wire.Missed)
    assert missed == looked
    assert abs(missed.now_us - store.now_us()) < 60 * US_PER_S
    assert isinstance(decided, list)
    assert decided[0].left == 9_000
    assert stored(store, "b") == [None]

    sent = wire.encode_decide(requests, store.names, windows_at_us=missed.now_us)
    found, _, _ = wire.decode_decide(store.call(store.deciding, *sent), requests, wire.echo_of(sent[1]))
    assert isinstance(found, list)
    assert [outcome.charged for outcome in found] == [True, True]


def test_windows_next_to_the_expected_one_are_enough(store: PlainStore):
    """A caller whose clock is up to a window off has sent the windows that the store needs."""
    now_us = store.now_us()
    start_us, end_us = DAY.law.calendar.window(now_us)  # type: ignore[attr-defined]  # a fixed window's law
    for about_us in (start_us - 1, start_us, end_us - 1, end_us):
        sent = wire.encode_decide([[charge("b", limit=DAY)]], store.names, windows_at_us=about_us)
        outcome = the_outcome(
            wire.decode_decide(
                store.call(store.deciding, *sent), [[charge("b", limit=DAY)]], wire.echo_of(sent[1])
            )
        )
        assert (outcome.state.start_us, outcome.state.end_us) == (start_us, end_us)


def test_missed_windows_adjust_nothing(store: PlainStore):
    """What is owed waits for the right windows; what is given back needs none."""
    (taken,) = store.decide([charge("b", 4_000, limit=DAY)])
    entries = [
        Adjustment(charge("c", limit=DAY), taken.receipt, 1_000),
        Adjustment(charge("b", limit=DAY), taken.receipt, -1_000),
    ]
    sent = wire.encode_adjust(entries, store.names, windows_at_us=0)
    owed, back = wire.decode_adjust(store.call(store.adjusting, *sent), entries, wire.echo_of(sent[1]))

    assert isinstance(owed, wire.Missed)
    assert back == 1_000
    assert stored(store, "c") == [None]


@pytest.fixture
def full(own_redis: Callable[..., RedisLike], request: pytest.FixtureRequest) -> Iterator[PlainStore]:
    """A server that has some states and takes no more."""
    server = own_redis(request.param, maxmemory_policy="noeviction")
    store = PlainStore(server)
    for key in "abcdef":
        store.decide([charge(key), Charge("log", key, SlidingLog(5, "1h"), 1_000)])
    for script in (DECIDE, ADJUST, FORGET):
        store.redis.script_load(script.text)
    server.set("maxmemory", server.used_memory_bytes() // 2)
    yield store
    store.close()


@pytest.mark.real_time
@pytest.mark.parametrize("full", ["valkey-9", "redis-8", "redis-6.2"], indirect=True)
def test_a_full_server_half_does_nothing(full: PlainStore):
    """C139: out of memory, a charge fails as a whole with its cause; refusals are still answered."""
    before = {name: full.redis.get(name) for name in full.redis.keys("*")}
    requests = [
        [charge("new")],
        [charge("a"), charge("b")],
        [charge("a", 99_000)],
        [Charge("log", "a", SlidingLog(5, "1h"), 1_000), charge("c")],
        [charge("a"), charge("b", 99_000)],
        [Charge("strict", "a", BUCKET, 1_000, strict=True)],
    ]
    answers = full.decide_many(requests)

    for number in (0, 1, 3, 5):
        assert isinstance(answers[number], StoreUnavailable), answers[number]
        assert answers[number].cause == "out_of_memory"
    assert [outcome.allowed for outcome in (*answers[2], *answers[4])] == [False, True, False]
    with pytest.raises(StoreUnavailable) as caught:
        full.adjust([Adjustment(charge("a"), answers[4][0].receipt, 1_000_000, debt=10**6)])
    assert caught.value.cause == "out_of_memory"
    assert {name: full.redis.get(name) for name in full.redis.keys("*")} == before
    assert [outcome.allowed for outcome in full.decide([charge("a")], take=False)] == [True]


@pytest.mark.real_time
@pytest.mark.parametrize("kind", ["valkey-9", "redis-8", "redis-6.2"])
def test_a_replica_does_not_charge(own_redis: Callable[..., RedisLike], kind: str):
    """A read-only server is an outage with its cause, and keeps what it has."""
    server = own_redis(kind)
    store = PlainStore(server)
    store.decide([charge("x")])
    server.command("REPLICAOF", "127.0.0.1", "1")
    server.set("replica-serve-stale-data", "yes")
    (answer, looked) = store.decide_many([[charge("x")], [charge("x", 99_000)]])

    assert isinstance(answer, StoreUnavailable)
    assert answer.cause == "read_only"
    assert not looked[0].allowed


@pytest.mark.real_time
def test_every_algorithm_on_a_cluster(redis_cluster: Cluster):
    """C133: every algorithm and operation, on 200 tenants over three masters: each in one slot."""
    stores = {node.port: PlainStore(node) for node in redis_cluster.masters}
    random, used, names = Random(7), set(), Names()
    for number in range(200):
        tenant = f"tenant {random.randrange(10**9)}"
        rule = f"rule {number % 7}"
        request = [
            Charge(f"{rule}/{place}", tenant, limit, 1_000, strict=number % 3 == 0)
            for place, limit in enumerate(random.sample(USUAL, 3))
        ]
        keys, args = wire.encode_decide([request], names, now_us=0, clustered=True)
        assert len({slot(key) for key in keys}) == 1
        port = redis_cluster.master_of(keys[0]).port
        store = stores[port]
        used.add(port)
        (outcomes,) = wire.decode_decide(
            store.call(store.deciding, keys, args), [request], wire.echo_of(args)
        )
        assert isinstance(outcomes, list)
        if number % 3:
            assert outcomes == decide(request, [None] * 3, 0)
        entries = [Adjustment(o.charge, o.receipt, units) for o in outcomes for units in (-1_000, 1_000)]
        answers = wire.decode_adjust(
            store.call(store.adjusting, *wire.encode_adjust(entries, names, now_us=0, clustered=True)),
            entries,
        )
        assert all(isinstance(answer, int) for answer in answers)
        places = [(o.rule, o.charge.key) for o in outcomes]
        reply = store.call(store.forgetting, *wire.encode_forget(places, names, clustered=True))
        assert wire.decode_forget(reply, places) == [None] * 3

    assert len(used) == 3
