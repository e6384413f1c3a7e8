"""What comes in: the body of a request, and the question in it, checked before anything is decided.

A question about one request is {"attributes": {...}, "cost": 1, "caller": "...", "peek": false}; several
come as {"requests": [question, ...]}. Attributes are texts, whole numbers or null, and long texts are
shortened to a beginning and a digest as in `http/attributes.py`, so that a header counted here and at
/auth is one budget. What is missing is absent, which rules treat as one shared value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from tidegate.errors import CostError
from tidegate.http.attributes import shortened, shortened_path
from tidegate.server.answers import ProblemError, shown
from tidegate.units import milli

BODY_BYTES_MOST: Final = 1 << 20
BODY_WITHIN_S: Final = 10.0
REQUESTS_MOST: Final = 1_000
ATTRIBUTES_MOST: Final = 100

_WANTED = 'Send for instance {"attributes": {"org": "acme"}, "cost": 1}.'


class Question(NamedTuple):
    """One request to decide on. `peek` asks only and takes nothing."""

    attributes: dict[str, Any]
    cost: int | float
    caller: str | int | None
    peek: bool


class ClientLeftError(Exception):
    """The client has closed the connection; nobody waits for an answer."""


async def read_body(headers: dict[bytes, bytes], receive: Callable[[], Awaitable[Any]]) -> bytes:
    """The whole body of a JSON request.

    Raises ProblemError for a wrong type (415), a body too large (413) or too slow (408).
    """
    _check_type(headers)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > BODY_BYTES_MOST:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            return await _whole(receive)
    except TimeoutError:
        raise ProblemError(408, f"The body did not arrive within {BODY_WITHIN_S:g} s.") from None


async def _whole(receive: Callable[[], Awaitable[Any]]) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        part = message.get("body", b"")
        size_bytes += len(part)
        if size_bytes > BODY_BYTES_MOST:
            raise _too_large()
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large() -> ProblemError:
    return ProblemError(
        413, f"The body is larger than {BODY_BYTES_MOST} bytes; ask about fewer requests in one call."
    )


def _check_type(headers: dict[bytes, bytes]) -> None:
    """A browser sends application/json to another origin only if asked first; so no page can ask unseen."""
    media, _, parameters = headers.get(b"content-type", b"").decode("latin-1").lower().partition(";")
    media = media.strip()
    if media != "application/json" and not (media.startswith("application/") and media.endswith("+json")):
        sent = f"is {shown(media)}" if media else "is missing"
        raise ProblemError(415, f"The Content-Type {sent}; send JSON with Content-Type: application/json.")
    charset = parameters.partition("charset=")[2].strip(" \"'")
    if charset and charset.partition(";")[0].strip(" \"'") not in {"utf-8", "utf8", "us-ascii"}:
        raise ProblemError(415, f"The charset is {shown(charset)}; JSON is sent as UTF-8.")
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1").lower().strip()
    if coding != "identity":
        raise ProblemError(415, f"The Content-Encoding is {shown(coding)}; send the body as it is.")


def questions(value: object) -> list[Any]:
    """The entries of {"requests": [...]}, each still to be checked. Raises ProblemError (400, 413)."""
    assert isinstance(value, dict)
    _check_keys(value, ("requests",), "a call with several requests")
    entries = value["requests"]
    if not isinstance(entries, list):
        raise ProblemError(400, f"requests is {shown(entries)}; send a list of requests.")
    if len(entries) > REQUESTS_MOST:
        raise ProblemError(
            413, f"requests has {len(entries)} entries; the most in one call is {REQUESTS_MOST}."
        )
    return entries


def question(value: object) -> Question:
    """One checked question. Raises ProblemError (400) with what is wrong and what to send."""
    if not isinstance(value, dict):
        raise ProblemError(400, f"A request is {shown(value)}, but it is an object. {_WANTED}")
    _check_keys(value, ("attributes", "cost", "caller", "peek"), "a request")
    return Question(attributes_in(value), _cost(value.get("cost", 1)), _caller(value), _peek(value))


def attributes_in(value: dict[str, Any]) -> dict[str, Any]:
    """The checked attributes of a question, as rules see them."""
    given = value.get("attributes")
    if not isinstance(given, dict):
        state = f"is {shown(given)}, but it is an object" if "attributes" in value else "is missing"
        raise ProblemError(400, f"attributes {state}. {_WANTED}")
    if len(given) > ATTRIBUTES_MOST:
        raise ProblemError(400, f"attributes has {len(given)} entries; the most is {ATTRIBUTES_MOST}.")
    return {name: _attribute(name, one) for name, one in given.items()}


def _attribute(name: str, value: object) -> str | int | None:
    if isinstance(value, str):
        if 4 * len(value) <= 256:
            return value
        if name == "path":
            return shortened_path(value)
        method, space, path = value.partition(" ")
        if name == "route" and space:
            return f"{shortened(method)} {shortened_path(path)}"
        return shortened(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ProblemError(
        400, f"The attribute {shown(name)} is {shown(value)}; send a text, a whole number or null."
    )


def _cost(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProblemError(400, f"cost is {shown(value)}; send a number of tokens, for instance 1.")
    try:
        milli(value)
    except CostError as error:
        raise ProblemError(400, f"{error}.") from None
    return value


def _caller(value: dict[str, Any]) -> str | int | None:
    caller = value.get("caller")
    if isinstance(caller, str):
        return shortened(caller)
    if caller is None or (isinstance(caller, int) and not isinstance(caller, bool)):
        return caller
    raise ProblemError(
        400, f"caller is {shown(caller)}; send a text that tells apart those who share a key, or null."
    )


def _peek(value: dict[str, Any]) -> bool:
    peek = value.get("peek", False)
    if not isinstance(peek, bool):
        raise ProblemError(400, f"peek is {shown(peek)}; send true to ask without taking, or false.")
    return peek


def _check_keys(value: dict[str, Any], known: Collection[str], where: str) -> None:
    for name in value:
        if name not in known:
            near = get_close_matches(name, known, 1)
            way_out = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}."
            raise ProblemError(400, f"{shown(name)} is no key of {where}; {way_out}")
