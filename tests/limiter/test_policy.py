# Policies of several rules on a limiter: all-or-nothing, modes, overrides, costs, and what is absent.

from __future__ import annotations

import random

import pytest

from tidegate import CostError, InvalidKey, LeakyQueue, Policy, Rule, SlidingLog, TokenBucket

ATTRIBUTES = ("address", "tenant", "user", "route")


def balances(limiter, request):
    return [outcome.balance for outcome in limiter.peek(request).outcomes]


def test_48_rules_decide_together(face, clock):
    """48 rules over address, tenant, user and route: all-or-nothing, and the one that binds is named."""
    rules = [
        Rule(f"{'-'.join(by) or 'all'} {size}", TokenBucket(size, f"{size // 10}/s"), by=by)
        for by in [(name,) for name in ATTRIBUTES]
        + [("address", "route"), ("tenant", "user"), ("tenant", "route"), ATTRIBUTES]
        for size in (40, 50, 60, 70, 80, 90)
    ]
    limiter = face(Policy(rules), clock=clock)
    assert len(limiter.policy) == 48

    randomly = random.Random(7)
    taken: dict[str, dict[tuple[str, ...], int]] = {rule.name: {} for rule in rules}
    refused = 0
    for _ in range(300):
        request = {name: f"{name}{randomly.randrange(3)}" for name in ATTRIBUTES}
        used = {rule.name: taken[rule.name].get(tuple(request[n] for n in rule.by), 0) for rule in rules}
        full = [rule for rule in rules if rule.limit and used[rule.name] + 1 > rule.limit.capacity]
        d = limiter.hit(request)
        assert d.allowed == (not full)
        assert [o.allowed for o in d.outcomes] == [rule not in full for rule in rules]
        if full:
            refused += 1
            waits = {rule.name: o.retry_after for rule, o in zip(rules, d.outcomes, strict=True)}
            assert d.retry_after == max(waits.values()) == waits[d.rule]
            assert d.rule in [rule.name for rule in full]
        else:
            for rule in rules:
                key = tuple(request[n] for n in rule.by)
                taken[rule.name][key] = taken[rule.name].get(key, 0) + 1
            assert d.remaining == min(o.remaining for o in d.outcomes)
    assert 50 < refused < 250


def test_a_refusal_charges_no_rule(face, clock):
    """C020: owner bucket(10, 0) and key bucket(1, 0): ten on key A, one on key B: the owner has 8 left."""
    limiter = face(
        [
            Rule("owner", TokenBucket(10, "0/s"), by=("owner",)),
            Rule("key", TokenBucket(1, "0/s"), by=("key",)),
        ],
        clock=clock,
    )
    answers = []
    for _ in range(10):
        clock.advance(0.01)
        answers.append(bool(limiter.hit({"owner": "o", "key": "A"})))
    assert answers == [True] + [False] * 9
    assert balances(limiter, {"owner": "o", "key": "A"}) == [9, 0]
    assert limiter.hit({"owner": "o", "key": "B"})
    assert balances(limiter, {"owner": "o", "key": "B"}) == [8, 0]


def test_a_thousand_refusals_change_no_later_answer(face, clock):
    """A thousand refusals leave every later answer as it would have been."""
    rules = [Rule("a", TokenBucket(5, "1/s"), by=("key",)), Rule("b", SlidingLog(4, "10s"))]
    bothered, calm = (face(Policy(rules), clock=clock) for _ in range(2))
    for step in range(24):
        assert bothered.hit("k") == calm.hit("k")
        for _ in range(50):
            assert not bothered.hit("k", 5)
        clock.advance(0.5 + step % 3)


def test_the_rule_that_frees_last_binds(face, clock):
    """C069: of several that refuse, the one that frees last is shown: C with 3000 s and 0 left."""
    limiter = face(
        [
            Rule("A", TokenBucket(60, "1/s")),
            Rule("B", TokenBucket(1, "1 per 100s")),
            Rule("C", SlidingLog(5, "1h")),
        ],
        clock=clock,
    )
    for instant in (0, 100, 200, 300, 400):
        clock.set(instant)
        limiter.hit({})
    clock.set(600)
    refused = limiter.hit({})
    assert (refused.rule, refused.remaining, refused.retry_after, refused.reset_after) == ("C", 0, 3000, 3400)
    clock.set(400.5)
    assert [o.allowed for o in limiter.hit({}).outcomes] == [True, False, False]


def test_a_shadow_rule_only_reports(face, clock):
    """A shadow rule says what it would have said, never refuses, and charges nobody else."""
    limiter = face(
        [Rule("tried", TokenBucket(2, "0/s"), mode="shadow"), Rule("real", TokenBucket(4, "0/s"))],
        clock=clock,
    )
    answers = [limiter.hit({}) for _ in range(6)]
    assert [bool(d) for d in answers] == [True] * 4 + [False] * 2
    assert [d.outcomes[0].allowed for d in answers] == [True, True] + [False] * 4
    assert {d.rule for d in answers} == {"real"}
    assert balances(limiter, {}) == [0, 0]


def test_a_shadow_rule_alone_lets_all_pass(face, clock):
    """Where only shadow rules speak of a request it passes, and what they say can be read."""
    limiter = face(Rule("tried", TokenBucket(1, "0/s"), by=("key",), mode="shadow"), clock=clock)
    answers = [limiter.hit("k") for _ in range(3)]
    assert all(answers)
    assert [d.outcomes[0].allowed for d in answers] == [True, False, False]
    assert (answers[2].rule, answers[2].remaining) == ("", None)


def test_deny_and_bypass(face, clock):
    """The first deny or bypass rule that matches decides: no limit is asked, nothing is charged."""
    limiter = face(
        [
            Rule("banned", mode="deny", match={"user": ["mallory", "trudy"]}),
            Rule("staff", mode="bypass", match={"plan": "staff"}),
            Rule("user", TokenBucket(1, "0/s"), by=("user",)),
        ],
        clock=clock,
    )
    banned = limiter.hit({"user": "trudy", "plan": "staff"})
    assert (banned.allowed, banned.rule, banned.retry_after, banned.outcomes) == (False, "banned", None, ())
    assert (banned.source, banned.remaining, banned.retry_hint_s) == ("policy", 0, None)
    staff = [limiter.hit({"user": "ann", "plan": "staff"}) for _ in range(5)]
    assert {(d.allowed, d.rule, d.remaining, d.reset_after) for d in staff} == {(True, "staff", None, 0)}
    assert [bool(limiter.hit({"user": "ann"})) for _ in range(2)] == [True, False]
    assert limiter.store.stats().keys == 1


@pytest.mark.parametrize("value", [None, "", " ", "\t\n", "\u3000"], ids=repr)
def test_what_is_absent_is_one_budget(face, clock, value):
    """C155: missing, None, empty and blank attributes are one shared budget, never an error and never
    unlimited.
    """
    limiter = face(Rule("user", TokenBucket(3, "0/s"), by=("user",)), clock=clock)
    answers = [limiter.hit(request) for request in ({}, {"user": value}, {"user": None}, {"user": value})]
    assert [bool(d) for d in answers] == [True, True, True, False]
    assert limiter.hit({"user": "None"})
    assert limiter.hit({"user": "absent"})


def test_absent_parts_of_a_key(face, clock):
    """C155: of a key of two attributes each may be absent; the four combinations are four budgets."""
    limiter = face(Rule("r", TokenBucket(1, "0/s"), by=("org", "user")), clock=clock)
    requests = [{"org": "a", "user": "b"}, {"org": "a"}, {"user": "a"}, {}]
    assert [bool(limiter.hit(request)) for request in requests * 2] == [True] * 4 + [False] * 4


def test_routes_and_methods(face, clock):
    """C185: a rule by route template is one budget for all its ids; other routes and methods are not
    counted.
    """
    rule = Rule("users", TokenBucket(1, "0/s"), match={"route": "/users/{id}", "method": ["GET", "HEAD"]})
    limiter = face(rule, clock=clock)
    answers = [limiter.hit({"method": "GET", "path": f"/users/{number}"}) for number in (1, 2, 3)]
    assert [bool(d) for d in answers] == [True, False, False]
    for request in (
        {"method": "POST", "path": "/users/1"},
        {"method": "GET", "path": "/users/1/photos"},
        {"method": "GET", "path": "/"},
        {},
    ):
        assert (limiter.hit(request).allowed, limiter.hit(request).outcomes) == (True, ())


def test_a_matching_rule_by_one_attribute(face, clock):
    """A rule with a match and one attribute counts what matches, by it, and lets the rest pass."""
    rule = Rule("exports", TokenBucket(2, "0/s"), by=("org",), match={"route": "POST /exports", "plan": None})
    limiter = face(rule, clock=clock)
    export = {"org": "acme", "route": "POST /exports"}
    answers = [limiter.hit(request) for request in (export, export, export, {**export, "org": "b"})]
    assert [bool(d) for d in answers] == [True, True, False, True]
    passing = [limiter.hit(request) for request in ({**export, "plan": "gold"}, {"org": "acme"}, {})]
    assert [(d.allowed, d.outcomes) for d in passing] == [(True, ())] * 3


def test_cost_tables(face, clock):
    """A table prices routes, other routes cost what the call says; C060 for the search of 5 beside a menu
    of 1.
    """
    rule = Rule("org", TokenBucket(20, "0/s"), by=("org",), cost={"POST /exports": 5, "/search/{q}": 2.5})
    limiter = face(rule, clock=clock)
    for route, cost, expected in (
        ("POST /exports", 1, 15),
        ("GET /search/x", 1, 12.5),
        ("GET /menu", 1, 11.5),
        ("GET /menu", 3, 8.5),
        ("POST /exports", 50, 3.5),
        ("POST /exports", 1, 3.5),
    ):
        assert limiter.hit({"org": "acme", "route": route}, cost).balance == expected


def test_cost_functions(face, clock):
    """A function prices a request by its attributes; what it returns is checked as it comes, and nothing is
    taken.
    """
    rule = Rule("org", TokenBucket(20, "0/s"), by=("org",), cost=lambda attributes: attributes["size"])
    limiter = face(rule, clock=clock)
    assert limiter.hit({"org": "a", "size": 5}).balance == 15
    for wrong in (-1, "5", None, float("nan")):
        with pytest.raises(CostError, match="cost of rule 'org' is"):
            limiter.hit({"org": "a", "size": wrong})
    with pytest.raises(KeyError):
        limiter.hit({"org": "a"})
    assert limiter.peek({"org": "a", "size": 1}).balance == 15


@pytest.mark.parametrize("how", ["table", "function"])
def test_overrides(face, clock, how):
    """Some keys have another limit, by value or by a function of the attributes; all others have the
    rule's.
    """
    big = TokenBucket(5, "0/s")
    overrides = (
        {"acme": big}
        if how == "table"
        else lambda attributes: big if attributes.get("org") == "acme" else None
    )
    limiter = face(Rule("org", TokenBucket(2, "0/s"), by=("org",), overrides=overrides), clock=clock)
    assert sum(bool(limiter.hit({"org": "acme"})) for _ in range(9)) == 5
    assert sum(bool(limiter.hit({"org": "b"})) for _ in range(9)) == 2
    assert sum(bool(limiter.hit({})) for _ in range(9)) == 2
    assert limiter.hit({"org": "acme"}).limit == big


def test_overrides_without_redeploy(face, clock):
    """What an override function answers counts from the next request on, with the state carried over."""
    limits: dict[object, TokenBucket] = {}
    rule = Rule("org", TokenBucket(4, "0/s"), by=("org",), overrides=lambda a: limits.get(a.get("org")))
    limiter = face(rule, clock=clock)
    assert sum(bool(limiter.hit({"org": "acme"})) for _ in range(3)) == 3
    limits["acme"] = TokenBucket(10, "0/s")
    assert limiter.peek({"org": "acme"}).balance == 1
    assert limiter.hit({"org": "acme"}).limit == limits["acme"]
    assert not limiter.hit({"org": "acme"})
    assert limiter.hit({"org": "other"}).limit == rule.limit


def test_an_override_by_two_attributes(face, clock):
    """Where the key has two attributes an override names both."""
    rule = Rule(
        "r",
        TokenBucket(1, "0/s"),
        by=("org", "user"),
        overrides={("acme", "ann"): TokenBucket(3, "0/s"), ("acme", None): TokenBucket(2, "0/s")},
    )
    limiter = face(rule, clock=clock)
    counts = [
        sum(bool(limiter.hit(request)) for _ in range(5))
        for request in ({"org": "acme", "user": "ann"}, {"org": "acme"}, {"org": "acme", "user": "bob"})
    ]
    assert counts == [3, 2, 1]


def test_a_plain_key_needs_a_policy_of_plain_keys(face, clock):
    """A plain key is understood where all rules go by "key" or by nothing, and is an error elsewhere."""
    plain = face(
        [Rule("each", TokenBucket(1, "0/s"), by=("key",)), Rule("all", TokenBucket(2, "0/s"))], clock=clock
    )
    assert [bool(plain.hit(key)) for key in ("a", "a", "b", "c")] == [True, False, True, False]
    by_org = face(Rule("org", TokenBucket(1, "0/s"), by=("org",)), clock=clock)
    with pytest.raises(InvalidKey, match="pass a mapping"):
        by_org.hit("a")


def test_a_request_that_no_rule_speaks_of_passes(face, clock):
    """A request that no rule matches, and every request under an empty policy, is allowed and costs
    nothing.
    """
    for policy in (Policy([]), Policy([Rule("r", TokenBucket(1, "0/s"), match={"route": "/x"})])):
        d = face(policy, clock=clock).hit({"route": "/y"})
        assert (d.allowed, d.rule, d.limit, d.remaining, d.wait, d.retry_after) == (
            True,
            "",
            None,
            None,
            0,
            0,
        )


def test_the_longest_wait_counts(face, clock):
    """Two queues on one request: the work is held for the longer wait."""
    limiter = face([Rule("a", LeakyQueue(5, "10/s")), Rule("b", LeakyQueue(5, "2/s"))], clock=clock)
    assert [limiter.hit({}).wait for _ in range(3)] == [0, 0.5, 1.0]


def test_tickets_spread_refused_callers(face, clock):
    """Refused callers get different hints, each keeps its own, and a lone caller that obeys is admitted."""
    limiter = face(TokenBucket(1, "1/s"), clock=clock)
    limiter.hit("k")
    hints = [limiter.hit("k", caller=f"c{number}").retry_hint for number in range(5)]
    assert hints == [1, 2, 3, 4, 5]
    assert limiter.hit("k", caller="c3").retry_hint == 4
    clock.advance(4)
    assert limiter.hit("k", caller="c3")


def test_a_limit_alone_takes_no_attributes(face):
    """A mapping without `key` would be one shared budget for everybody, so it is an error."""
    for limit in (TokenBucket(1, "1/s"), SlidingLog(1, "1s")):
        limiter = face(limit)
        with pytest.raises(InvalidKey, match="takes a plain key"):
            limiter.hit({"org": "acme"})
        assert limiter.hit({"key": "acme"})
        assert not limiter.hit("acme")
