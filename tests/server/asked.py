# Asks the application once, as a server would, and keeps the whole answer.

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.server.app import App
from tidegate.testing import ManualClock

PEER = "192.0.2.1"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        """What a problem says; and that it is a whole problem."""
        assert self.headers["content-type"] == "application/problem+json"
        told = self.json
        assert told["status"] == self.status
        assert told["title"]
        return told["detail"]


def ask(
    app: App,
    method: str,
    target: str,
    body: bytes | Iterable[bytes] = b"",
    headers: Iterable[tuple[str, str]] = (),
    client: tuple[str, int] | None = (PEER, 4711),
) -> Reply:
    """The answer of the application to one request, checked for what every answer must be."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": client,
    }
    parts = [body] if isinstance(body, bytes) else list(body)
    messages: list[Any] = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, end = sent
    assert start["type"] == "http.response.start"
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    reply = Reply(start["status"], dict(pairs), end["body"])
    assert len(reply.headers) == len(pairs), "a field stands twice"
    assert all(name == name.lower() for name in reply.headers)
    assert method == "HEAD" or reply.headers["content-length"] == str(len(reply.body))
    assert reply.headers["cache-control"] == "no-store"
    return reply


def decide(app: App, value: object, **more: Any) -> Reply:
    """The answer to a question as JSON."""
    return ask(app, "POST", "/v1/decide", json.dumps(value).encode(), JSON, **more)


JSON = [("Content-Type", "application/json")]


def app_of(*rules: Rule, **more: Any) -> tuple[App, ManualClock]:
    """The application for these rules (by default 20 at once and 5/s for each org), and its clock."""
    clock = ManualClock()
    policy = Policy(rules or [Rule("org", TokenBucket(20, "5/s"), by=("org",))])
    return App(Limiter(policy, clock=clock), **more), clock


def samples(app: App) -> dict[tuple[str, ...], float]:
    """What /metrics shows, read by Prometheus's own parser: (name, label values...) -> value."""
    reply = ask(app, "GET", "/metrics")
    assert reply.status == 200
    return samples_in(reply.body.decode())


def samples_in(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
