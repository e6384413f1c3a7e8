"""Which request a gateway asks about: the original one behind the question, told in header fields.

Traefik's `forwardAuth` (and Caddy's `forward_auth`) tell it by X-Forwarded-Method, -Uri and -Host, nginx
with `auth_request` by what its configuration sets: X-Original-Method and X-Original-URI. Rules:

- They are read from trusted proxies alone; from anybody else they say nothing, as if they were not there.
- A gateway writes one of the two families and passes on whatever else the client sent. So both at once are
  an error, unless the gateway's address of this server says which is meant: `/auth?via=nginx` or
  `/auth?via=traefik`. The same holds for a field that comes twice with different values.
- The path is decoded, "//" becomes "/", and "." and ".." are resolved, as gateways and applications do
  before they route: /x/../exports and //exports are charged as /exports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

from tidegate.http.attributes import Request
from tidegate.server.answers import ProblemError, shown

Lines: TypeAlias = Mapping[str, Sequence[str]]


class Family(NamedTuple):
    """The fields by which one kind of gateway tells the original request; "" where it has none."""

    method: str
    uri: str
    host: str


FAMILIES = {
    "traefik": Family("x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"),
    "nginx": Family("x-original-method", "x-original-uri", ""),
}
FIELDS = frozenset(name for family in FAMILIES.values() for name in family if name)


def request_of(scope: Mapping[str, Any], wanted: Mapping[bytes, str]) -> Request:
    """The parts that attributes are made from."""
    headers: dict[str, list[str]] = {}
    for raw, value in scope["headers"]:
        name = wanted.get(raw)
        if name is not None:
            headers.setdefault(name, []).append(value.decode("latin-1"))
    peer = scope.get("client")
    query = scope["query_string"].decode("latin-1")
    return Request(scope["method"], scope["path"], headers, peer[0] if peer else None, query)


def options(query: bytes) -> tuple[int | None, str | None]:
    """What the gateway's address of /auth asks for: the status of a refusal, and whose fields to read."""
    if b"deny=" not in query and b"via=" not in query:
        return None, None
    found: dict[str, str] = {}
    for name, value in parse_qsl(query[:4096].decode("latin-1"), keep_blank_values=True):
        if name in {"deny", "via"} and found.setdefault(name, value) != value:
            raise ProblemError(400, f"{name} comes twice with different values; keep one of them.")
    deny = found.get("deny")
    if deny is None:
        return None, found.get("via")
    if not (len(deny) == 3 and deny.isascii() and deny.isdigit() and 400 <= int(deny) <= 599):
        raise ProblemError(
            400, f"deny is {shown(deny)}; write a status from 400 to 599, for instance deny=403."
        )
    return int(deny), found.get("via")


def original(request: Request, via: str | None) -> Request:
    """The request that a trusted gateway asks about; `request` itself where the gateway says nothing.

    Raises ProblemError (400) if it cannot be told which of the fields the gateway has written.
    """
    family = _family(request.headers, via)
    if family is None:
        return request
    method = _only(request.headers, family.method) or request.method
    uri = _only(request.headers, family.uri)
    host = _only(request.headers, family.host) if family.host else None
    headers = {**request.headers, "host": [host]} if host else request.headers
    if not uri:
        return request._replace(method=method, headers=headers)
    path, query = split_target(uri)
    return request._replace(method=method, path=path, query=query, headers=headers)


def split_target(uri: str) -> tuple[str, str]:
    """The path as rules see it, and the query, of a request target such as "/a%20b/../c?x=1"."""
    target, _, query = uri.partition("#")[0].partition("?")
    if "://" in target and not target.startswith("/"):  # a proxy's form: http://host/path
        _, slash, path = target.partition("://")[2].partition("/")
        target = slash + path
    return _resolved(unquote(target)), query


def _resolved(path: str) -> str:
    if not path.startswith("/"):
        return path or "/"  # "*" of OPTIONS stays
    if "//" not in path and "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    is_folder = bool(kept) and segments[-1] in {"", ".", ".."}
    return "/" + "/".join(kept) + ("/" if is_folder else "")


def _family(headers: Lines, via: str | None) -> Family | None:
    if via is not None:
        family = FAMILIES.get(via)
        if family is None:
            raise ProblemError(400, f"via is {shown(via)}; write {' or '.join(FAMILIES)}.")
        return family
    told = [family for family in FAMILIES.values() if family.method in headers or family.uri in headers]
    if len(told) > 1:
        raise ProblemError(
            400,
            "The request comes with X-Forwarded-* and with X-Original-*; one of them may be the client's "
            "own. Let the gateway say which it writes: ask /auth?via=nginx or /auth?via=traefik.",
        )
    return told[0] if told else None


def _only(headers: Lines, name: str) -> str | None:
    lines = headers.get(name, ())
    if any(line != lines[0] for line in lines):
        raise ProblemError(400, f"The field {name} comes {len(lines)} times with different values.")
    return lines[0].strip() if lines else None
