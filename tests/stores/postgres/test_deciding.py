# The verbs of the store on a real server, by both faces.

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.postgres import Database
from tests.stores.postgres.faces import Face, charge
from tidegate import FixedWindow, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.limits import Limit
from tidegate.errors import LimitError, StoreError

Opened = Callable[..., Face]

KINDS: list[Limit] = [
    TokenBucket(10, "1/h"),
    LeakyQueue(10, "1/h"),
    FixedWindow(10, "month", "Europe/Berlin"),
    SlidingWindow(10, "1h"),
    SlidingLog(10, "1h"),
]


def test_exactly_the_capacity_passes(opened: Opened, made: Database):
    """Ten of eleven, and the outcome says what is left."""
    store = opened(made.url)
    outcomes = [store.decide([charge()])[0] for _ in range(11)]

    assert [outcome.allowed for outcome in outcomes] == [True] * 10 + [False]
    assert [outcome.remaining for outcome in outcomes] == [*range(9, -1, -1), 0]


@pytest.mark.parametrize("limit", KINDS, ids=lambda limit: limit.algorithm)
def test_every_algorithm_by_the_servers_clock(opened: Opened, made: Database, limit: Limit):
    """Ten pass, the eleventh is told when it will, and what is looked at is what was taken."""
    store = opened(made.unix_url)
    outcomes = [store.decide([charge(limit=limit)])[0] for _ in range(11)]
    (looked,) = store.decide([charge(limit=limit)], take=False)

    assert [outcome.allowed for outcome in outcomes] == [True] * 10 + [False]
    assert 0 < (outcomes[-1].retry_after_us or 0) <= (outcomes[-1].reset_after_us or 0)
    assert not looked.allowed
    assert looked.remaining == 0


def test_a_request_is_all_or_nothing(opened: Opened, made: Database):
    """A refusal by one of two rules leaves the other as it was."""
    store = opened(made.url)
    both = [charge(rule="narrow", limit=TokenBucket(1, "0/s")), charge(rule="wide")]
    store.decide(both)
    store.decide(both)

    assert [outcome.remaining for outcome in store.decide(both, take=False)] == [0, 9]


def test_no_charges_need_no_server(opened: Opened):
    """An empty request is decided, and asks nobody: nothing listens on that port."""
    store = opened("postgresql://127.0.0.1:1/nobody")

    assert store.decide([]) == []
    assert store.decide_many([]) == []
    assert store.decide_many([[]]) == [[]]
    assert store.adjust([]) == []
    store.forget([])


def test_what_was_taken_comes_back(opened: Opened, made: Database):
    """`adjust` gives back and charges on top, each entry for itself, also on a key that was never charged."""
    store = opened(made.url)
    (outcome,) = store.decide([charge(cost=8)])
    grain = outcome.limit.law.grain
    back = Adjustment(outcome.charge, outcome.receipt, -3_000 * grain)
    more = Adjustment(charge("other"), outcome.receipt, 2_000 * grain, debt=0)

    assert store.adjust([back, more]) == [3_000 * grain, -2_000 * grain]
    assert [store.left(key) for key in ("acme", "other")] == [5, 8]


def test_one_key_adjusted_twice_in_a_call(opened: Opened, made: Database):
    """Later adjustments see what earlier ones did."""
    store = opened(made.url)
    limit = SlidingLog(10, "1h")
    (outcome,) = store.decide([charge(cost=4, limit=limit)])
    back = Adjustment(outcome.charge, outcome.receipt, -3_000)

    assert store.adjust([back, back._replace(own=3_000)]) == [3_000, 1_000]
    assert store.left(limit=limit) == 10


def test_forgotten_keys_are_fresh(opened: Opened, made: Database):
    """And the others are not."""
    store = opened(made.url)
    for key in ("one", "two", "three"):
        store.decide([charge(key, 10)])
    store.forget([("rule", "one"), ("rule", "three"), ("rule", "never seen")])

    assert [store.takes(key) for key in ("one", "two", "three")] == [True, False, True]


def test_many_requests_are_decided_each_by_itself(opened: Opened, made: Database):
    """Five hundred in few calls: later ones see earlier ones, and each is all-or-nothing."""
    store = opened(made.url)
    narrow = TokenBucket(3, "0/s")
    requests = [
        [charge(f"key {number % 100}", rule="narrow", limit=narrow), charge(rule="wide", cost=number % 2)]
        for number in range(500)
    ]
    answers = store.decide_many(requests)
    allowed = [all(outcome.allowed for outcome in answer) for answer in answers]

    assert sum(allowed[0::2]) == 50 * 3
    assert sum(allowed[1::2]) == 10
    assert store.left(rule="wide") == 0


def test_one_request_that_cannot_be_asked_leaves_the_others_alone(opened: Opened, made: Database):
    """An instant that no calendar has is an error in its place."""
    store = opened(made.url)
    far_us = 20_000 * 365 * 86_400 * 10**6
    requests = [[charge("a")], [charge("b", limit=FixedWindow(10, "day"))], [charge("c")]]
    answers = store.decide_many(requests, now_us=far_us)

    assert [isinstance(answer, StoreError) for answer in answers] == [False, True, False]
    with pytest.raises(LimitError):
        store.decide(requests[1], far_us)


def test_windows_of_another_time_are_asked_for_again(
    opened: Opened, made: Database, monkeypatch: pytest.MonkeyPatch
):
    """A caller whose clock is years off gets the windows of the server's clock, at the second try."""
    monkeypatch.setattr("tidegate.stores.postgres.asking._local_us", lambda: 0)
    store = opened(made.url)
    limit = FixedWindow(10, "day", "Asia/Kolkata")
    (outcome,) = store.decide([charge(limit=limit)])

    assert outcome.charged
    assert 0 < (outcome.reset_after_us or 0) <= 86_400 * 10**6
    assert store.left(limit=limit) == 9


def test_shadow_rules_report_and_do_not_block(opened: Opened, made: Database):
    """A shadow rule that refuses leaves the enforced one charged, and itself alone."""
    store = opened(made.url)
    request = [charge(rule="shadow", limit=TokenBucket(1, "0/s"), mode="shadow"), charge(rule="enforced")]
    first, second = store.decide(request), store.decide(request)

    assert [outcome.charged for outcome in first] == [True, True]
    assert [(outcome.allowed, outcome.charged) for outcome in second] == [(False, False), (True, True)]


@pytest.mark.parametrize(
    "key", ["a", "", "a\0b", "\ud800", "日本", "x" * 1_000, b"", b"a", b"\x00\xff", b"n"]
)
def test_keys_and_rules_of_any_bytes(opened: Opened, made: Database, key: str | bytes):
    """C148: whatever a key and a rule hold, they are told apart, and what is text from what is bytes."""
    store = opened(made.url)
    names = ["rule", "rule'; DROP TABLE state; --", "ru\0le", "\udfff", "規則"]
    for rule in names:
        store.decide([charge(key, 4, rule=rule)])
    other = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key.decode("latin-1")

    assert [store.left(key, rule=rule) for rule in names] == [6] * len(names)
    assert [store.left(other, rule=rule) for rule in names] == [10] * len(names)


def test_a_request_of_many_rules(opened: Opened, made: Database):
    """48 rules in one round trip."""
    store = opened(made.url)
    request = [charge(rule=f"rule {number}") for number in range(48)]
    store.decide(request)

    assert [outcome.remaining for outcome in store.decide(request)] == [8] * 48
