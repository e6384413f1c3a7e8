"""What a table of the file is: closed, strict, and able to say what stood wrong in it.

Tables are pydantic models. A value of a table is read by one of the functions of `values.py`, or built
into an object of the core at once, so that a limit whose numbers do not fit together is reported beside
every other problem of the file. Whatever fails becomes a `Fault` at its place.

This is the only file that imports pydantic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from tidegate.config import values
from tidegate.config.messages import Surroundings, flow, key_meant, sentence
from tidegate.config.places import UNREADABLE, Fault, Location, Node
from tidegate.errors import MissingDependency

try:
    from pydantic import (
        BaseModel,
        ConfigDict,
        Field,
        PlainValidator,
        TypeAdapter,
        ValidationError,
        ValidationInfo,
        WithJsonSchema,
        model_validator,
    )
except ImportError as error:
    raise MissingDependency(
        "checking a configuration file needs pydantic; install it with: pip install 'tidegate[config]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T", bound="Table")
Schema = dict[str, Any]


@dataclass(slots=True)
class Reading:
    """What the check of one file carries along: the environment, and the table that each dict was read as."""

    env: Mapping[str, str]
    tables: dict[int, type[Table]] = field(default_factory=dict)


class Table(BaseModel):
    """A table of the file: closed, strict, and immutable once read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)
    called: ClassVar[str] = "the file"
    """What a message calls it."""

    @model_validator(mode="before")
    @classmethod
    def _note(cls, data: object, info: ValidationInfo) -> object:
        if isinstance(data, dict) and isinstance(info.context, Reading):
            info.context.tables[id(data)] = cls
        return data


def key(
    example: object,
    description: str,
    *,
    default: Callable[[], object] | None = None,
    secret: bool = False,
    called: str | None = None,
) -> Any:
    """Describe a key to editors; `example` is also what a message tells to write. A secret is never printed.

    `default` makes the value of a key that is left out. `called` is how the key is written, where a field
    cannot have its name.
    """
    if default is not None:
        return Field(description=description, examples=[example], repr=not secret, default_factory=default)
    return Field(description=description, examples=[example], repr=not secret, alias=called)


def reads(function: Callable[[object, str], object], schema: Schema) -> PlainValidator:
    """A value read by `function(value, key)`; `schema` says the same to an editor."""
    return PlainValidator(
        lambda value, info: function(value, info.field_name or "value"),
        json_schema_input_type=Annotated[Any, WithJsonSchema(schema)],
    )


def reads_env(
    function: Callable[[object, str, Mapping[str, str]], object], schema: Schema | None
) -> PlainValidator:
    """The same, where `{env: NAME}` may stand for the value, or alone can if there is no `schema`."""
    return PlainValidator(
        lambda value, info: function(value, info.field_name or "value", info.context.env),
        json_schema_input_type=any_of(ENV) if schema is None else any_of(schema, ENV),
    )


def word(*words: str) -> PlainValidator:
    """One of a few words."""
    return reads(lambda value, _: values.one_of(value, words), {"enum": list(words)})


def whole(least: int, most: int) -> PlainValidator:
    """A whole number between two bounds, both included."""
    schema: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return reads(lambda value, _: values.whole(value, least, most), schema)


def builds(function: Callable[[Any, Reading], object], stands_as: Any) -> PlainValidator:
    """A value built by `function(value, reading)`; `stands_as` is its table, or its JSON Schema."""
    schema = Annotated[Any, WithJsonSchema(stands_as)] if isinstance(stands_as, dict) else stands_as
    return PlainValidator(lambda value, info: function(value, info.context), json_schema_input_type=schema)


def any_of(*choices: Any) -> Any:
    """What stands in the file as any of these tables or JSON Schemas."""
    kinds = [Annotated[Any, WithJsonSchema(one)] if isinstance(one, dict) else one for one in choices]
    return reduce(or_, kinds)


def tagged(tag: str, choice: Any) -> Any:
    """A choice of tables that differ in the word at `tag`."""
    return Annotated[choice, Field(discriminator=tag)]


def table(kind: type[T], value: object, reading: Reading) -> T:
    """The value as a table of this kind. What is wrong with it is reported with its place inside."""
    return kind.model_validate(value, context=reading)


def entries(kind: Any) -> Callable[[object, Reading], Any]:
    """A function that reads a value as a list or dict of this kind; made once, for it takes a while."""
    adapter = TypeAdapter(kind)
    return lambda value, reading: adapter.validate_python(value, context=reading)


def wrong_at(places: Sequence[tuple[Location, str]], value: object) -> ValidationError:
    """The error that says something at each of these places inside `value`."""
    return ValidationError.from_exception_data(
        "",
        [
            {"type": "value_error", "loc": at, "input": value, "ctx": {"error": ValueError(said)}}
            for at, said in places
        ],
    )


def place_named(said: str, value: Mapping[str, object]) -> Location:
    """The key that an error of the core speaks of: the first that its sentence names."""
    return next(((word,) for word in re.findall(r"[a-z_]+", said) if word in value), ())


ENV: Schema = {
    "type": "object",
    "description": "The value is read from this environment variable.",
    "properties": {"env": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}},
    "required": ["env"],
    "additionalProperties": False,
}


def check(kind: type[T], top: Node, env: Mapping[str, str]) -> tuple[T | None, tuple[Fault, ...]]:
    """Read the file's top node as a table of this kind: the table, or everything that is wrong with it."""
    reading = Reading(env)
    try:
        return table(kind, top.value, reading), ()
    except ValidationError as error:
        return None, tuple(_faults(error, top, reading))


def schema_of(kind: type[Table]) -> Schema:
    """The JSON Schema of such a table, without the titles that repeat the names of keys."""
    schema: Schema = _untitled(kind.model_json_schema())
    return schema


def _untitled(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = (name for name in schema if name != "title" or not isinstance(schema[name], str))
        return {name: _untitled(schema[name]) for name in kept}
    return [_untitled(inner) for inner in schema] if isinstance(schema, list) else schema


def _faults(error: ValidationError, top: Node, reading: Reading) -> list[Fault]:
    complaints = error.errors(include_url=False)
    unknown = {complaint["loc"] for complaint in complaints if complaint["type"] == "extra_forbidden"}
    faults = []
    for complaint in complaints:
        at, kind, cause = complaint["loc"], complaint["type"], complaint.get("ctx", {}).get("error")
        if complaint["input"] is UNREADABLE or isinstance(cause, values.AlreadySaidError):
            continue
        line, found = top.find(at)
        inside, name = _named(at)
        table_there = _surroundings(_value_at(top, inside), reading)
        if kind == "missing" and any(
            other[:-1] == at[:-1] and key_meant(str(other[-1]), table_there) == name for other in unknown
        ):
            continue  # the misspelt key beside it has been reported
        in_list = bool(at) and isinstance(at[-1], int)
        said = sentence(kind, name, complaint["input"], cause, table_there, in_list=in_list)
        shown_at = found[:-1] if kind == "extra_forbidden" else found
        faults.append(Fault(line, shown_at, said))
    return faults


def _named(at: Location) -> tuple[Location, str]:
    """Split the place of a value into that of its table and its key; a list's entry has the list's."""
    steps = [step for step in at if step != "[key]"]
    while steps and isinstance(steps[-1], int):
        steps.pop()
    return (tuple(steps[:-1]), str(steps[-1])) if steps else ((), "the file")


def _value_at(top: Node, at: Location) -> object:
    node = top
    for step in at:
        node = node.children.get(step, node)
    return node.value


def _surroundings(value: object, reading: Reading) -> Surroundings:
    return _surroundings_in(reading.tables.get(id(value), Table))


@cache
def _surroundings_in(kind: type[Table]) -> Surroundings:
    examples = {
        about.alias or name: flow(about.examples[0])
        for name, about in kind.model_fields.items()
        if about.examples
    }
    return Surroundings(kind.called, examples, _elsewhere())


def _elsewhere() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    waiting = [Table]
    while waiting:
        kind = waiting.pop(0)
        waiting.extend(kind.__subclasses__())
        for name, about in kind.model_fields.items() if "called" in vars(kind) else ():
            places.setdefault(about.alias or name, []).append(kind.called)
    return places
