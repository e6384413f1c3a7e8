# Real frameworks behind the middlewares: FastAPI and Starlette through httpx, Flask through its test client.

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from tests.http.asgi_calls import scope_of
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket
from tidegate.http import asgi, wsgi
from tidegate.http.charge import only_status
from tidegate.testing import ManualClock

ORIGIN = {"Origin": "https://a.example"}


def get_all(app, *paths: str, **parts) -> list[httpx.Response]:
    """Requests one after another through httpx, without a server."""

    async def run():
        transport = httpx.ASGITransport(app=app, client=("203.0.113.7", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://api.example") as client:
            return [await client.get(path, **parts) for path in paths]

    return asyncio.run(run())


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_fastapi(kind: type):
    """A FastAPI application serves the burst, then 429; its own errors and 404s carry the fields too."""
    app = FastAPI()

    @app.get("/users/{user}")
    async def read(user: int) -> dict[str, int]:
        return {"user": user}

    app.add_middleware(asgi.RateLimitMiddleware, limiter=kind(TokenBucket(4, "1/s"), clock=ManualClock()))
    answers = get_all(app, "/users/1", "/users/x", "/nowhere", "/users/2", "/users/3")

    assert [answer.status_code for answer in answers] == [200, 422, 404, 200, 429]
    assert [answer.headers["ratelimit"] for answer in answers] == [
        '"limit";r=3;t=1',
        '"limit";r=2;t=2',
        '"limit";r=1;t=3',
        '"limit";r=0;t=4',
        '"limit";r=0;t=1',
    ]
    assert answers[4].json()["retry_after_ms"] == 1000


def test_one_budget_for_a_route_of_fastapi():
    """C185: the rule's template is one budget for all ids; another route has its own."""
    app = FastAPI()

    @app.get("/users/{user}")
    async def read(user: int) -> int:
        return user

    rules = [
        Rule("users", TokenBucket(1, "0/s"), by=("address",), match={"route": "GET /users/{id}"}),
        Rule("docs", TokenBucket(2, "0/s"), by=("address",), match={"route": "GET /docs"}),
    ]
    app.add_middleware(asgi.RateLimitMiddleware, limiter=Limiter(Policy(rules)))
    answers = get_all(app, "/users/1", "/users/2", "/users/3", "/docs", "/docs")

    assert [answer.status_code for answer in answers] == [200, 429, 429, 200, 200]


def test_functions_of_one_name_have_budgets_of_their_own():
    """C153: budgets go by rule and route, not by function name: two routes called "home", 2 and 3 pass."""

    def made(text: str):
        def home(request):
            return PlainTextResponse(text)

        return home

    first, second = made("a"), made("b")

    rules = [
        Rule("a", TokenBucket(2, "1/h"), match={"route": "GET /a"}),
        Rule("b", TokenBucket(3, "1/h"), match={"route": "GET /b"}),
    ]
    app = Starlette(routes=[Route("/a", first), Route("/b", second), Route("/free", second)])
    limited = asgi.RateLimitMiddleware(app, Limiter(Policy(rules)))
    answers = get_all(limited, *["/a"] * 4, *["/b"] * 4, *["/free"] * 4)

    assert [answer.status_code for answer in answers] == [200] * 2 + [503] * 2 + [200] * 3 + [503] + [200] * 4


async def events(request):
    async def stream():
        for number in range(3):
            yield f"data: {number}\n\n"
            await asyncio.sleep(0)

    return StreamingResponse(stream(), media_type="text/event-stream")


@pytest.mark.parametrize("charge", [None, only_status({401})])
def test_server_sent_events_come_one_by_one(charge: Any):
    """C175: each event leaves before the next is made, also under further middlewares."""
    app = Starlette(routes=[Route("/", events)])
    seen: list[Any] = []

    async def watching(scope, receive, send):
        async def note(message):
            seen.append(message)
            await send(message)

        await limited(scope, receive, note)

    limited = asgi.RateLimitMiddleware(app, AsyncLimiter(TokenBucket(2, "1/s")), charge=charge)
    answer = get_all(watching, "/")[0]

    assert answer.text == "data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert [message["type"] for message in seen] == ["http.response.start"] + ["http.response.body"] * 4
    assert "ratelimit" in answer.headers


@pytest.mark.parametrize("outside", [True, False])
def test_under_and_over_other_middlewares(outside: bool, tmp_path):
    """C175: files and streams under gzip and a function middleware: one start, the fields, the same bytes."""
    file = tmp_path / "f.txt"
    file.write_bytes(b"x" * 5000)

    async def plain(request, call_next):
        return await call_next(request)

    app = Starlette(
        routes=[Route("/file", lambda request: FileResponse(file)), Route("/events", events)],
        middleware=[Middleware(GZipMiddleware), Middleware(BaseHTTPMiddleware, dispatch=plain)],
    )
    limiter = Limiter(TokenBucket(9, "1/s"))
    if outside:
        app.add_middleware(asgi.RateLimitMiddleware, limiter=limiter)
    else:
        app.user_middleware.append(Middleware(asgi.RateLimitMiddleware, limiter=limiter))
    answers = get_all(app, "/file", "/events")

    assert [answer.content for answer in answers] == [b"x" * 5000, b"data: 0\n\ndata: 1\n\ndata: 2\n\n"]
    assert all("ratelimit" in answer.headers for answer in answers)


def cors(app, **settings):
    return CORSMiddleware(app, allow_origins=[ORIGIN["Origin"]], **settings)


def preflight_and_get(app) -> tuple[httpx.Response, ...]:
    async def run():
        transport = httpx.ASGITransport(app=app)
        asking = {**ORIGIN, "Access-Control-Request-Method": "GET"}
        async with httpx.AsyncClient(transport=transport, base_url="http://api.example") as client:
            return [await client.options("/", headers=asking)] + [
                await client.get("/", headers=ORIGIN) for _ in range(2)
            ]

    return tuple(asyncio.run(run()))


def test_cors_outside_the_limiter():
    """C174: the documented order: the 429 has the CORS fields, and exposes Retry-After if so configured."""
    ok = Starlette(routes=[Route("/", lambda request: PlainTextResponse("x"))])
    limited = asgi.RateLimitMiddleware(ok, Limiter(TokenBucket(1, "0.5/s"), clock=ManualClock()))
    preflight, served, refused = preflight_and_get(cors(limited, expose_headers=["Retry-After"]))

    assert (preflight.status_code, served.status_code, refused.status_code) == (200, 200, 429)
    for answer in (served, refused):
        assert answer.headers["access-control-allow-origin"] == ORIGIN["Origin"]
        assert answer.headers["access-control-expose-headers"] == "Retry-After"


def test_cors_outside_with_our_own_exposure():
    """C174: `expose=True` says it where the CORS layer does not."""
    ok = Starlette(routes=[Route("/", lambda request: PlainTextResponse("x"))])
    limited = asgi.RateLimitMiddleware(ok, Limiter(TokenBucket(1, "1/s")), expose=True)
    _, _, refused = preflight_and_get(cors(limited))

    assert "Retry-After" in refused.headers["access-control-expose-headers"]


def test_cors_inside_the_limiter():
    """C174: the other order: preflights still pass and answers have the fields, but a refusal has no CORS."""
    ok = Starlette(routes=[Route("/", lambda request: PlainTextResponse("x"))])
    limited = asgi.RateLimitMiddleware(cors(ok), Limiter(TokenBucket(1, "1/s"), clock=ManualClock()))
    preflight, served, refused = preflight_and_get(limited)

    assert (preflight.status_code, served.status_code, refused.status_code) == (200, 200, 429)
    assert served.headers["access-control-allow-origin"] == ORIGIN["Origin"]
    assert "access-control-allow-origin" not in refused.headers


def test_a_mounted_application():
    """C182: around the whole and around a mounted part; rules see the whole path in both."""
    limiter = Limiter(
        Policy(
            [
                Rule("all", TokenBucket(10, "0/s")),
                Rule("api", TokenBucket(5, "1/h"), match={"path": "/api/*"}),
            ]
        )
    )
    paths: list[Any] = []

    async def endpoint(request):
        paths.append(request.scope["tidegate.decisions"][id(limiter)].rule)
        return PlainTextResponse("x")

    inner = asgi.RateLimitMiddleware(Starlette(routes=[Route("/users", endpoint)]), limiter)
    only_inner = Starlette(routes=[Mount("/api", app=inner)])
    both = asgi.RateLimitMiddleware(only_inner, limiter)
    answers = get_all(both, *["/api/users"] * 3) + get_all(only_inner, *["/api/users"] * 3)

    assert [answer.status_code for answer in answers] == [200] * 5 + [503]
    assert paths == ["api"] * 5
    assert limiter.peek({"path": "/other"}).remaining == 5


def test_startup_runs():
    """C178: the lifespan of the application passes through."""
    events_seen: list[Any] = []

    async def lifespan(app):
        events_seen.append("started")
        yield
        events_seen.append("stopped")

    app = Starlette(lifespan=asynccontextmanager(lifespan))
    with TestClient(asgi.RateLimitMiddleware(app, Limiter(TokenBucket(1, "1/s")))):
        assert events_seen == ["started"]

    assert events_seen == ["started", "stopped"]


def test_a_background_task_does_not_delay_the_settlement():
    """C184: what was not used is given back when the answer has left, not when the task after it ends."""
    limiter = Limiter(TokenBucket(1, "0/s"))
    left: list[Any] = []

    async def endpoint(request):
        return JSONResponse(
            {}, background=BackgroundTask(lambda: left.append(limiter.peek("203.0.113.7").remaining))
        )

    app = asgi.RateLimitMiddleware(
        Starlette(routes=[Route("/", endpoint)]), limiter, charge=only_status({401})
    )
    get_all(app, "/")

    assert left == [1]


def test_a_client_that_leaves_under_a_task_group():
    """Invariant 8: where a framework's middleware cancels the application, the settlement still ends."""
    seen: list[Any] = []

    async def charge(*given):
        await asyncio.sleep(0)
        seen.append(given[0])
        return 0

    async def endless(request):
        async def stream():
            while True:
                yield b"x"
                await asyncio.sleep(0)

        return StreamingResponse(stream())

    async def plain(request, call_next):
        return await call_next(request)

    limiter = AsyncLimiter(TokenBucket(3, "0/s"))
    limited = asgi.RateLimitMiddleware(Starlette(routes=[Route("/", endless)]), limiter, charge=charge)
    app = BaseHTTPMiddleware(limited, dispatch=plain)

    async def run():
        left = asyncio.Event()
        incoming: list[dict] = [{"type": "http.request", "body": b"", "more_body": False}]
        sent: list[Any] = []

        async def receive():
            if incoming:
                return incoming.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if len(sent) == 5:
                left.set()

        await app(scope_of(), receive, send)
        return (await limiter.peek("203.0.113.7")).remaining

    assert asyncio.run(run()) == 3
    assert seen == [200]


def test_both_protocols_have_the_same_settings():
    """The twins take the same arguments in the same order, with the same defaults but for `sleep`."""

    def settings(middleware):
        parameters = inspect.signature(middleware).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters if p.name != "sleep"]

    assert settings(asgi.RateLimitMiddleware) == settings(wsgi.RateLimitMiddleware)
