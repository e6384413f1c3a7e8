# Real frameworks behind the middlewares: FastAPI and Starlette through httpx, Flask through its test client.

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager

import flask
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
from werkzeug.test import Client

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

    def home(request):
        return PlainTextResponse("a")

    first = home

    def home(request):  # noqa: F811  # two functions of one name are what is tested
        return PlainTextResponse("b")

    rules = [
        Rule("a", TokenBucket(2, "0/s"), match={"route": "GET /a"}),
        Rule("b", TokenBucket(3, "0/s"), match={"route": "GET /b"}),
    ]
    app = Starlette(routes=[Route("/a", first), Route("/b", home), Route("/free", home)])
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
def test_server_sent_events_come_one_by_one(charge: object):
    """C175: each event leaves before the next is made, also under further middlewares."""
    app = Starlette(routes=[Route("/", events)])
    seen = []

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
    """C174: the documented order: the 429 carries the CORS fields, and exposes Retry-After if so configured."""
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
                Rule("api", TokenBucket(5, "0/s"), match={"path": "/api/*"}),
            ]
        )
    )
    paths = []

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
    events_seen = []

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
    left = []

    async def endpoint(request):
        return JSONResponse({}, background=BackgroundTask(lambda: left.append(limiter.peek("203.0.113.7").remaining)))

    app = asgi.RateLimitMiddleware(
        Starlette(routes=[Route("/", endpoint)]), limiter, charge=only_status({401})
    )
    get_all(app, "/")

    assert left == [1]


def test_a_client_that_leaves_under_a_task_group():
    """Invariant 8: where a framework's middleware cancels the application, the settlement still ends."""
    seen = []

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
        sent = []

        async def receive():
            if len(sent) < 5:
                await asyncio.sleep(0)
                return {"type": "http.request", "body": b"", "more_body": False}
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if len(sent) >= 5:
                raise OSError("client left")

        scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("203.0.113.7", 1)}
        scope |= {"query_string": b"", "root_path": ""}
        try:
            await app(scope, receive, send)
        except* Exception:
            pass
        for _ in range(10):
            await asyncio.sleep(0)
        return (await limiter.peek("203.0.113.7")).remaining

    assert asyncio.run(run()) == 3
    assert seen == [200]


def flask_app() -> flask.Flask:
    app = flask.Flask("api")

    @app.route("/<name>", methods=["GET", "POST"])
    def answer(name: str):
        if name == "stream":
            return flask.Response(iter(["a", "b"]), mimetype="text/plain")
        if name == "raise":
            raise RuntimeError("endpoint")
        return {"status": int(name)}, int(name)

    return app


def test_flask():
    """A Flask application serves the burst, then 429; streams, errors and 404s carry the fields."""
    app = flask_app()
    app.wsgi_app = wsgi.RateLimitMiddleware(  # type: ignore[method-assign]  # as Flask's documentation does it
        app.wsgi_app, Limiter(TokenBucket(4, "1/s"), clock=ManualClock())
    )
    client = app.test_client()
    answers = [client.get(path) for path in ("/200", "/stream", "/x/y", "/raise", "/200")]

    assert [answer.status_code for answer in answers] == [200, 200, 404, 500, 429]
    assert [answer.headers["RateLimit"][8:11] for answer in answers] == ["r=3", "r=2", "r=1", "r=0", "r=0"]
    assert answers[1].text == "ab"
    assert answers[4].json["violated-policies"] == ["limit"]


def test_flask_lets_exceptions_through():
    """C180: where Flask propagates exceptions, they come out unchanged, after one charge."""
    app = flask_app()
    app.testing = True
    limiter = Limiter(TokenBucket(4, "0/s"))
    app.wsgi_app = wsgi.RateLimitMiddleware(app.wsgi_app, limiter)  # type: ignore[method-assign]  # see above
    with pytest.raises(RuntimeError, match="endpoint"):
        app.test_client().get("/raise")

    assert limiter.peek("127.0.0.1").remaining == 3


def test_flask_counts_failed_logins_alone():
    """C184: limit 3 of 401s: 200, 401, 401, 500, 401; then refused."""
    app = flask_app()
    app.wsgi_app = wsgi.RateLimitMiddleware(  # type: ignore[method-assign]  # see above
        app.wsgi_app, Limiter(TokenBucket(3, "0/s")), charge=only_status({401})
    )
    client = app.test_client()
    asked = ["/200", "/401", "/401", "/raise", "/401", "/200"]

    assert [client.post(path).status_code for path in asked] == [200, 401, 401, 500, 401, 429]


def test_a_cors_layer_around_wsgi():
    """C174: a layer around the limiter adds its fields to the 429; one inside does not see it."""

    def cors_layer(app):
        def layer(environ, start_response):
            def start(status, headers, *more):
                return start_response(status, [*headers, ("Access-Control-Allow-Origin", "*")], *more)

            return app(environ, start)

        return layer

    def refused(app):
        asking = Client(app)
        return [asking.get("/200") for _ in range(2)][1]

    def limited(app):
        return wsgi.RateLimitMiddleware(app, Limiter(TokenBucket(1, "1/s"), clock=ManualClock()))

    outside, inside = refused(cors_layer(limited(flask_app()))), refused(limited(cors_layer(flask_app())))

    assert (outside.status_code, inside.status_code) == (429, 429)
    assert "Access-Control-Allow-Origin" in outside.headers
    assert "Access-Control-Allow-Origin" not in inside.headers


def test_both_protocols_have_the_same_settings():
    """The twins take the same arguments in the same order, with the same defaults but for `sleep`."""

    def settings(middleware):
        parameters = inspect.signature(middleware).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters if p.name != "sleep"]

    assert settings(asgi.RateLimitMiddleware) == settings(wsgi.RateLimitMiddleware)
