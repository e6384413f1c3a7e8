# The room of the embedded store: how many keys it holds, which it forgets, and what happens when it is full.

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.limiter.faces import FACES
from tidegate import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limiter,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    StoreError,
    TokenBucket,
)
from tidegate.stores.memory import MemoryStore
from tidegate.testing import ManualClock

FIVE = [
    TokenBucket(5, "0.01/s"),
    LeakyBucket(5, "0.01/s"),
    LeakyQueue(5, "0.01/s"),
    SlidingLog(5, "500s"),
    FixedWindow(5, "500s"),
    SlidingWindow(5, "500s"),
]


def named(limit):
    return limit.algorithm


def room(max_keys=1_000_000, when_full="refuse", start=0):
    clock = ManualClock(start)
    return MemoryStore(max_keys, when_full, clock=clock), clock


def hand_is_right(store):
    """The hand of every table goes over exactly the keys that are held."""
    for table in store._tables.values():
        assert sorted(table.hand, key=repr) == sorted(table.cells, key=repr)
    return True


@pytest.mark.parametrize("make", FACES.values(), ids=list(FACES))
def test_only_keys_that_matter_are_held(make):
    """C150: many keys, one spend each, of bucket(5, 1): about twice those of the last second are held."""
    store, clock = room()
    limiter = make(TokenBucket(5, "1/s"), store=store)
    most = 0
    for second in range(60):
        for number in range(200):
            limiter.hit(f"{second} {number}")
            clock.advance(0.005)
        most = max(most, store.stats().keys)
    assert 200 <= most <= 500
    assert hand_is_right(store)


@pytest.mark.parametrize("limit", FIVE, ids=named)
@pytest.mark.parametrize("when_full", ["refuse", "forget"])
def test_forgetting_loses_nothing(limit, when_full):
    """C151: of 100 keys half are used up and half fresh again; whatever clears up, the used-up ones stay
    refused.
    """
    store, clock = room(130, when_full, start=500_000)
    limiter = Limiter(limit, store=store)
    quick = Limiter(Rule("quick", TokenBucket(5, "1/s"), by=("key",)), store=store)
    for number in range(50):
        assert limiter.hit(f"used {number}", 5)
        quick.hit(f"fresh {number}")
    clock.advance(10)
    for number in range(3000):
        quick.hit(f"new {number}")
        clock.advance(0.1)
    assert store.stats().keys <= 130
    assert store.stats()[2:] == (0, 0)
    assert not any(limiter.hit(f"used {number}", 5) for number in range(50))
    assert hand_is_right(store)


@pytest.mark.parametrize("limit", [LeakyQueue(5, "1/s"), SlidingLog(5, "1s")], ids=named)
def test_a_key_is_forgotten_when_it_is_fresh_and_not_a_microsecond_before(limit):
    """A key of whom the last microsecond still counts is kept, and its state with it; then it may go."""
    store, clock = room()
    limiter = Limiter(limit, store=store)
    for instant, kept in ((0.999999, True), (1, False)):
        clock.set(0)
        limiter.hit("old")
        clock.set(instant)
        limiter.hit("new")
        assert ("old" in store.table("limit").cells) is kept
        limiter.reset("old")
        clock.set(100)
        limiter.hit("newer")


def test_full_of_live_keys_refuses_new_ones():
    """C152: bound 1000, X used up, then 5000 new keys: X is still refused, and so are the new ones; all is
    counted.
    """
    store, clock = room(1000)
    limiter = Limiter(TokenBucket(2, "1/h"), store=store)
    limiter.hit("X", 2)
    admitted = sum(bool(limiter.hit(f"new {number}")) for number in range(5000))
    assert admitted == 999
    assert not limiter.hit("X")
    assert limiter.hit("new 5")
    assert store.stats() == (1000, 1000, 4001, 0)
    refused = limiter.hit("one more")
    assert (refused.allowed, refused.rule, refused.retry_after, refused.retry_hint_s) == (
        False,
        "limit",
        1,
        1,
    )
    assert refused.remaining == 2

    clock.advance(3600)
    assert limiter.hit("one more")
    assert hand_is_right(store)


def test_full_of_live_keys_may_forget_the_nearest_to_fresh():
    """C152: with when_full="forget" new keys are let in, those nearest to fresh go, and a used-up X stays
    refused.
    """
    store, _ = room(1000, "forget")
    limiter = Limiter(TokenBucket(2, "1/h"), store=store)
    limiter.hit("X", 2)
    assert all(limiter.hit(f"new {number}") for number in range(5000))
    assert not limiter.hit("X")
    assert store.stats() == (1000, 1000, 0, 4001)
    assert hand_is_right(store)


@pytest.mark.parametrize("limit", FIVE, ids=named)
def test_every_algorithm_at_the_bound(limit):
    """Full of live keys every algorithm refuses a new one, and holds it again when the others are fresh."""
    store, clock = room(10, start=500_000)
    limiter = Limiter(limit, store=store)
    answers = [bool(limiter.hit(f"k{number}", 5)) for number in range(15)]
    assert answers == [True] * 10 + [False] * 5
    clock.advance(1000)
    assert all(limiter.hit(f"n{number}") for number in range(10))
    assert store.stats().keys <= 10
    assert hand_is_right(store)


def test_a_table_full_of_live_keys_does_not_lock_out_another():
    """Where one rule's keys all live and another's are fresh, new keys of either soon find room."""
    store, clock = room(300)
    slow = Limiter(Rule("slow", TokenBucket(1, "1/day"), by=("key",)), store=store)
    fast = Limiter(Rule("fast", TokenBucket(1, "1/s"), by=("key",)), store=store)
    assert all(slow.hit(f"s{number}") for number in range(200))
    assert all(fast.hit(f"f{number}") for number in range(100))
    clock.advance(2)
    assert all(slow.hit(f"t{number}") for number in range(2))
    assert sum(bool(fast.hit(f"g{number}")) for number in range(60)) >= 58


def test_a_rule_that_is_gone_does_not_keep_its_room():
    """Keys of a rule that left the policy give way like others, once they are fresh."""
    store, clock = room(100)
    limiter = Limiter(Rule("old", TokenBucket(1, "1/s"), by=("key",)), store=store)
    for number in range(100):
        limiter.hit(f"k{number}")
    limiter.replace_policy(Rule("new", TokenBucket(1, "1/h"), by=("key",)))
    assert not limiter.hit("a")
    clock.advance(2)
    assert all(limiter.hit(f"n{number}") for number in range(99))
    assert store.stats().keys <= 100


@pytest.mark.parametrize("when_full", ["refuse", "forget"])
def test_a_request_needs_room_for_all_its_keys(when_full):
    """A request of several rules is refused or let in as a whole; the bound holds, and its own keys are
    spared.
    """
    store, _ = room(50, when_full)
    rules = [
        Rule("a", TokenBucket(10, "1/h"), by=("a",)),
        Rule("b", TokenBucket(1000, "1/h"), by=("b",)),
        Rule("c", TokenBucket(100_000, "1/h")),
    ]
    limiter = Limiter(Policy(rules), store=store)
    randomly, admitted = random.Random(3), 0
    after: dict[str, Any] = {}
    for _ in range(3000):
        request = {"a": str(randomly.randrange(200)), "b": str(randomly.randrange(20))}
        before = {o.rule: o.balance for o in limiter.peek(request).outcomes}
        d = limiter.hit(request)
        admitted += bool(d)
        after = {o.rule: o.balance for o in limiter.peek(request).outcomes}
        assert after == ({rule: left - 1 for rule, left in before.items()} if d else before)
        assert store.stats().keys <= 50
    assert after["c"] == 100_000 - admitted
    assert hand_is_right(store)
    assert (store.stats().forgotten_alive > 0) == (when_full == "forget")


def test_the_own_keys_of_a_request_are_spared_when_they_are_fresh():
    """A request whose one key is held and fresh again, and whose other is new, makes room among others'
    keys.
    """
    store, clock = room(2)
    rules = [Rule("a", TokenBucket(5, "1/s"), by=("a",)), Rule("b", TokenBucket(5, "1/s"), by=("b",))]
    limiter = Limiter(Policy(rules), store=store)
    for number in range(8):
        assert limiter.hit({"a": "1", "b": str(number)})
        assert store.stats() == (2, 2, 0, 0)
        clock.advance(10)
    assert hand_is_right(store)


def test_the_own_keys_of_a_request_make_no_room_for_it():
    """Where only the request's own held key is fresh, there is no room for its new one: the bound holds."""
    store, clock = room(2)
    rules = [Rule("a", TokenBucket(5, "1/s"), by=("a",)), Rule("b", TokenBucket(5, "1/h"), by=("b",))]
    limiter = Limiter(Policy(rules), store=store)
    assert limiter.hit({"a": "1", "b": "1"})
    clock.advance(10)
    for number in range(2, 6):
        assert limiter.hit({"a": "1", "b": str(number)}).retry_after == 1
    assert store.stats() == (2, 2, 4, 0)
    assert hand_is_right(store)


def test_a_request_that_needs_more_room_than_there_is():
    """Where the bound is below the keys of one request, each is refused, and nothing is dropped in vain for
    it.
    """
    store, _ = room(1, "forget")
    limiter = Limiter(
        [Rule("a", TokenBucket(5, "1/h"), by=("k",)), Rule("b", TokenBucket(5, "1/h"))], store=store
    )
    assert not any(limiter.hit({"k": str(number)}) for number in range(5))
    assert store.stats().keys <= 1


def test_a_shadow_rule_has_no_right_to_room():
    """Without room for a shadow rule's key the request is decided and charged all the same; the shadow is
    not kept.
    """
    store, _ = room(2)
    rules = [
        Rule("real", TokenBucket(4, "0/s")),
        Rule("tried", TokenBucket(5, "0/s"), by=("user",), mode="shadow"),
    ]
    limiter = Limiter(Policy(rules), store=store)
    answers = [limiter.hit({"user": str(number)}) for number in range(6)]
    assert [bool(d) for d in answers] == [True] * 4 + [False] * 2
    assert store.stats() == (2, 2, 3, 0)
    assert limiter.peek({"user": "0"}).outcomes[1].balance == 4
    assert limiter.refund(answers[3]) == 1


def test_looking_tells_of_missing_room():
    """A look at a new key says what a hit would be told when there is no room, and makes none."""
    store, clock = room(2)
    limiter = Limiter(TokenBucket(2, "1/h"), store=store)
    limiter.hit("a")
    limiter.hit("b")
    assert (limiter.peek("c").allowed, limiter.peek("c").retry_after) == (False, 1)
    assert store.stats() == (2, 2, 0, 0)
    clock.advance(3600)
    assert limiter.peek("c")
    assert limiter.hit("c")


def test_debts_are_kept_where_there_is_no_room():
    """What is owed is kept even when the store is full; nothing is forgiven."""
    store, clock = room(2)
    limiter = Limiter(TokenBucket(5, "1/h"), store=store)
    reservation = limiter.reserve("debtor", 1)
    clock.advance(2 * 3600)
    other = Limiter(Rule("other", TokenBucket(5, "1/h"), by=("key",)), store=store)
    for number in range(6):
        other.hit(f"o{number}", 5)
    assert reservation.settle(9) < 0
    assert not limiter.hit("debtor", 1)


@pytest.mark.parametrize("limit", FIVE, ids=named)
def test_the_hand_never_leaks(limit):
    """Forgotten and used again, reset and used again, in any order: the hand holds each held key once."""
    store, clock = room(40, "forget", start=500_000)
    limiter = Limiter(limit, store=store)
    randomly = random.Random(5)
    taken: list[Any] = []
    for step in range(4000):
        key = f"k{randomly.randrange(60)}"
        what = randomly.randrange(10)
        if what < 6:
            taken.append(limiter.hit(key, randomly.randint(1, 5)))
        elif what < 8:
            limiter.reset(key)
        elif taken:
            limiter.refund(taken.pop(randomly.randrange(len(taken))))
        if what == 9:
            clock.advance(randomly.choice([0, 1, 100, 1000]))
        if step % 100 == 0:
            assert hand_is_right(store)
    assert store.stats().keys <= 40
    assert hand_is_right(store)


def test_a_key_that_changes_its_kind_of_limit():
    """A key whose rule changes between families of algorithms is held once all the while."""
    store, clock = room()
    limiter = Limiter(TokenBucket(5, "1/s"), store=store)
    for step in range(30):
        limiter.replace_policy(FIVE[step % len(FIVE)])
        limiter.hit("k")
        clock.advance(100)
    assert store.stats().keys == 1
    assert hand_is_right(store)


@pytest.mark.parametrize("given", [0, -1, 1.0, "5", None, True], ids=repr)
def test_a_wrong_bound(given):
    """A bound that is no whole number of at least 1 is an error that names it."""
    with pytest.raises(StoreError, match="max_keys is"):
        MemoryStore(given)


def test_a_wrong_rule_for_a_full_store():
    """What to do when full is one of two words."""
    with pytest.raises(StoreError, match="'refuse' or 'forget'"):
        MemoryStore(when_full="drop")  # type: ignore[arg-type]  # the error is the point


def test_a_shadow_rule_takes_no_room_from_enforced_ones():
    """A shadow rule over something that strangers choose fills the table: new enforced keys still have
    room, and used-up ones stay used up.
    """
    rules = [
        Rule("enforced", TokenBucket(5, "1/100s"), by=("org",)),
        Rule("trial", TokenBucket(5, "1/100s"), by=("agent",), mode="shadow"),
    ]
    for when_full in ("refuse", "forget"):
        store = MemoryStore(100, when_full, clock=ManualClock())
        limiter = Limiter(Policy(rules), store=store)
        for number in range(50):
            assert limiter.hit({"org": f"used {number}", "agent": f"a{number}"}, 5)
        for number in range(200):
            limiter.hit({"org": "used 0", "agent": f"b{number}"})
        assert all(limiter.hit({"org": f"new {number}", "agent": "c"}) for number in range(50))
        assert not any(limiter.hit({"org": f"used {number}", "agent": "c"}) for number in range(50))
        assert store.stats().keys <= 100
