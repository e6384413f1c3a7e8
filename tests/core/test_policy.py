"""A policy: rules in order, what they ask of a request, and what is no policy."""

from __future__ import annotations

import pickle

import pytest

from tests.core.stories import admitted, at_once
from tidegate import InvalidKey, Limiter, Policy, PolicyError, Rule, TokenBucket
from tidegate.core.policy import ONLY_RULE, RULES_MOST
from tidegate.testing import ManualClock

BUCKET = TokenBucket(2, "1/s")


def test_what_makes_a_policy():
    """C160: a limit, a rule, rules in any iterable, or a policy: each in the obvious sense."""
    rule = Rule("a", BUCKET)
    policy = Policy([rule])

    assert Policy.of(policy) is policy
    assert Policy.of(rule) == Policy.of([rule]) == Policy.of((rule,)) == Policy.of(iter([rule])) == policy
    assert Policy.of(BUCKET) == Policy([Rule(ONLY_RULE, BUCKET, by=("key",))])
    assert list(Policy([])) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("5/s", "policy is '5/s'; give a limit such as"),
        (b"5/s", "give a limit such as"),
        (None, "policy is None"),
        (5, "policy is 5"),
        ({"a": BUCKET}, "give a limit such as"),
        ([BUCKET, BUCKET], "several limits need names"),
        ([Rule("a", BUCKET), BUCKET], "several limits need names"),
        ([Rule("a", BUCKET), "b"], "entry 2 of the policy is 'b'"),
        ([None], "entry 1 of the policy is None"),
        ([Rule("a", BUCKET), Rule("a", BUCKET)], "two rules are called 'a'"),
        ([Rule(f"r{n}", BUCKET) for n in range(RULES_MOST + 1)], "1001 rules; the most is 1000"),
    ],
)
def test_a_thing_that_is_no_policy(given, says: str):
    """C160: an error at construction that says what to write, from the limiter as from the policy."""
    for make in (Policy.of, Limiter):
        with pytest.raises(PolicyError) as caught:
            make(given)
        assert says in str(caught.value)


def test_a_rule_alone_is_no_list():
    """Policy takes a list; the error shows how to write one."""
    with pytest.raises(PolicyError, match="a policy is a list of rules"):
        Policy(Rule("a", BUCKET))  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(PolicyError, match="a policy is a list of rules"):
        Policy(BUCKET)  # type: ignore[arg-type]  # what the test is about


def test_a_policy_is_a_value():
    """Equal by its rules in order; pickles; finds rules by name."""
    a, b = Rule("a", BUCKET), Rule("b", BUCKET, by=("x",))
    policy = Policy([a, b])

    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(Policy([a, b])) == hash(policy)
    assert policy != Policy([b, a])
    assert policy != [a, b]
    assert (len(policy), list(policy), policy["b"], policy.get("c")) == (2, [a, b], b, None)
    assert eval(repr(policy)) == policy
    with pytest.raises(KeyError):
        policy["c"]


def test_deny_and_bypass_decide_alone():
    """C085, C086: of those that match the first decides; no limit is asked, none is charged."""
    limiter = Limiter(
        Policy(
            [
                Rule("everyone", BUCKET),
                Rule("staff", mode="bypass", match={"plan": "staff"}),
                Rule("banned", mode="deny", match={"plan": ["banned", "staff"]}),
            ]
        ),
        clock=ManualClock(),
    )
    staff = [limiter.hit({"plan": "staff"}) for _ in range(1000)]
    banned = limiter.hit({"plan": "banned"})

    assert admitted(staff) == 1000
    assert {(d.rule, d.source, d.outcomes, d.remaining, d.retry_after, d.reset_after) for d in staff} == {
        ("staff", "policy", (), None, 0, 0)
    }
    assert (banned.allowed, banned.rule, banned.source, banned.outcomes) == (False, "banned", "policy", ())
    assert (banned.remaining, banned.retry_after, banned.retry_hint_s, banned.limit) == (0, None, None, None)
    assert str(banned) == "refused by banned"
    assert limiter.peek({}).remaining == 2


def test_where_no_rule_speaks():
    """A request that nothing matches is allowed, and the decision names nobody."""
    decision = Limiter(Rule("a", BUCKET, match={"plan": "free"})).hit({"plan": "paid"})

    assert (decision.allowed, decision.rule, decision.source, decision.limit) == (True, "", "policy", None)
    assert str(decision) == "allowed; no enforced limit applies"


def test_which_attributes_a_key_means():
    """A plain key is the attribute "key"; a policy by other attributes takes no plain key."""
    by_key, shared = Limiter(Rule("a", BUCKET, by=("key",))), Limiter(Rule("a", BUCKET))
    by_org = Limiter(Rule("a", BUCKET, by=("org",)))

    assert by_key.hit("x")
    assert by_key.hit({"key": "x"}).remaining == 0
    assert admitted(at_once(shared, 3)) == 2
    assert not shared.hit({"key": "other"})
    with pytest.raises(InvalidKey, match="looks at attributes"):
        by_org.hit("x")
    with pytest.raises(InvalidKey, match="looks at attributes"):
        Limiter(Rule("a", BUCKET, match={"plan": "free"})).hit("x")


def test_namesakes_share_nothing_by_accident():
    """C153: what keeps budgets apart is the rule's name, and a name stands once in a policy."""
    limiter = Limiter(
        Policy(
            [
                Rule("/a home", TokenBucket(2, "0/s"), by=("function",), match={"route": "/a"}),
                Rule("/b home", TokenBucket(3, "0/s"), by=("function",), match={"route": "/b"}),
            ]
        )
    )

    for route, passed in (("/a", 2), ("/b", 3)):
        assert admitted([limiter.hit({"function": "home", "route": route}) for _ in range(5)]) == passed


def test_what_is_no_list_is_no_policy():
    """A wrong argument is an error of the tree, with the way out."""
    with pytest.raises(PolicyError, match="give a list of rules"):
        Policy(5)  # type: ignore[arg-type]  # that is the point
