"""The answers of the server that are no decisions: JSON, problems, and what forbids keeping them.

Whatever a client sends ends in one of these or in a decision. A `ProblemError` says what was wrong with the
request, in a sentence for whoever wrote it; what went wrong in here is never told outside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from tidegate.http.fields import Pairs

Headers: TypeAlias = list[tuple[bytes, bytes]]

PROBLEM = "application/problem+json"
SHOWN_MOST = 60
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_COMMON: Pairs = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]


class Answer(NamedTuple):
    """A whole response, ready to be sent."""

    status: int
    headers: Headers
    body: bytes


class ProblemError(Exception):
    """A request that cannot be answered by a decision; `detail` tells the caller why and the way out.

    `cause` is where it is counted: "request", "policy" or "store". `members` are added to the problem.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Iterable[tuple[str, str]] = (),
        *,
        cause: str = "request",
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = list(headers)
        self.cause = cause
        self.members = members

    def told(self) -> dict[str, Any]:
        """The members of the problem (RFC 9457)."""
        title = HTTPStatus(self.status).phrase
        return {
            "type": "about:blank",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }

    def answer(self) -> Answer:
        """The problem as a response."""
        return json_answer(self.told(), status=self.status, content_type=PROBLEM, headers=self.headers)


def json_answer(
    value: Mapping[str, Any],
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Iterable[tuple[str, str]] = (),
) -> Answer:
    """A response whose body is `value` in ASCII, so that no text in it can break an encoding."""
    return made(status, content_type, _encode(value).encode("ascii"), headers)


def made(
    status: int,
    content_type: str,
    body: bytes,
    headers: Iterable[tuple[str, str]] = (),
    *,
    common: Pairs = _COMMON,
) -> Answer:
    """A response with this body, not to be stored by anybody."""
    pairs = [("Content-Type", content_type), ("Content-Length", str(len(body))), *common, *headers]
    return Answer(status, encoded(pairs), body)


def encoded(pairs: Iterable[tuple[str, str]]) -> Headers:
    """Header fields as ASGI wants them."""
    known = _FIELD_NAMES.get
    return [(known(name) or _field_name(name), value.encode("latin-1")) for name, value in pairs]


def _field_name(name: str) -> bytes:
    return name.lower().encode("latin-1")


_FIELD_NAMES = {name: _field_name(name) for name in ("RateLimit", "RateLimit-Policy", "Retry-After")}
"""Those that go with every decision, so that they need not be encoded each time."""


def shown(value: object) -> str:
    """A value from a request as it may stand in a message: as JSON, and short."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value)
    return text if len(text) <= SHOWN_MOST else f"{text[:SHOWN_MOST]}…"
