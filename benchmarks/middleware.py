"""What the middlewares add to a request: the same empty application with and without them, no server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.rounds import Work, measure, show
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket
from tidegate.http.asgi import RateLimitMiddleware as AsgiMiddleware
from tidegate.http.wsgi import RateLimitMiddleware as WsgiMiddleware

ONE = TokenBucket(1_000_000, "1000/s")
THREE = Policy(
    [
        Rule("address", ONE, by=("address",)),
        Rule("route", ONE, by=("address", "path"), match={"method": ["GET", "HEAD"]}),
        Rule("all", ONE),
    ]
)
REFUSING = TokenBucket(1, "1/h")
HEADERS = [(b"host", b"example.org"), (b"accept", b"*/*"), (b"user-agent", b"benchmark"), (b"cookie", b"a=b")]

START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
BODY = {"type": "http.response.body", "body": b"ok"}


async def asgi_application(scope: Any, receive: Any, send: Any) -> None:
    """Say ok."""
    await send(START)
    await send(BODY)


def wsgi_application(environ: Any, start_response: Any) -> list[bytes]:
    """Say ok."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"ok"]


def asgi(application: Any, times: int) -> Work:
    """So many requests through an ASGI application."""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None: ...

    async def loop() -> None:
        for _ in range(times):
            scope = {
                "type": "http",
                "method": "GET",
                "path": "/items/5",
                "query_string": b"",
                "headers": HEADERS,
                "client": ("203.0.113.7", 50000),
            }
            await application(scope, receive, send)

    def work() -> int:
        asyncio.run(loop())
        return times

    return work


def wsgi(application: Any, times: int) -> Work:
    """So many requests through a WSGI application."""

    def start_response(
        status: str, headers: list[tuple[str, str]], error: Any = None
    ) -> Callable[[bytes], None]:
        return lambda data: None

    def work() -> int:
        for _ in range(times):
            environ = {
                "REQUEST_METHOD": "GET",
                "PATH_INFO": "/items/5",
                "QUERY_STRING": "",
                "REMOTE_ADDR": "203.0.113.7",
                "HTTP_HOST": "example.org",
                "HTTP_ACCEPT": "*/*",
                "HTTP_USER_AGENT": "benchmark",
                "HTTP_COOKIE": "a=b",
            }
            for _ in application(environ, start_response):
                pass
        return times

    return work


def run(rounds: int, scale: int) -> None:
    """Measure and print; what counts is the difference to the bare application in nanoseconds."""
    times = 4_000 // scale
    tables: list[tuple[str, dict[str, Work]]] = [
        (
            "ASGI, one request",
            {
                "bare application": asgi(asgi_application, times),
                "Limiter, one limit": asgi(AsgiMiddleware(asgi_application, Limiter(ONE)), times),
                "AsyncLimiter, one limit": asgi(AsgiMiddleware(asgi_application, AsyncLimiter(ONE)), times),
                "Limiter, three rules": asgi(AsgiMiddleware(asgi_application, Limiter(THREE)), times),
                "Limiter, refusing": asgi(AsgiMiddleware(asgi_application, Limiter(REFUSING)), times),
            },
        ),
        (
            "WSGI, one request",
            {
                "bare application": wsgi(wsgi_application, times),
                "Limiter, one limit": wsgi(WsgiMiddleware(wsgi_application, Limiter(ONE)), times),
                "Limiter, three rules": wsgi(WsgiMiddleware(wsgi_application, Limiter(THREE)), times),
                "Limiter, refusing": wsgi(WsgiMiddleware(wsgi_application, Limiter(REFUSING)), times),
            },
        ),
    ]
    for title, chosen in tables:
        measured = measure(chosen, None, rounds)
        show(title, measured, unit="request")
        for line in measured[1:]:
            print(f"  {line.name} adds {(line.ns - measured[0].ns) / 1_000:.1f} us")
