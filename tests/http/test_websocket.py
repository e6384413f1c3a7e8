# Websockets: the handshake is decided, before it is accepted; what is said inside is not counted.

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.http.asgi_calls import call
from tests.http.noted import noting
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket
from tidegate.http.asgi import RateLimitMiddleware
from tidegate.testing import ManualClock

Middleware: Any = RateLimitMiddleware  # untyped: wrong settings are tested too


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    for _ in range(3):
        await websocket.send_text(await websocket.receive_text())
    await websocket.close()


def application(limiter, **settings) -> TestClient:
    app = Starlette(routes=[WebSocketRoute("/ws", echo), Route("/", lambda request: PlainTextResponse("x"))])
    return TestClient(Middleware(app, limiter, **settings))


def ask(client: TestClient, path: str) -> str:
    """What became of a handshake, and of three messages after it."""
    try:
        with client.websocket_connect(path) as websocket:
            for text in ("a", "b", "c"):
                websocket.send_text(text)
                assert websocket.receive_text() == text
            return "served"
    except WebSocketDenialResponse as denial:
        return str(denial.status_code)
    except WebSocketDisconnect as disconnect:
        return f"closed {disconnect.code}"


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_five_reach_the_application_and_five_are_refused(kind: type):
    """C177: ten handshakes at limit 5; messages are not counted, and refusals are HTTP 429 here."""
    client = application(kind(TokenBucket(5, "0/s")))

    assert [ask(client, "/ws") for _ in range(10)] == ["served"] * 5 + ["429"] * 5


def test_a_path_without_a_websocket():
    """C177: no exception where there is no endpoint; the attempt is counted, then refused."""
    client = application(Limiter(TokenBucket(1, "0/s")))

    assert [ask(client, "/nowhere") for _ in range(2)] == ["closed 1000", "429"]


def test_a_handshake_is_a_get():
    """Rules that speak of GET meet a handshake too: that is what goes over the wire."""
    rule = Rule("reads", TokenBucket(1, "1/h"), match={"method": "GET", "route": "GET /ws"})
    client = application(Limiter(Policy([rule])))

    assert [ask(client, "/ws") for _ in range(2)] == ["served", "503"]


def test_the_refusal_is_a_whole_answer_where_the_server_can():
    """C177: with the extension it has the status, fields and body of any refusal."""
    client = application(Limiter(TokenBucket(1, "0.5/s"), clock=ManualClock()))
    ask(client, "/ws")
    with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/ws"):
        raise AssertionError("not accepted")

    assert denied.value.status_code == 429
    assert denied.value.headers["retry-after"] == "2"
    assert json.loads(denied.value.content)["retry_after_ms"] == 2000


async def accepting(scope, receive, send) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept", "subprotocol": "chat", "headers": [(b"x-mine", b"1")]})
    await send({"type": "websocket.send", "text": "hello"})
    await send({"type": "websocket.close", "code": 1000})


def test_without_the_extension_it_is_closed_before_it_is_accepted():
    """C177: policy violation (1008), which servers turn into a refused handshake; nothing else is sent."""
    limited = Middleware(accepting, Limiter(TokenBucket(1, "0/s")))
    call(limited, kind="websocket")

    assert call(limited, kind="websocket").messages == [
        {"type": "websocket.close", "code": 1008, "reason": "rate limited"}
    ]


def test_a_client_that_left_is_told_nothing():
    """A handshake that is gone before it was refused gets no message."""
    limited = Middleware(accepting, Limiter(TokenBucket(1, "0/s")))
    call(limited, kind="websocket")
    gone = [{"type": "websocket.disconnect", "code": 1006}]

    assert call(limited, kind="websocket", incoming=gone).messages == []


def test_an_accepted_handshake_carries_the_fields():
    """The fields stand in the 101 response, beside the application's."""
    messages = call(Middleware(accepting, Limiter(TokenBucket(2, "1/s"))), kind="websocket").messages

    assert messages[0]["subprotocol"] == "chat"
    assert messages[0]["headers"][0] == (b"x-mine", b"1")
    assert messages[0]["headers"][2] == (b"ratelimit", b'"limit";r=1;t=1')
    assert messages[1:] == [
        {"type": "websocket.send", "text": "hello"},
        {"type": "websocket.close", "code": 1000},
    ]


def test_an_application_that_refuses_by_itself():
    """A denial response of the application gets the fields like any other response."""

    async def denying(scope, receive, send):
        await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    answer = call(Middleware(denying, Limiter(TokenBucket(2, "1/s"))), kind="websocket")

    assert answer.status == 401
    assert answer.headers["ratelimit"] == '"limit";r=1;t=1'


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([{"type": "websocket.accept"}, {"type": "websocket.close", "code": 1000}], 101),
        ([{"type": "websocket.close", "code": 1000}], 403),
        ([{"type": "websocket.http.response.start", "status": 401, "headers": []}], 401),
        ([], 500),
    ],
)
def test_charging_by_the_handshakes_end(messages: list[dict], status: int):
    """`charge` sees 101 for an accepted handshake, 403 for a closed one, or the application's, once."""
    seen: list[Any] = []

    async def app(scope, receive, send):
        for message in messages:
            await send(message)

    limiter = Limiter(TokenBucket(3, "0/s"))
    call(
        Middleware(app, limiter, charge=noting(seen)),
        kind="websocket",
    )

    assert seen == [status]
    assert limiter.peek("203.0.113.7").remaining == 3
