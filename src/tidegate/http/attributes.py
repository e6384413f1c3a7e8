"""How a request becomes the attributes that rules see.

Without configuration these are there: `address` (see `keys.py`), `key` (the same; what a limiter made
of a single limit counts by), `method`, `path`, `host` and `route` ("METHOD path"). Further ones, or others
in their place, are named with where they come from:

    {"org": {"header": "X-Org"}, "user": {"cookie": "session"}, "tenant": {"path_segment": 1},
     "endpoint": {"templates": ["GET /users/{id}", "/files/*"]}}

- Nothing a client sends is an error here. Missing, empty and blank are None, "absent", which rules treat
  as one shared value: leaving a header out is no way around a limit.
- A header, cookie or query parameter that is sent twice with different values is absent too. The
  application reads one of the two, and whoever may choose the other would have as many keys as wanted.
- Bytes that are not UTF-8 are no error: header text is read as latin-1, which loses nothing.
- What is long is shortened to its beginning and a digest, longer than any text that is let through
  whole, so that no client can send the short form of another's value. Beginnings survive, so that
  rules which match a prefix still do; in a path every segment does, so that templates still match.
- `route` holds the path as sent, so a rule `by=("route",)` counts each URL by itself. One budget for
  /users/1, /users/2, ... is a rule that matches the template "GET /users/{id}", or `templates` above.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote_plus

from tidegate.errors import PolicyError
from tidegate.http.keys import ClientAddress

Value: TypeAlias = str | bytes | None
Source: TypeAlias = Mapping[str, object]

VALUE_MAX = 256  # characters of a value that are kept as they are
SEGMENT_MAX = 64  # characters of one path segment
SEGMENTS_MAX = 32
_DIGEST = 32  # hexadecimal digits: 128 bits


class Request(NamedTuple):
    """The parts of a request that attributes are made from.

    `headers` maps lower-case names to the lines of that name in their order, and needs only those that
    `Attributes.header_names` asks for. `path` is the full path as the client sees it.
    """

    method: str
    path: str
    headers: Mapping[str, Sequence[str]]
    peer: str | None
    query: str = ""


Reader: TypeAlias = Callable[[Request], Value]


class Attributes:
    """The attributes of a request, by configuration.

    `sources` maps an attribute's name to one source: {"header": name}, {"cookie": name}, {"query": name},
    {"path_segment": n} (1 is the first), {"host_label": n} (1 is the leftmost), {"templates": [...]} (the
    first route template that fits, else absent) or {"value": text}. With "digest": true the value is
    replaced by a digest, for what must not stand in a store, such as an API key.
    `client` says how the address is found behind proxies.
    Raises PolicyError at construction for a source that cannot be read.
    """

    def __init__(
        self, sources: Mapping[str, Source] | None = None, *, client: ClientAddress | None = None
    ) -> None:
        self.client = client if client is not None else ClientAddress()
        names = {"host"}
        if self.client.trusted:
            names.add(self.client.header)
        self._readers: list[tuple[str, Reader]] = []
        for name, source in (sources or {}).items():
            reader, header = _reader(name, source)
            self._readers.append((name, reader))
            if header:
                names.add(header)
        self.header_names = frozenset(names)

    def of(self, request: Request) -> dict[str, Value]:
        """The attributes of one request; absent ones are None."""
        method, path, headers, peer, _ = request
        if len(path) > SEGMENT_MAX:
            path = shortened_path(path)
        if len(method) > SEGMENT_MAX:
            method = shortened(method, SEGMENT_MAX)
        client = self.client
        address = client.of(peer, headers.get(client.header, ()) if client.trusted else ())
        values: dict[str, Value] = {
            "key": address,
            "address": address,
            "method": method,
            "path": path,
            "host": _host(headers.get("host", ())),
            "route": f"{method} {path}",
        }
        for name, reader in self._readers:
            values[name] = reader(request)
        return values


def shortened(text: str, most: int = VALUE_MAX) -> str:
    """`text`, or its first `most` characters, "~" and a digest of the whole if it is longer."""
    return text if len(text) <= most else f"{text[:most]}~{_digest(text)}"


def shortened_path(path: str) -> str:
    """`path` with long segments shortened, and what follows `SEGMENTS_MAX` segments as one."""
    segments = path.split("/", SEGMENTS_MAX + 1)
    if len(segments) > SEGMENTS_MAX + 1:
        segments[-1] = f"~{_digest(segments[-1])}"
    return "/".join([shortened(segment, SEGMENT_MAX) for segment in segments])


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]


_KINDS = ("header", "cookie", "query", "path_segment", "host_label", "templates", "value")


def _reader(name: object, source: object) -> tuple[Reader, str | None]:
    """The function that reads one attribute, and the header it needs."""
    if not isinstance(name, str) or not name:
        raise PolicyError(f"attribute {name!r} has no name; write text")
    if not isinstance(source, Mapping):
        raise PolicyError(f"attribute {name!r} comes from {source!r}; write for instance {{'header': 'X-Org'}}")
    kinds = [kind for kind in source if kind != "digest"]
    for kind in kinds:
        if kind not in _KINDS:
            near = get_close_matches(str(kind), (*_KINDS, "digest"), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(_KINDS)}"
            raise PolicyError(f"attribute {name!r} has the source {kind!r}; {hint}")
    if len(kinds) != 1:
        raise PolicyError(f"attribute {name!r} has {len(kinds)} sources; write exactly one of {', '.join(_KINDS)}")
    digest = source.get("digest", False)
    if not isinstance(digest, bool):
        raise PolicyError(f"attribute {name!r}: digest is {digest!r}; write true or false")
    kind = kinds[0]
    read, header = _READERS[kind](f"attribute {name!r}: {kind}", source[kind])
    return (_digested(read) if digest else read), header


def _from_header(where: str, name: object) -> tuple[Reader, str]:
    header = _text(where, name).strip().lower()
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9a-z-]+", header):
        raise PolicyError(f"{where} is {name!r}; that is no header name")

    def read(request: Request) -> Value:
        return _only(request.headers.get(header, ()))

    return read, header


def _from_cookie(where: str, name: object) -> tuple[Reader, str]:
    wanted = _text(where, name)

    def read(request: Request) -> Value:
        found = []
        for line in request.headers.get("cookie", ()):
            for pair in line.split(";"):
                key, equals, value = pair.partition("=")
                if equals and key.strip() == wanted:
                    found.append(_unquoted(value.strip()))
        return _only(found)

    return read, "cookie"


def _from_query(where: str, name: object) -> tuple[Reader, None]:
    wanted = _text(where, name)

    def read(request: Request) -> Value:
        found = []
        for pair in request.query.split("&"):
            key, _, value = pair.partition("=")
            if unquote_plus(key) == wanted:
                found.append(unquote_plus(value))
        return _only(found)

    return read, None


def _from_path_segment(where: str, number: object) -> tuple[Reader, None]:
    place = _place(where, number)

    def read(request: Request) -> Value:
        segments = request.path.split("/", place + 1)  # the path starts with "/", so [0] is empty
        return _only(segments[place : place + 1])

    return read, None


def _from_host_label(where: str, number: object) -> tuple[Reader, None]:
    place = _place(where, number)

    def read(request: Request) -> Value:
        host = _host(request.headers.get("host", ()))
        return _only(host.split(".")[place - 1 : place]) if host else None

    return read, None


def _from_templates(where: str, templates: object) -> tuple[Reader, None]:
    if isinstance(templates, str) or not isinstance(templates, Sequence) or not templates:
        raise PolicyError(f"{where} is {templates!r}; write a list, for instance ['GET /users/{{id}}']")
    patterns = [(_template(where, template), str(template)) for template in templates]

    def read(request: Request) -> Value:
        route = f"{request.method} {request.path}"
        return next((template for pattern, template in patterns if pattern.fullmatch(route)), None)

    return read, None


def _from_value(where: str, value: object) -> tuple[Reader, None]:
    text = shortened(_text(where, value))
    return (lambda request: text), None


_READERS: dict[str, Callable[[str, object], tuple[Reader, str | None]]] = {
    "header": _from_header,
    "cookie": _from_cookie,
    "query": _from_query,
    "path_segment": _from_path_segment,
    "host_label": _from_host_label,
    "templates": _from_templates,
    "value": _from_value,
}


def _digested(read: Reader) -> Reader:
    """As bytes, so that no text a client sends elsewhere equals it."""

    def read_digest(request: Request) -> Value:
        value = read(request)
        return None if value is None else sha256(_bytes(value)).digest()

    return read_digest


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


def _only(values: Sequence[str]) -> str | None:
    """The one value that was sent; None if there is none, it is blank, or there are different ones."""
    if not values:
        return None
    first = values[0]
    if len(values) > 1 and any(value != first for value in values):
        return None
    return shortened(first.strip()) or None


def _host(lines: Sequence[str]) -> str | None:
    """The host asked for, in lower case, without port and final dot."""
    host = _only(lines)
    if host is None:
        return None
    name, colon, port = host.rpartition(":")
    if colon and (not port or port.isdigit()) and (":" not in name or name.endswith("]")):
        host = name
    return host.rstrip(".").lower() or None


_OCTAL_OR_CHARACTER = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)


def _unquoted(value: str) -> str:
    """A cookie's value as frameworks read it, so that two spellings of it are one."""
    if len(value) < 2 or value[0] != '"' or value[-1] != '"':
        return value
    return _OCTAL_OR_CHARACTER.sub(lambda found: chr(int(found[1], 8)) if found[1] else found[2], value[1:-1])


def _template(where: str, template: object) -> re.Pattern[str]:
    """A pattern for "METHOD path", where {name} is one segment, a final * the rest, no method any."""
    text = _text(where, template).strip()
    method, space, path = text.partition(" ")
    if not space:
        method, path = "", text
    path = path.strip()
    if not path.startswith("/"):
        raise PolicyError(f"{where}: {template!r} has no path; write for instance 'GET /users/{{id}}'")
    rest = path.endswith("*")
    segments = [_segment(where, text, segment) for segment in path.removesuffix("*").split("/")]
    pattern = "/".join(segments) + (".*" if rest else "")
    return re.compile(f"{re.escape(method) if method else '[^ ]+'} {pattern}", re.DOTALL)


def _segment(where: str, template: str, segment: str) -> str:
    """A whole segment may vary or none of it: patterns within one would let a long path cost much time."""
    if re.fullmatch(r"\{[^{}]+\}", segment):
        return "[^/]+"
    if re.search(r"[{}*]", segment):
        raise PolicyError(f"{where}: {template!r}; a {{name}} fills a whole segment and a * stands at the end")
    return re.escape(segment)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(f"{where} is {value!r}; write text that is not blank")
    return value


def _place(where: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= SEGMENTS_MAX:
        raise PolicyError(f"{where} is {number!r}; count from 1, to {SEGMENTS_MAX} at most")
    return number
