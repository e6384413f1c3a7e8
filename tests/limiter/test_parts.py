# A request whose keys live on several servers: taken one after another, and given back on a refusal.

from __future__ import annotations

import asyncio

import pytest

from tests.limiter.faces import awaited
from tests.limiter.remote import REMOTE_FACES, Awaited, Remote, Servers
from tidegate import AsyncLimiter, Limiter, Rule, StoreError, TokenBucket

TEN = TokenBucket(10, "0/s")


@pytest.fixture(params=list(REMOTE_FACES))
def face(request):
    return REMOTE_FACES[request.param]


@pytest.fixture
def servers(clock):
    return Servers(clock, 3)


def rules(*sizes, **parts):
    return [Rule(f"on {place}", TokenBucket(size, "0/s"), **parts) for place, size in enumerate(sizes)]


def left(servers, *sizes):
    """What is left on each server by its own word."""
    states = [servers.stores[place].table(f"on {place}").state(b"") for place in range(len(sizes))]
    return [
        size if state is None else size - state.level // state.law.q
        for size, state in zip(sizes, states, strict=True)
    ]


def verbs(servers):
    return [(verb, server) for verb, server, _ in servers.asked]


def test_all_parts_admit_or_nothing_is_taken(face, clock, servers):
    """Each part is taken in turn; a refusal gives the earlier ones back and only looks at the later ones."""
    limiter = face(rules(10, 4, 10), store=Remote(servers), clock=clock)
    assert limiter.hit({}, 3)
    assert left(servers, 10, 4, 10) == [7, 1, 7]

    servers.asked.clear()
    refused = limiter.hit({}, 3)
    assert (refused.rule, refused.source, refused.remaining) == ("on 1", "remote", 1)
    assert [(o.allowed, o.charged, o.remaining) for o in refused.outcomes] == [
        (True, False, 7),
        (False, False, 1),
        (True, False, 7),
    ]
    assert left(servers, 10, 4, 10) == [7, 1, 7]
    assert verbs(servers) == [("decide", 0), ("decide", 1), ("look", 2), ("adjust", 0)]


def test_the_part_likeliest_to_refuse_is_asked_first(face, clock, servers):
    """After some refusals the server that refuses is asked first, and nothing has to be given back."""
    limiter = face(rules(100, 100, 1), store=Remote(servers), clock=clock)
    for _ in range(3):
        limiter.hit({})
    servers.asked.clear()
    assert not limiter.hit({})
    assert verbs(servers) == [("decide", 2), ("look", 0), ("look", 1)]


def test_one_part_is_one_call(face, clock, servers):
    """Rules that live together are decided together, and a request of one rule asks for no parts."""
    limiter = face([Rule("a", TEN), Rule("b", TEN), Rule("on 1", TEN, match={"k": "v"})],
                   store=Remote(servers), clock=clock)  # fmt: skip
    limiter.hit({})
    assert verbs(servers) == [("decide", 0)]
    limiter.hit({"k": "v"})
    assert verbs(servers)[1:] == [("decide", 0), ("decide", 1)]


def test_looking_asks_every_part(face, clock, servers):
    """`peek` takes nothing anywhere, and has an outcome for each rule."""
    limiter = face(rules(10, 0.5, 10), store=Remote(servers), clock=clock)
    assert [outcome.allowed for outcome in limiter.peek({}).outcomes] == [True, False, True]
    assert [verb for verb, _ in verbs(servers)] == ["look"] * 3


def test_a_shadow_rule_in_another_part_blocks_nobody(face, clock, servers):
    """A shadow rule elsewhere is charged with the request, and given back with it."""
    limiter = face(
        [*rules(2, mode="shadow"), Rule("on 1", TokenBucket(3, "0/s"))], store=Remote(servers), clock=clock
    )
    answers = [limiter.hit({}) for _ in range(4)]
    assert [bool(d) for d in answers] == [True, True, True, False]
    assert [d.outcomes[0].charged for d in answers] == [True, True, False, False]
    assert left(servers, 2, 3) == [0, 0]


def test_a_live_part_counts_and_a_dead_one_goes_by_its_rule(face, clock, servers):
    """C146: of two servers one is down: the live one is counted once and decides, the dead is admitted."""
    limiter = face(rules(2, 10, on_outage="open"), store=Remote(servers), clock=clock)
    servers.states[1] = "down"
    answers = [limiter.hit({}) for _ in range(3)]
    assert [(bool(d), d.source) for d in answers] == [(True, "outage"), (True, "outage"), (False, "outage")]
    assert [(o.charged, o.outage) for o in answers[0].outcomes] == [(True, False), (False, True)]
    assert answers[0].remaining == 1
    assert (answers[2].rule, answers[2].binding.outage) == ("on 0", False)
    assert left(servers, 2, 10) == [0, 10]


def test_a_dead_closed_part_refuses_and_the_live_one_is_given_back(face, clock, servers):
    """C146, closed: the request is refused, and what the live part took comes back, none of it twice."""
    limiter = face(rules(2, 10), store=Remote(servers), clock=clock)
    servers.states[1] = "down"
    answers = [limiter.hit({}) for _ in range(3)]
    assert [(bool(d), d.rule, d.source) for d in answers] == [(False, "on 1", "outage")] * 3
    assert left(servers, 2, 10) == [2, 10]

    servers.states[1] = "up"
    assert [bool(limiter.hit({})) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("state", ["down", "late"])
def test_a_give_back_without_an_answer_stays_charged(face, clock, servers, state):
    """If the server is gone when its part should come back, the part stays counted: never too much passes."""
    limiter = face(rules(10, 2), store=Remote(servers), clock=clock)

    def vanish(verb, server):
        if verb == "adjust":
            servers.states[0] = state

    servers.on_call = vanish
    refused = limiter.hit({}, 3)
    assert not refused
    assert left(servers, 10, 2) == [7 if state == "down" else 10, 2]
    assert getattr(limiter, "limiter", limiter)._tally.refunds_lost == 1


def test_a_mistake_in_one_part_gives_the_others_back(face, clock, servers):
    """C134: a mistake is raised, and what other parts had taken is given back first."""
    limiter = face(rules(10, 10, 10), store=Remote(servers), clock=clock)
    servers.states[1] = "wrong"
    with pytest.raises(StoreError, match="WRONGTYPE"):
        limiter.hit({})
    assert left(servers, 10, 10, 10) == [10, 10, 10]


def test_a_mistake_while_giving_back_is_raised(face, clock, servers):
    """A part that cannot come back because of a mistake is not passed over in silence."""
    limiter = face(rules(10, 1), store=Remote(servers), clock=clock)

    def break_it(verb, server):
        if verb == "adjust":
            servers.states[0] = "wrong"

    servers.on_call = break_it
    with pytest.raises(StoreError, match="WRONGTYPE"):
        limiter.hit({}, 2)


def test_an_interrupted_request_gives_back(clock, servers):
    """Ctrl-C between two parts gives the first one back and goes on its way."""
    limiter = Limiter(rules(10, 10), store=Remote(servers), clock=clock)

    def interrupt(verb, server):
        if server == 1:
            raise KeyboardInterrupt

    servers.on_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        limiter.hit({})
    assert left(servers, 10, 10) == [10, 10]


class Slow(Awaited):
    """An awaited store whose second server answers when it is told to."""

    def __init__(self, servers, health):
        super().__init__(servers, health)
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.slow_to_give_back = False

    async def decide(self, charges, now_us=None, *, take=True, deadline_us=None):
        if charges[0].rule == "on 1":
            self.reached.set()
            await self.go_on.wait()
        return await super().decide(charges, now_us, take=take, deadline_us=deadline_us)

    async def adjust(self, adjustments, now_us=None, *, deadline_us=None):
        if self.slow_to_give_back:
            self.reached.set()
            await self.go_on.wait()
        return await super().adjust(adjustments, now_us, deadline_us=deadline_us)


def test_a_cancelled_request_gives_back(clock, servers):
    """Cancelled while the second part is asked: the first comes back, and nothing is left to be awaited."""

    async def main():
        store = Slow(servers, Remote(servers).health)
        limiter = AsyncLimiter(rules(10, 10), store=store, clock=clock)
        request = asyncio.create_task(limiter.hit({}, 4))
        await store.reached.wait()
        assert left(servers, 10, 10) == [6, 10]
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert left(servers, 10, 10) == [10, 10]

    awaited(main())


def test_who_is_cancelled_twice_still_gives_back(clock, servers):
    """Giving back goes on to its end when the caller does not wait for it any more."""

    async def main():
        store = Slow(servers, Remote(servers).health)
        limiter = AsyncLimiter(rules(10, 10), store=store, clock=clock)
        request = asyncio.create_task(limiter.hit({}, 4))
        await store.reached.wait()
        store.reached.clear()
        store.slow_to_give_back = True
        request.cancel()
        await store.reached.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert left(servers, 10, 10) == [6, 10]
        store.go_on.set()
        await asyncio.sleep(0.01)
        assert left(servers, 10, 10) == [10, 10]

    awaited(main())


def test_a_closed_coroutine_gives_back_what_it_can(clock, servers):
    """A coroutine that is closed may await nothing: its own share comes back, what the store took stays."""

    async def main():
        reserve = {"share": "50%", "nodes": 1, "index": 0}
        own = Rule("own", TokenBucket(20, "1/s"), on_outage="reserve", reserve=reserve)
        limiter = AsyncLimiter([own, *rules(10, 10)], store=Remote(servers), clock=clock)
        clock.advance(20)
        request = limiter.hit({}, 4)
        request.send(None)  # the first server is about to be asked
        request.send(None)  # and the second
        request.close()
        assert left(servers, 10, 10) == [6, 10]
        assert (await limiter.explain({}))["own"].balance == 10

    awaited(main())


def test_all_parts_share_one_deadline(clock, servers):
    """Each part may use its part of the time that is left, so a silent server leaves some for the rest."""
    store = Remote(servers)
    limiter = Limiter(rules(10, 10, 10), store=store, clock=clock, deadline="30s")
    limiter.hit({})
    first, second, third = [us or 0 for us in store.deadlines_us]
    assert 0 < first <= 10_000_000 < second <= 15_000_000 < third <= 30_000_000


def test_where_no_time_is_left_the_outage_rule_answers(clock, servers, monkeypatch):
    """A part that cannot be asked in time any more is not asked, and goes by its rule."""
    store = Remote(servers)
    limiter = Limiter(rules(10, 10, on_outage="open"), store=store, clock=clock, deadline="1ms")
    ticks = iter([0, 0, 0, 2_000, 2_000, 2_000, 2_000])
    monkeypatch.setattr(limiter._port, "ticks_us", lambda: next(ticks))

    d = limiter.hit({})
    assert [(o.charged, o.outage) for o in d.outcomes] == [(True, False), (False, True)]
    assert verbs(servers) == [("decide", 0)]


def test_refunds_go_to_each_part(face, clock, servers):
    """A refund returns to every server what it took; where one is away, nothing came back there."""
    limiter = face(rules(10, 10), store=Remote(servers), clock=clock)
    first, second = limiter.hit({}, 4), limiter.hit({}, 4)
    assert limiter.refund(first) == 4
    servers.states[1] = "down"
    assert limiter.refund(second) == 0
    assert left(servers, 10, 10) == [10, 6]


def test_many_requests_in_parts(face, clock, servers):
    """`hit_many` asks for the first parts of all requests together, then for the second parts, ..."""
    limiter = face([*rules(10), Rule("on 1", TEN, match={"k": "both"})], store=Remote(servers), clock=clock)
    answers = limiter.hit_many([{}, {"k": "both"}, {}], [1, 3, 6])
    assert answers.allowed == [True, True, True]
    assert left(servers, 10, 10) == [0, 7]
    assert servers.trips == [("many", 3), ("many", 1)]


def test_many_refusals_are_looked_at_and_given_back_together(face, clock, servers):
    """Of many, those that a part refuses are only looked at in the rest, and give back in one call."""
    limiter = face(rules(10, 1, 10), store=Remote(servers), clock=clock)
    answers = limiter.hit_many([{}] * 4, 1)
    assert answers.allowed == [True, False, False, False]
    assert [[(o.allowed, o.charged) for o in d.outcomes] for d in answers][1] == [
        (True, False),
        (False, False),
        (True, False),
    ]
    assert left(servers, 10, 1, 10) == [9, 0, 9]
    assert servers.trips == [("many", 4), ("many", 4), ("many", 1), ("look at many", 3), ("adjust", 3)]


def slow(limiter, servers, monkeypatch):
    """From now on each trip takes 10 ms; what the limiter's clock for deadlines says, in microseconds."""
    ticks = [0]

    def take_time():
        ticks[0] += 10_000

    servers.on_trip = take_time
    monkeypatch.setattr(getattr(limiter, "limiter", limiter)._port, "ticks_us", lambda: ticks[0])
    return ticks


def deadlines(limiter):
    return (limiter.store.awaited if hasattr(limiter, "limiter") else limiter.store).deadlines_us


@pytest.mark.parametrize("second", [10, 1_000])
def test_many_requests_have_one_deadline(face, clock, servers, monkeypatch, second):
    """A hundred requests of two parts, 10 ms each trip: they end by a deadline of 50 ms and its grace."""
    limiter = face(rules(1_000, second), store=Remote(servers), clock=clock, deadline="50ms")
    ticks = slow(limiter, servers, monkeypatch)
    assert sum(limiter.hit_many([{}] * 100).allowed) == min(second, 100)
    assert ticks[0] <= 50_000 + 10_000


def test_the_rounds_of_many_requests_share_the_time(face, clock, servers, monkeypatch):
    """Each round may use its part of what is left; one that finds nothing left goes by its rules."""
    limiter = face(rules(10, 10, 10, on_outage="open"), store=Remote(servers), clock=clock, deadline="20ms")
    slow(limiter, servers, monkeypatch)
    answers = limiter.hit_many([{}] * 2)
    assert deadlines(limiter) == [5_000, 3_333]
    assert [[outcome.outage for outcome in d.outcomes] for d in answers] == [[False, False, True]] * 2


def test_giving_many_back_has_one_grace(face, clock, servers, monkeypatch):
    """What many refused requests give back is asked within a fifth of the deadline, all together."""
    limiter = face(rules(1_000, 1), store=Remote(servers), clock=clock, deadline="50ms")
    slow(limiter, servers, monkeypatch)
    assert not any(limiter.hit_many([{}] * 100, 2).allowed)
    assert deadlines(limiter) == [16_666, 40_000, 10_000]
    assert servers.trips[-1] == ("adjust", 100)
    assert left(servers, 1_000, 1) == [1_000, 1]


def test_a_store_that_cannot_tell_the_parts_leaves_the_share_as_it_was(face, clock, servers, monkeypatch):
    """What fails before any server is asked gives back what the node's own share gave in advance."""
    reserve = {"share": "50%", "nodes": 1, "index": 0}
    own = Rule("own", TokenBucket(20, "1/s"), on_outage="reserve", reserve=reserve)
    limiter = face([own, *rules(10, 10)], store=Remote(servers), clock=clock)
    clock.advance(20)
    parts = Servers.parts

    def broken(self, charges):
        raise StoreError("this key has no slot")

    monkeypatch.setattr(Servers, "parts", broken)
    with pytest.raises(StoreError, match="no slot"):
        limiter.hit({}, 4)
    with pytest.raises(StoreError, match="no slot"):
        limiter.hit_many([{}], 4)
    monkeypatch.setattr(Servers, "parts", parts)
    assert limiter.explain({})["own"].balance == 10


def test_refunds_share_one_deadline_too(clock, servers):
    """A refund over several servers ends within one deadline, and a silent one leaves time for the others."""
    store = Remote(servers)
    limiter = Limiter(rules(10, 10), store=store, clock=clock, deadline="30s")
    decision = limiter.hit({})
    store.deadlines_us.clear()
    limiter.refund(decision)
    first, second = [us or 0 for us in store.deadlines_us]
    assert 0 < first <= 15_000_000 < second <= 30_000_000
