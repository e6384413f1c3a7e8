# The verbs of the store on real servers, by both faces.

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.network import Network
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import Face, charge
from tidegate import FixedWindow, SlidingLog, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.base import AwaitedStore, RemoteStore
from tidegate.stores.redis.store import RedisStore

Opened = Callable[..., Face]


def test_exactly_the_capacity_passes(opened: Opened, redis_like: RedisLike):
    """Ten of eleven, and the outcome says what is left."""
    store = opened(redis_like.url)
    outcomes = [store.decide([charge()])[0] for _ in range(11)]

    assert [outcome.allowed for outcome in outcomes] == [True] * 10 + [False]
    assert [outcome.remaining for outcome in outcomes] == [*range(9, -1, -1), 0]


def test_a_request_is_all_or_nothing(opened: Opened, valkey: RedisLike):
    """A refusal by one of two rules leaves the other as it was."""
    store = opened(valkey.url)
    both = [charge(rule="narrow", limit=TokenBucket(1, "0/s")), charge(rule="wide")]
    store.decide(both)
    store.decide(both)

    assert [outcome.remaining for outcome in store.decide(both, take=False)] == [0, 9]


def test_looking_takes_nothing(opened: Opened, valkey: RedisLike):
    """`take=False` only asks."""
    store = opened(valkey.url)
    store.decide([charge(cost=4)])
    for _ in range(3):
        store.decide([charge(cost=4)], take=False)

    assert store.decide([charge(cost=6)])[0].allowed


def test_no_charges_need_no_server(opened: Opened):
    """An empty request is decided, and asks nobody: nothing listens on that port."""
    store = opened("redis://127.0.0.1:1/0")

    assert store.decide([]) == []
    assert store.decide_many([]) == []
    assert store.adjust([]) == []
    store.forget([])


def test_what_was_taken_comes_back(opened: Opened, valkey: RedisLike):
    """`adjust` gives back and charges on top, each entry for itself."""
    store = opened(valkey.url)
    (outcome,) = store.decide([charge(cost=8)])
    grain = outcome.limit.law.grain
    back = Adjustment(outcome.charge, outcome.receipt, -3_000 * grain)
    more = Adjustment(charge("other"), outcome.receipt, 2_000 * grain, debt=0)

    assert store.adjust([back, more]) == [3_000 * grain, -2_000 * grain]
    assert [store.decide([charge(key)], take=False)[0].remaining for key in ("acme", "other")] == [5, 8]


def test_forgotten_keys_are_fresh(opened: Opened, valkey: RedisLike):
    """And the others are not."""
    store = opened(valkey.url)
    for key in ("one", "two", "three"):
        store.decide([charge(key, 10)])
    store.forget([("rule", "one"), ("rule", "three"), ("rule", "never seen")])

    assert [store.takes(key) for key in ("one", "two", "three")] == [True, False, True]


def test_many_requests_are_decided_each_by_itself(opened: Opened, valkey: RedisLike):
    """In order, and more than one call holds: 1,000 requests on 100 keys, of which each has 7."""
    store = opened(valkey.url, deadline="1s")
    requests = [[charge(f"key {number % 100}", limit=TokenBucket(7, "0/s"))] for number in range(1_000)]
    answers = store.decide_many(requests)

    assert [answer[0].allowed for answer in answers] == [number < 700 for number in range(1_000)]


def test_many_requests_with_one_of_a_wrong_type(opened: Opened, valkey: RedisLike):
    """C134: the key that somebody else holds as a list is a StoreError in its place, and no outage."""
    store = opened(valkey.url)
    valkey.command("LPUSH", "tidegate:{bad}:rule", "x")
    good, bad, also_good = store.decide_many([[charge("good")], [charge("bad")], [charge("also good")]])

    assert good[0].allowed
    assert also_good[0].allowed
    assert isinstance(bad, StoreError)
    assert not isinstance(bad, StoreUnavailable)
    assert "WRONGTYPE" in str(bad)
    assert store.store.health.stats().unavailable == {}


def test_what_cannot_be_asked_is_no_hindrance_to_others(opened: Opened, valkey: RedisLike):
    """A request of 256 rules cannot be encoded: it alone is a StoreError."""
    store = opened(valkey.url)
    too_many = [charge(rule=f"rule {number}") for number in range(256)]
    good, bad = store.decide_many([[charge("good")], too_many])

    assert good[0].allowed
    assert isinstance(bad, StoreError)
    assert "255" in str(bad)


def test_an_instant_from_outside(opened: Opened, valkey: RedisLike):
    """Virtual time runs by the instants that are given."""
    store = opened(valkey.url)
    limit = TokenBucket(1, "1/s")
    at = [0, 999_999, 1_000_000]

    assert [store.decide([charge(limit=limit)], us)[0].allowed for us in at] == [True, False, True]


def test_calendar_windows_by_the_clock_of_the_server(opened: Opened, valkey: RedisLike):
    """Windows of a time zone, which the script cannot compute, and which go along with the request."""
    store = opened(valkey.url)
    day = FixedWindow(10, "day", zone="Europe/Berlin")
    outcome = store.decide([charge(limit=day, cost=3)])[0]

    assert outcome.remaining == 7
    assert outcome.reset_after_us is not None
    assert 0 < outcome.reset_after_us <= 25 * 3_600_000_000


def test_a_host_whose_clock_is_years_off(opened: Opened, valkey: RedisLike, monkeypatch: pytest.MonkeyPatch):
    """The windows that it guesses are missed once; then it has learned how far the server's clock is."""
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000_000_000_000)  # 2001
    store = opened(valkey.url)
    day = FixedWindow(10, "day", zone="Europe/Berlin")
    remaining = [store.decide([charge(limit=day)])[0].remaining for _ in range(3)]
    asked = int(valkey.info("commandstats")["cmdstat_evalsha"].split(",")[0].partition("=")[2])
    store.decide([charge(limit=day)])

    assert remaining == [9, 8, 7]
    asked_once = int(valkey.info("commandstats")["cmdstat_evalsha"].split(",")[0].partition("=")[2]) - asked
    assert asked_once == 1


def test_a_log(opened: Opened, redis_like: RedisLike):
    """A state of several rows, on every server."""
    store = opened(redis_like.url)
    log = SlidingLog(3, "1h")

    assert [store.decide([charge(limit=log)])[0].allowed for _ in range(4)] == [True, True, True, False]


def test_names_below_a_prefix(opened: Opened, valkey: RedisLike):
    """Two prefixes are two budgets; nothing else is touched."""
    one, other = opened(valkey.url + "?prefix=one"), opened(valkey.url, prefix="other")
    one.decide([charge(cost=10)])

    assert other.takes()
    assert sorted(valkey.command("KEYS", "*")) == [b"one:{acme}:rule", b"other:{acme}:rule"]


def test_several_parts_only_on_a_cluster(opened: Opened, valkey: RedisLike):
    """Elsewhere all charges are one part."""
    store = opened(valkey.url).store

    assert [list(part) for part in store.parts([charge("a"), charge("b")])] == [[0, 1]]
    assert store.parts([]) == []


def test_a_closed_store_says_so(opened: Opened, valkey: RedisLike):
    """It is a mistake to use it, and no outage."""
    store = opened(valkey.url)
    store.takes()
    store.store.close()

    with pytest.raises(StoreError, match="closed") as raised:
        store.takes()
    assert not isinstance(raised.value, StoreUnavailable)


def test_a_single_node_of_a_cluster_is_told_apart(opened: Opened, redis_cluster):
    """A plain URL of a cluster's node: a mistake that names the way out."""
    store = opened(redis_cluster.url)

    with pytest.raises(StoreError, match=r"redis\+cluster://"):
        assert all(store.takes(f"key {number}") for number in range(20))


def test_a_reply_in_pieces(opened: Opened, valkey: RedisLike, network: Callable[[int], Network]):
    """A slow network that is still in time gives the answer."""
    way = network(valkey.port)
    store = opened(way.through(valkey.url), deadline="10s")
    way.delay(0.02)

    assert store.takes()


def test_it_is_a_store_on_the_network():
    """The type checker holds both faces against the contract; the names say the same at run time."""
    store: RemoteStore = RedisStore("redis://localhost")
    awaited: AwaitedStore = store.awaited

    assert (store.name, awaited.name) == ("redis", "redis")
    assert store.health is awaited.health
