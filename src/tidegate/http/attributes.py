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
- A value of more than 256 bytes is shortened to its beginning and a digest, which together are longer
  than any text that is let through whole, so no client can send the short form of another's value.
  Beginnings survive, so that rules which match a prefix still do; in a path those of every segment, so
  that templates still match: a long path or header is no way around a rule.
- `route` holds the path as sent, so a rule `by=("route",)` counts each URL by itself. One budget for
  /users/1, /users/2, ... is a rule that matches the template "GET /users/{id}", or `templates` above.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote_plus

from tidegate.core.match import route_table
from tidegate.errors import PolicyError
from tidegate.http.keys import HEADER_NAME, ClientAddress

Value: TypeAlias = str | bytes | None
Source: TypeAlias = Mapping[str, object]

VALUE_BYTES_MAX = 256
SEGMENT_BYTES_MAX = 64
PATH_BYTES_MAX = 512
_PLACES_MAX = 32
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
    `client` says how the address is found behind proxies. `names` are those of the sources, and `names_key`
    tells whether "key" is among them.
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
        self.names_key = "key" in (sources or {})
        self.names = frozenset(sources or ())

    def of(self, request: Request) -> dict[str, Value]:
        """The attributes of one request; absent ones are None."""
        method, path, headers, _, _ = request
        if 4 * len(path) > VALUE_BYTES_MAX or 4 * len(method) > VALUE_BYTES_MAX:
            method, path = shortened(method), shortened_path(path)
            request = request._replace(method=method, path=path)
        address = self.address(request.peer, headers.get(self.client.header, ()))
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

    def address(self, peer: str | None, lines: Sequence[str]) -> str | None:
        """The client's address or network, given the lines of the header that proxies write."""
        if peer is not None and len(peer) > VALUE_BYTES_MAX // 4:  # no address is; a server may give a name
            peer = shortened(peer)
        return self.client.of(peer, lines)


def shortened(text: str, bytes_max: int = VALUE_BYTES_MAX) -> str:
    """`text`, or if it is longer than `bytes_max` in UTF-8 its beginning, "~" and a digest of the whole."""
    if 4 * len(text) <= bytes_max:
        return text
    whole = text.encode("utf-8", "surrogatepass")
    if len(whole) <= bytes_max:
        return text
    return f"{whole[:bytes_max].decode('utf-8', 'ignore')}~{sha256(whole).hexdigest()[:_DIGEST]}"


def shortened_path(path: str) -> str:
    """`path`, or if it is long the same with long segments shortened, and then its end if need be."""
    if len(path.encode("utf-8", "surrogatepass")) <= VALUE_BYTES_MAX:
        return path
    return shortened(
        "/".join([shortened(segment, SEGMENT_BYTES_MAX) for segment in path.split("/")]), PATH_BYTES_MAX
    )


def added(values: dict[str, Value], more: object) -> dict[str, Any]:
    """The attributes with what a hook returned, shortened like the rest.

    Raises TypeError if that is no mapping: a broken hook must not look like one that adds nothing.
    """
    if not isinstance(more, Mapping):
        raise TypeError(f"the attributes hook returned {more!r}; it must return a mapping of names to values")
    merged: dict[str, Any] = dict(values)
    for name, value in more.items():
        if isinstance(value, str):
            merged[name] = shortened(value)
        elif isinstance(value, bytes) and len(value) > VALUE_BYTES_MAX:
            merged[name] = sha256(value).digest()
        else:
            merged[name] = value
    return merged


_KINDS = ("header", "cookie", "query", "path_segment", "host_label", "templates", "value")


def _reader(name: object, source: object) -> tuple[Reader, str | None]:
    """The function that reads one attribute, and the header it needs."""
    if not isinstance(name, str) or not name:
        raise PolicyError(f"attribute {name!r} has no name; write text")
    if not isinstance(source, Mapping):
        raise PolicyError(
            f"attribute {name!r} comes from {source!r}; write for instance {{'header': 'X-Org'}}"
        )
    kinds = [kind for kind in source if kind != "digest"]
    for kind in kinds:
        if kind not in _KINDS:
            near = get_close_matches(str(kind), (*_KINDS, "digest"), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(_KINDS)}"
            raise PolicyError(f"attribute {name!r} has the source {kind!r}; {hint}")
    if len(kinds) != 1:
        raise PolicyError(
            f"attribute {name!r} has {len(kinds)} sources; write exactly one of {', '.join(_KINDS)}"
        )
    digest = source.get("digest", False)
    if not isinstance(digest, bool):
        raise PolicyError(f"attribute {name!r}: digest is {digest!r}; write true or false")
    kind = kinds[0]
    read, header = _READERS[kind](f"attribute {name!r}: {kind}", source[kind])
    return (_digested(read) if digest else read), header


def _from_header(where: str, name: object) -> tuple[Reader, str]:
    header = _text(where, name).strip().lower()
    if not HEADER_NAME.fullmatch(header):
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
    route_of = route_table([_text(where, template) for template in templates], where)

    def read(request: Request) -> Value:
        return route_of({"route": f"{request.method} {request.path}"})

    return read, None


def _from_value(where: str, value: object) -> tuple[Reader, None]:
    text = shortened(_text(where, value))
    return (lambda _: text), None


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


def _text(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(f"{where} is {value!r}; write text that is not blank")
    return value


def _place(where: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= _PLACES_MAX:
        raise PolicyError(f"{where} is {number!r}; count from 1, to {_PLACES_MAX} at most")
    return number
