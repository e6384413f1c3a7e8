# A server side for WSGI tests: calls an application once, by the letter of PEP 3333, and keeps what it says.

from __future__ import annotations

from typing import Any
from wsgiref.util import setup_testing_defaults

from tidegate import Limiter, TokenBucket
from tidegate.testing import ManualClock


class Answered:
    """What an application answered: status line, headers, body, and how often it started."""

    def __init__(self) -> None:
        self.started: list[tuple] = []
        self.written: list[bytes] = []
        self.chunks: list[bytes] = []
        self.returned: Any = None

    def start_response(self, status, headers, exc_info=None):
        assert exc_info is not None or not self.started
        assert all(type(name) is str and type(value) is str for name, value in headers)
        self.started.append((status, headers, exc_info))
        return self.written.append

    @property
    def status(self) -> int:
        return int(self.started[-1][0].split()[0])

    @property
    def headers(self) -> dict[str, str]:
        pairs = [(name.lower(), value) for name, value in self.started[-1][1]]
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(self.written + self.chunks)


def environ_of(path: str = "/", method: str = "GET", headers: dict[str, str] | None = None, **more) -> dict:
    environ: dict = {
        "PATH_INFO": path,
        "REQUEST_METHOD": method,
        "REMOTE_ADDR": "203.0.113.7",
        "QUERY_STRING": "",
        "SCRIPT_NAME": "",
    }
    setup_testing_defaults(environ)
    for name, value in (headers or {}).items():
        environ["HTTP_" + name.upper().replace("-", "_")] = value
    return environ | more


def call(app, path: str = "/", *, chunks_most: int | None = None, **parts) -> Answered:
    """One request; with `chunks_most` the client leaves after so many chunks."""
    answered = Answered()
    answered.returned = app(environ_of(path, **parts), answered.start_response)
    try:
        for chunk in answered.returned:
            answered.chunks.append(chunk)
            if len(answered.chunks) == chunks_most:
                break
    finally:
        close = getattr(answered.returned, "close", None)
        if close is not None:
            close()
    return answered


class App:
    """Answers 200 with a list, and counts its runs."""

    def __init__(self, status: str = "200 OK", headers: tuple = ()) -> None:
        self.status, self.headers, self.runs = status, headers, 0

    def __call__(self, environ, start_response):
        self.runs += 1
        start_response(self.status, [("Content-Type", "text/plain"), *self.headers])
        return [b"ok"]


def bucket(capacity: int = 5, rate: str = "1/s") -> Limiter:
    return Limiter(TokenBucket(capacity, rate), clock=ManualClock())
