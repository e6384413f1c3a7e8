# The ASGI middleware by the protocol: what is limited, what passes untouched, streaming, exceptions, holding.
# Charging by the response and websockets have files of their own; so have the frameworks.

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.http.asgi_calls import App, bucket, call, call_async, scope_of
from tests.http.noted import noting_limiter
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket
from tidegate.http.asgi import RateLimitMiddleware
from tidegate.http.attributes import Attributes
from tidegate.http.keys import ClientAddress

Middleware: Any = RateLimitMiddleware  # untyped: wrong settings are tested too


@pytest.fixture(params=[Limiter, AsyncLimiter])
def kind(request) -> type:
    return request.param


def test_the_burst_passes_and_the_next_is_refused(kind: type):
    """A client is served its burst, then 429 with fields and a problem body; the application does not run."""
    app = App()
    limited = Middleware(app, bucket(2, kind=kind))
    answers = [call(limited) for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert app.runs == 2
    assert answers[0].headers == {"ratelimit-policy": '"limit";q=2;w=2', "ratelimit": '"limit";r=1;t=1'}
    assert answers[2].headers["retry-after"] == "1"
    assert answers[2].headers["content-type"] == "application/problem+json"
    assert answers[2].headers["cache-control"] == "no-store"
    assert answers[2].headers["content-length"] == str(len(answers[2].body))
    assert json.loads(answers[2].body)["violated-policies"] == ["limit"]


def test_one_client_is_one_address_by_default():
    """A limiter made of a single limit counts by the peer; IPv6 by network."""
    limited = Middleware(App(), bucket(1))
    peers = ["203.0.113.7", "203.0.113.7", "203.0.113.8", "2001:db8::1", "2001:db8::2"]

    assert [call(limited, client=(peer, 1)).status for peer in peers] == [200, 429, 200, 200, 429]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "x-forwarded-for", "X-FORWARDED-FOR"])
def test_the_client_behind_a_proxy(name: str):
    """C167: in any letter case, the header of a trusted peer names the client."""
    limited = Middleware(App(), bucket(1), client=ClientAddress(["10.0.0.0/8"]))
    headers = [{name: client} for client in ("203.0.113.7", "203.0.113.7", "203.0.113.8")]

    assert [call(limited, client=("10.0.0.1", 1), headers=one).status for one in headers] == [200, 429, 200]


def test_made_up_addresses_give_no_new_budget():
    """C168: twelve invented left entries, one client: five pass, seven are refused."""
    limited = Middleware(App(), bucket(5), client=ClientAddress(["10.0.0.1"]))
    answers = [
        call(limited, client=("10.0.0.1", 1), headers={"X-Forwarded-For": f"198.51.100.{n}, 203.0.113.7"})
        for n in range(12)
    ]

    assert [answer.status for answer in answers] == [200] * 5 + [429] * 7


def test_a_unix_socket_peer_is_no_error():
    """C155: without any address the request counts in the shared budget."""
    limited = Middleware(App(), bucket(1))

    assert [call(limited, client=None).status for _ in range(2)] == [200, 429]


def test_preflights_are_free_and_plain_options_are_not():
    """C173: ten pairs of preflight and GET under a limit of 10 all pass; then a plain OPTIONS is refused."""
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    limited = Middleware(App(), bucket(10))
    pairs = [(call(limited, method="OPTIONS", headers=preflight), call(limited)) for _ in range(10)]

    assert {(first.status, second.status) for first, second in pairs} == {(200, 200)}
    assert call(limited, method="OPTIONS").status == 429
    assert call(limited, method="OPTIONS", headers={"Origin": "https://a.example"}).status == 429
    assert call(limited, headers=preflight).status == 429


def test_an_attributes_object_can_be_given():
    """Sources and proxies may be put together beforehand, and shared by several middlewares."""
    attributes = Attributes({"key": {"header": "X-Key"}}, client=ClientAddress(["203.0.113.0/24"]))
    limited = Middleware(App(), bucket(1), attributes=attributes)

    assert [call(limited, headers={"X-Key": key}).status for key in ("a", "a", "b")] == [200, 429, 200]


def test_preflights_can_be_counted():
    """C173: the setting is documented and can be turned off."""
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    limited = Middleware(App(), bucket(1), exempt_preflight=False)

    assert [call(limited, method="OPTIONS", headers=preflight).status for _ in range(2)] == [200, 429]


def test_head_is_counted_and_its_refusal_has_no_body():
    """HEAD costs as GET does; the refusal has the fields of the body that it leaves out."""
    limited = Middleware(App(), bucket(1))
    call(limited, method="HEAD")
    refused = call(limited, method="HEAD")

    assert (refused.status, refused.body) == (429, b"")
    assert int(refused.headers["content-length"]) > 100


@pytest.mark.parametrize("kind_of_scope", ["lifespan", "something.new"])
def test_other_scopes_pass_untouched(kind_of_scope: str):
    """C178: the application gets the very scope, receive and send."""
    seen: list[Any] = []

    async def app(*given):
        seen.append(given)

    async def receive():
        raise AssertionError("not asked")

    async def send(message):
        raise AssertionError("not sent")

    scope = {"type": kind_of_scope}
    asyncio.run(Middleware(app, bucket())(scope, receive, send))

    assert seen[0][0] is scope
    assert seen[0][1:] == (receive, send)
    assert scope == {"type": kind_of_scope}


def test_chunks_pass_as_they_come():
    """C175: one start message with the fields before the first chunk, then each chunk by itself."""
    limited = Middleware(App(*[b"x"] * 10, headers=((b"content-length", b"10"),)), bucket())
    twice = Middleware(limited, bucket(capacity=9))
    for answer in (call(limited), call(twice)):
        kinds = [message["type"] for message in answer.messages]
        assert kinds == ["http.response.start"] + ["http.response.body"] * 10

    assert answer.starts[0]["headers"][0] == (b"content-length", b"10")


def test_a_stream_that_never_ends():
    """C175: events arrive while the application runs; when the client leaves, it ends with its task."""

    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            if (await receive())["type"] == "http.disconnect":
                return

    async def run():
        more = {"type": "http.request", "body": b"", "more_body": True}
        incoming: list[dict] = [more, more, {"type": "http.disconnect"}]
        return await call_async(Middleware(endless, bucket()), scope_of(), incoming)

    answer = asyncio.run(run())

    assert answer.body == b"data: x\n\n" * 3
    assert "ratelimit" in answer.headers


def test_messages_of_extensions_pass():
    """File transfer, early hints, trailers: whatever a server offers passes unchanged."""
    messages: list[dict] = [
        {"type": "http.response.early_hint", "links": [b"</a>"]},
        {"type": "http.response.start", "status": 200, "headers": [], "trailers": True},
        {"type": "http.response.pathsend", "path": "file"},
        {"type": "http.response.trailers", "headers": [(b"a", b"b")], "more_trailers": False},
    ]

    async def app(scope, receive, send):
        for message in messages:
            await send(dict(message))

    sent = call(Middleware(app, bucket())).messages

    assert [sent[0], sent[2], sent[3]] == [messages[0], messages[2], messages[3]]
    assert sent[1]["trailers"] is True


class StoreDownError(ConnectionError):
    """An error of the same kind as a store's client raises."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("x"),
        StoreDownError("x"),
        TimeoutError("x"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
    ],
)
@pytest.mark.parametrize("after_first_chunk", [False, True])
def test_exceptions_pass_unchanged(error: BaseException, after_first_chunk: bool, kind: type):
    """C180: the application ran once, its own exception comes out, and one charge was made."""
    runs = []

    async def app(scope, receive, send):
        runs.append(scope)
        if after_first_chunk:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise error

    limiter = bucket(5, kind=kind)
    limited = Middleware(app, limiter)

    async def run():
        with pytest.raises(type(error)) as raised:
            await call_async(limited, scope_of())
        left = limiter.peek("203.0.113.7")
        return raised.value, (await left if kind is AsyncLimiter else left).remaining

    assert asyncio.run(run()) == (error, 4)
    assert len(runs) == 1


def test_nested_once():
    """C182: the same limiter around the application and around a mounted part charges a request once."""
    limiter = bucket(10)
    part = bucket(5)
    app = Middleware(Middleware(Middleware(App(), part), limiter), limiter)
    answers = [call(app) for _ in range(5)]

    assert {answer.status for answer in answers} == {200}
    assert limiter.peek("203.0.113.7").remaining == 5
    assert part.peek("203.0.113.7").remaining == 0


def test_the_fields_of_two_limiters_are_two_lines():
    """Each limiter adds an item of its own to the lists."""
    inner = Limiter(Policy([Rule("inner", TokenBucket(5, "1/s"))]))
    outer = Limiter(Policy([Rule("outer", TokenBucket(9, "1/s"))]))
    answer = call(Middleware(Middleware(App(), inner), outer)).starts[0]["headers"]

    assert [value for name, value in answer if name == b"ratelimit"] == [
        b'"inner";r=4;t=1',
        b'"outer";r=8;t=1',
    ]


@pytest.mark.parametrize(
    ("path", "root_path"),
    [("/api/users", "/api"), ("/users", "/api"), ("/api/users", ""), ("/api/users", "/api/")],
)
def test_a_mounted_application_sees_the_whole_path(path: str, root_path: str):
    """Rules speak of the path as the client sees it, whether or not the mount took its part away."""
    seen: list[Any] = []
    call(Middleware(App(), noting_limiter(seen)), path, root_path=root_path)

    assert (seen[0]["path"], seen[0]["route"]) == ("/api/users", "GET /api/users")


def test_rules_over_attributes():
    """Header, path and method become attributes by configuration, and rules meet them together."""
    policy = Policy(
        [
            Rule("org", TokenBucket(10, "0/s"), by=("org",), cost={"POST /exports": 5}),
            Rule("everyone", TokenBucket(5, "0/s")),
        ]
    )
    limited = Middleware(App(), Limiter(policy), attributes={"org": {"header": "X-Org"}})
    asked = [
        ("POST", "acme"),
        ("POST", "acme"),
        ("GET", "acme"),
        ("GET", "b"),
        ("GET", "b"),
        ("GET", "b"),
        ("GET", "b"),
    ]
    answers = [call(limited, "/exports", method=method, headers={"X-Org": org}) for method, org in asked]

    assert [answer.status for answer in answers] == [200, 200, 429, 200, 200, 200, 429]


def test_a_shared_total_is_503():
    """Where a rule without attributes refuses, the server is short, not the caller."""
    limited = Middleware(App(), Limiter(Policy([Rule("everyone", TokenBucket(1, "1/s"))])))

    assert [call(limited).status for _ in range(2)] == [200, 503]


@pytest.mark.parametrize(("settings", "status"), [({}, 429), ({"deny_status": 403}, 403)])
def test_a_deny_rule(settings: dict, status: int):
    """429 unless configured, with no time to come back."""
    limited = Middleware(App(), Limiter(Policy([Rule("blocked", mode="deny")])), **settings)
    answer = call(limited)

    assert answer.status == status
    assert "retry-after" not in answer.headers


def test_one_retry_after_with_the_applications():
    """C072: an endpoint that answers 503 with Retry-After keeps its own, and gets the other fields."""
    for said in (b"7", b"Fri, 31 Dec 2027 23:59:59 GMT"):
        app = App(status=503, headers=((b"Retry-After", said),))
        answer = call(Middleware(app, bucket()))
        assert answer.headers["retry-after"] == said.decode()
        assert "ratelimit" in answer.headers


def test_fields_can_be_exposed_to_scripts():
    """C174: with `expose`, scripts of other origins may read the fields, beside the application's."""
    app = App(headers=((b"Access-Control-Expose-Headers", b"X-Mine"),))
    headers = call(Middleware(app, bucket(), expose=True)).starts[0]["headers"]
    exposed = [value for name, value in headers if name == b"access-control-expose-headers"]

    assert exposed == [b"X-Mine", b"Retry-After, RateLimit, RateLimit-Policy"]
    assert "access-control-expose-headers" not in call(Middleware(App(), bucket())).headers


def test_other_forms_of_the_fields():
    """The draft and the legacy fields are chosen at construction."""
    limited = Middleware(App(), bucket(1), draft="off", legacy="date", wall_clock_s=lambda: 1000.5)

    assert call(limited).headers["x-ratelimit-reset"] == "1002"
    assert call(limited).headers["retry-after"] == "1"


def test_bypass_says_nothing_and_passes():
    """Without a limit there are no fields."""
    limited = Middleware(App(), Limiter(Policy([Rule("free", mode="bypass")])))

    assert call(limited).headers == {}


def test_the_request_carries_its_decision():
    """Applications can look at what was decided, under "tidegate.decisions"."""
    seen: list[Any] = []

    async def app(scope, receive, send):
        seen.append(scope["tidegate.decisions"])
        await App()(scope, receive, send)

    limiter = bucket(5)
    call(Middleware(app, limiter))

    assert seen[0][id(limiter)].remaining == 4
