# A limit with a reserve: what this node owns, what the store holds, and what becomes of both.

from __future__ import annotations

import gc
import pickle
from fractions import Fraction

import pytest

from tests.limiter.remote import REMOTE_FACES, Remote, Servers
from tests.stores.test_fork import in_child
from tidegate import Limiter, PolicyError, Rule, TokenBucket
from tidegate.core.outage import Reserve

WHOLE = TokenBucket(100, "8/s")  # the store holds 80 at 6.4/s, each of 4 nodes 5 at 0.4/s
FULL_S = Fraction(25, 2)  # after which an untouched share is full


@pytest.fixture(params=list(REMOTE_FACES))
def face(request):
    return REMOTE_FACES[request.param]


@pytest.fixture
def servers(clock):
    return Servers(clock)


def rule(index=0, limit=WHOLE, name="r", **parts):
    reserve = {"share": "20%", "nodes": 4, "index": index}
    return Rule(name, limit, by=("key",), on_outage="reserve", reserve=reserve, **parts)


def sources(limiter, count, cost=1):
    decisions = [limiter.hit("k", cost) for _ in range(count)]
    return [decision.source if decision else "refused" for decision in decisions]


def test_shares_begin_empty_and_the_store_holds_the_rest(face, clock, servers):
    """At the start the store alone serves, 80 of 100; later the share has filled, and is spent first."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    assert sources(limiter, 81) == ["remote"] * 80 + ["refused"]

    clock.advance(FULL_S)
    assert sources(limiter, 86) == ["reserve"] * 5 + ["remote"] * 80 + ["refused"]


def test_a_share_decides_without_the_store(face, clock, servers):
    """What the share covers asks nobody, and shows what is left of the share."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)

    d = limiter.hit("k", 2)
    assert (d.source, d.remaining, d.limit.capacity, servers.asked) == ("reserve", 3, 5, [])
    assert d.outcomes[0].charge.share
    assert pickle.loads(pickle.dumps(d)) == d


def test_what_does_not_fit_the_share_goes_whole_to_the_store(face, clock, servers):
    """A cost is never divided between share and store."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    assert (limiter.hit("k", 6).source, limiter.hit("k", 5).source) == ("remote", "reserve")
    assert servers.stores[0].stats().keys == 1


def test_nothing_switches_in_an_outage(face, clock, servers):
    """In an outage the share goes on as ever, and what it does not cover is refused until it does."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    servers.all("down")
    assert sources(limiter, 6) == ["reserve"] * 5 + ["refused"]

    refused = limiter.hit("k", Fraction(2, 5))
    assert (refused.source, refused.rule, refused.retry_after) == ("outage", "r", 1.0)
    clock.advance(1)
    assert limiter.hit("k", Fraction(2, 5)).source == "reserve"


def test_what_no_share_and_no_store_could_ever_admit_is_refused_for_ever(face, clock, servers):
    """A cost above the whole limit can never pass, in an outage too; one above the share may, after it."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    assert limiter.hit("k", 101).retry_after is None
    servers.all("down")
    assert [limiter.hit("k", cost).retry_after for cost in (101, 6)] == [None, 1.0]


def test_the_hint_is_the_earlier_of_share_and_store(face, clock, servers):
    """A refusal by both is told when the first of them has room; a microsecond earlier still fails."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    assert limiter.hit("k", 80)

    by_store = limiter.hit("k", Fraction(1, 2))
    assert (by_store.source, by_store.retry_after_us) == ("remote", 78_125)  # 0.5 at 6.4/s
    assert passes_exactly_then(limiter, clock, by_store, Fraction(1, 2))

    clock.set(Fraction("12.4"))
    assert limiter.hit("k", 78)
    by_share = limiter.hit("k", 5)  # the store lacks 4.14 of it, the share 0.04
    assert (by_share.outcomes[0].charge.share, by_share.retry_after) == (True, 0.1)
    assert passes_exactly_then(limiter, clock, by_share, 5)


def passes_exactly_then(limiter, clock, refused, cost):
    """Whether a lone caller passes at the hint, and not a microsecond earlier."""
    clock.advance(Fraction(refused.retry_after_us - 1, 1_000_000))
    early = bool(limiter.peek("k", cost))
    clock.advance(Fraction(1, 1_000_000))
    return not early and bool(limiter.hit("k", cost))


def test_a_node_without_an_index_owns_nothing(face, clock, servers):
    """Without an index everything goes to the store's part, and an outage refuses."""
    limiter = face(rule(None), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    assert sources(limiter, 81) == ["remote"] * 80 + ["refused"]

    servers.all("down")
    clock.advance(FULL_S)
    assert sources(limiter, 1) == ["refused"]


def test_a_restart_begins_empty(face, clock, servers):
    """A process that begins anew owns its share from then on: what it spent before is not granted again."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    servers.all("down")
    assert sources(limiter, 5) == ["reserve"] * 5

    again = face(rule(), store=Remote(servers), clock=clock)
    assert sources(again, 1) == ["refused"]
    clock.advance(FULL_S)
    assert sources(again, 6) == ["reserve"] * 5 + ["refused"]


def test_limiters_of_one_process_have_one_share(clock, servers):
    """Limiters over one address share what the node owns; when the last is gone, the next begins empty."""
    first = Limiter(rule(), store=Remote(servers, "there"), clock=clock)
    clock.advance(FULL_S)
    second = Limiter(rule(), store=Remote(servers, "there"), clock=clock)
    servers.all("down")
    assert sources(first, 3) + sources(second, 3) == ["reserve"] * 5 + ["refused"]

    clock.advance(FULL_S)
    del first, second
    gc.collect()
    assert sources(Limiter(rule(), store=Remote(servers, "there"), clock=clock), 1) == ["refused"]


def test_workers_divide_the_share(face, clock, servers):
    """Each of 4 workers of a node has a quarter of its share; a quarter that is too little is an error."""
    limiter = face(rule(), store=Remote(servers), clock=clock, workers=4)
    clock.advance(FULL_S)
    servers.all("down")
    assert sources(limiter, 2) == ["reserve", "refused"]

    with pytest.raises(PolicyError, match=r"over 4 nodes of 6 workers is 0\.833 of 100 tokens each"):
        face(rule(), store=Remote(servers), clock=clock, workers=6)


def test_a_refusal_by_another_rule_gives_the_share_back(face, clock, servers):
    """What was taken from the share in advance comes back when the store refuses the rest."""
    limiter = face([rule(), Rule("all", TokenBucket(3, "1/s"))], store=Remote(servers), clock=clock)
    clock.advance(FULL_S)

    refused = limiter.hit({"key": "k"}, 4)
    assert (refused.rule, [(o.allowed, o.charged) for o in refused.outcomes]) == (
        "all",
        [(True, False), (False, False)],
    )
    assert refused.outcomes[0].remaining == 5
    servers.all("down")
    assert limiter.explain({"key": "k"})["r"].balance == 5


def test_a_refusal_by_an_outage_gives_the_share_back(face, clock, servers):
    """The same when a closed rule refuses because there was no answer, and when a mistake is raised."""
    limiter = face([rule(), Rule("all", TokenBucket(3, "1/s"))], store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    servers.all("down")
    assert limiter.hit({"key": "k"}, 2).source == "outage"
    servers.all("wrong")
    with pytest.raises(Exception, match="WRONGTYPE"):
        limiter.hit({"key": "k"}, 2)

    servers.all("up")
    assert limiter.explain({"key": "k"})["r"].balance == 5


def test_looking_takes_nothing_of_the_share(face, clock, servers):
    """`peek` and `explain` say what the share would say, and leave it."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    assert [limiter.peek("k", 5).source for _ in range(3)] == ["reserve"] * 3
    assert "this node's share: 0 of 5 used" in str(limiter.explain("k"))
    assert limiter.hit("k", 5).source == "reserve"


def test_what_the_share_gave_goes_back_to_it(face, clock, servers):
    """A refund returns to where it was charged, also in an outage."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    own, stored = limiter.hit("k", 5), limiter.hit("k", 40)
    servers.all("down")
    assert (limiter.refund(own), limiter.refund(own), limiter.refund(stored)) == (5, 0, 0)
    assert sources(limiter, 6) == ["reserve"] * 5 + ["refused"]


def test_settling_for_more_makes_a_debt_where_it_was_charged(face, clock, servers):
    """A share may be overdrawn by its own part of `max_debt`, so that all parts together owe no more."""
    limiter = face(rule(max_debt=20), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    own, stored = limiter.reserve("k", 5), limiter.reserve("k", 80)
    assert (own.settle(50), stored.settle(200)) == (-1, -16)


def test_a_reload_keeps_the_shares_of_rules_that_stay(face, clock, servers):
    """Replacing the policy leaves the share of an unchanged rule as it was; a new rule's begins empty."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    servers.all("down")
    assert sources(limiter, 2) == ["reserve"] * 2

    limiter.replace_policy([rule(), rule(name="new", match={"key": "other"})])
    assert limiter.hit({"key": "k"}, 3).source == "reserve"
    assert not limiter.hit({"key": "k"})
    assert not limiter.hit({"key": "other"})


def test_another_index_begins_empty(face, clock, servers):
    """A share that this node takes over from another by a reload may have been spent there."""
    limiter = face(rule(0), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    servers.all("down")
    limiter.replace_policy(rule(1))
    assert sources(limiter, 1) == ["refused"]


def test_a_refund_after_a_reload_goes_by_the_parts_in_force(face, clock, servers):
    """Refunds of an unchanged rule work after a reload; of a changed one they return nothing, as ever."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    own, stored = limiter.hit("k", 5), limiter.hit("k", 40)
    limiter.replace_policy([rule(), Rule("more", WHOLE, by=("key",))])
    assert (limiter.refund(own, 2), limiter.refund(stored, 2)) == (2, 2)

    limiter.replace_policy(rule(limit=TokenBucket(200, "8/s")))
    limiter.hit("k")
    assert (limiter.refund(own), limiter.refund(stored)) == (0, 0)
    limiter.replace_policy(Rule("r", WHOLE, by=("key",)))
    assert limiter.refund(own) == 0


def test_a_reset_makes_this_nodes_share_fresh(face, clock, servers):
    """A reset frees the key in the store and here; another node's share of it stays as it is."""
    here = face(rule(0), store=Remote(servers), clock=clock)
    there = face(rule(1), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    assert here.hit("k", 5).source == there.hit("k", 5).source == "reserve"
    assert here.hit("k", 80)

    here.reset("k")
    assert (here.hit("k", 5).source, there.hit("k", 5).source) == ("reserve", "remote")


def test_overrides_are_split_like_their_rule(face, clock, servers):
    """Each key's own limit has its own parts, from a table or a function; one without is an error then."""
    big = TokenBucket(200, "16/s")
    for overrides in ({"big": big}, lambda attributes: big if attributes["key"] == "big" else None):
        limiter = face(rule(overrides=overrides), store=Remote(servers), clock=clock)
        clock.advance(FULL_S)
        assert [limiter.hit({"key": key}, 10).source for key in ("big", "k")] == ["reserve", "remote"]
        assert limiter.hit({"key": "big"}, 160)
        clock.advance(FULL_S)
        limiter.reset({"key": "big"})

    tiny = face(rule(overrides=lambda _: TokenBucket(Fraction(1, 1000), "1/s")), store=Remote(servers))
    with pytest.raises(PolicyError, match=r"rule 'r': .* leaves nothing to each"):
        tiny.hit("k")


def test_a_shadow_rule_with_a_reserve_reports(face, clock, servers):
    """A shadow rule spends its share and its part in the store, and refuses nobody."""
    limiter = face(rule(mode="shadow"), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    answers = [limiter.hit("k", 5) for _ in range(18)]
    assert all(answers)
    assert [d.outcomes[0].allowed for d in answers] == [True] * 17 + [False]


def test_many_at_once_spend_the_share_first(face, clock, servers):
    """`hit_many` decides locally what the share covers and sends the rest in one call."""
    limiter = face(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    answers = limiter.hit_many(["k"] * 7)
    assert [d.source for d in answers] == ["reserve"] * 5 + ["remote"] * 2
    assert [verb for verb, _, _ in servers.asked] == ["many"] * 2


def test_a_store_of_the_process_holds_the_whole(clock):
    """The embedded store cannot be away, so nothing is split: the limit is the whole."""
    limiter = Limiter(rule(), clock=clock)
    assert limiter.hit("k", 100).limit == WHOLE
    assert limiter.policy["r"].reserve == Reserve("20%", 4, 0)


def test_a_forked_child_begins_empty(clock, servers):
    """A child does not spend what its parent goes on spending: its shares begin anew at the fork."""
    limiter = Limiter(rule(), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    servers.all("down")

    def child():
        assert sources(limiter, 1) == ["refused"]
        clock.advance(FULL_S)
        assert sources(limiter, 6) == ["reserve"] * 5 + ["refused"]

    assert in_child(child) == 0
    assert sources(limiter, 6) == ["reserve"] * 5 + ["refused"]
