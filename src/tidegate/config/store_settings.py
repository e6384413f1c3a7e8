"""The store as it stands in the file: an address, or a table with what the store is told beside it.

Which options there are, of which store, is known by `tidegate.stores.opening`, where stores are opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, get_args
from urllib.parse import parse_qsl, urlencode, urlsplit

from tidegate.config import environment, values
from tidegate.config.limit_tables import LENGTH
from tidegate.config.tables import (
    ENV,
    Reading,
    Schema,
    Table,
    any_of,
    builds,
    key,
    reads,
    reads_env,
    table,
    whole,
    word,
    wrong_at,
)
from tidegate.manner import DEADLINE_US_LEAST, DEADLINE_US_MOST
from tidegate.nearest import nearest
from tidegate.stores.opening import OPTIONS, Text, Whole, Word, kind_of, shown
from tidegate.units import duration_text, duration_us

OnOutageByDefault: TypeAlias = Literal["closed", "open"]

_URL: Schema = {"type": "string", "pattern": "^[a-z+]+://"}
_TEXT: Schema = {"type": "string", "pattern": r"\S"}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where state lives, what the store is told, and what rules do that do not say while it is away.

    `address` may hold a password and is in no repr; `options` are those of `tidegate.stores.opening`.
    """

    address: str = field(default="memory://", repr=False)
    options: tuple[tuple[str, object], ...] = ()
    on_outage: OnOutageByDefault = "closed"

    @property
    def url(self) -> str:
        """All of it as one address, for `open_store`."""
        query = urlencode(
            {name: _in_a_url(value) for name, value in self.options if value != OPTIONS[name].default}
        )
        if not query:
            return self.address
        return f"{self.address}{'&' if '?' in self.address else '?'}{query}"

    @property
    def shown(self) -> str:
        """The address as it may be shown: without what may be a password, and without options."""
        return shown(self.address)

    def option(self, name: str) -> Any:
        """What the store is told, or what holds unless it is."""
        return dict(self.options).get(name, OPTIONS[name].default)


def _in_a_url(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _option(name: str, example: object = None, called: str | None = None) -> Any:
    """The key of an option in the file, described by the table that stores are opened by."""
    option = OPTIONS[name]
    return key(option.default if example is None else example, option.says, called=called)


def _form(name: str) -> Any:
    """How the value of an option is read."""
    form = OPTIONS[name].form
    if isinstance(form, Whole):
        return whole(form.least, form.most)
    if isinstance(form, Word):
        return word(*form.words)
    assert isinstance(form, Text)
    return reads(lambda value, _: values.text(value), _TEXT)


def _deadline(value: object, name: str) -> str:
    text = values.length(value, name)
    if not DEADLINE_US_LEAST <= duration_us(text) <= DEADLINE_US_MOST:
        raise values.refused(
            value, f"write {duration_text(DEADLINE_US_LEAST)} to {duration_text(DEADLINE_US_MOST)}"
        )
    return text


class StoreTable(Table):
    """Where state lives."""

    called = "store"
    url: Annotated[
        str,
        reads_env(environment.store_url, _URL),
        key("memory://", "The address of the store, or {env: NAME}.", secret=True),
    ]
    max_keys: Annotated[int | None, _form("max_keys"), _option("max_keys")] = None
    when_full: Annotated[str | None, _form("when_full"), _option("when_full")] = None
    prefix: Annotated[str | None, _form("prefix"), _option("prefix")] = None
    schema_: Annotated[str | None, _form("schema"), _option("schema", called="schema")] = None
    deadline: Annotated[str | None, reads(_deadline, LENGTH), _option("deadline")] = None
    may_forget: Annotated[bool | None, _option("may_forget", True)] = None
    replicas: Annotated[int | None, _form("replicas"), _option("replicas", 1)] = None
    prepare: Annotated[bool | None, _option("prepare", False)] = None
    max_connections: Annotated[int | None, _form("max_connections"), _option("max_connections", 16)] = None
    on_outage: Annotated[
        OnOutageByDefault,
        word(*get_args(OnOutageByDefault)),
        key(
            "closed",
            "What rules do that do not say while a store on the network is away: refuse, or admit uncounted.",
        ),
    ] = "closed"


def _store(value: Any, reading: Reading) -> StoreSettings:
    if not isinstance(value, dict) or "env" in value:
        return _unpacked(environment.store_url(value, "store", reading.env), {}, "closed")
    stated = table(StoreTable, value, reading)
    options = {
        name: getattr(stated, "schema_" if name == "schema" else name) for name in OPTIONS if name in value
    }
    kind = kind_of(stated.url)
    assert kind is not None
    foreign = [name for name in options if name not in kind.options]
    if foreign:
        takes = f"{kind.called} takes {', '.join(kind.options)}"
        raise wrong_at([((name,), f"{name} is not for this address; {takes}") for name in foreign], value)
    try:
        return _unpacked(stated.url, options, stated.on_outage)
    except ValueError as error:
        raise wrong_at([(("url",), str(error))], value) from error


def _unpacked(url: str, stated: dict[str, Any], on_outage: OnOutageByDefault) -> StoreSettings:
    """The settings; of a memory store also what its address says after the "?"."""
    kind = kind_of(url)
    assert kind is not None
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may repeat what stands before the "@"
        raise ValueError(
            "the store's address cannot be read; write one such as redis://host:6379/0"
        ) from None
    in_process = kind.maker is None
    if in_process and (parts.netloc or parts.path or parts.fragment):
        raise ValueError("the memory store has no host and no path; write memory://")
    asked: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in kind.options and (in_process or name in OPTIONS):
            close = nearest(name, kind.options)
            way_out = f"did you mean {close!r}?" if close else f"it takes {', '.join(kind.options)}"
            raise ValueError(f"the store's address has the option {name!r}; {way_out}")
        if name in stated or name in asked:
            raise ValueError(f"{name} of the store is set twice; keep one of them")
        asked[name] = _asked(name, text) if in_process else None
    address = f"{parts.scheme}://" if in_process else url
    told = stated | asked if in_process else stated
    return StoreSettings(address, tuple((name, told[name]) for name in OPTIONS if name in told), on_outage)


def _asked(name: str, text: str) -> object:
    """An option of the memory store as its address says it."""
    form = OPTIONS[name].form
    if isinstance(form, Word):
        if text not in form.words:
            raise ValueError(f"{name} is {values.shown(text)}; write {values.either(form.words)}")
        return text
    assert isinstance(form, Whole)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not form.least <= number <= form.most:
        raise ValueError(
            f"{name} is {values.shown(text)}; write a whole number from {form.least} to {form.most}"
        )
    return number


StoreField: TypeAlias = Annotated[StoreSettings, builds(_store, any_of(_URL, ENV, StoreTable))]
