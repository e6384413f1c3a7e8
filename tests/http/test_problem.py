# What a refused caller is told: status, body and caching.

from __future__ import annotations

import json

import pytest

from tests.limiter.remote import Remote, Servers
from tidegate import LeakyQueue, Limiter, Policy, Rule, TokenBucket
from tidegate.http.problem import line_too_long, refusal
from tidegate.testing import ManualClock

TYPES = "https://iana.org/assignments/http-problem-types#"


def refused(*rules: Rule, cost=1, **attributes):
    limiter = Limiter(Policy(rules), clock=ManualClock())
    for _ in range(100):
        if not (decision := limiter.hit(attributes, cost)):
            return decision
    raise AssertionError("nothing was refused")


def test_a_used_up_limit():
    """429 and quota-exceeded, the violated policies by name, and the wait to the millisecond."""
    answer = refusal(
        refused(
            Rule("fine", TokenBucket(90, "90/s"), by=("user",)),
            Rule("user", TokenBucket(1, "0.7/s"), by=("user",)),
            Rule("org", TokenBucket(1, "0.9/s"), by=("org",)),
        )
    )

    assert answer.status == 429
    assert json.loads(answer.body) == {
        "type": TYPES + "quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": 'Too many requests under the limit "user"; try again in 2 seconds.',
        "violated-policies": ["user", "org"],
        "retry_after_ms": 1429,
    }
    assert answer.headers == [
        ("Content-Type", "application/problem+json"),
        ("Content-Length", str(len(answer.body))),
        ("Cache-Control", "no-store"),
    ]


def test_a_shared_total_is_the_servers_lack():
    """503 and temporary-reduced-capacity where everybody is counted together."""
    answer = refusal(refused(Rule("everyone", TokenBucket(1, "1/s"))), shared=True)

    assert answer.status == 503
    assert json.loads(answer.body)["type"] == TYPES + "temporary-reduced-capacity"
    assert json.loads(answer.body)["retry_after_ms"] == 1000


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("rule", "cost", "why"),
    [
        (Rule("r", TokenBucket(2, "1/s")), 3, "costs more than"),
        (Rule("r", TokenBucket(2, "0/s")), 1, "does not refill"),
    ],
)
def test_never_is_not_not_now(rule: Rule, cost: int, why: str, shared: bool):
    """What waiting cannot mend is 429 with a null wait, and says which of the two it is."""
    answer = refusal(refused(rule, cost=cost), shared=shared)
    body = json.loads(answer.body)

    assert (answer.status, body["type"], body["retry_after_ms"]) == (429, TYPES + "quota-exceeded", None)
    assert why in body["detail"]
    assert "waiting does not help" in body["detail"]


@pytest.mark.parametrize(("status", "title"), [(429, "Too Many Requests"), (403, "Forbidden")])
def test_a_deny_rule(status: int, title: str):
    """429 unless configured; no quota is spoken of, since there is none."""
    answer = refusal(refused(Rule("blocked", mode="deny")), deny_status=status)

    assert answer.status == status
    assert json.loads(answer.body) == {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": 'Requests like this one are blocked by the rule "blocked".',
        "violated-policies": ["blocked"],
        "retry_after_ms": None,
    }


def test_shadow_rules_are_not_violated():
    """A shadow rule that would have refused is not named."""
    decision = refused(
        Rule("trial", TokenBucket(1, "1/s"), mode="shadow"), Rule("real", TokenBucket(1, "1/s"))
    )

    assert json.loads(refusal(decision).body)["violated-policies"] == ["real"]


def test_the_names_are_those_of_the_fields():
    """A client can look a violated policy up in RateLimit-Policy, whatever its name holds."""
    decision = refused(Rule("größe 50%", TokenBucket(1, "1/s")))

    assert json.loads(refusal(decision).body)["violated-policies"] == ["gr%C3%B6%C3%9Fe 50%25"]


def test_the_bytes_are_the_same_every_time():
    """One decision, one body, in ASCII; reading it does not move the place in line."""
    decision = refused(Rule("größe", TokenBucket(1, "1/s")))

    assert refusal(decision).body == refusal(decision).body
    assert refusal(decision).body.isascii()


def test_a_line_longer_than_requests_are_held():
    """503, and the time after which the wait is within the bound, rounded up."""
    limiter = Limiter(LeakyQueue(10, "1/s"), clock=ManualClock())
    decisions = [limiter.hit("k") for _ in range(6)]
    answer = line_too_long(decisions[-1], 2_500_000)

    assert decisions[-1].wait == 5.0
    assert answer.status == 503
    assert json.loads(answer.body)["retry_after_ms"] == 2500
    assert ("Retry-After", "3") in answer.headers


def away(*rules: Rule, cost=1, **attributes):
    """The decision on a request while the store is away."""
    servers = Servers(ManualClock())
    limiter = Limiter(rules, store=Remote(servers), clock=servers.clock)
    servers.all("down")
    return limiter.hit(attributes, cost)


def test_a_refusal_for_want_of_an_answer():
    """503, for the caller did nothing wrong: a guess when to come back, no violated policy, no internals."""
    decision = away(Rule("org", TokenBucket(20, "5/s"), by=("org",)))
    answer = refusal(decision)

    assert answer.status == 503
    assert json.loads(answer.body) == {
        "type": TYPES + "temporary-reduced-capacity",
        "title": "Request cannot be satisfied due to temporary server capacity constraints",
        "status": 503,
        "detail": "The limit for this request cannot be checked at the moment; try again in 1 second.",
        "violated-policies": [],
        "retry_after_ms": 1000,
    }


def test_what_could_never_pass_is_no_matter_of_an_outage():
    """A cost above the capacity stays a 429 that waiting does not mend."""
    answer = refusal(away(Rule("org", TokenBucket(2, "1/s")), cost=3))

    assert (answer.status, json.loads(answer.body)["violated-policies"]) == (429, ["org"])


def test_a_limit_that_did_answer_and_frees_later_is_the_reason():
    """Where one server refuses for long and another is away, the caller's own limit is what is told."""
    servers = Servers(ManualClock(), 2)
    rules = [Rule("slow", TokenBucket(1, "1/min"), by=("org",)), Rule("on 1", TokenBucket(9, "1/s"))]
    limiter = Limiter(rules, store=Remote(servers), clock=servers.clock)
    limiter.hit({"org": "a"})
    servers.states[1] = "down"
    answer = refusal(limiter.hit({"org": "a"}))

    assert (answer.status, json.loads(answer.body)["violated-policies"]) == (429, ["slow"])
