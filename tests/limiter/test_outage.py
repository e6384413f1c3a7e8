# What happens to decisions while a store on the network is away, by each rule's outage rule.

from __future__ import annotations

import copy
import pickle

import pytest

from tests.limiter.remote import REMOTE_FACES, Remote, Servers
from tidegate import (
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    PolicyError,
    Rule,
    SlidingLog,
    SlidingWindow,
    StoreError,
    StoreUnavailable,
    TokenBucket,
)
from tidegate.flows.outage import ASK_AGAIN_US
from tidegate.stores.memory import MemoryStore

LIMIT = TokenBucket(10, "1/s")
ALL = [LIMIT, LeakyQueue(10, "1/s"), SlidingLog(10, "1h"), FixedWindow(10, "1h"), SlidingWindow(10, "1h")]


@pytest.fixture(params=list(REMOTE_FACES))
def face(request):
    return REMOTE_FACES[request.param]


@pytest.fixture
def servers(clock):
    return Servers(clock)


def rule(limit=LIMIT, **parts):
    return Rule("r", limit, by=("key",), **parts)


@pytest.mark.parametrize("limit", ALL, ids=lambda limit: limit.algorithm)
@pytest.mark.parametrize("state", ["down", "late"])
def test_closed_refuses(face, clock, servers, limit, state):
    """C142, rule "refuse": nothing passes, 0 are left, the hint is a guess, and the decision says why."""
    limiter = face(rule(limit), store=Remote(servers), clock=clock)
    servers.all(state)

    for d in (limiter.hit("k"), limiter.peek("k")):
        assert not d
        assert (d.source, d.rule, d.remaining, d.retry_after_us) == ("outage", "r", 0, ASK_AGAIN_US)
        assert [(o.outage, o.charged, o.delay_us) for o in d.outcomes] == [(True, False, ASK_AGAIN_US)]
        assert d.retry_hint_us >= ASK_AGAIN_US
        assert str(d) == "refused by r: the store gave no answer, retry after 1 s"
        assert pickle.loads(pickle.dumps(d)) == d


@pytest.mark.parametrize("limit", ALL, ids=lambda limit: limit.algorithm)
@pytest.mark.parametrize("state", ["down", "late"])
def test_open_admits(face, clock, servers, limit, state):
    """C142, rule "let through": everything passes uncharged, and the decision says that nobody was asked."""
    limiter = face(rule(limit, on_outage="open"), store=Remote(servers), clock=clock)
    servers.all(state)

    for d in (limiter.hit("k", 3), limiter.hit("k", 30), limiter.peek("k")):
        assert d
        assert (d.source, d.wait, d.brief) == ("outage", 0, None)
        assert [(o.outage, o.charged) for o in d.outcomes] == [(True, False)]
        assert limiter.refund(d) == 0


def test_a_late_charge_stays_counted(face, clock, servers):
    """A store that charged and then did not answer in time has charged: it is not asked again, nor repaid."""
    limiter = face(rule(on_outage="open"), store=Remote(servers), clock=clock)
    servers.all("late")
    d = limiter.hit("k", 4)
    assert (bool(d), limiter.refund(d)) == (True, 0)

    servers.all("up")
    assert limiter.peek("k").remaining == 6
    assert [verb for verb, _, _ in servers.asked] == ["decide", "look"]


def test_open_may_be_bounded(face, clock, servers):
    """With an outage limit each process admits so much of a key meanwhile, refused with an exact hint."""
    outage_limit = TokenBucket(2, "1/2s")
    limiter = face(rule(on_outage="open", outage_limit=outage_limit), store=Remote(servers), clock=clock)
    servers.all("down")
    assert [bool(limiter.hit("k")) for _ in range(3)] == [True, True, False]
    assert limiter.hit("other")

    refused = limiter.hit("k")
    assert (refused.source, refused.retry_after, refused.outcomes[0].outage) == ("outage", 2.0, True)
    clock.advance(2)
    taken = limiter.hit("k")
    assert taken
    assert not limiter.peek("k")
    assert limiter.refund(taken) == 1
    assert limiter.hit("k")
    assert servers.stores[0].stats().keys == 0


def test_an_outage_limit_is_charged_only_with_the_rest(face, clock, servers):
    """What a closed rule refuses in the same outage is not taken from the outage limit of another."""
    limiter = face(
        [rule(on_outage="open", outage_limit=TokenBucket(1, "0/s")), Rule("all", LIMIT)],
        store=Remote(servers),
        clock=clock,
    )
    servers.all("down")
    assert not limiter.hit({"key": "k"})
    assert limiter.hit({"key": "k"}).outcomes[0].allowed

    limiter.replace_policy([rule(on_outage="open", outage_limit=TokenBucket(1, "0/s"))])
    assert [bool(limiter.hit("k")) for _ in range(2)] == [True, False]


def test_each_rule_answers_for_itself(face, clock, servers):
    """C142: the choice is per rule: one closed rule refuses a request that an open one would admit."""
    limiter = face(
        [rule(on_outage="open"), Rule("closed", LIMIT, match={"method": "POST"})],
        store=Remote(servers),
        clock=clock,
    )
    servers.all("down")
    assert limiter.hit({"key": "k"})

    refused = limiter.hit({"key": "k", "method": "POST"})
    assert (bool(refused), refused.rule) == (False, "closed")
    assert [outcome.allowed for outcome in refused.outcomes] == [True, False]


def test_the_limiter_says_it_for_rules_that_do_not(face, clock, servers):
    """`on_outage` of the limiter is the default of its rules; what a rule says itself stands."""
    limiter = face(
        [rule(), Rule("closed", LIMIT, match={"method": "POST"}, on_outage="closed")],
        store=Remote(servers),
        clock=clock,
        on_outage="open",
    )
    servers.all("down")
    assert limiter.hit({"key": "k"})
    assert not limiter.hit({"key": "k", "method": "POST"})


def test_a_spending_cap_is_never_opened(face, servers):
    """A strict rule refuses the limiter's "open" too, also when the policy is replaced."""
    strict = Rule("cap", LIMIT, strict=True)
    with pytest.raises(PolicyError, match="rule 'cap': a strict rule is a spending cap"):
        face(strict, store=Remote(servers), on_outage="open")

    limiter = face(rule(), store=Remote(servers), on_outage="open")
    with pytest.raises(PolicyError, match="rule 'cap': a strict rule is a spending cap"):
        limiter.replace_policy(strict)
    assert limiter.policy == Policy([rule()])


def test_a_shadow_rule_never_refuses_in_an_outage(face, clock, servers):
    """A shadow rule is reported as allowed and not charged, whatever it would do, and blocks nobody."""
    limiter = face(rule(mode="shadow"), store=Remote(servers), clock=clock)
    servers.all("down")

    d = limiter.hit("k")
    assert (bool(d), d.source) == (True, "outage")
    assert [(o.allowed, o.charged, o.outage) for o in d.outcomes] == [(True, False, True)]


def test_never_is_not_an_outage(face, clock, servers):
    """A cost above the capacity is refused for ever, outage or not."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    servers.all("down")
    assert limiter.hit("k", 11).retry_after is None


def test_a_mistake_is_no_outage(face, clock, servers):
    """C134: a wrong type, a broken script and their like are raised, however open the rule is."""
    limiter = face(rule(on_outage="open"), store=Remote(servers), clock=clock)
    servers.all("wrong")
    for call in (limiter.hit, limiter.peek, limiter.explain):
        with pytest.raises(StoreError, match="WRONGTYPE"):
            call("k")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        limiter.hit_many(["k", "l"])


def test_explaining_goes_by_the_rule_too(face, clock, servers):
    """`explain` in an outage says what would happen, and that the store gave no answer."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    servers.all("down")

    explained = limiter.explain("k")
    assert not explained.allowed
    assert explained["r"].outage
    assert "the store gave no answer" in str(explained)


def test_giving_back_in_an_outage_returns_nothing(face, clock, servers):
    """A refund that finds no store returns 0 and raises nothing; it is not tried again: it may be done."""
    limiter = face(rule(TokenBucket(10, "0/s")), store=Remote(servers), clock=clock)
    d, late = limiter.hit("k", 2), limiter.hit("k", 3)
    servers.all("down")
    assert limiter.refund(d) == 0
    servers.all("late")
    assert limiter.refund(late) == 0

    servers.all("up")
    assert limiter.refund(d) == 0
    assert limiter.refund(late) == 0
    assert limiter.peek("k").remaining == 8
    assert tally(limiter).refunds_lost == 2


def test_settling_for_more_in_an_outage_loses_the_difference(face, clock, servers):
    """What would be charged on top of a reservation is lost with the store, and tallied."""
    limiter = face(rule(TokenBucket(10, "0/s")), store=Remote(servers), clock=clock)
    reservation = limiter.reserve("k", 2)
    servers.all("down")
    assert reservation.settle(5) == 0

    servers.all("up")
    assert limiter.peek("k").remaining == 8
    assert tally(limiter).debts_lost == 1


def tally(limiter):
    return getattr(limiter, "limiter", limiter)._tally


def test_resetting_in_an_outage_raises(face, clock, servers):
    """`reset` cannot be answered by a rule: it raises StoreUnavailable and nothing has become fresh."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    limiter.hit("k", 4)
    servers.all("down")
    with pytest.raises(StoreUnavailable):
        limiter.reset("k")

    servers.all("up")
    assert limiter.peek("k").remaining == 6


def test_many_at_once_are_decided_together(face, clock, servers):
    """`hit_many` asks a store on the network once; what it does not answer goes by each rule."""
    limiter = face([rule(), Rule("free", mode="bypass", by=("key",), match={"key": "vip"})],
                   store=Remote(servers), clock=clock)  # fmt: skip
    answers = limiter.hit_many([{"key": key} for key in ("a", "vip", "a", "b")], [6, 1, 6, 6])
    assert answers.allowed == [True, True, False, True]
    assert [verb for verb, _, _ in servers.asked] == ["many"] * 3

    servers.all("down")
    answers = limiter.hit_many([{"key": key} for key in ("a", "vip")])
    assert answers.allowed == [False, True]
    assert [d.source for d in answers] == ["outage", "policy"]


def test_many_at_once_keep_to_the_setting_of_the_policy(face, clock, servers):
    """Many thousand requests of one call are decided in order, some hundred at a time."""
    limiter = face(rule(TokenBucket(600, "0/s")), store=Remote(servers), clock=clock)
    assert sum(limiter.hit_many(["k"] * 1_100).allowed) == 600


def test_a_mistake_among_many_is_raised_and_the_others_given_back(face, clock):
    """Where one of many requests meets a mistake, all that the others took comes back."""
    servers = Servers(clock, 2)
    limiter = face(
        [
            Rule("first", TokenBucket(10, "0/s"), by=("key",), match={"key": "a"}),
            Rule("on 1", LIMIT, by=("key",), match={"key": "b"}),
        ],
        store=Remote(servers),
        clock=clock,
    )
    servers.states[1] = "wrong"
    with pytest.raises(StoreError, match="WRONGTYPE"):
        limiter.hit_many([{"key": "a"}, {"key": "b"}])
    assert limiter.peek({"key": "a"}).remaining == 10


def test_two_limiters_keep_to_their_own_stores(face, clock):
    """C144: limits on two stores in one process: each key is in its own store only, also in an outage."""
    here, there = Servers(clock), Servers(clock)
    first = face(rule(), store=Remote(here), clock=clock)
    second = face(rule(), store=Remote(there), clock=clock)
    first.hit("k", 3)
    there.all("down")
    assert (first.peek("k").remaining, second.hit("k").source) == (7, "outage")

    moved = face(rule(), store=Remote(there), clock=clock)
    there.all("up")
    assert moved.hit("k", 2).remaining == 8
    assert first.peek("k").remaining == 7


def test_a_network_store_of_a_users_own_may_be_away_too(clock):
    """A plain store that raises StoreUnavailable is answered by outage rules like any other."""

    class Plain(MemoryStore):
        def decide(self, charges, now_us=None, *, take=True):
            raise StoreUnavailable("away", "connection")

    limiter = Limiter(rule(on_outage="open", outage_limit=TokenBucket(1, "0/s")), store=Plain(), clock=clock)
    assert [bool(limiter.hit("k")) for _ in range(2)] == [True, False]


def test_copies_share_what_a_process_owns(clock, servers):
    """Two limiters over one address have one outage limit between them, not two."""
    bounded = rule(on_outage="open", outage_limit=TokenBucket(1, "0/s"))
    first = Limiter(bounded, store=Remote(servers, "there"), clock=clock)
    second = Limiter(bounded, store=Remote(servers, "there"), clock=clock)
    servers.all("down")
    assert [bool(first.hit("k")), bool(second.hit("k")), bool(copy.copy(first).hit("k"))] == [
        True,
        False,
        False,
    ]
