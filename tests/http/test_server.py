# A real server and real clients on loopback: what goes over the wire.

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.http.asgi import RateLimitMiddleware
from tidegate.http.keys import ClientAddress

pytestmark = pytest.mark.real_time


async def greet(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


@pytest.fixture(params=["h11", "httptools"])
def port(request) -> Iterator[int]:
    """A server on a free port; three GETs, one HEAD and two handshakes an hour for each client."""
    rules = [
        Rule("get", TokenBucket(3, "3/h"), by=("address",), match={"route": "GET /"}),
        Rule("head", TokenBucket(1, "1/h"), by=("address",), match={"method": "HEAD"}),
        Rule("talk", TokenBucket(2, "2/h"), by=("address",), match={"path": "/ws"}),
    ]
    app = Starlette(
        routes=[Route("/", lambda request: PlainTextResponse("ok")), WebSocketRoute("/ws", greet)]
    )
    limited = RateLimitMiddleware(app, Limiter(Policy(rules)), client=ClientAddress(["127.0.0.1"]))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            limited,
            http=request.param,
            ws="websockets-sansio",
            proxy_headers=False,  # or uvicorn rewrites the peer before we see it
            log_level="warning",
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


def ask(port: int, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, "/", headers=headers)
        response = connection.getresponse()
        return (
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response.read(),
        )
    finally:
        connection.close()


def test_over_the_wire(port: int):
    """C167, C177: burst and refusal by GET, HEAD and handshake, each client behind the proxy by itself."""
    assert [ask(port)[0] for _ in range(4)] == [200, 200, 200, 429]
    assert ask(port, **{"x-forwarded-for": "203.0.113.7"})[0] == 200

    status, headers, body = ask(port)
    assert status == 429
    assert headers["ratelimit"] == f'"get";r=0;t={headers["retry-after"]}'
    assert 1100 <= int(headers["retry-after"]) <= 1200
    assert headers["content-type"] == "application/problem+json"
    assert len(body) == int(headers["content-length"])

    assert [ask(port, "HEAD")[::2] for _ in range(2)] == [(200, b""), (429, b"")]

    for _ in range(2):
        with connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as websocket:
            assert websocket.recv() == "hello"
            assert websocket.response is not None
            assert "ratelimit" in websocket.response.headers
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{port}/ws", proxy=None)
    assert refused.value.response.status_code == 429
    assert 1700 <= int(refused.value.response.headers["retry-after"]) <= 1800
