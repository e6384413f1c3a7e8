# POST /v1/decide: a question as JSON, the decision as JSON.

from __future__ import annotations

import json

import pytest

from tests.server.asked import JSON, app_of, ask, decide, samples
from tidegate import FixedWindow, LeakyQueue, Limiter, Rule, SlidingLog, TokenBucket
from tidegate.core.outcome import Outcome
from tidegate.errors import StoreError
from tidegate.server.app import App


def test_a_burst_passes_and_the_next_is_refused_with_an_exact_wait():
    """Twenty of one key pass, the twenty-first is refused, and who waits `retry_after` is served."""
    app, clock = app_of()
    asked = {"attributes": {"org": "acme"}}

    first = decide(app, asked)
    assert first.status == 200
    assert first.json == {
        "allowed": True,
        "rule": "org",
        "source": "memory",
        "cost": 1,
        "remaining": 19,
        "balance": 19,
        "retry_after": 0,
        "reset_after": 0.2,
        "wait": 0,
        "retry_hint": 0,
        "headers": {"RateLimit-Policy": '"org";q=20;w=4', "RateLimit": '"org";r=19;t=1'},
        "outcomes": [
            {
                "rule": "org",
                "mode": "enforce",
                "allowed": True,
                "cost": 1,
                "remaining": 19,
                "balance": 19,
                "retry_after": 0,
                "reset_after": 0.2,
                "wait": 0,
                "limit": {"algorithm": "token_bucket", "capacity": 20, "rate": "5/s", "window": 4},
            }
        ],
    }
    assert [decide(app, asked).json["remaining"] for _ in range(19)] == list(range(18, -1, -1))
    refused = decide(app, asked)
    assert refused.status == 200
    assert (refused.json["allowed"], refused.json["retry_after"]) == (False, 0.2)
    assert refused.json["headers"]["Retry-After"] == "1"
    clock.advance(0.199_999)
    assert not decide(app, asked).json["allowed"]
    clock.advance(0.000_001)
    assert decide(app, asked).json["allowed"]


def test_a_cost_is_exact():
    """Half a token and a thousandth are taken exactly, and what is left is told exactly."""
    app, _ = app_of()

    assert decide(app, {"attributes": {"org": "a"}, "cost": 0.5}).json["balance"] == 19.5
    told = decide(app, {"attributes": {"org": "a"}, "cost": 19.499}).json
    assert (told["balance"], told["remaining"]) == (0.001, 0)
    assert not decide(app, {"attributes": {"org": "a"}, "cost": 0.002}).json["allowed"]


def test_never_is_null():
    """A cost above the capacity is refused with `retry_after` null and no Retry-After."""
    app, _ = app_of()

    told = decide(app, {"attributes": {"org": "a"}, "cost": 21}).json

    assert (told["allowed"], told["retry_after"], told["retry_hint"]) == (False, None, None)
    assert "Retry-After" not in told["headers"]


def test_a_peek_takes_nothing():
    """`peek` tells what would be decided, again and again the same; it neither counts nor takes a ticket."""
    app, _ = app_of(Rule("org", TokenBucket(1, "5/s"), by=("org",)))
    asked = {"attributes": {"org": "a"}}

    assert all(decide(app, {**asked, "peek": True}).json["allowed"] for _ in range(50))
    assert decide(app, asked).json["allowed"]
    peeked = decide(app, {**asked, "peek": True}).json
    assert (peeked["allowed"], peeked["retry_after"]) == (False, 0.2)
    assert "retry_hint" not in peeked
    assert decide(app, asked).json["retry_hint"] == 0.2
    assert samples(app)["tidegate_decisions_total", "memory", "allowed"] == 1


def test_callers_of_one_key_get_places_of_their_own():
    """A caller that asks again early keeps its place; another one gets a later place."""
    app, _ = app_of(Rule("org", TokenBucket(1, "5/s"), by=("org",)))
    asked = {"attributes": {"org": "a"}}
    decide(app, asked)

    hints = [decide(app, {**asked, "caller": caller}).json["retry_hint"] for caller in ("x", "y", "x", 7)]
    assert hints == [0.2, 0.4, 0.2, 0.6]


def test_several_requests_are_decided_in_order_and_each_for_itself():
    """A call with several requests gives one entry for each; a wrong one is an error of its own."""
    app, _ = app_of(Rule("org", TokenBucket(2, "5/s"), by=("org",)))
    good = {"attributes": {"org": "a"}}

    reply = decide(
        app, {"requests": [good, {"attributes": [], "cost": 1}, good, good, {**good, "cost": "2"}]}
    )

    assert reply.status == 200
    decisions = reply.json["decisions"]
    assert [entry.get("allowed") for entry in decisions] == [True, None, True, False, None]
    assert decisions[1]["error"]["status"] == 400
    assert "attributes is a list" in decisions[1]["error"]["detail"]
    assert "cost" in decisions[4]["error"]["detail"]
    assert samples(app)["tidegate_failures_total", "request"] == 2


def test_the_number_of_requests_in_a_call_is_bounded():
    """A thousand requests in a call are decided, none decided if there are more, and none at all is fine."""
    app, _ = app_of()

    assert decide(app, {"requests": []}).json == {"decisions": []}
    assert len(decide(app, {"requests": [{"attributes": {}}] * 1_000}).json["decisions"]) == 1_000
    assert "1001 entries; the most in one call is 1000" in decide(app, {"requests": [{}] * 1_001}).detail


def test_several_rules_name_the_one_that_binds():
    """All rules that match decide together; the answer shows the binding one and every outcome."""
    app, _ = app_of(
        Rule("org", TokenBucket(20, "5/s"), by=("org",), cost={"POST /exports": 5}),
        Rule("day", FixedWindow(3, "day"), by=("org",)),
        Rule("log", SlidingLog(100, "10min"), mode="shadow"),
        Rule("elsewhere", TokenBucket(1, "1/s"), match={"path": "/elsewhere"}),
    )
    asked = {"attributes": {"org": "a", "route": "POST /exports"}}

    told = decide(app, asked).json
    assert [outcome["rule"] for outcome in told["outcomes"]] == ["org", "day", "log"]
    assert [outcome["cost"] for outcome in told["outcomes"]] == [5, 1, 1]
    assert told["outcomes"][1]["limit"] == {
        "algorithm": "fixed_window",
        "capacity": 3,
        "rate": None,
        "window": 86_400,
    }
    assert told["rule"] == "day"
    decide(app, asked)
    decide(app, asked)
    refused = decide(app, asked).json
    assert (refused["allowed"], refused["rule"], refused["remaining"]) == (False, "day", 0)


def test_deny_bypass_and_no_rule_at_all():
    """A deny rule refuses by name, a bypass rule and no matching rule allow, and none asks a limit."""
    app, _ = app_of(
        Rule("bots", match={"agent": "bot"}, mode="deny"),
        Rule("ours", match={"agent": "probe"}, mode="bypass"),
        Rule("paid", TokenBucket(1, "1/s"), match={"plan": "paid"}),
    )

    denied = decide(app, {"attributes": {"agent": "bot"}}).json
    passed = decide(app, {"attributes": {"agent": "probe"}}).json
    unmatched = decide(app, {"attributes": {}}).json
    assert (denied["allowed"], denied["rule"], denied["retry_after"], denied["remaining"]) == (
        False,
        "bots",
        None,
        0,
    )
    assert (passed["allowed"], passed["rule"], passed["outcomes"]) == (True, "ours", [])
    assert (unmatched["allowed"], unmatched["rule"], unmatched["remaining"]) == (True, "", None)
    assert {denied["source"], passed["source"], unmatched["source"]} == {"policy"}


def test_a_queue_tells_how_long_to_hold_the_work():
    """/v1/decide never waits itself: the decision's `wait` says when the work may start."""
    app, _ = app_of(Rule("jobs", LeakyQueue(20, "5/s")))

    waits = [decide(app, {"attributes": {}}).json["wait"] for _ in range(20)]

    assert waits == [number / 5 for number in range(20)]


def test_a_missing_attribute_is_one_shared_budget():
    """C155: missing, empty, blank and null attributes share one budget: neither an error nor unlimited."""
    app, _ = app_of(Rule("org", TokenBucket(4, "1/h"), by=("org",)))

    forms: list[dict[str, object]] = [{}, {"org": ""}, {"org": "  \t"}, {"org": None}, {}, {"org": ""}]

    assert [decide(app, {"attributes": form}).json["allowed"] for form in forms] == [True] * 4 + [False] * 2


def test_values_are_apart_by_type_and_bytes():
    """1 and "1", composed and decomposed letters, and a lone surrogate are keys of their own."""
    app, _ = app_of(Rule("org", TokenBucket(1, "1/h"), by=("org",)))
    values = [1, "1", "\u00e9", "e\u0301", "\ud800", "\udc80\ud800", "\x00", -1, 10**39]

    assert [decide(app, {"attributes": {"org": value}}).json["allowed"] for value in values] == [True] * 9
    assert [decide(app, {"attributes": {"org": value}}).json["allowed"] for value in values] == [False] * 9


def test_long_values_are_shortened_and_stay_apart():
    """Texts beyond 256 bytes are still told apart by their ends, as at /auth; none is refused as a key."""
    app, _ = app_of(Rule("org", TokenBucket(1, "1/h"), by=("org", "path", "route")))
    long = "x" * 100_000

    for end in ("a", "b"):
        asked = {"attributes": {"org": long + end, "path": "/" + long, "route": "GET /" + long + end}}
        assert [decide(app, asked).json["allowed"] for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "A request is a list, but it is an object"),
        ("x", 'A request is "x", but it is an object'),
        (None, "A request is null"),
        ({}, "attributes is missing"),
        ({"attributes": None}, "attributes is null, but it is an object"),
        ({"attributes": {"a": 1.5}}, 'The attribute "a" is 1.5; send a text, a whole number or null'),
        ({"attributes": {"a": True}}, 'The attribute "a" is true'),
        ({"attributes": {"a": {}}}, 'The attribute "a" is an object'),
        ({"attributes": {"a": ["b"]}}, 'The attribute "a" is a list'),
        ({"attributes": {f"a{n}": 1 for n in range(101)}}, "attributes has 101 entries; the most is 100"),
        ({"attributes": {}, "cost": -1}, "cost is -1; it must not be negative"),
        ({"attributes": {}, "cost": 0.0001}, "cost is 0.0001; tokens are counted in thousandths"),
        ({"attributes": {}, "cost": "1"}, 'cost is "1"; send a number'),
        ({"attributes": {}, "cost": None}, "cost is null"),
        ({"attributes": {}, "cost": True}, "cost is true"),
        ({"attributes": {}, "peek": 1}, "peek is 1; send true"),
        ({"attributes": {}, "caller": []}, "caller is a list"),
        ({"attributes": {}, "caller": False}, "caller is false"),
        ({"attributes": {}, "costs": 2}, '"costs" is no key of a request; did you mean cost?'),
        ({"attribute": {}}, "did you mean attributes?"),
        ({"attributes": {}, "\ud800" * 100: 2}, "is no key of a request"),
        ({"requests": {}}, "requests is an object; send a list"),
        ({"requests": [], "cost": 1}, '"cost" is no key of a call with several requests'),
    ],
)
def test_a_wrong_question_says_what_to_send(value: object, said: str):
    """Each wrong question is a 400 that names the value and the way out, and takes nothing."""
    app, _ = app_of()

    reply = decide(app, value)

    assert reply.status == 400
    assert said in reply.detail
    assert len(reply.detail) < 400
    assert ("tidegate_decisions_total", "memory", "allowed") not in samples(app)


def test_a_fraction_of_a_log_is_the_callers_error():
    """A sliding log counts whole tokens: half a one is a 400, not a 500."""
    app, _ = app_of(Rule("codes", SlidingLog(5, "10min")))

    reply = decide(app, {"attributes": {}, "cost": 0.5})

    assert (reply.status, "a sliding log counts whole tokens" in reply.detail) == (400, True)


def test_a_failing_function_of_the_policy_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture):
    """A cost or override function that raises, or returns nonsense, is logged here and not told outside."""

    def broken(attributes: object) -> int:
        raise RuntimeError("the secret of the house")

    for rule in (
        Rule("org", TokenBucket(20, "5/s"), cost=broken),
        Rule("org", TokenBucket(20, "5/s"), cost=lambda _: -1),
        Rule("org", TokenBucket(20, "5/s"), overrides=broken),  # type: ignore[arg-type]  # that is the point
        Rule("org", TokenBucket(20, "5/s"), overrides=lambda _: "no limit"),  # type: ignore[arg-type, return-value]  # that is the point
    ):
        app, _ = app_of(rule)
        replies = [decide(app, {"attributes": {}}), ask(app, "GET", "/auth")]
        entry = decide(app, {"requests": [{"attributes": {}}]}).json["decisions"][0]

        assert [reply.status for reply in replies] == [500, 500]
        assert {reply.detail for reply in replies} == {"The policy could not be applied to this request."}
        assert entry["error"]["status"] == 500
        assert samples(app)["tidegate_failures_total", "policy"] == 3
    assert "the secret of the house" in caplog.text


def test_a_broken_policy_does_not_flood_the_log(caplog: pytest.LogCaptureFixture):
    """A function that fails for every request is logged about once a second, and a few times at first."""
    app, _ = app_of(Rule("org", TokenBucket(20, "5/s"), cost=lambda _: 1 // 0))

    for _ in range(200):
        decide(app, {"attributes": {}})

    assert 1 <= caplog.text.count("ZeroDivisionError") <= 30


class Refusing:
    """A store that answers that it must not be used so."""

    name = "refusing"

    def decide(self, *_: object, **__: object) -> list[Outcome]:
        raise StoreError("redis at 10.0.0.7 may forget what strict rules have charged")

    adjust = forget = decide

    def close(self) -> None:
        pass


def test_a_store_that_refuses_is_a_503(caplog: pytest.LogCaptureFixture):
    """It is neither an admission nor told outside, and not said to be silent: the log says what is wrong."""
    app = App(Limiter(Rule("org", TokenBucket(20, "5/s"), by=("org",)), store=Refusing()))  # type: ignore[arg-type]  # it answers nothing

    reply = decide(app, {"attributes": {"org": "a"}})
    assert (reply.status, reply.detail) == (
        503,
        "The store cannot be used as it is; the log of this server says why.",
    )
    assert samples(app)["tidegate_failures_total", "store"] == 1
    assert "may forget what strict rules have charged" in caplog.text


def test_one_request_may_be_spread_over_messages():
    """The body is put together however it arrives, empty parts included."""
    app, _ = app_of()
    body = json.dumps({"attributes": {"org": "a"}}).encode()

    reply = ask(app, "POST", "/v1/decide", [b"", *(body[n : n + 1] for n in range(len(body))), b""], JSON)

    assert reply.json["remaining"] == 19
