# /auth: the request itself is the question, and the status is the answer.

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.asked import PEER, app_of, ask, decide, samples
from tidegate import LeakyQueue, Policy, Rule, TokenBucket
from tidegate.http.attributes import Attributes
from tidegate.http.keys import ClientAddress
from tidegate.server.app import App
from tidegate.server.origin import split_target
from tidegate.server.settings import Settings, attributes_looked_at

GATEWAY = ("10.0.0.1", 9)
BY_ADDRESS = Rule("address", TokenBucket(20, "5/s"), by=("address",))


def trusting(*rules: Rule, **sources: Any) -> App:
    """An application that believes the gateways of 10.0.0.0/8."""
    attributes = Attributes(sources, client=ClientAddress(["10.0.0.0/8", "unix"]))
    return app_of(*rules, settings=Settings(attributes))[0]


def seen(headers: dict[str, str], *, by: str, client: Any = GATEWAY, query: str = "") -> str | None:
    """Which value of the attribute `by` the application saw in this request: the one that is used up."""
    app = trusting(Rule("probe", TokenBucket(1, "0/s"), by=(by,)))
    assert ask(app, "GET", "/auth" + query, headers=headers.items(), client=client).status == 200
    candidates = [
        "GET",
        "POST",
        "DELETE",
        "/auth",
        "/exports",
        "/a b",
        "/",
        "example.com",
        "api.test",
        "inner",
        PEER,
    ]
    used = [
        one for one in candidates if not decide(app, {"attributes": {by: one}, "peek": True}).json["allowed"]
    ]
    assert len(used) <= 1
    return used[0] if used else None


def test_twenty_pass_and_the_next_is_told_when_to_come_back():
    """The answers carry what is left; the twenty-first is a 429, and who obeys its Retry-After is served."""
    app, clock = app_of(BY_ADDRESS)

    replies = [ask(app, "GET", f"/auth?n={n}") for n in range(1, 21)]
    assert [reply.status for reply in replies] == [200] * 20
    assert replies[0].headers["ratelimit"] == '"address";r=19;t=1'
    assert replies[-1].headers["ratelimit"] == '"address";r=0;t=4'
    assert {reply.headers["ratelimit-policy"] for reply in replies} == {'"address";q=20;w=4'}
    refused = ask(app, "GET", "/auth?n=21")
    assert refused.status == 429
    assert "try again in 1 second" in refused.detail
    assert refused.json["violated-policies"] == ["address"]
    assert refused.json["retry_after_ms"] == 200
    assert refused.headers["ratelimit"] == '"address";r=0;t=1'
    clock.advance(int(refused.headers["retry-after"]))
    assert ask(app, "GET", "/auth").status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "PURGE"])
def test_any_method_is_decided(method: str):
    """Every method is a question, a HEAD is answered without a body, and each is charged once."""
    app, _ = app_of(Rule("address", TokenBucket(1, "5/s"), by=("address",)))

    assert ask(app, method, "/auth").status == 200
    refused = ask(app, method, "/auth")
    assert (refused.status, bool(refused.body)) == (429, method != "HEAD")


def test_another_status_for_a_refusal():
    """?deny=403 makes a refusal a 403, fields and body alike, and an admission stays a 200."""
    app, _ = app_of(Rule("address", TokenBucket(1, "5/s"), by=("address",)))

    assert ask(app, "GET", "/auth?deny=403").status == 200
    refused = ask(app, "GET", "/auth?deny=403&n=2")
    assert (refused.status, refused.json["status"], refused.headers["retry-after"]) == (403, 403, "1")
    assert refused.headers["content-length"] == str(len(refused.body))


@pytest.mark.parametrize(
    "deny", ["200", "399", "600", "4o3", "", "0403", "\u0664\u0660\u0663", "-403", "403&deny=429"]
)
def test_a_status_that_is_no_refusal_is_an_error(deny: str):
    """What is no status from 400 to 599 is a 400, before anything is taken: a typo lets nothing pass."""
    app, _ = app_of(Rule("address", TokenBucket(1, "5/s"), by=("address",)))
    from urllib.parse import quote

    assert ask(app, "GET", f"/auth?deny={quote(deny, safe='&=')}").status == 400
    assert ask(app, "GET", "/auth").status == 200


def test_a_shared_total_that_is_short_is_a_503():
    """Where the rule counts everybody together, the caller did nothing wrong: 503, and Retry-After."""
    app, _ = app_of(Rule("everyone", TokenBucket(1, "1/min")))
    ask(app, "GET", "/auth")

    refused = ask(app, "GET", "/auth")

    assert (refused.status, refused.headers["retry-after"]) == (503, "60")
    assert ask(app, "GET", "/auth?deny=429").status == 429


def test_each_address_has_its_own_budget():
    """The peer is the client unless it is a trusted proxy; what it says of itself counts for nothing."""
    app, _ = app_of(Rule("address", TokenBucket(1, "1/h"), by=("address",)))
    forged = [("X-Forwarded-For", "203.0.113.9"), ("X-Original-URI", "/x"), ("X-Forwarded-Uri", "/y")]

    assert ask(app, "GET", "/auth", client=("192.0.2.1", 1)).status == 200
    assert ask(app, "GET", "/auth", headers=forged, client=("192.0.2.1", 2)).status == 429
    assert ask(app, "GET", "/auth", client=("192.0.2.2", 1)).status == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "x-forwarded-for", "X-FORWARDED-FOR"])
def test_the_client_behind_a_trusted_proxy(name: str):
    """C167, C168: behind a trusted proxy the right-most untrusted hop counts, whatever the client made up."""
    app = trusting(Rule("address", TokenBucket(5, "1/h"), by=("address",)))

    statuses = [
        ask(app, "GET", "/auth", headers=[(name, f"198.51.100.{n}, 203.0.113.7")], client=GATEWAY).status
        for n in range(1, 13)
    ]

    assert statuses == [200] * 5 + [429] * 7
    assert not decide(app, {"attributes": {"address": "203.0.113.7"}}).json["allowed"]


def test_a_network_is_one_client():
    """C170: addresses of one IPv6 /64 share a budget, another /64 has its own; the length is a setting."""
    app = trusting(Rule("address", TokenBucket(5, "1/h"), by=("address",)))

    statuses = [ask(app, "GET", "/auth", client=(f"2001:db8:1:2::{n:x}", 1)).status for n in range(1, 21)]

    assert statuses == [200] * 5 + [429] * 15
    assert ask(app, "GET", "/auth", client=("2001:db8:1:3::1", 1)).status == 200


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ("203.0.113.7:51234", "203.0.113.7"),
        ("[2001:db8::1]:443", "2001:db8::/64"),
        ("unknown", "10.0.0.1"),
        ("_hidden", "10.0.0.1"),
        ("localhost", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("203.0.113.999", "10.0.0.1"),
        ("x" * 10_000, "10.0.0.1"),
        (", " * 5_000, "10.0.0.1"),
    ],
)
def test_odd_entries_of_the_header(entry: str, address: str):
    """C172: ports go, and whatever is no address ends the walk at the last valid hop."""
    app = trusting(Rule("address", TokenBucket(1, "0/s"), by=("address",)))

    assert ask(app, "GET", "/auth", headers=[("X-Forwarded-For", entry)], client=GATEWAY).status == 200
    assert not decide(app, {"attributes": {"address": address}, "peek": True}).json["allowed"]


def test_attributes_come_from_the_request_by_configuration():
    """A header, a cookie and a query parameter become attributes; absent ones share a budget (C155)."""
    attributes = Attributes({"org": {"header": "X-Org"}, "user": {"cookie": "s"}, "q": {"query": "tenant"}})
    app, _ = app_of(
        Rule("org", TokenBucket(1, "1/h"), by=("org", "user", "q")), settings=Settings(attributes)
    )
    full = [("X-Org", "acme"), ("Cookie", "a=b; s=7")]

    assert ask(app, "GET", "/auth?tenant=t", headers=full).status == 200
    assert ask(app, "GET", "/auth?tenant=t", headers=full).status == 429
    assert not decide(app, {"attributes": {"org": "acme", "user": "7", "q": "t"}}).json["allowed"]
    assert ask(app, "GET", "/auth?tenant=u", headers=full).status == 200
    blanks: list[list[tuple[str, str]]] = [[], [("X-Org", "")], [("X-Org", "  ")], [("Cookie", "s=")]]
    assert [ask(app, "GET", "/auth", headers=headers).status for headers in blanks] == [200, 429, 429, 429]


TRAEFIK = {
    "X-Forwarded-Method": "POST",
    "X-Forwarded-Uri": "/exports?x=1",
    "X-Forwarded-Host": "api.test",
    "X-Forwarded-For": "203.0.113.7",
    "Host": "inner",
}
NGINX = {"X-Original-Method": "DELETE", "X-Original-URI": "/exports?x=1", "Host": "example.com:8443"}


def test_a_request_as_traefik_asks_about_it():
    """forwardAuth: method, path, host and client are those of the original request."""
    assert seen(TRAEFIK, by="method") == "POST"
    assert seen(TRAEFIK, by="path") == "/exports"
    assert seen(TRAEFIK, by="host") == "api.test"


def test_a_request_as_nginx_asks_about_it():
    """auth_request: method and path are what the configuration sets, the host is the Host that it passes."""
    assert seen(NGINX, by="method") == "DELETE"
    assert seen(NGINX, by="path") == "/exports"
    assert seen(NGINX, by="host") == "example.com"


def test_the_query_of_the_original_request_counts():
    """A query attribute is read from the original target, not from the address of /auth."""
    app = trusting(Rule("q", TokenBucket(1, "0/s"), by=("q",)), q={"query": "x"})

    ask(app, "GET", "/auth?x=2&deny=403", headers=NGINX.items(), client=GATEWAY)

    assert not decide(app, {"attributes": {"q": "1"}, "peek": True}).json["allowed"]


@pytest.mark.parametrize("headers", [TRAEFIK, NGINX])
def test_strangers_are_not_believed(headers: dict[str, str]):
    """From a peer that is no trusted proxy the fields say nothing: the request is the one to /auth."""
    assert seen(headers, by="path", client=(PEER, 1)) == "/auth"
    assert seen(headers, by="method", client=(PEER, 1)) == "GET"
    assert seen({**headers, "Host": "inner"}, by="host", client=(PEER, 1)) == "inner"


def test_a_socket_on_this_machine_can_be_trusted():
    """A peer without an address is believed if "unix" is listed, and only then."""
    assert seen(NGINX, by="path", client=None) == "/exports"


def test_the_fields_of_both_gateways_at_once_are_ambiguous():
    """A gateway passes on what a client sent: both families at once are a 400, unless it is told which."""
    both = {**NGINX, "X-Forwarded-Uri": "/", "X-Forwarded-Method": "GET"}
    app = trusting(Rule("path", TokenBucket(1, "0/s"), by=("path",)))

    refused = ask(app, "GET", "/auth", headers=both.items(), client=GATEWAY)
    assert (refused.status, "/auth?via=nginx" in refused.detail) == (400, True)
    assert seen(both, by="path", query="?via=nginx") == "/exports"
    assert seen(both, by="path", query="?via=traefik&deny=403") == "/"
    assert seen({"X-Forwarded-Uri": "/exports"}, by="path", query="?via=nginx") == "/auth"
    wrong = ask(app, "GET", "/auth?via=apache", client=GATEWAY)
    assert (wrong.status, 'via is "apache"; write traefik or nginx' in wrong.detail) == (400, True)


def test_a_field_that_comes_twice_is_ambiguous():
    """Two different values of one field are a 400; the same value twice is that value."""
    app = trusting(Rule("path", TokenBucket(5, "0/s"), by=("path",)))

    for second, status in (("/b", 400), ("/a", 200)):
        headers = [("X-Original-URI", "/a"), ("X-Original-URI", second)]
        assert ask(app, "GET", "/auth", headers=headers, client=GATEWAY).status == status


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/exports", "/exports", ""),
        ("/exports?a=b?c#d", "/exports", "a=b?c"),
        ("/a%20b", "/a b", ""),
        ("//exports", "/exports", ""),
        ("/x/../exports", "/exports", ""),
        ("/x/%2e%2e/exports", "/exports", ""),
        ("/./exports", "/exports", ""),
        ("/../../exports", "/exports", ""),
        ("/exports/.", "/exports/", ""),
        ("/a/b/..", "/a/", ""),
        ("/a//b///c/", "/a/b/c/", ""),
        ("/..", "/", ""),
        ("/.hidden", "/.hidden", ""),
        ("/a/...", "/a/...", ""),
        ("http://other.test/exports?x", "/exports", "x"),
        ("http://other.test", "/", ""),
        ("/http://x/y", "/http:/x/y", ""),
        ("*", "*", ""),
        ("", "/", ""),
        ("?x=1", "/", "x=1"),
        ("/%ff%00", "/\ufffd\x00", ""),
        ("/%zz", "/%zz", ""),
    ],
)
def test_a_path_is_charged_as_it_will_be_routed(target: str, path: str, query: str):
    """Other spellings of a path are that path, so that no spelling is a way around its rule."""
    assert split_target(target) == (path, query)


def test_a_queue_holds_the_request_until_its_turn():
    """A waiting line shapes at /auth: the answer comes when the work may start."""
    slept: list[float] = []
    held: list[int] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        held.append(app.metrics.held)

    app, _ = app_of(Rule("jobs", LeakyQueue(20, "5/s")), sleep=sleep)

    statuses = [ask(app, "GET", "/auth").status for _ in range(21)]

    assert statuses == [200] * 20 + [503]
    assert slept == [number / 5 for number in range(1, 20)]
    assert held == [1] * 19
    assert app.metrics.held == 0


def test_a_turn_beyond_half_a_minute_is_given_back():
    """Who would be held for more than 30 s is told when to ask again, and the place is free again."""
    app, clock = app_of(Rule("jobs", LeakyQueue(100, "1/s"), by=("org",)), sleep=lambda _: asyncio.sleep(0))

    statuses = [ask(app, "GET", "/auth").status for _ in range(33)]

    assert statuses == [200] * 31 + [503] * 2
    last = ask(app, "GET", "/auth?deny=429")
    assert (last.status, last.json["status"], last.headers["retry-after"]) == (429, 429, "1")
    clock.advance(1)
    assert ask(app, "GET", "/auth").status == 200


def test_the_form_of_the_fields_is_a_setting():
    """Older forms of the fields are written if the configuration says so."""
    app, _ = app_of(BY_ADDRESS, settings=Settings(fields="draft-03"))

    assert ask(app, "GET", "/auth").headers["x-ratelimit-remaining"] == "19"


def test_a_key_that_is_too_long_is_the_callers_error():
    """Many long attributes in one key are a 400, neither a failure nor a way around the rule."""
    names = [f"h{n}" for n in range(20)]
    attributes = Attributes({name: {"header": name} for name in names})
    app, _ = app_of(Rule("all", TokenBucket(5, "1/s"), by=names), settings=Settings(attributes))  # type: ignore[arg-type]  # a list is fine

    reply = ask(app, "GET", "/auth", headers=[(name, "x" * 1_000) for name in names])

    assert (reply.status, "digest" in reply.detail) == (400, True)


def test_a_decision_is_counted_once_however_it_is_answered():
    """Admissions, refusals by rule and what shadow rules would have refused are counted at /auth too."""
    app, _ = app_of(
        Rule("address", TokenBucket(2, "1/h"), by=("address",)),
        Rule("tight", TokenBucket(1, "1/h"), by=("address",), mode="shadow"),
    )

    for _ in range(4):
        ask(app, "GET", "/auth")

    counted = samples(app)
    assert counted["tidegate_decisions_total", "memory", "allowed"] == 2
    assert counted["tidegate_refusals_total", "address"] == 2
    assert counted["tidegate_shadow_refusals_total", "tight"] == 3
    assert counted["tidegate_decision_seconds_count",] == 4


def test_what_no_rule_looks_at_is_not_read_and_changes_nothing():
    """By address alone, beside other rules, and where a header is called "address", /auth counts the same."""
    plain = Rule("address", TokenBucket(1, "1/h"), by=("address",))
    renamed = Attributes({"address": {"header": "X-Client"}})
    headers = [("X-Client", "elsewhere")]

    for rules in (
        (plain,),
        (plain, Rule("org", TokenBucket(9, "1/s"), by=("org",))),
        (Rule("k", TokenBucket(1, "0/s"), by=("key",)),),
    ):
        app, _ = app_of(*rules)
        assert [ask(app, "GET", "/auth", headers=headers).status for _ in range(2)] == [200, 429]
        assert ask(app, "GET", "/auth", headers=headers, client=("192.0.2.9", 1)).status == 200
    app, _ = app_of(plain, settings=Settings(renamed))
    assert ask(app, "GET", "/auth", headers=headers).status == 200
    assert ask(app, "GET", "/auth", headers=headers, client=("192.0.2.9", 1)).status == 429


def test_a_policy_says_what_it_looks_at():
    """Keys, matches and cost tables name attributes; a route is a method and a path; a function wants any."""
    limit = TokenBucket(9, "1/s")

    assert attributes_looked_at(Policy([Rule("a", limit, by=("x",), match={"plan": "free"})])) == {
        "x",
        "plan",
    }
    assert attributes_looked_at(Policy([Rule("a", limit, cost={"POST /x": 2})])) == {
        "route",
        "method",
        "path",
    }
    assert attributes_looked_at(Policy([Rule("a", limit), Rule("b", limit, cost=lambda _: 1)])) is None
    assert attributes_looked_at(Policy([Rule("a", limit, overrides=lambda _: None)])) is None
