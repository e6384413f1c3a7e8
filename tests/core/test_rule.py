"""A rule is checked when it is made: what contradicts itself is an error that says so."""

from __future__ import annotations

import functools
import pickle
from fractions import Fraction

import pytest

from tests.core.stories import admitted
from tidegate import CostError, CostTooLarge, Limiter, PolicyError, Rule, SlidingLog, TokenBucket
from tidegate.testing import ManualClock

BUCKET = TokenBucket(20, "5/s")


async def later(attributes):
    return 1


class Later:
    async def __call__(self, attributes):
        return 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": ""}, "rule name is ''"),
        ({"name": "  "}, "rule name is '  '"),
        ({"name": None}, "rule name is None"),
        ({"name": 5}, "rule name is 5"),
        ({"name": "x" * 201}, "1 to 200 bytes"),
        ({"limit": None}, "limit is None; give one limit"),
        ({"limit": "5/s"}, "limit is '5/s'; give one limit"),
        ({"limit": [BUCKET]}, "give one limit"),
        ({"limit": (BUCKET, BUCKET)}, "give one limit"),
        ({"mode": "off"}, "mode is 'off'; write one of enforce, shadow, deny, bypass"),
        ({"mode": None}, "mode is None"),
        ({"mode": "deny"}, "mode 'deny' asks no limit; leave the limit out"),
        ({"mode": "bypass"}, "mode 'bypass' asks no limit; leave the limit out"),
        ({"mode": "deny", "limit": None, "cost": 1}, "leave the cost out"),
        ({"mode": "deny", "limit": None, "overrides": {}}, "leave the overrides out"),
        ({"mode": "bypass", "limit": None, "max_debt": 1}, "leave the max_debt out"),
        ({"by": "org"}, "by is 'org'; write a list of attributes, such as ['org']"),
        ({"by": None}, "by is None"),
        ({"by": {"org"}}, "by is {'org'}"),
        ({"by": ("",)}, "by names ''"),
        ({"by": (5,)}, "by names 5"),
        ({"by": ("a", "a")}, "each attribute counts once"),
        ({"match": ["plan"]}, "match is ['plan']; write a mapping"),
        ({"match": {"plan": []}}, "match for 'plan' is empty"),
        ({"match": {"route": "/{"}}, "has a brace"),
        ({"cost": -1}, "must not be negative"),
        ({"cost": float("nan")}, "must be finite"),
        ({"cost": 0.0001}, "round it to three decimals"),
        ({"cost": "5"}, "write a number"),
        ({"cost": True}, "write a number"),
        ({"cost": {"/a": -1}}, "must not be negative"),
        ({"cost": {"/a": None}}, "write a number"),
        ({"cost": {"/{": 1}}, "has a brace"),
        ({"cost": {5: 1}}, "route is 5"),
        ({"cost": later}, "plain functions, not async ones"),
        ({"cost": Later()}, "plain functions, not async ones"),
        ({"cost": functools.partial(later)}, "plain functions, not async ones"),
        ({"overrides": later}, "plain functions, not async ones"),
        ({"overrides": 5}, "overrides is 5; write a mapping from key to limit, or a function"),
        ({"overrides": {"acme": 5}}, "override is 5; give a limit"),
        ({"overrides": {("a", "b"): BUCKET}}, "write one value for each of by=['org']"),
        ({"overrides": {1.5: BUCKET}}, "overrides names 1.5"),
        ({"overrides": {"x" * 5000: BUCKET}}, "5000 bytes"),
        ({"overrides": {"": BUCKET, None: BUCKET}}, "twice"),
        ({"overrides": {"acme": BUCKET, ("acme",): BUCKET}}, "twice"),
        ({"by": (), "overrides": {"acme": BUCKET}}, "write one value for each of by=[]"),
        ({"strict": True, "max_debt": 5}, "a strict rule is never overdrawn; leave max_debt out"),
        ({"strict": "yes"}, "strict is 'yes'"),
        ({"max_debt": -1}, "must not be negative"),
        ({"max_debt": "5"}, "write a number"),
        ({"max_debt": 10**16}, "does not fit the exact integers"),
        ({"max_debt": 10**5000}, "does not fit the exact integers"),
        ({"give_back": "all"}, "give_back is 'all'; write 'bounded' or 'full'"),
        ({"carry": "refill"}, "carry is 'refill'; write one of strict, keep_level"),
    ],
    ids=range(54),
)  # fmt: skip
def test_a_rule_that_contradicts_itself(given, says: str):
    """An error at construction, never at a request, that names the rule, the value and the way out."""
    with pytest.raises(PolicyError) as caught:
        Rule(**({"name": "exports", "limit": BUCKET, "by": ("org",)} | given))

    assert says in str(caught.value)
    assert "exports" in str(caught.value) or "name" in given
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "given",
    [
        {"cost": 21},
        {"cost": 20.001},
        {"cost": {"/a": 1, "/b": 21}},
        {"cost": 6, "overrides": {"small": TokenBucket(5, "5/s")}},
        {"cost": {"/b": 6}, "overrides": {"small": TokenBucket(5, "5/s")}},
    ],
)
def test_a_constant_cost_that_never_fits(given):
    """A constant above the capacity, of an override too, could never pass: an error when the rule is made."""
    with pytest.raises(
        CostTooLarge, match=r"rule 'exports': cost .* above the capacity .* raise the capacity or lower"
    ):
        Rule("exports", BUCKET, by=("org",), **given)


def test_a_constant_part_of_a_log():
    """A log counts whole tokens, so a constant of half a token is an error when the rule is made."""
    with pytest.raises(CostError, match=r"rule 'codes': cost 0\.5; a sliding log counts whole tokens"):
        Rule("codes", SlidingLog(5, "10min"), cost=0.5)
    with pytest.raises(CostError, match="counts whole tokens"):
        Rule("codes", BUCKET, by=("org",), cost=0.5, overrides={"acme": SlidingLog(5, "10min")})


def test_a_cost_that_just_fits():
    """The capacity itself can be asked."""
    assert Rule("exports", BUCKET, cost=20).price_of is not None
    assert Rule("exports", BUCKET, cost={"/a": 20}).price_of is not None
    assert Rule("reads", BUCKET, cost=0).price_of is not None


def test_costs_by_route():
    """An export spends as five reads; routes that stand nowhere cost what the call says."""
    limiter = Limiter(
        Rule("org", BUCKET, by=("org",), cost={"POST /exports": 5, "/menu/*": 0.5}), clock=ManualClock()
    )

    def cost(route: str, given: float = 1) -> Fraction | None:
        return limiter.peek({"org": "acme", "route": route}, given).cost

    assert [cost("POST /exports"), cost("GET /exports"), cost("/menu/1"), cost("/x", 3)] == [
        5,
        1,
        Fraction(1, 2),
        3,
    ]


def test_costs_by_function():
    """A function of the attributes says the cost; what it returns wrongly, or raises, is told."""
    limiter = Limiter(Rule("org", BUCKET, cost=lambda attributes: attributes["size"]), clock=ManualClock())

    assert limiter.hit({"size": 20}).remaining == 0
    assert limiter.hit({"size": 21}).retry_after is None
    for size, error, says in ((-1, CostError, "cost of rule 'org'"), (None, CostError, "cost of rule 'org'")):
        with pytest.raises(error, match=says):
            limiter.hit({"size": size})
    with pytest.raises(KeyError):
        limiter.hit({})
    assert limiter.peek({"size": 0}).remaining == 0


def test_overrides_by_value():
    """Some keys have another limit: by one value or by several, and the absent value too."""
    large, small = TokenBucket(50, "5/s"), TokenBucket(1, "5/s")
    one = Limiter(
        Rule("org", BUCKET, by=("org",), overrides={"acme": large, None: small, 7: small}),
        clock=ManualClock(),
    )
    two = Limiter(
        Rule("pair", BUCKET, by=("org", "user"), overrides={("acme", "ann"): large}), clock=ManualClock()
    )

    assert one.peek({"org": "acme"}).limit == large
    assert one.peek({"org": "Acme"}).limit == BUCKET
    assert one.peek({"org": ""}).limit == one.peek({}).limit == one.peek({"org": 7}).limit == small
    assert two.peek({"org": "acme", "user": "ann"}).limit == large
    assert two.peek({"org": "acme", "user": "bob"}).limit == BUCKET


def test_overrides_by_function():
    """A function of the attributes gives a limit or None; anything else is an error that names the rule."""
    plans = {"paid": TokenBucket(50, "5/s"), "odd": 5}
    limiter = Limiter(
        Rule("org", BUCKET, by=("org",), overrides=lambda attributes: plans.get(attributes.get("plan"))),  # type: ignore[arg-type,return-value]  # "odd" is wrong on purpose
        clock=ManualClock(),
    )

    assert admitted([limiter.hit({"org": "a", "plan": "paid"}) for _ in range(60)]) == 50
    assert limiter.peek({"org": "b"}).limit == BUCKET
    with pytest.raises(PolicyError, match="rule 'org': override is 5"):
        limiter.hit({"org": "a", "plan": "odd"})


def test_a_rule_is_a_value():
    """Equal by what it was given; pickles and prints as the constructor call; cannot be changed."""
    rule = Rule(
        "org",
        BUCKET,
        ["org"],  # type: ignore[arg-type]  # a list is taken too
        match={"method": ["GET"]},
        cost={"/a": 2},
        overrides={"acme": TokenBucket(50, "5/s")},
    )
    other = pickle.loads(pickle.dumps(rule))

    assert other == rule
    assert hash(other) == hash(rule)
    assert rule.by == ("org",)
    assert rule != Rule("org", BUCKET, ("org",))
    assert eval(repr(rule)) == rule
    with pytest.raises(AttributeError):
        rule.name = "other"  # type: ignore[misc]  # what the test is about


def test_how_far_it_may_be_overdrawn():
    """By the capacity unless it is said; not at all if strict."""
    assert Rule("r", BUCKET).debt is None
    assert Rule("r", BUCKET, strict=True).debt == 0
    assert Rule("r", BUCKET, strict=True, max_debt=0).debt == 0
    assert Rule("r", BUCKET, max_debt=2.5).debt == 2500


def test_a_name_is_text():
    """Half a surrogate pair has no place in metrics and headers."""
    with pytest.raises(PolicyError, match="rule name"):
        Rule("\ud800", TokenBucket(20, "5/s"))
