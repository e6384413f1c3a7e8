# Whatever comes in ends in an answer that says what to send: never in a failure of the server.

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.asked import JSON, PEER, app_of, ask, decide, samples
from tidegate import LeakyQueue, Rule, SlidingLog, TokenBucket
from tidegate.http.attributes import Attributes
from tidegate.http.keys import ClientAddress
from tidegate.server import requests
from tidegate.server.settings import Settings

GOOD = b'{"attributes":{"org":"a"}}'


def deep(depth: int) -> bytes:
    return b'{"attributes":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "The body is no JSON: Expecting value at line 1, column 1"),
        (b"{", "The body is no JSON"),
        (b'{"attributes": {}} x', "Extra data at line 1, column 20"),
        (b"\xff\xfe", "not UTF-8: byte 0 is 0xFF"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "The body is no JSON"),
        ('{"attributes":{}}'.encode("utf-16"), "not UTF-8"),
        (b'{"attributes":{},"attributes":{}}', 'The key "attributes" stands twice'),
        (b'{"attributes":{"a":1,"a":2}}', 'The key "a" stands twice'),
        (b'{"attributes":{},"cost":NaN}', "NaN is no number"),
        (b'{"attributes":{},"cost":Infinity}', "Infinity is no number"),
        (b'{"attributes":{},"cost":-Infinity}', "-Infinity is no number"),
        (b'{"attributes":{},"cost":1e400}', "1e400 is too large"),
        (b'{"attributes":{},"cost":1e999999999}', "too large"),
        (b'{"attributes":{},"cost":1e-400000}', ""),
        (b'{"attributes":{},"cost":' + b"9" * 41 + b"}", "A number has 41 characters"),
        (b'{"attributes":{},"cost":' + b"9" * 500_000 + b"}", "A number has 500000 characters"),
        (b'{"attributes":{},"cost":0.' + b"1" * 5_000 + b"}", "characters"),
        (b"[" * 100_000, "nested too deeply"),
        (deep(50_000), "nested too deeply"),
        (b"\x00", "The body is no JSON"),
        (b'{"a\x00":1}', "The body is no JSON"),
        (b"null", "A request is null"),
        (b"3", "A request is 3"),
    ],
)
def test_a_body_that_is_no_request(body: bytes, said: str):
    """What is no JSON, or JSON with no single meaning, is a 400 that says where and why."""
    app, _ = app_of()

    reply = ask(app, "POST", "/v1/decide", body, JSON)

    if said:
        assert reply.status == 400
        assert said in reply.detail
    else:
        assert reply.json["cost"] == 0  # too small for any number: it is zero, and costs nothing


def test_the_largest_numbers_are_an_answer():
    """A cost of forty digits is refused as never, not an error; so is a whole number as an attribute."""
    app, _ = app_of()

    told = ask(
        app, "POST", "/v1/decide", b'{"attributes":{"org":%s},"cost":%s}' % (b"9" * 40, b"9" * 40), JSON
    )

    assert (told.json["allowed"], told.json["retry_after"], told.json["cost"]) == (False, None, 10**40 - 1)
    assert decide(app, {"attributes": {}, "cost": 1e300}).json["retry_after"] is None


@pytest.mark.parametrize("parts", [[b" " * (1 << 20), b" "], [b"x" * (1 << 21)]])
def test_a_body_of_more_than_a_mebibyte_is_refused(parts: list[bytes]):
    """A large body is a 413 as soon as it is too large, announced or not."""
    app, _ = app_of()

    announced = [*JSON, ("Content-Length", str(sum(map(len, parts))))]
    for headers, body in ((JSON, parts), (announced, [b""])):
        reply = ask(app, "POST", "/v1/decide", body, headers)
        assert (reply.status, "1048576 bytes" in reply.detail) == (413, True)
    for length in ("-1", "x", "9" * 10_000):
        reply = ask(app, "POST", "/v1/decide", GOOD, [*JSON, ("Content-Length", length)])
        assert reply.status in {200, 413}


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "The Content-Type is missing"),
        ([("Content-Type", "text/plain")], 'The Content-Type is "text/plain"'),
        ([("Content-Type", "application/x-www-form-urlencoded")], "application/x-www-form-urlencoded"),
        ([("Content-Type", "application/json; charset=utf-16")], 'The charset is "utf-16"'),
        ([*JSON, ("Content-Encoding", "gzip")], 'The Content-Encoding is "gzip"'),
        ([("Content-Type", "\xff" * 5_000)], "send JSON with Content-Type: application/json"),
    ],
)
def test_only_json_is_read(headers: list[tuple[str, str]], said: str):
    """Another type is a 415, so no page of another origin can ask unseen: its browser would ask first."""
    app, _ = app_of()

    reply = ask(app, "POST", "/v1/decide", GOOD, headers)

    assert (reply.status, said in reply.detail) == (415, True)
    assert len(reply.detail) < 300


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON", 'application/json; charset="UTF-8"', "application/x+json"],
)
def test_json_by_any_of_its_names(kind: str):
    """Letter case, a charset of UTF-8 and types that end in +json are fine."""
    app, _ = app_of()

    assert ask(app, "POST", "/v1/decide", GOOD, [("Content-Type", kind)]).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_a_wrong_method_names_the_right_one(method: str):
    """Another method is a 405 with Allow, and nothing is decided."""
    app, _ = app_of()

    reply = ask(app, method, "/v1/decide", GOOD, JSON)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert ask(app, "POST", "/healthz").headers["allow"] == "GET, HEAD"
    assert samples(app)["tidegate_failures_total", "request"] == 2


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/decide/", "//", "/auth/x", "/favicon.ico", "/\ud800", "", "/" * 9_000]
)
def test_an_unknown_path_names_the_known_ones(path: str):
    """What is not there is a 404 as a problem that lists what is."""
    app, _ = app_of()

    reply = ask(app, "GET", path)

    assert (reply.status, "/v1/decide, /auth" in reply.detail) == (404, True)
    assert len(reply.detail) < 300


@pytest.mark.parametrize("path", ["/", "/auth", "/healthz", "/metrics", "/nothing"])
def test_head_is_get_without_the_body(path: str):
    """HEAD has the status and the fields of GET, the length included, and no body."""
    app, _ = app_of()

    head, get = ask(app, "HEAD", path), ask(app, "GET", path)

    assert (head.status, head.body) == (get.status, b"")
    if path != "/metrics":  # which differs from one moment to the next
        assert head.headers.keys() == get.headers.keys()
        assert head.headers["content-length"] == get.headers["content-length"]


def test_a_body_that_does_not_come_is_a_408(monkeypatch: pytest.MonkeyPatch):
    """Who begins a body and never ends it is answered after a while, and waits for nothing."""
    monkeypatch.setattr(requests, "BODY_WITHIN_S", 0.01)
    app, _ = app_of()
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(3600)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/decide", "query_string": b"", "headers": RAW_JSON}
    asyncio.run(app(scope, receive, send))

    assert sent[0]["status"] == 408


def test_who_leaves_is_not_answered():
    """A client that closes while it sends is no failure, and nothing is sent or decided."""
    app, _ = app_of()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/decide", "query_string": b"", "headers": RAW_JSON}
    asyncio.run(app(scope, receive, send))

    assert sent == []
    assert samples(app)["tidegate_failures_total", "request"] == 0


def test_lifespan_and_other_kinds_of_scope():
    """C178: lifespan is answered, a websocket is closed before it opens, an unknown kind is left alone."""
    app, _ = app_of()

    def run(kind: str, *incoming: str) -> list[Any]:
        sent: list[Any] = []
        waiting = [{"type": one} for one in incoming]

        async def receive() -> Any:
            return waiting.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(app({"type": kind, "path": "/v1/decide", "headers": []}, receive, send))
        return [message["type"] for message in sent]

    assert run("lifespan", "lifespan.startup", "lifespan.shutdown") == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert run("websocket", "websocket.connect") == ["websocket.close"]
    assert run("carrier-pigeon") == []


def test_a_long_call_lets_others_in_between():
    """While a thousand requests of one call are decided, another call is answered."""
    app, _ = app_of()
    order: list[str] = []

    async def call(name: str, value: object) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(value).encode(), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                order.append(name)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/decide",
            "query_string": b"",
            "headers": RAW_JSON,
        }
        await app(scope, receive, send)

    async def both() -> None:
        await asyncio.gather(
            call("long", {"requests": [{"attributes": {}}] * 1_000}), call("short", {"attributes": {}})
        )

    asyncio.run(both())

    assert order == ["short", "long"]


RAW_JSON = [(b"content-type", b"application/json")]

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["org", "1e400", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["attributes", "cost", "caller", "peek", "requests", "org", "path"]) | st.text(
    max_size=4
)
nearly = st.dictionaries(keys, anything | st.dictionaries(keys, anything, max_size=3), max_size=4)
bodies = (
    st.binary(max_size=200)
    | anything.map(lambda value: json.dumps(value).encode())
    | nearly.map(lambda value: json.dumps(value).encode())
    | st.lists(nearly, max_size=3).map(lambda entries: json.dumps({"requests": entries}).encode())
)
texts = st.text(st.characters(max_codepoint=255), max_size=60)
NAMES = (
    "host x-org cookie x-forwarded-for x-forwarded-method x-forwarded-uri x-forwarded-host x-original-uri "
    "x-original-method content-length content-type authorization accept"
).split()


@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "X"]),
    path=st.sampled_from(["/", "/auth", "/v1/decide", "/v1/reset", "/v1/reload", "/healthz", "/metrics"])
    | texts,
    query=texts | st.sampled_from(["deny=403", "deny=99", "via=nginx&via=traefik", "deny=&via=", "%"]),
    headers=st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=6),
    body=bodies,
    is_json=st.booleans(),
    peer=st.sampled_from([PEER, "10.0.0.1", "2001:db8::7", "", "unix"]) | texts,
)
def test_no_input_is_a_failure(
    method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes, is_json: bool, peer: str
):
    """No method, path, query, header, body or peer ends in an exception or a status of 500 and above.

    503 is the one exception: a shared total that is short.
    """
    client = ClientAddress(["10.0.0.0/8", "192.0.2.1"])
    sources = {"org": {"header": "X-Org"}, "user": {"cookie": "s"}, "q": {"query": "q"}}
    app, _ = app_of(
        Rule("org", TokenBucket(3, "5/s"), by=("org", "user", "q"), cost={"POST /exports": 2}),
        Rule("log", SlidingLog(100, "1min"), by=("address",), match={"method": ["GET", "POST", None]}),
        Rule("all", TokenBucket(10_000, "5/s")),
        settings=Settings(Attributes(sources, client=client), token="t"),
    )

    reply = ask(
        app,
        method,
        f"{path}?{query}",
        body,
        [*headers, *(JSON if is_json else [])],
        (peer, 1) if peer else None,
    )

    assert reply.status < 500 or reply.status == 503
    if reply.status >= 400:
        assert json.loads(reply.body or b"{}").get("status", reply.status) == reply.status


@given(bodies)
def test_a_body_never_breaks_a_call(body: bytes):
    """Any body to /v1/decide is a decision or a problem, and the server decides as before afterwards."""
    app, _ = app_of(
        Rule("org", TokenBucket(3, "5/s"), by=("org",)), Rule("line", LeakyQueue(2, "1/s"), by=("path",))
    )

    assert ask(app, "POST", "/v1/decide", body, JSON).status in {200, 400, 413}
    assert decide(app, {"attributes": {"org": "fresh", "path": "/fresh"}}).json["allowed"]
