# The phrases of descriptions, for every shape that a rule can have.

from __future__ import annotations

from typing import Any

import pytest

from tidegate import FixedWindow, LeakyQueue, Policy, Rule, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.limits import Limit
from tidegate.units import Rate
from tidegate.words.describe import describe, text
from tidegate.words.homes import embedded, on_network
from tidegate.words.phrases import budget_of, costs, matching, pace_words, plainly, rate_words

LIMIT = TokenBucket(20, "5/s")


def rule(**more: object) -> Rule:
    """A rule with a bucket of twenty."""
    return Rule("own", LIMIT, **more)  # type: ignore[arg-type]  # any part of a rule


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("5/s", "5 a second"),
        ("1/h", "1 an hour"),
        ("300 per 5 min", "300 per 5 min"),
        ("0.25/min", "0.25 a minute"),
        ("1/3 days", "1 per 3 days"),
        ("100000/day", "100,000 a day"),
        ("0.0001/week", "0.0001 a week"),
    ],
)
def test_a_rate(rate: str, said: str):
    """A rate is said the way it was written."""
    assert rate_words(Rate.parse(rate)) == said


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("5/s", "5 a second"),
        ("2.5/s", "2.5 a second"),
        ("300 per 5 min", "1 a second"),
        ("5/min", "5 a minute"),
        ("0.5/s", "30 a minute"),
        ("1/h", "1 an hour"),
        ("100000/day", "100,000 a day"),
        ("1/day", "1 a day"),
        ("10/week", "10 a week"),
        ("1 per 30 days", "1 per 30 days"),
        ("10 per 7s", "about 1.428 a second"),
        ("7 per 9 days", "about 5.444 a week"),
    ],
)
def test_a_pace(rate: str, said: str):
    """What is only known by the microsecond is said in the unit in which it can be read, never as 0."""
    assert pace_words(Rate.parse(rate).per_microsecond) == said


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (LIMIT, "Up to 20 at once, then 5 a second"),
        (LeakyQueue(20, "5/s"), "A waiting line of 20 places, of which 5 a second leave"),
        (SlidingLog(5, "10min"), "Up to 5 in any 10 min"),
        (FixedWindow(5, "10min"), "Up to 5 in each window of 10 min"),
        (FixedWindow(5, "day", "Europe/Berlin"), "Up to 5 in each day (Europe/Berlin)"),
        (SlidingWindow(100, "1h"), "Up to 100 in any 1 h (an estimate)"),
    ],
)
def test_a_limit(limit: Limit, said: str):
    """A limit is told in a few words."""
    assert plainly(limit) == said


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ((), "one budget for all together"),
        (("org",), "one budget for each org"),
        (("org", "user"), "one budget for each combination of org and user"),
        (("a", "b", "c"), "one budget for each combination of a, b and c"),
    ],
)
def test_who_shares_a_budget(by: tuple[str, ...], said: str):
    """The attributes that make the key are named."""
    assert budget_of(rule(by=by)) == said


@pytest.mark.parametrize(
    ("match", "said"),
    [
        (None, "every request"),
        ({"method": "POST"}, "requests with method POST"),
        ({"method": ["GET", "HEAD"]}, "requests with method GET or HEAD"),
        ({"path": "/api/*"}, "requests with path beginning with /api/"),
        ({"plan": None}, "requests with plan absent"),
        ({"plan": ["free", None], "shard": 3}, "requests with plan free or absent and shard 3"),
        ({"id": list(range(20))}, "requests with id 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 or 8 more"),
    ],
)
def test_which_requests(match: dict[str, object] | None, said: str):
    """Equality, sets, prefixes and absence are told apart; long sets are counted."""
    assert matching(rule(match=match)) == said


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (None, "what the call says, 1 token unless it says otherwise"),
        (1, "always 1 token, whatever the call says"),
        (5, "always 5 tokens, whatever the call says (4 in one burst)"),
        (0.1, "always 0.1 tokens, whatever the call says (200 in one burst)"),
        (
            {"POST /exports": 5, "GET /health": 0},
            "POST /exports 5 tokens (4 in one burst); GET /health nothing; any other request what the call "
            "says, 1 token by default",
        ),
        (lambda attributes: 1, "a function of the request decides each time"),
    ],
)
def test_what_it_costs(cost: object, said: str):
    """A constant, a table and a function are told, with how many fit into one burst."""
    assert costs(rule(cost=cost)) == said


def test_a_long_cost_table_is_counted():
    """A table of many routes shows a dozen and counts the rest."""
    said = costs(rule(cost={f"GET /{number}": 2 for number in range(30)}))
    assert said.count("in one burst") == 12
    assert "and 18 more routes" in said


def test_overrides_are_told():
    """Other limits for some keys are told by key, ten at most; a function is said to be one."""
    table = rule(by=("org",), overrides={f"org-{number}": TokenBucket(9, "1/s") for number in range(12)})
    asked = rule(by=("org",), overrides=lambda attributes: None)
    pairs = rule(by=("org", "user"), overrides={("acme", "ann"): FixedWindow(9, "day", "Europe/Berlin")})

    assert "org-0: up to 9 at once, then 1 a second; " in describe(Policy([table]))[0].fact("overrides")
    assert describe(Policy([table]))[0].fact("overrides").endswith("; and 2 more")
    assert "a function of the request" in describe(Policy([asked]))[0].fact("overrides")
    assert describe(Policy([pairs]))[0].fact("overrides") == "acme, ann: up to 9 in each day (Europe/Berlin)"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "goes beyond the guarantee by 20 tokens at most"),
        ({"max_debt": 7}, "goes beyond the guarantee by 7 tokens at most"),
        ({"strict": True}, "a refund never buys a second burst; settling never overdraws"),
        ({"give_back": "full"}, "full: all that is still there comes back"),
    ],
)
def test_what_comes_back(more: dict[str, object], said: str):
    """Both ways to give back are told with their bound, and how far settling may overdraw."""
    assert said in describe(Policy([rule(**more)]))[0].fact("giving back")


@pytest.mark.parametrize("way", ["strict", "keep_level", "keep_tokens", "proportional", "reset"])
def test_a_changed_limit(way: str):
    """Each way to carry state across a change has its words."""
    assert len(describe(Policy([rule(carry=way)]))[0].fact("if changed")) > 20


def test_where_state_lives():
    """The words about the embedded store hold its bound and what happens at it."""
    home = embedded(5_000, "forget")
    said = describe(Policy([rule()]), home=home)[0]

    assert "at most 5,000 keys" in home.where
    assert "the key nearest to full is forgotten" in home.where
    assert (said.fact("atomic"), said.fact("clock")) == (home.atomic, home.clock)
    assert "every key starts fresh" in said.fact("outage")


def test_a_limit_alone():
    """A bare limit is described as the rule that it becomes: one budget for each key."""
    (said,) = describe(Policy.of(LIMIT))

    assert said.name == "limit"
    assert said.summary == "Up to 20 at once, then 5 a second, one budget for each key."
    assert said.figures is not None
    assert [most.admitted for most in said.figures.most] == [25, 320, 18_020, 432_020]
    assert said.load == describe(Policy.of(LIMIT), clients=None)[0].load


def test_any_name_is_set():
    """Long names and texts are wrapped at spaces, and no line is lost."""
    policy = Policy([Rule("n" * 150, LIMIT, by=("attribute " * 10,))])
    lines = text(describe(policy, clients=3), width=60).splitlines()

    assert lines[0] == "n" * 150
    assert max(map(len, lines[1:])) <= 60


RESERVE = {"share": "20%", "nodes": 8, "index": 3}
BIG = TokenBucket(100, "5/s")


@pytest.mark.parametrize(
    ("more", "default", "words"),
    [
        ({}, "closed", ["closed: while the store gives no answer nothing passes"]),
        (
            {},
            "open",
            ["open: while the store gives no answer everything passes uncounted, without any bound"],
        ),
        ({"on_outage": "closed"}, "open", ["nothing passes"]),
        (
            {"on_outage": "open", "outage_limit": TokenBucket(2, "1/s")},
            "closed",
            ["each process counts each key by itself: up to 2 at once, then 1 a second", "N times as much"],
        ),
        ({"mode": "shadow"}, "closed", ["it reports nothing; it never refuses"]),
        (
            {"limit": BIG, "on_outage": "reserve", "reserve": RESERVE},
            "closed",
            [
                "each of 8 nodes owns 2.5 tokens and 0.125 a second of each key and spends it always, first",
                "the store holds the rest, 80 tokens and 4 a second",
                "a node admits at most its own, and all of them together never more than the guarantee",
                "this one is number 3, and begins empty after a start",
            ],
        ),
        (
            {"limit": BIG, "on_outage": "reserve", "reserve": {"share": "20%", "nodes": 1}},
            "open",
            ["one node owns 20 tokens", "this one has no index and owns none"],
        ),
    ],
)
def test_what_happens_in_an_outage(more: dict[str, Any], default: str, words: list[str]):
    """Each outage rule is told with the bound that holds meanwhile."""
    made = Rule("r", **{"limit": LIMIT, "by": ("org",), **more})
    told = describe(Policy([made]), home=on_network("redis", default))[0].fact("outage")

    for said in words:
        assert said in told


def test_a_store_on_the_network():
    """The words about it name its kind, its clock, and what a cluster does to a request."""
    home = on_network("postgres")
    told = describe(Policy([rule()]), home=home)[0]

    assert "State lives in PostgreSQL" in home.where
    assert told.fact("clock") == "the server's clock; no host's clock counts"
    assert "given back if a later one refuses" in told.fact("atomic")
