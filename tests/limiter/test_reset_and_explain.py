# reset and explain: whose budgets a key names, and what a person is told of them.

from __future__ import annotations

import pytest

from tidegate import InvalidKey, Policy, Rule, SlidingLog, TokenBucket

RULES = [
    Rule("org", TokenBucket(10, "0/s"), by=("org",)),
    Rule("user", TokenBucket(10, "0/s"), by=("user",)),
    Rule("exports", TokenBucket(10, "0/s"), by=("org",), match={"route": "POST /exports"}),
    Rule("all", TokenBucket(100, "0/s")),
]


def levels(limiter, request):
    return {explained.rule: int(explained.level) for explained in limiter.explain(request)}


def test_a_reset_key_is_fresh(face, clock):
    """After a reset the key has all its capacity, others have what they had, and old takings return
    nothing.
    """
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    d = limiter.hit("a", 7)
    limiter.hit("b", 7)
    limiter.reset("a")
    assert (limiter.peek("a").remaining, limiter.peek("b").remaining) == (10, 3)
    assert limiter.refund(d) == 0
    clock.advance(1)
    limiter.hit("a", 4)
    assert limiter.refund(d) == 0
    assert limiter.peek("a").remaining == 6


def test_an_unknown_key_can_be_reset(face, clock):
    """Resetting a key that nobody used does nothing and keeps nothing."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    limiter.reset("nobody")
    assert limiter.store.stats().keys == 0


def test_a_reset_reaches_every_rule_that_names_the_key(face, clock):
    """reset({"org": ...}) reaches all rules by org, those for some routes included, and nobody else's
    budget.
    """
    limiter = face(Policy(RULES), clock=clock)
    limiter.hit({"org": "acme", "user": "u", "route": "POST /exports"})
    limiter.hit({"org": "acme", "route": "POST /exports"})  # of a user unknown
    limiter.hit({"user": "u", "route": "POST /exports"})
    limiter.reset({"org": "acme"})
    assert levels(limiter, {"org": "acme", "user": "u", "route": "POST /exports"}) == {
        "org": 0,
        "user": 2,
        "exports": 0,
        "all": 3,
    }
    assert levels(limiter, {"user": None}) == {"org": 1, "user": 1, "all": 3}


def test_what_lacks_an_attribute_is_reset_by_name(face, clock):
    """The budget that all share who lack an attribute is reset where the attribute is named as None."""
    limiter = face(Policy(RULES), clock=clock)
    limiter.hit({"org": "acme"})
    limiter.reset({"user": None})
    assert levels(limiter, {"org": "acme"}) == {"org": 1, "user": 0, "all": 1}


def test_everybodys_budget_is_reset_by_the_empty_mapping(face, clock):
    """reset({}) means exactly the rules with by=()."""
    limiter = face(Policy(RULES), clock=clock)
    limiter.hit({"org": "acme"})
    limiter.reset({})
    assert levels(limiter, {"org": "acme"}) == {"org": 1, "user": 1, "all": 0}


def test_a_reset_asks_no_price(face, clock):
    """A cost function that needs a whole request is not called by a reset; a deny rule does not stop it."""
    rules = [
        Rule("shut", mode="deny", match={"plan": None}),
        Rule("org", TokenBucket(10, "0/s"), by=("org",), cost=lambda attributes: attributes["size"]),
    ]
    limiter = face(Policy(rules), clock=clock)
    limiter.hit({"org": "acme", "size": 4, "plan": "free"})
    limiter.reset({"org": "acme"})
    assert limiter.peek({"org": "acme", "size": 10, "plan": "free"})


def test_a_reset_needs_a_key_that_the_policy_knows(face, clock):
    """A plain key in a policy by attributes is an error that names the attributes."""
    with pytest.raises(InvalidKey, match=r"'org'.*'user'"):
        face(Policy(RULES), clock=clock).reset("acme")


def test_an_explanation_in_figures_and_words(face, clock):
    """An explanation tells for each rule what is used, the largest cost that fits and the earliest time, and
    takes
    nothing.
    """
    rules = [Rule("second", TokenBucket(10, "5/s"), by=("key",)), Rule("codes", SlidingLog(3, "10min"))]
    limiter = face(Policy(rules), clock=clock)
    limiter.hit("k", 2)
    limiter.explain("k", 2)
    explained = limiter.explain("k", 2)
    second, codes = explained
    assert (second.level, second.balance, second.largest_cost, second.earliest) == (2, 8, 8, 0)
    assert (codes.level, codes.balance, codes.largest_cost, codes.earliest) == (2, 1, 1, 600)
    assert (explained.allowed, len(explained), explained["codes"]) == (False, 2, codes)
    assert str(explained).splitlines() == [
        "refused by codes: 1 of 3 left, retry after 600 s",
        "  second (enforce): 2 of 10 used; passes; up to 8 would",
        "  codes (enforce): 2 of 3 used; passes in 10min",
    ]
    with pytest.raises(KeyError):
        explained["nobody"]


@pytest.mark.parametrize(
    ("settled", "asked", "words"),
    [
        (3, 8, "limit (enforce): 3 of 10 used; can never pass"),
        (3, 11, "limit (enforce): 3 of 10 used; can never pass"),
        (14, 1, "limit (enforce): 14 of 10 used, 4 owed; cannot pass by waiting"),
    ],
)
def test_an_explanation_of_never(face, clock, settled, asked, words):
    """An explanation tells never from not now, and what is owed."""
    limiter = face(TokenBucket(10, "0/s"), clock=clock)
    limiter.reserve("k", 1).settle(settled)
    assert str(limiter.explain("k", asked)["limit"]) == words


def test_an_explanation_without_limits(face, clock):
    """A request that a rule denies, passes by, or that none speaks of is explained as such."""
    limiter = face(
        Policy(
            [
                Rule("shut", mode="deny", match={"path": "/admin*"}),
                Rule("open", mode="bypass", match={"path": "/health"}),
            ]
        ),
        clock=clock,
    )
    texts = [str(limiter.explain({"path": path})) for path in ("/admin/x", "/health", "/")]
    assert texts == ["refused by shut", "allowed by open", "allowed; no enforced limit applies"]
