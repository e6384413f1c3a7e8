# A server side for ASGI tests: calls an application once and keeps what it sends, message by message.

from __future__ import annotations

import asyncio

from tidegate import Limiter, TokenBucket
from tidegate.testing import ManualClock


def scope_of(
    path: str = "/",
    method: str = "GET",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    client: tuple[str, int] | None = ("203.0.113.7", 5000),
    kind: str = "http",
    **more,
) -> dict:
    pairs = headers.items() if isinstance(headers, dict) else headers or []
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    scope = {
        "type": kind,
        "path": path,
        "headers": raw,
        "client": client,
        "query_string": b"",
        "root_path": "",
    }
    if kind == "http":
        scope["method"] = method
    return scope | more


class Answered:
    """What an application sent."""

    def __init__(self) -> None:
        self.messages: list[dict] = []

    @property
    def starts(self) -> list[dict]:
        return [message for message in self.messages if message["type"].endswith("response.start")]

    @property
    def status(self) -> int:
        assert len(self.starts) == 1
        return self.starts[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        message = next(message for message in self.messages if "headers" in message)
        pairs = [(name.decode(), value.decode()) for name, value in message["headers"]]
        assert all(name == name.lower() for name, _ in pairs)
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def call_async(app, scope: dict, incoming: list[dict] | None = None) -> Answered:
    answered = Answered()
    default = {"type": "http.request", "body": b"", "more_body": False}
    if scope["type"] == "websocket":
        default = {"type": "websocket.connect"}
    queue = list(incoming if incoming is not None else [default])

    async def receive() -> dict:
        if queue:
            return queue.pop(0)
        await asyncio.sleep(3600)  # a client that neither sends nor leaves
        raise AssertionError("nobody waits that long")

    async def send(message: dict) -> None:
        answered.messages.append(message)

    try:
        await app(scope, receive, send)
    except BaseException as error:
        error.answered = answered  # type: ignore[attr-defined]  # for tests that look at both
        raise
    return answered


def call(app, path: str = "/", **parts) -> Answered:
    """One request from its beginning to its end, in a loop of its own."""
    incoming = parts.pop("incoming", None)
    return asyncio.run(call_async(app, scope_of(path, **parts), incoming))


class App:
    """Answers 200 with a body in chunks, and counts its runs."""

    def __init__(self, *chunks: bytes, status: int = 200, headers: tuple = ()) -> None:
        self.chunks = chunks or (b"ok",)
        self.status = status
        self.headers = headers
        self.runs = 0

    async def __call__(self, scope, receive, send) -> None:
        self.runs += 1
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for number, chunk in enumerate(self.chunks, 1):
            more = number < len(self.chunks)
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


def bucket(capacity: int = 5, rate: str = "1/s", kind: type = Limiter, **more):
    return kind(TokenBucket(capacity, rate), clock=ManualClock(), **more)
