# The rows of a sliding log in the server: found by halving, left out when dead, moved when given back.

from __future__ import annotations

import struct

import pytest

from tests.servers.redis_like import RedisLike
from tests.stores.redis.plain import PlainStore
from tidegate import SlidingLog
from tidegate.core.compose import Adjustment
from tidegate.core.outcome import Charge, Outcome
from tidegate.stores.redis.state import HEAD_BYTES, ROW_BYTES, parse_state
from tidegate.units import US_PER_S

LIMIT = SlidingLog(100_000, "1h")
NOW_US = 1_700_000_000 * US_PER_S


def charge(limit: SlidingLog = LIMIT, cost: int = 1_000) -> Charge:
    return Charge("log", "x", limit, cost)


@pytest.fixture
def store(redis_like: RedisLike) -> PlainStore:
    return PlainStore(redis_like)


def filled(store: PlainStore, count: int, limit: SlidingLog = LIMIT) -> list[Outcome]:
    """The outcomes of so many spends, a millisecond apart."""
    outcomes = []
    for number in range(count):
        (outcome,) = store.decide([charge(limit)], NOW_US + number * 1_000)
        outcomes.append(outcome)
    return outcomes


def name(store: PlainStore) -> bytes:
    return store.names.key("log", "x")


def commands(store: PlainStore, *kinds: str) -> int:
    """How many of these commands have been called so far, those of scripts included."""
    stats = store.redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{kind}", {"calls": 0})["calls"] for kind in kinds)


def test_a_spend_writes_a_row_and_the_head(store: PlainStore):
    """However long the log, spending and refusing read and write a few bytes."""
    store.decide_many([[charge()]] * 20_000, NOW_US)
    store.redis.config_resetstat()
    (spent,) = store.decide([charge()], NOW_US + 5)
    assert commands(store, "getrange") <= 4
    assert (commands(store, "setrange"), commands(store, "set")) == (2, 0)
    assert spent.state.instants == [NOW_US + 5]

    store.redis.config_resetstat()
    (refused,) = store.decide([charge(cost=90_000_000)], NOW_US + 5)
    assert commands(store, "getrange") <= 4 + 17
    assert commands(store, "setrange", "set") == 0
    assert refused.retry_after_us == 3_600 * US_PER_S - 5


def test_a_value_is_as_long_as_its_rows(store: PlainStore):
    """16 bytes a spend, behind a head of 128."""
    filled(store, 50)

    assert store.redis.strlen(name(store)) == HEAD_BYTES + 50 * ROW_BYTES


def test_dead_rows_are_left_out(store: PlainStore):
    """However long it is in use, a log holds at most twice the rows that count, and a few."""
    limit = SlidingLog(30, "1s")
    longest = 0
    for number in range(600):
        store.decide([charge(limit)], NOW_US + number * 50_000)
        longest = max(longest, store.redis.strlen(name(store)))
    stored = parse_state(store.redis.get(name(store)))

    assert longest <= HEAD_BYTES + ROW_BYTES * (2 * 20 + 10)
    assert stored is not None
    assert stored.used == 20_000


def test_totals_do_not_grow_for_ever(store: PlainStore):
    """A log that never rests starts its running totals anew before they pass the exact integers."""
    limit = SlidingLog(100_000, "1s")
    store.decide([charge(limit)], NOW_US)
    value = bytearray(store.redis.get(name(store)))
    high = 2**52 + 2_000
    head = b"G1 100000000 1000000 0 1 %d %d %d 0" % (high - 1_000, high, NOW_US)
    value[:HEAD_BYTES] = head.ljust(HEAD_BYTES)

    value[HEAD_BYTES:] = struct.pack("<dd", NOW_US, high)
    store.redis.set(name(store), bytes(value))
    (spent,) = store.decide([charge(limit)], NOW_US + 5)
    words = store.redis.getrange(name(store), 0, HEAD_BYTES - 1).split()

    assert limit.law.used(spent.state) == 2_000
    assert [int(word) for word in words[3:7]] == [0, 2, 0, 2_000]


@pytest.mark.parametrize("place", [0, 1, 400, 999, 1_000])
def test_giving_back_moves_the_fewer_rows(store: PlainStore, place: int):
    """In the middle as at either end, what is given back is gone, and all other rows stay what they were."""
    outcomes = filled(store, 1_001)
    store.redis.config_resetstat()
    (units,) = store.adjust([Adjustment(charge(), outcomes[place].receipt, -1_000)], NOW_US + 2_000_000)
    assert units == 1_000
    stored = parse_state(store.redis.get(name(store)))

    assert stored is not None
    left = [NOW_US + number * 1_000 for number in range(1_001) if number != place]
    state = stored.state
    assert state.instants[state.start : state.end] == left
    assert state.totals[state.start : state.end] == [1_000 * number for number in range(1, 1_001)]
    assert commands(store, "set") == 0
    moved = min(place, 1_000 - place)
    assert store.redis.strlen(name(store)) <= HEAD_BYTES + ROW_BYTES * (1_001 + moved)


def test_a_large_log_gives_back(store: PlainStore):
    """The middle of a full log: tens of thousands of rows are moved at once."""
    instants = [NOW_US + number for number in range(0, 60_000, 60)]
    outcomes = [store.decide_many([[charge()]] * 60, at_us)[0][0] for at_us in instants]
    middle = outcomes[500]
    (units,) = store.adjust([Adjustment(charge(), middle.receipt, -30_000)], NOW_US + 70_000)
    stored = parse_state(store.redis.get(name(store)))

    assert units == 30_000
    assert stored is not None
    assert stored.used == 60_000_000 - 30_000


def test_all_given_back_is_nothing_kept(store: PlainStore):
    """The last entry leaves a head alone, which refuses nobody and expires."""
    (taken,) = store.decide([charge(cost=3_000)], NOW_US)
    store.adjust([Adjustment(charge(), taken.receipt, -3_000)], NOW_US)

    assert store.redis.strlen(name(store)) == HEAD_BYTES
    assert store.redis.pttl(name(store)) > 0
    assert store.decide([charge(cost=100_000_000)], NOW_US)[0].charged


def test_a_row_that_is_missing_counts_as_all(store: PlainStore):
    """A value cut in its rows is not taken for a smaller log."""
    filled(store, 5)
    value = store.redis.get(name(store))
    for cut in (1, 16, 17, 5 * 16, 5 * 16 + 1):
        store.redis.set(name(store), value[:-cut])
        (refused,) = store.decide([charge()], NOW_US + 10_000, take=False)
        assert (refused.allowed, refused.left) == (False, 0), cut
