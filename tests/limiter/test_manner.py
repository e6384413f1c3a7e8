# How a limiter is told to go about it: tier, outages, deadline, workers; ports, closing and copies.

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest

from tests.limiter.faces import awaited
from tests.limiter.remote import Remote, Servers
from tidegate import AsyncLimiter, Limiter, PolicyError, RateError, Rule, StoreError, TokenBucket, limiter
from tidegate.testing import ManualClock

LIMIT = TokenBucket(10, "1/s")
BOTH = [Limiter, AsyncLimiter]


@pytest.fixture
def servers(clock):
    return Servers(clock)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tier": "leased"}, "tier is 'leased', which this version does not have yet; use tier='direct'"),
        ({"tier": "synced"}, "does not have yet"),
        ({"tier": "fast"}, "tier is 'fast'; write 'direct'"),
        ({"on_outage": "reserve"}, "a reserve belongs to a rule"),
        ({"on_outage": "shut"}, "on_outage is 'shut'; write 'closed' or 'open'"),
        ({"on_outage": None}, "on_outage is None"),
        ({"workers": 0}, "workers is 0; write how many processes"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"workers": True}, "workers is True"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_an_error(kind, given, said):
    """Each argument that cannot be used is named with what to write."""
    with pytest.raises(PolicyError) as error:
        kind(LIMIT, **given)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("deadline", ["0.5ms", "61s", 0, -1, "soon", 100])
def test_a_deadline_is_between_a_millisecond_and_a_minute(kind, deadline):
    """A deadline that cannot be read or kept is an error."""
    with pytest.raises(RateError, match="deadline"):
        kind(LIMIT, deadline=deadline)


@pytest.mark.parametrize(
    ("deadline", "us"), [("20ms", 20_000), (0.5, 500_000), (timedelta(seconds=2), 2_000_000), (None, None)]
)
def test_the_deadline_goes_to_the_store(clock, servers, deadline, us):
    """Every call of a store on the network ends by the limiter's deadline, by default by the store's own."""
    store = Remote(servers)
    made = Limiter(LIMIT, store=store, clock=clock, deadline=deadline)
    made.refund(made.hit("k"))
    made.peek("k")
    made.hit_many(["k"])
    assert store.deadlines_us == [us] * 4

    other = AsyncLimiter(LIMIT, store=store, clock=clock, deadline=deadline)
    awaited(other.hit("k"))
    assert store.awaited.deadlines_us == [us]


def test_a_store_that_is_only_awaited_is_for_async_limiters(clock, servers):
    """The awaited face works in an AsyncLimiter as it is, and a Limiter says that it cannot wait for it."""
    only = Remote(servers).awaited
    with pytest.raises(StoreError, match="can only be awaited; use AsyncLimiter"):
        Limiter(LIMIT, store=only)

    assert awaited(AsyncLimiter(LIMIT, store=only, clock=clock).hit("k", 3)).remaining == 7


def test_async_limiters_await_and_blocking_ones_block(clock, servers):
    """Of a store with two faces each limiter uses its own, and both see the same state."""
    store = Remote(servers)
    Limiter(LIMIT, store=store, clock=clock).hit("k", 3)
    assert awaited(AsyncLimiter(LIMIT, store=store, clock=clock).hit("k")).remaining == 6
    assert (len(store.deadlines_us), len(store.awaited.deadlines_us)) == (1, 1)


def test_closing_lets_go_of_what_was_opened_only(clock, servers, monkeypatch):
    """`close`, `aclose` and the context managers close a store that the limiter opened, and no other."""
    monkeypatch.setattr(limiter, "open_store", lambda url: Remote(servers))
    given = Remote(servers)

    async def main():
        async with AsyncLimiter(LIMIT, store=given, clock=clock):
            pass
        async with AsyncLimiter(LIMIT, store="fake://", clock=clock) as opened:
            await opened.hit("k")
        return opened

    opened = asyncio.run(main())
    assert (given.closed, given.awaited.closed) == (False, False)
    assert are_closed(opened) == (True, True)
    with Limiter(LIMIT, store="fake://", clock=clock) as blocking:
        blocking.hit("k")
    assert are_closed(blocking) == (True, False)
    asyncio.run(Limiter(LIMIT, store=given, clock=clock).aclose())
    assert not given.closed


def are_closed(made: Any) -> tuple[bool, bool]:
    return made.store.closed, made.store.awaited.closed


def test_a_limiter_that_cannot_be_made_lets_go_of_its_store(servers, monkeypatch):
    """A store that was opened for a policy that turns out to be wrong is closed again."""
    store = Remote(servers)
    monkeypatch.setattr(limiter, "open_store", lambda url: store)
    with pytest.raises(PolicyError):
        Limiter(Rule("cap", LIMIT, strict=True), store="fake://", on_outage="open")
    assert store.closed


class Travelling(Remote):
    """A store that can be pickled, as those on the network can."""

    def __reduce__(self):
        return _arrived, ()


def _arrived():
    return Travelling(Servers(ManualClock()))


@pytest.mark.parametrize("kind", BOTH)
def test_a_limiter_travels_with_its_manner(kind):
    """C129: a pickled limiter over a store on the network keeps policy, outage rule, deadline and workers."""
    made = kind(LIMIT, store=Travelling(Servers(ManualClock())), on_outage="open", deadline="2s", workers=3)
    for copied in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert type(copied) is kind
        assert (copied.policy, copied._manner, copied._owns_store) == (made.policy, made._manner, False)


@pytest.mark.parametrize("kind", BOTH)
def test_a_client_is_no_store(kind):
    """Whoever gives a Redis client in place of a store is told how to make one of it."""
    import redis

    with pytest.raises(StoreError, match=r"store is a client, Redis; give RedisStore\(client\)"):
        kind(LIMIT, store=redis.Redis())
