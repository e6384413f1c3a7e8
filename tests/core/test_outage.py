# Outage rules of a rule, and how a limit with a reserve is split.

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import (
    CostTooLarge,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    LimitError,
    PolicyError,
    Rate,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.outage import Reserve, check_share, split

EIGHTH = {"share": "20%", "nodes": 8, "index": 0}
LIMIT = TokenBucket(100, "5/s")


@pytest.mark.parametrize(
    ("limit", "reserve", "workers", "expected"),
    [
        (LIMIT, Reserve("20%", 8), 1, ((80, "4/s"), ("2.5", "1/8s"), ("2.5", "1/8s"))),
        (LIMIT, Reserve(0.2, 8), 3, ((80, "4/s"), ("2.5", "1/8s"), ("0.833", "1/24s"))),
        (LIMIT, Reserve(Fraction(1, 5), 1), 1, ((80, "4/s"), (20, "1/s"), (20, "1/s"))),
        (TokenBucket(10, "1/s"), Reserve("99.9%", 3), 1, (("0.01", "1/1000s"), *[("3.33", "0.333/s")] * 2)),
        (LeakyBucket(70, "7/min"), Reserve("10%", 7), 1, ((63, "6.3/min"), (1, "0.1/min"), (1, "0.1/min"))),
    ],
)  # fmt: skip
def test_a_limit_is_split_exactly(limit, reserve, workers, expected):
    """Each node owns its part rounded down to thousandths, and the store holds what the nodes do not."""
    parts = split(limit, reserve, workers)
    assert parts == tuple(type(limit)(Fraction(capacity), rate) for capacity, rate in expected)


@given(
    st.integers(1, 10**7),
    st.integers(1, 10**6),
    st.sampled_from(["s", "min", "h", "day", "7 days", "30 days"]),
    st.integers(1, 999),
    st.integers(1, 500),
    st.integers(1, 16),
)
def test_the_parts_never_come_to_more_than_the_limit(capacity, tokens, period, permille, nodes, workers):
    """Store and nodes are the limit exactly, the workers of a node at most its share; or it is refused."""
    try:
        limit = TokenBucket(Fraction(capacity, 1000), f"{tokens}/{period}")
        store, node, process = split(limit, Reserve(Fraction(permille, 1000), nodes), workers)
    except (LimitError, PolicyError):
        return

    assert store.law.capacity + nodes * node.law.capacity == limit.law.capacity
    assert rate(store) + nodes * rate(node) == rate(limit)
    assert workers * process.law.capacity <= node.law.capacity
    assert workers * rate(process) <= rate(node)
    assert 0 <= capacity * Fraction(permille, 1000) / nodes - node.law.capacity < 1


def rate(limit):
    return limit.rate.per_microsecond


def test_a_share_that_does_not_fit_the_integers_is_rounded_down():
    """Where the exact share of a rate has no room, a rounder one below it is taken."""
    limit = TokenBucket(1_000, "4/30 days")
    reserve = Reserve(Fraction(333_331, 1_000_003), 7)

    store, node, _ = split(limit, reserve)
    assert 0 < rate(limit) * reserve.part - rate(node) < rate(limit) / 100
    assert rate(store) + 7 * rate(node) == rate(limit)


@pytest.mark.parametrize(
    "limit",
    [LeakyQueue(100, "5/s"), SlidingLog(100, "1min"), FixedWindow(100, "1min"), SlidingWindow(100, "1min")],
    ids=lambda limit: limit.algorithm,
)
def test_only_buckets_are_split(limit):
    """A waiting line and the windows have no parts that add up to them."""
    with pytest.raises(PolicyError, match="cannot be split; use a TokenBucket or a LeakyBucket"):
        Rule("r", limit, by=("org",), on_outage="reserve", reserve=EIGHTH)


@pytest.mark.parametrize(
    ("limit", "reserve", "workers", "said"),
    [
        (TokenBucket(20, "5/s"), Reserve("20%", 8), 1, "is 0.5 of 20 tokens each, less than the largest"),
        (LIMIT, Reserve("20%", 8), 3, "over 8 nodes of 3 workers is 0.833 of 100 tokens each"),
        (TokenBucket(1, "5/s"), Reserve("10%", 101), 1, "leaves nothing to each; raise the share or"),
        (TokenBucket(20, "0/s"), Reserve("50%", 1), 1, "shares begin empty and would never fill"),
    ],
)  # fmt: skip
def test_a_share_of_too_little_says_the_numbers(limit, reserve, workers, said):
    """A share below the largest cost, or of nothing, is refused with what there is and what was wanted."""
    with pytest.raises(PolicyError) as error:
        check_share(limit, reserve, 1_000, workers)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("cost", "fits"),
    [(None, 1), (2, 1), (3, 0), ({"GET /": 2}, 1), ({"GET /": 3}, 0), (lambda _: 9, 1), (0.5, 1)],
)  # fmt: skip
def test_the_largest_cost_known_has_to_fit_the_share(cost, fits):
    """Constants and tables of costs are held against the share; what a call states counts as 1."""

    def make():
        return Rule("r", LIMIT, by=("org",), cost=cost, on_outage="reserve", reserve=EIGHTH)

    if fits:
        assert make().reserve == Reserve("20%", 8, 0)
    else:
        with pytest.raises(PolicyError, match=r"rule 'r': the reserve .* is 2.5 of 100 .* largest cost 3"):
            make()


def test_overrides_in_a_table_have_shares_too():
    """An override whose share is less than the largest cost is refused with the rule."""
    with pytest.raises(PolicyError, match=r"is 0\.25 of 10 tokens each"):
        Rule(
            "r",
            LIMIT,
            by=("org",),
            overrides={"small": TokenBucket(10, "1/s")},
            on_outage="reserve",
            reserve=EIGHTH,
        )


@pytest.mark.parametrize(
    ("reserve", "said"),
    [
        ("20%", "write {"),
        ({"share": "20%"}, "has no nodes"),
        ({"nodes": 8}, "has no share"),
        ({"share": "20%", "nodes": 8, "idx": 1}, "has 'idx'"),
        ({"share": "0%", "nodes": 8}, "share of a reserve is '0%'"),
        ({"share": "100%", "nodes": 8}, "share of a reserve is '100%'"),
        ({"share": 20, "nodes": 8}, "such as '20%' or 0.2"),
        ({"share": "a fifth", "nodes": 8}, "such as '20%' or 0.2"),
        ({"share": True, "nodes": 8}, "such as '20%' or 0.2"),
        ({"share": "20%", "nodes": 0}, "nodes of a reserve is 0; write a whole number from 1"),
        ({"share": "20%", "nodes": "8"}, "nodes of a reserve is '8'"),
        ({"share": "20%", "nodes": 8, "index": 8}, "index of a reserve is 8; write a whole number from 0"),
        ({"share": "20%", "nodes": 8, "index": True}, "index of a reserve is True"),
    ],
)  # fmt: skip
def test_a_reserve_that_cannot_be_read_says_why(reserve, said):
    """Each wrong part of a reserve is named with what to write."""
    with pytest.raises(PolicyError) as error:
        Rule("r", LIMIT, by=("org",), on_outage="reserve", reserve=reserve)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"on_outage": "lease"}, "on_outage is 'lease'; write one of closed, open, reserve"),
        ({"on_outage": "open", "strict": True}, "a strict rule is a spending cap"),
        ({"on_outage": "reserve"}, "say which, for instance reserve: {"),
        ({"reserve": EIGHTH}, "a reserve is there for on_outage 'reserve'"),
        ({"reserve": EIGHTH, "on_outage": "open"}, "a reserve is there for on_outage 'reserve'"),
        ({"outage_limit": LIMIT}, "an outage_limit bounds what on_outage 'open' admits"),
        ({"outage_limit": LIMIT, "on_outage": "closed"}, "bounds what on_outage 'open' admits"),
        ({"outage_limit": "5/s", "on_outage": "open"}, "outage_limit is '5/s'; give one limit"),
    ],
)  # fmt: skip
def test_outage_rules_that_contradict_themselves(parts, said):
    """What does not belong together is an error when the rule is made."""
    with pytest.raises(PolicyError) as error:
        Rule("r", LIMIT, by=("org",), **parts)
    assert said in str(error.value)


@pytest.mark.parametrize("part", ["on_outage", "reserve", "outage_limit"])
def test_a_rule_without_a_limit_has_no_outage(part):
    """Denying and bypassing ask no store, so nothing is said of its outages."""
    given: Any = {"on_outage": "open", "reserve": EIGHTH, "outage_limit": LIMIT}[part]
    with pytest.raises(PolicyError, match=f"mode 'deny' asks no limit; leave the {part} out"):
        Rule("r", mode="deny", **{part: given})


def test_a_constant_cost_fits_the_outage_limit_too():
    """A constant above the outage limit could never pass in an outage, which is said at once."""
    with pytest.raises(CostTooLarge, match="outage_limit"):
        Rule("r", LIMIT, by=("org",), cost=5, on_outage="open", outage_limit=TokenBucket(2, "1/s"))


def test_a_rule_with_a_reserve_travels():
    """Pickling keeps the outage rule, the reserve and the outage limit; equal rules are equal."""
    for rule in (
        Rule("r", LIMIT, by=("org",), on_outage="reserve", reserve=EIGHTH),
        Rule("r", LIMIT, by=("org",), on_outage="open", outage_limit=TokenBucket(5, Rate(1))),
    ):
        copied = pickle.loads(pickle.dumps(rule))
        assert copied == rule
        assert hash(copied) == hash(rule)
        assert (copied.reserve, copied.outage_limit) == (rule.reserve, rule.outage_limit)
