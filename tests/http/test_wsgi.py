# The WSGI middleware by the letter of PEP 3333: start_response, write, exc_info, iterables and their close.

from __future__ import annotations

import io
import json
import sys
from typing import Any
from wsgiref.util import FileWrapper
from wsgiref.validate import validator

import pytest

from tests.http.noted import noting, noting_limiter
from tests.http.wsgi_calls import Answered, App, bucket, call, environ_of
from tidegate.http.charge import only_status
from tidegate.http.keys import ClientAddress
from tidegate.http.wsgi import RateLimitMiddleware

Middleware: Any = RateLimitMiddleware  # untyped: wrong settings are tested too


def test_the_burst_passes_and_the_next_is_refused():
    """A client is served its burst, then 429 with fields and a problem body; the application does not run."""
    app = App()
    limited = Middleware(app, bucket(2))
    answers = [call(limited) for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert app.runs == 2
    assert answers[0].headers["ratelimit"] == '"limit";r=1;t=1'
    assert answers[0].headers["ratelimit-policy"] == '"limit";q=2;w=2'
    assert answers[2].started[0][0] == "429 Too Many Requests"
    assert answers[2].headers["retry-after"] == "1"
    assert json.loads(answers[2].body)["violated-policies"] == ["limit"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_protocol_is_kept(method: str):
    """Answers and refusals pass the standard library's validator."""
    limited = validator(Middleware(validator(App()), bucket(1)))
    environ = environ_of(method=method)
    del environ["HTTP_HOST"]
    for status in ("200 OK", "429 Too Many Requests"):
        answered = Answered()
        body: Any = limited(dict(environ, HTTP_HOST="x"), answered.start_response)
        chunks = list(body)
        body.close()
        assert answered.started[0][0] == status
        assert (b"".join(chunks) == b"") == (method == "HEAD" and status != "200 OK")


def test_the_client_behind_a_proxy():
    """C167, C168: the header of a trusted peer, counted from the right; of an untrusted one, ignored."""
    limited = Middleware(App(), bucket(5), client=ClientAddress(["10.0.0.1"]))

    def ask(peer: str, line: str) -> int:
        return call(limited, REMOTE_ADDR=peer, headers={"X-Forwarded-For": line}).status

    assert [ask("10.0.0.1", f"198.51.100.{n}, 203.0.113.7") for n in range(12)] == [200] * 5 + [429] * 7
    assert [ask("203.0.113.9", f"198.51.100.{n}") for n in range(6)] == [200] * 5 + [429]


@pytest.mark.parametrize("peer", ["", None])
def test_a_unix_socket_peer_is_no_error(peer: str | None):
    """C155: without any address the request counts in the shared budget."""
    limited = Middleware(App(), bucket(1))

    assert [call(limited, REMOTE_ADDR=peer).status for _ in range(2)] == [200, 429]


def test_preflights_are_free_and_plain_options_are_not():
    """C173: ten pairs of preflight and GET under a limit of 10 all pass; then a plain OPTIONS is refused."""
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    limited = Middleware(App(), bucket(10))
    pairs = [(call(limited, method="OPTIONS", headers=preflight), call(limited)) for _ in range(10)]

    assert {(first.status, second.status) for first, second in pairs} == {(200, 200)}
    assert call(limited, method="OPTIONS").status == 429
    assert Middleware(App(), bucket(1), exempt_preflight=False) is not None


@pytest.mark.parametrize(
    ("script", "path", "whole"),
    [("", "/users", "/users"), ("/api", "/users", "/api/users"), ("/api", "", "/api"), ("", "", "/")],
)
def test_a_mounted_application_sees_the_whole_path(script: str, path: str, whole: str):
    """Rules speak of the path as the client sees it."""
    seen: list[Any] = []
    call(Middleware(App(), noting_limiter(seen)), path, SCRIPT_NAME=script)

    assert seen[0]["path"] == whole


def test_a_path_is_read_as_utf_8():
    """As under ASGI: UTF-8 becomes its text, other bytes replacement characters, never an error."""
    seen: list[Any] = []
    for path in ("/caf\xc3\xa9", "/\xff"):
        call(Middleware(App(), noting_limiter(seen)), path)

    assert [attributes["path"] for attributes in seen] == ["/café", "/\ufffd"]


@pytest.mark.parametrize("header", ["Content-Type", "X-Org"])
def test_headers_become_attributes(header: str):
    """The two headers that WSGI spells without HTTP_ are found too."""
    seen: list[Any] = []
    limited = Middleware(App(), noting_limiter(seen), attributes={"it": {"header": header}})
    call(limited, headers={"X-Org": "acme"}, CONTENT_TYPE="acme")

    assert seen[0]["it"] == "acme"


@pytest.mark.parametrize("by_name", [False, True])
def test_exc_info_passes(by_name: bool):
    """An application that fails and starts again hands its exc_info on; both starts have fields."""

    def app(environ, start_response):
        start_response("200 OK", [])
        try:
            int("x")
        except ValueError:
            if by_name:
                start_response("500 Oops", [], exc_info=sys.exc_info())
            else:
                start_response("500 Oops", [], sys.exc_info())
        return [b""]

    answered = call(Middleware(app, bucket()))

    assert [status for status, _, _ in answered.started] == ["200 OK", "500 Oops"]
    assert answered.started[1][2][0] is ValueError
    assert answered.headers["ratelimit"] == '"limit";r=4;t=1'


@pytest.mark.parametrize("charge", [None, only_status({200})])
def test_write_passes(charge: object):
    """The write callable of old applications is the server's."""

    def app(environ, start_response):
        start_response("200 OK", [])(b"written ")
        return [b"and returned"]

    assert call(Middleware(app, bucket(), charge=charge)).body == b"written and returned"


def test_what_the_application_returns_is_handed_on():
    """C175: a file wrapper stays one, so that the server can send it as a file; nothing is collected."""

    def app(environ, start_response):
        start_response("200 OK", [])
        return wrapper

    wrapper = FileWrapper(io.BytesIO(b"a file"))

    assert call(Middleware(app, bucket())).returned is wrapper


class Body:
    """An iterable that notes how far it was read and whether it was closed."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = iter(chunks)
        self.read = 0
        self.closed = 0

    def __iter__(self):
        return self

    def __next__(self) -> bytes:
        chunk = next(self.chunks)
        self.read += 1
        return chunk

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("charge", [None, only_status({401})])
@pytest.mark.parametrize("chunks_most", [None, 1])
def test_chunks_pass_as_they_come_and_close_is_called(charge: object, chunks_most: int | None):
    """C175: the client may leave after one chunk: nothing more is read, and the iterable is closed once."""
    body = Body(b"a", b"b", b"c")

    def app(environ, start_response):
        start_response("200 OK", [])
        return body

    answered = call(Middleware(app, bucket(), charge=charge), chunks_most=chunks_most)

    assert answered.chunks == ([b"a", b"b", b"c"] if chunks_most is None else [b"a"])
    assert (body.read, body.closed) == (chunks_most or 3, 1)


@pytest.mark.parametrize(("chunks_most", "seen"), [(None, [(200, 3)]), (1, [(200, 1)]), (2, [(200, 2)])])
def test_a_stream_is_settled_once_however_it_ends(chunks_most: int | None, seen: list):
    """C184: at its end or when the client leaves, with the bytes that came out, and not again by close."""
    charged: list[Any] = []

    def charge(*given):
        charged.append(given[:2])
        return 0

    def app(environ, start_response):
        start_response("200 OK", [])
        yield from (b"a", b"b", b"c")

    limiter = bucket()
    call(
        Middleware(app, limiter, charge=charge),
        chunks_most=chunks_most,
    )

    assert charged == seen
    assert limiter.peek("203.0.113.7").remaining == 5


def test_a_response_that_is_never_read_is_settled_when_closed():
    """A client that leaves before a generator began is charged as 499."""
    charged: list[Any] = []

    def app(environ, start_response):
        start_response("200 OK", [])
        yield b"a"

    limited = Middleware(app, bucket(), charge=noting(charged))
    limited(environ_of(), Answered().start_response).close()

    assert charged == [499]


def test_a_list_stays_a_list():
    """A server can still tell the length of a response that is there whole, also when it is charged."""
    answered = call(Middleware(App(), bucket(), charge=only_status({401})))

    assert answered.returned == [b"ok"]


@pytest.mark.parametrize("charge", [None, only_status({401})])
@pytest.mark.parametrize("error", [RuntimeError("x"), ConnectionError("x"), SystemExit(1)])
@pytest.mark.parametrize("place", ["call", "iteration", "close"])
def test_exceptions_pass_unchanged(error: BaseException, place: str, charge: object):
    """C180: the application ran once, its own exception comes out, and one charge was made."""
    runs = []

    class Broken(Body):
        def __next__(self):
            if place == "iteration":
                raise error
            return super().__next__()

        def close(self):
            if place == "close":
                raise error

    def app(environ, start_response):
        runs.append(environ)
        if place == "call":
            raise error
        start_response("401 No", [])
        return Broken(b"a")

    limiter = bucket()
    with pytest.raises(type(error)) as raised:
        call(Middleware(app, limiter, charge=charge))

    assert raised.value is error
    assert len(runs) == 1
    assert limiter.peek("203.0.113.7").remaining == (5 if charge and place == "call" else 4)


def test_nested_once():
    """C182: the same limiter twice charges a request once, another one beside it by itself."""
    limiter, part = bucket(10), bucket(5)
    app = Middleware(Middleware(Middleware(App(), part), limiter), limiter)
    answers = [call(app) for _ in range(5)]

    assert {answer.status for answer in answers} == {200}
    assert limiter.peek("203.0.113.7").remaining == 5
    assert part.peek("203.0.113.7").remaining == 0


@pytest.mark.parametrize("said", ["7", "Fri, 31 Dec 2027 23:59:59 GMT"])
def test_one_retry_after_with_the_applications(said: str):
    """C072: an endpoint that answers 503 with Retry-After keeps its own, and gets the other fields."""
    app = App("503 Busy", (("Retry-After", said),))
    answered = call(Middleware(app, bucket()))

    assert answered.headers["retry-after"] == said
    assert "ratelimit" in answered.headers


def test_the_applications_list_is_not_changed():
    """Fields are added to a copy: an application may use one list of headers for all its answers."""
    headers = [("A", "b")]

    def app(environ, start_response):
        start_response("200 OK", headers)
        return []

    call(Middleware(app, bucket()))

    assert headers == [("A", "b")]


def test_fields_can_be_exposed_to_scripts():
    """C174: with `expose`, scripts on other origins may read the fields."""
    answered = call(Middleware(App(), bucket(), expose=True))

    assert answered.headers["access-control-expose-headers"] == "Retry-After, RateLimit, RateLimit-Policy"
