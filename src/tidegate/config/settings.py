"""The tables beside the rules: the server, the HTTP fields, and where attributes come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from tidegate.config import environment, values
from tidegate.config.rule_tables import Text
from tidegate.config.tables import (
    Reading,
    Schema,
    Table,
    builds,
    entries,
    key,
    reads,
    reads_env,
    table,
    whole,
    wrong_at,
)
from tidegate.core.match import route_table
from tidegate.core.outage import WORKERS_MOST
from tidegate.errors import PolicyError

Draft: TypeAlias = Literal["draft-10", "draft-07", "draft-06", "draft-03", "off"]
Legacy: TypeAlias = Literal["off", "seconds", "date"]

_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_PORT: Schema = {"type": "integer", "minimum": 0, "maximum": 65535}


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
        int, whole(1, 32), key(32, "So many leading bits of an IPv4 address are one client.")
    ] = 32
    ipv6_prefix: Annotated[
        int, whole(1, 128), key(64, "So many leading bits of an IPv6 address are one client.")
    ] = 64
    workers: Annotated[
        int,
        whole(1, WORKERS_MOST),
        key(1, "How many processes of this node share what it owns of limits with a reserve."),
    ] = 1
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
    path_segment: Annotated[int | None, whole(1, 32), key(1, "A segment of the path. 1 is the first.")] = None
    host_label: Annotated[
        int | None, whole(1, 32), key(1, "A label of the host's name. 1 is the leftmost.")
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
