"""The tables beside the rules: the store, the server, the HTTP fields, and where attributes come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, urlencode, urlsplit

from tidegate.config import environment, values
from tidegate.config.rule_tables import Text
from tidegate.config.tables import (
    ENV,
    Reading,
    Schema,
    Table,
    any_of,
    builds,
    entries,
    key,
    reads,
    reads_env,
    table,
    word,
    wrong_at,
)
from tidegate.core.match import route_table
from tidegate.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

WhenFull: TypeAlias = Literal["refuse", "forget"]
Draft: TypeAlias = Literal["draft-10", "draft-07", "draft-06", "draft-03", "off"]
Legacy: TypeAlias = Literal["off", "seconds", "date"]

MAX_KEYS: Final = 1_000_000
MAX_KEYS_MOST: Final = 10**12

_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_URL: Schema = {"type": "string", "pattern": "^[a-z]+://"}
_PORT: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}


def _whole(least: int, most: int) -> Any:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return reads(lambda value, _: values.whole(value, least, most), schema)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where state lives, how many keys are kept, and what happens to a new one when all of them are live."""

    address: str = "memory://"
    max_keys: int = MAX_KEYS
    when_full: WhenFull = "refuse"

    @property
    def url(self) -> str:
        """All of it as one address, for `open_store`."""
        options = {"max_keys": self.max_keys, "when_full": self.when_full}
        defaults = {"max_keys": MAX_KEYS, "when_full": "refuse"}
        query = urlencode({name: value for name, value in options.items() if value != defaults[name]})
        return f"{self.address}?{query}" if query else self.address


class StoreTable(Table):
    """Where state lives."""

    called = "store"
    url: Annotated[
        str,
        reads_env(environment.store_url, _URL),
        key("memory://", "The address of the store, or {env: NAME}."),
    ]
    max_keys: Annotated[int, _whole(1, MAX_KEYS_MOST), key(MAX_KEYS, "How many keys are kept at most.")] = (
        MAX_KEYS
    )
    when_full: Annotated[
        WhenFull,
        word(*get_args(WhenFull)),
        key(
            "refuse",
            "Whether a new key is refused, or a kept one forgotten, when all that are kept are live.",
        ),
    ] = "refuse"


def _store(value: Any, reading: Reading) -> StoreSettings:
    if not isinstance(value, dict) or "env" in value:
        return _unpacked(environment.store_url(value, "store", reading.env), {}, frozenset())
    stated = table(StoreTable, value, reading)
    options = {"max_keys": stated.max_keys, "when_full": stated.when_full}
    try:
        return _unpacked(stated.url, options, stated.model_fields_set)
    except ValueError as error:
        raise wrong_at([(("url",), str(error))], value) from error


def _unpacked(url: str, options: dict[str, Any], stated: AbstractSet[str]) -> StoreSettings:
    """The settings, with what the address says after its "?"."""
    parts = urlsplit(url)
    if parts.netloc or parts.path or parts.fragment:
        raise ValueError("the memory store has no host and no path; write memory://")
    asked: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in {"max_keys", "when_full"}:
            close = values.nearest(name, ("max_keys", "when_full"))
            way_out = f"did you mean {close!r}?" if close else "it takes max_keys and when_full"
            raise ValueError(f"the store's address has the option {name!r}; {way_out}")
        if name in stated or name in asked:
            raise ValueError(f"{name} of the store is set twice; keep one of them")
        if name == "max_keys":
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
            if not 1 <= number <= MAX_KEYS_MOST:
                raise ValueError(
                    f"max_keys is {values.shown(text)}; write a whole number from 1 to {MAX_KEYS_MOST}"
                )
            asked[name] = number
        elif text in get_args(WhenFull):
            asked[name] = text
        else:
            raise ValueError(f"when_full is {values.shown(text)}; write {values.either(get_args(WhenFull))}")
    return StoreSettings(f"{parts.scheme}://", **(options | asked))


StoreField: TypeAlias = Annotated[StoreSettings, builds(_store, any_of(_URL, ENV, StoreTable))]


def _networks(value: Any, reading: Reading) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise values.refused(value, "write a list, for instance trusted_proxies: [10.0.0.0/8]")
    return tuple(_networks_listed(value, reading))


_networks_listed = entries(list[Annotated[str, reads(lambda value, _: values.network(value), _TEXT)]])


class ServerSettings(Table):
    """Where the decision server listens, whom it believes, and who may change its state."""

    called = "server"
    host: Annotated[
        str, reads_env(environment.host, _TEXT), key("127.0.0.1", "The address to listen on, or {env: NAME}.")
    ] = "127.0.0.1"
    port: Annotated[
        int,
        reads_env(environment.port, _PORT),
        key(8080, "The port to listen on, or {env: NAME}. 0 lets the system choose."),
    ] = 8080
    trusted_proxies: Annotated[
        tuple[str, ...],
        builds(_networks, {"type": "array", "items": _TEXT}),
        key(["10.0.0.0/8"], "The proxies that are believed about the client's address. unix: a UNIX socket."),
    ] = ()
    client_header: Annotated[
        str,
        reads(lambda value, _: values.header(value), _TEXT),
        key("X-Forwarded-For", "The header to which those proxies append the client's address."),
    ] = "X-Forwarded-For"
    ipv4_prefix: Annotated[
        int, _whole(1, 32), key(32, "So many leading bits of an IPv4 address are one client.")
    ] = 32
    ipv6_prefix: Annotated[
        int, _whole(1, 128), key(64, "So many leading bits of an IPv6 address are one client.")
    ] = 64
    token: Annotated[
        str | None,
        reads_env(environment.token, None),
        key(
            {"env": "TIDEGATE_TOKEN"},
            "What a caller must show to change state, from the environment.",
            secret=True,
        ),
    ] = None


def _draft(value: object, _: str) -> str:
    return "off" if value is False else values.one_of(value, get_args(Draft))


def _legacy(value: object, _: str) -> str:
    return "off" if value is False else values.one_of(value, get_args(Legacy))


class HttpSettings(Table):
    """How decisions look in HTTP answers."""

    called = "http"
    fields: Annotated[
        Draft,
        reads(_draft, {"enum": [*get_args(Draft), False]}),
        key("draft-10", "The form of the RateLimit fields. false: only Retry-After."),
    ] = "draft-10"
    legacy: Annotated[
        Legacy,
        reads(_legacy, {"enum": [*get_args(Legacy), False]}),
        key("seconds", "Whether X-RateLimit-* is added, with its reset in seconds or as a date. false: not."),
    ] = "off"


def _http(value: Any, reading: Reading) -> HttpSettings:
    stated = table(HttpSettings, value, reading)
    if stated.fields == "draft-03" and stated.legacy != "off":
        said = "draft-03 writes X-RateLimit-* itself; remove legacy, or take another draft"
        raise wrong_at([(("legacy",), said)], value)
    return stated


HttpField: TypeAlias = Annotated[HttpSettings, builds(_http, HttpSettings)]


_texts = entries(list[Text])


def _templates(value: Any, reading: Reading) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise values.refused(value, 'write a list of route templates, for instance ["GET /users/{id}"]')
    templates = tuple(_texts(value, reading))
    wrong = []
    for index, template in enumerate(templates):
        try:
            route_table([template], "")
        except PolicyError as error:
            wrong.append(((index,), str(error).removeprefix("rule '': ")))
    if wrong:
        raise wrong_at(wrong, value)
    return templates


class AttributeTable(Table):
    """Where an attribute comes from: exactly one source."""

    called = "an attribute"
    header: Annotated[
        str | None,
        reads(lambda value, _: values.header(value), _TEXT),
        key("X-Org", "A header of the request."),
    ] = None
    cookie: Annotated[Text | None, key("session", "A cookie of the request.")] = None
    query: Annotated[Text | None, key("tenant", "A parameter of the query.")] = None
    path_segment: Annotated[int | None, _whole(1, 32), key(1, "A segment of the path. 1 is the first.")] = (
        None
    )
    host_label: Annotated[
        int | None, _whole(1, 32), key(1, "A label of the host's name. 1 is the leftmost.")
    ] = None
    templates: Annotated[
        tuple[str, ...] | None,
        builds(_templates, {"type": "array", "items": _TEXT, "minItems": 1}),
        key(["GET /users/{id}"], "The first of these route templates that fits."),
    ] = None
    value: Annotated[Text | None, key("europe", "A text that is the same for all requests.")] = None
    digest: Annotated[
        bool, key(True, "Keep a digest instead of the value, for what must not stand in a store.")
    ] = False


def _attribute(value: Any, reading: Reading) -> dict[str, object]:
    if not isinstance(value, dict):
        raise values.refused(value, "write where the attribute comes from, for instance {header: X-Org}")
    stated = table(AttributeTable, value, reading)
    kinds = [name for name in AttributeTable.model_fields if name != "digest"]
    sources = [kind for kind in kinds if kind in stated.model_fields_set]
    if len(sources) != 1:
        count = f"has {len(sources)} sources ({', '.join(sources)})" if sources else "has no source"
        raise ValueError(
            f"the attribute {count}; write exactly one of {values.either(kinds)}: {{header: X-Org}}"
        )
    source = {sources[0]: getattr(stated, sources[0])}
    return source | {"digest": True} if stated.digest else source


AttributeField: TypeAlias = Annotated[dict[str, object], builds(_attribute, AttributeTable)]
