# What stands in a key and was not written by these scripts, or not whole: never an error, never credit.

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers.redis_like import RedisLike
from tests.stores.redis.direct import seen
from tests.stores.redis.plain import PlainStore
from tidegate import FixedWindow, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.compose import Adjustment, adjust, decide
from tidegate.core.law import Receipt
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge
from tidegate.stores.redis.state import parse_state
from tidegate.units import US_PER_S

NOW_US = 1_700_000_000 * US_PER_S
LIMITS: list[Limit] = [
    TokenBucket(10, "5/s"),
    LeakyQueue(10, "7/min"),
    TokenBucket(10, "0/s"),
    FixedWindow(10, "1min"),
    FixedWindow(10, "month", "Europe/Berlin"),
    SlidingWindow(10, "1min"),
    SlidingLog(10, "1min"),
]
ROW = b"\x00\x00\x80\xd8\x1e\x28\x18\x43" + b"\x00\x00\x00\x00\x00\x70\xa7\x40"
SAMPLES = [
    *(b"7", b"", b" ", b"\x00", b"OK", b"L1", b"L1 ", b"L2 2000000 200000 1 5 5 5 5", b"N1", b"N1 ", b"N2"),
    *(b"L1 2000000 200000 1 1000 1700000000000000 0", b"L1 2000000 200000 1 1000 1700000000000000 0 0 "),
    *(b"L1 2000000 200000 1 1000 1700000000000000 0 0", b"L1 2000000 200000 1 -5 1700000000000000 0 0"),
    *(
        b"L1 2e6 2e+05 1 1e3 1.7e15 0 0",
        b"L1 2000000 200000 1 1e3 1.7e15 0 0",
        b"L1 2000000 200000 1 x y z w",
    ),
    *(b"L1 2000000 200000 1 1.5 1700000000000000 0 0", b"L1 2000000 200000 1 1000 1700000000000000 -5 5e2"),
    *(
        b"L1 2000000 200000 1 9007199254740991 1700000000000000 0 0",
        b"L1 0 1000 1 5 5 5 5",
        b"L1 5 0 1 5 5 5 5",
    ),
    *(
        b"L1 2000000 200000 1 9007199254740992 1700000000000000 0 0",
        b"L1 5 1 1 5 5 5 5",
        b"L1 5 1500 1 5 5 5 5",
    ),
    *(
        b"L1 2000000 200000 1 1000 99999999999999999999 0 0",
        b"L1 2000000 200000 -1 1000 1700000000000000 0 0",
    ),
    b"L1 2000000 200000 1 " + b"9" * 400 + b" 1700000000000000 0 0",
    b"L1 2000000 200000 1 1000 1700000000000000 0 " + b"9" * 30,
    b"L1 2000000 200000 1 1000 1700000000000000 " + b"9" * 25 + b" 0",
    *(b"L1 nan nan nan nan nan nan nan", b"L1 2000000 200000 1 nan inf -inf nan", b"L1 inf 1000 1 0 0 0 0"),
    *(
        b"F1 10000 even:60000000 5000 1700000000000000 0 1699999980000000 1700000040000000",
        b"F1 10000 even:0 5 5 5 5 5",
    ),
    *(
        b"F1 10000 month:Europe/Berlin 5000 1700000000000000 0 1698793200000000 1701385200000000",
        b"F1 1 x 5 5 5 5 5",
    ),
    *(
        b"F1 10000 even:60000000 5000 1700000000000000 0 1699999980000000",
        b"F1 10000 even:60000000 -1 5 5 5 5",
    ),
    *(b"F1 10000 fortnight:UTC 5000 1700000000000000 0 5 1700000040000000", b"F1 10000 even:-5 5 5 5 5 5"),
    *(b"S1 10000 1 60000000 500 5000 1700000000000000 0 1699999980000000", b"S1 10000 0 5 5 5 5 5 5"),
    *(b"S1 10000 1 60000000 500 999999999999 1700000000000000 0 1699999980000000", b"S1 1 1 0 5 5 5 5 5"),
    (b"G1 10000 60000000 0 1 0 3000 1700000000000000 0").ljust(128) + ROW,
    (b"G1 10000 60000000 0 1 0 4000 1700000000000000 0").ljust(128) + ROW,
    (b"G1 10000 60000000 0 2 0 3000 1700000000000000 0").ljust(128) + ROW,
    (b"G1 10000 60000000 0 0 0 0 1700000000000000 0").ljust(128),
    (b"G1 10000 60000000 0 1 0 3000 1700000000000000 0").ljust(128) + ROW[:-1],
    b"G1 10000 60000000 0 1 0 3000 1700000000000000 0",
    *(b"G1 10000 60000000 5 1 0 3000 1700000000000000 0".ljust(128) + ROW, b"G1 10000 0 0 1 0 3000 5 0 "),
]


@pytest.fixture
def store(redis_like: RedisLike) -> PlainStore:
    return PlainStore(redis_like)


def expected_state(value: bytes, limit: Limit) -> Any:
    """The state that a value counts as: what it says, or everything used now by a changed limit."""
    stored = parse_state(value)
    if stored is not None:
        return stored.state
    law = limit.law
    return law.holding(law.capacity, NOW_US, NOW_US) if value else None


def check(store: PlainStore, value: bytes, limit: Limit) -> None:
    """Every way of asking is answered as by the core, and leaves a state that can be read."""
    name = store.names.key("rule", "x")
    charge = Charge("rule", "x", limit, 1_000, carry="keep_level")
    state = expected_state(value, limit)
    for take in (False, True):
        store.redis.set(name, value)
        answered = store.decide([charge], NOW_US, take=take)
        assert list(map(seen, answered)) == list(map(seen, decide([charge], [state], NOW_US, take=take)))
    kept = store.redis.get(name)
    assert parse_state(kept) is not None, kept
    assert (store.redis.pttl(name) > 0) is (limit.rate is None or limit.rate.tokens > 0), kept

    owing = Adjustment(charge, Receipt(1_000, NOW_US, NOW_US, 10**6, 0), 5_000 * limit.law.grain, debt=3_000)
    for change in (owing, owing._replace(units=-1_000 * limit.law.grain)):
        store.redis.set(name, value)
        readable = state if parse_state(value) is not None or change.units > 0 else None
        units, _ = adjust(change, readable, NOW_US)
        assert store.adjust([change], NOW_US) == [units]
    store.redis.set(name, value)
    store.forget([("rule", "x")])
    (fresh,) = store.decide([charge], NOW_US, take=False)
    assert limit.law.is_fresh(fresh.state)


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_samples(store: PlainStore, limit: Limit):
    """C034, C038: exponents are read; counters, truncated and impossible texts count as everything used."""
    for value in SAMPLES:
        try:
            check(store, value, limit)
        except BaseException as error:
            error.add_note(repr(value))
            raise


@pytest.mark.parametrize("kind", ["valkey-9", "redis-6.2"])
def test_any_value(shared_redis: Any, kind: str):
    """A state with some of its characters changed is what `parse_state` says of it, or used up."""
    store = PlainStore(shared_redis(kind))

    @settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
    @given(
        st.sampled_from(SAMPLES),
        st.integers(0, 120),
        st.integers(0, 4),
        st.text("0123456789 -.eLFSG:\x00", max_size=4),
        st.sampled_from(LIMITS),
    )
    def changed(sample: bytes, at: int, cut: int, more: str, limit: Limit) -> None:
        value = sample[:at] + more.encode() + sample[at + cut :]
        check(store, value, limit)

    changed()


@pytest.mark.parametrize("other", ["LPUSH", "SADD", "HSET", "ZADD", "XADD"])
def test_another_type_is_an_error(store: PlainStore, other: str):
    """C134: a key of another type is a mistake that is told; a reset makes it fresh."""
    name = store.names.key("rule", "x")
    words = {"HSET": ("a", "1"), "ZADD": (1, "a"), "XADD": ("*", "a", "1")}.get(other, ("a",))
    store.redis.execute_command(other, name, *words)
    charge = Charge("rule", "x", LIMITS[0], 1_000)
    change = Adjustment(charge, Receipt(1_000, NOW_US, NOW_US), -1_000)

    for ask in (
        lambda: store.decide([charge]),
        lambda: store.decide([charge], take=False),
        lambda: store.adjust([change]),
        lambda: store.adjust([change._replace(units=1_000)]),
    ):
        with pytest.raises(Exception, match="WRONGTYPE") as caught:
            ask()
        assert type(caught.value).__name__ == "StoreError"
    store.forget([("rule", "x")])
    assert store.decide([charge])[0].charged
