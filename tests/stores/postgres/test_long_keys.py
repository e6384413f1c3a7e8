# A key may have 4,096 bytes, and an entry of an index 2,704: a long key works as a short one does.

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from random import Random

import pytest

from tests.servers.postgres import Database, Postgres
from tests.stores.postgres.faces import Face, charge
from tests.stores.postgres.test_conformance import LIMITS, told
from tidegate import Limiter, Policy, Rule, SlidingLog, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.keys import KEY_BYTES_MOST, Key
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge
from tidegate.stores.memory import MemoryStore
from tidegate.stores.postgres.browse import every_key, list_keys, reset_keys, show_key
from tidegate.stores.postgres.places import place_of

Opened = Callable[..., Face]

SIZES = (1_000, 1_001, 2_600, 2_704, KEY_BYTES_MOST)
LETTERS = string.ascii_letters + string.digits + "-_"


def text(size: int, seed: int = 1) -> str:
    """A text that no compression makes short enough for an index."""
    return "".join(Random(f"{size} {seed}").choices(LETTERS, k=size))


def octets(size: int) -> bytes:
    return Random(size).randbytes(size)


@pytest.fixture
def face(request: pytest.FixtureRequest) -> str:
    """Blocking and awaited, where a test has both; else the blocking one."""
    return str(getattr(request, "param", "blocking"))


both_faces = pytest.mark.parametrize("face", ["blocking", "awaited"], indirect=True)


@both_faces
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("limit", [TokenBucket(10, "0/s"), SlidingLog(10, "1h")], ids=repr)
def test_alone(opened: Opened, made: Database, size: int, limit: Limit):
    """Ten of eleven pass, under a rule whose name is as long as one can be, and what is reset is fresh."""
    store = opened(made.unix_url)
    rule = text(200)
    for key in (text(size), octets(size)):
        admitted = [store.takes(key, rule=rule, limit=limit) for _ in range(11)]
        assert admitted == [True] * 10 + [False]
        assert store.left(key, rule=rule, limit=limit) == 0
        store.forget([(rule, key)])

        assert store.left(key, rule=rule, limit=limit) == 10
    assert store.store.health.stats().unavailable == {}


@both_faces
def test_in_a_batch(opened: Opened, made: Database):
    """Requests with long keys and short ones are decided in one call, and none has an error."""
    store = opened(made.unix_url)
    keys: list[Key] = [key for size in SIZES for key in (f"short {size}", text(size), octets(size))]
    answers = store.decide_many([[charge(key, 4)] for key in keys] + [[charge(key, 7)] for key in keys])

    assert [answer[0].allowed for answer in answers] == [True] * len(keys) + [False] * len(keys)
    layered = [charge(key, 6) for key in keys]
    assert all(outcome.charged for outcome in store.decide(layered))
    assert [outcome.remaining for outcome in store.decide(layered, take=False)] == [0] * len(keys)


def test_callers_who_travel_together(made: Database):
    """Tasks that ask at the same moment, each for a key of its own, are all answered."""
    keys: list[Key] = [f"short {number}" for number in range(40)]
    keys += [text(size, seed) for size in SIZES for seed in range(4)]

    async def spend() -> list[bool]:
        with_face = Face("blocking", made.unix_url)
        store = with_face.store.awaited
        outcomes = await asyncio.gather(*(store.decide([charge(key)]) for _ in range(11) for key in keys))
        await store.close()
        return [outcome.allowed for (outcome,) in outcomes]

    assert sum(asyncio.run(spend())) == 10 * len(keys)


def test_as_the_embedded_store(opened: Opened, made: Database):
    """Charges, looks, refunds and resets of long keys of all limits have the embedded store's answers."""
    chance = Random(11)
    embedded = MemoryStore()
    store = opened(made.unix_url)
    keys: list[Key] = [key for size in SIZES[1:] for key in (text(size), octets(size))] + ["short"]
    now_us = 1_700_000_000 * 10**6
    for turn in range(300):
        now_us += chance.choice((0, 1, 10**6, 5 * 10**6))
        number = chance.randrange(len(LIMITS))
        asked = [
            Charge(f"rule {number}", key, LIMITS[number], 1_000 * chance.choice((1, 2, 5)))
            for key in chance.sample(keys, 2)
        ]
        given, expected = store.decide(asked, now_us), embedded.decide(asked, now_us)
        assert told([given]) == told([expected]), turn
        if turn % 3 == 0 and given[0].charged:
            grain = given[0].limit.law.grain
            back = [Adjustment(one.charge, one.receipt, -1_000 * grain) for one in given]
            assert store.adjust(back, now_us) == embedded.adjust(back, now_us), turn
        if turn % 20 == 0:
            places = [(f"rule {number}", key) for key in keys[:3]]
            store.forget(places)
            embedded.forget(places)


def test_they_are_told_apart(opened: Opened, made: Database):
    """By their last byte, and text from bytes; a key that looks like the name of a long one is its own."""
    store = opened(made.unix_url)
    one = text(KEY_BYTES_MOST)
    name = place_of("rule", one)[1]
    others: list[Key] = [one[:-1] + "~", one.encode(), one[:1_001], name, name[1:], name.decode("latin-1")]
    store.decide([charge(one, 4)])

    assert store.left(one) == 6
    assert [store.left(other) for other in others] == [10] * len(others)


def test_a_charge_on_top_of_what_was_never_charged(opened: Opened, made: Database):
    """What is owed by a long key is kept under its full name."""
    store = opened(made.unix_url)
    key = text(3_000)
    (outcome,) = store.decide([charge("short")])
    owed = Adjustment(charge(key), outcome.receipt, 2_000 * outcome.limit.law.grain, debt=0)

    assert store.adjust([owed]) == [-owed.units]
    assert store.left(key) == 8
    assert ("rule", key) in list_keys(store.store).keys


def test_people_see_the_key(opened: Opened, postgres: Postgres, made: Database):
    """Listed page by page, found by its beginning, shown and reset: all by the key in full."""
    store = opened(made.unix_url)
    keys: list[Key] = [f"acme {text(size)}" for size in (994, 996, 2_600, 4_000)]
    keys += [octets(4_096), "acme", "other", f"other {text(2_000)}"]
    store.decide_many([[charge(key, 3)] for key in keys])
    store.decide_many([[charge(key, 3)] for key in keys])
    found = [key for page in every_key(store.store) for _, key in page.keys]
    paged: list[Key] = []
    cursor = None
    for _ in range(4):
        page = list_keys(store.store, "rule", cursor=cursor, most=2)
        paged += [key for _, key in page.keys]
        cursor = page.cursor
        assert len(cursor or "") < 2_100
    shown = [show_key(store.store, "rule", key) for key in keys]

    assert len(found) == len(paged) == len(keys)
    assert set(found) == set(paged) == set(keys)
    assert {key for _, key in list_keys(store.store, key_prefix="acme").keys} == {*keys[:4], "acme"}
    assert [held.used if held else None for held in shown] == [6_000] * len(keys)
    assert reset_keys(store.store, "rule", "acme ") == 4
    assert [store.left(key) for key in keys] == [10] * 4 + [4] * 4
    short = "SELECT count(*) FROM tidegate.state WHERE whole IS NULL"
    assert postgres.sql(short, url=made.unix_url) == [(3,)]


def test_by_the_limiter(made: Database):
    """A policy whose users have long names: nobody notices."""
    with Face("blocking", made.unix_url) as face:
        limiter = Limiter(Policy([Rule("user", TokenBucket(3, "0/s"), by=("user",))]), store=face.store)
        users = [text(4_000, seed) for seed in range(3)] + ["bob"]
        admitted = [[decision.allowed for decision in limiter.hit_many([{"user": user} for user in users])]]
        admitted += [[limiter.hit({"user": user}).allowed for user in users] for _ in range(3)]
        limiter.reset({"user": users[0]})

        assert admitted == [[True] * 4] * 3 + [[False] * 4]
        assert limiter.peek({"user": users[0]}).remaining == 3
