"""A rule as a table of the file, and the `Rule` that it says.

The attributes of a request are texts, so what a rule compares them with is text as well. What the parts
of a rule mean together is checked by the `Rule` itself, when it is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args

from tidegate.config import environment, values
from tidegate.config.limit_tables import AnyLimit, Tokens
from tidegate.config.tables import (
    Reading,
    Schema,
    Table,
    builds,
    entries,
    key,
    place_named,
    reads,
    reads_env,
    table,
    whole,
    word,
    wrong_at,
)
from tidegate.core.carry import Carry
from tidegate.core.limits import Limit  # pydantic reads annotations at run time
from tidegate.core.outage import NODES_MOST, ON_OUTAGE, OnOutage, Reserve
from tidegate.core.outcome import Mode
from tidegate.core.rule import Rule
from tidegate.errors import CostError, InvalidKey, PolicyError

if TYPE_CHECKING:
    from tidegate.config.places import Location

_TEXT: Schema = {"type": "string", "pattern": r"\S"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_PATTERN: Schema = {"anyOf": [_TEXT, {"type": "integer"}]}
_PATTERNS: Schema = {
    "type": "array",
    "items": {"anyOf": [_TEXT, {"type": "integer"}, {"type": "null"}]},
    "minItems": 1,
}
_SHARE: Schema = {
    "anyOf": [
        {"type": "string", "pattern": r"^\s*[0-9]{1,3}(\.[0-9]{1,9})?\s*%\s*$"},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    ]
}
_INDEX: Schema = {"type": ["integer", "null"], "minimum": 0}
_COST: Schema = {"type": "number", "minimum": 0}
_COSTS: Schema = {"type": "object", "additionalProperties": _COST, "propertyNames": _TEXT, "minProperties": 1}

Text: TypeAlias = Annotated[str, reads(lambda value, _: values.text(value), _TEXT)]
Pattern: TypeAlias = str | int | tuple[str | int | None, ...] | None


def _by(value: Any, reading: Reading) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise values.refused(
            value, "write a list of attributes, for instance by: [org]; by: [] is one budget for all"
        )
    return tuple(_texts(value, reading))


def _match(value: Any, reading: Reading) -> dict[str, Pattern]:
    if not isinstance(value, dict) or not value:
        raise values.refused(
            value, "write the attributes that a request must have, for instance match: {method: POST}"
        )
    found: dict[str, Pattern] = _patterns(value, reading)
    methods = found.get("method")
    for method in methods if isinstance(methods, tuple) else (methods,):
        if isinstance(method, str) and not method.isupper() and method != "*":
            said = f'method is "{method}"; methods are written in capitals: {method.upper()}'
            raise wrong_at([(("method",), said)], value)
    return found


def _pattern(value: Any, reading: Reading) -> Pattern:
    if isinstance(value, list):
        if not value:
            raise values.refused(value, "nothing would match; write the values that match, or remove the key")
        return tuple(_patterns_listed(value, reading))
    if value is None:
        raise values.refused(value, "write the value to match; [null] matches requests without the attribute")
    return _one_or_absent(value, reading)


def _one_or_absent(value: Any, _: Reading) -> str | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return values.text(value)


def _cost(value: Any, reading: Reading) -> object:
    if isinstance(value, int | float):
        return values.number(value, "cost")
    if not isinstance(value, dict):
        raise values.refused(value, 'write one number, or one for each route: {"POST /exports": 5}')
    if not value:
        raise values.refused(value, 'write a cost for each route, for instance cost: {"POST /exports": 5}')
    return _costs(value, reading)


def _overrides(value: Any, reading: Reading) -> dict[str, Limit]:
    if not isinstance(value, dict):
        raise values.refused(
            value, "write a limit for each value, for instance overrides: {acme: {algorithm: ...}}"
        )
    limits: dict[str, Limit] = _limits(value, reading)
    return limits


_texts = entries(list[Text])
_patterns = entries(dict[Text, Annotated[Any, builds(_pattern, _PATTERN)]])
_patterns_listed = entries(list[Annotated[Any, builds(_one_or_absent, _PATTERN)]])
_costs = entries(dict[Text, Tokens])
_limits = entries(dict[Text, AnyLimit])


def _share(value: Any, _: Reading) -> Any:
    """A part of the limit; whether it is one is checked by the reserve."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise values.refused(value, "write a part of the limit, for instance share: 20%")
    return value


class ReserveTable(Table):
    """The part of a limit that nodes own for themselves."""

    called = "a reserve"
    share: Annotated[
        Any, builds(_share, _SHARE), key("20%", "The part of the limit that all nodes own together.")
    ]
    nodes: Annotated[
        int, whole(1, NODES_MOST), key(8, "Among how many nodes it is divided, whether all run or not.")
    ]
    index: Annotated[
        int | None,
        reads_env(environment.node_index, _INDEX),
        key({"env": "NODE_INDEX"}, "Which of them this node is, from 0 on. Left out: it owns none."),
    ] = None


def _reserve(value: Any, reading: Reading) -> Reserve:
    if not isinstance(value, dict):
        raise values.refused(value, "write for instance reserve: {share: 20%, nodes: 8, index: 0}")
    stated = table(ReserveTable, value, reading)
    try:
        return Reserve(stated.share, stated.nodes, stated.index)
    except PolicyError as error:
        raise wrong_at([(place_named(str(error), value), str(error))], value) from error


class RuleTable(Table):
    """A limit bound to the attributes of a request."""

    called = "a rule"
    name: Annotated[Text, key("organization", "What refusals and metrics call the rule; unique in the file.")]
    limit: Annotated[
        AnyLimit | None,
        key(
            {"algorithm": "token_bucket", "capacity": 20, "rate": "5/s"},
            "The limit. Left out only with mode: deny and mode: bypass.",
        ),
    ] = None
    by: Annotated[
        tuple[str, ...],
        builds(_by, {"anyOf": [_TEXT, _TEXTS]}),
        key(["org"], "The attributes whose values have a budget each. [] is one budget for all."),
    ] = ()
    match: Annotated[
        dict[str, Pattern] | None,
        builds(
            _match,
            {
                "type": "object",
                "additionalProperties": {"anyOf": [_TEXT, {"type": "integer"}, _PATTERNS]},
                "propertyNames": _TEXT,
                "minProperties": 1,
            },
        ),
        key({"method": ["GET", "HEAD"]}, "The requests that the rule speaks of. Left out: all."),
    ] = None
    cost: Annotated[
        Any,
        builds(_cost, {"anyOf": [_COST, _COSTS]}),
        key({"POST /exports": 5}, "What a request costs: a number, or one for each route."),
    ] = None
    mode: Annotated[
        Mode,
        word(*get_args(Mode)),
        key(
            "enforce",
            "shadow decides and reports only, deny refuses what matches, bypass lets it pass all rules.",
        ),
    ] = "enforce"
    overrides: Annotated[
        dict[str, Limit] | None,
        builds(_overrides, dict[str, AnyLimit]),
        key(
            {"acme": {"algorithm": "token_bucket", "capacity": 100, "rate": "50/s"}},
            "Other limits for some values of the attribute that `by` names.",
        ),
    ] = None
    strict: Annotated[bool, key(True, "A spending cap: settling never charges more than was reserved.")] = (
        False
    )
    max_debt: Annotated[Tokens | None, key(20, "How far settling may overdraw, in tokens.")] = None
    give_back: Annotated[
        Literal["bounded", "full"],
        word("bounded", "full"),
        key("bounded", "Whether a refund is cut so that it never buys a second burst."),
    ] = "bounded"
    carry: Annotated[
        Carry,
        word(*get_args(Carry)),
        key("strict", "How state is taken over when the limit changes."),
    ] = "strict"

    on_outage: Annotated[
        OnOutage | None,
        word(*ON_OUTAGE),
        key(
            "closed",
            "What happens while a store on the network is away: closed refuses, open admits uncounted, "
            "reserve admits what this node owns.",
        ),
    ] = None
    reserve: Annotated[
        Reserve | None,
        builds(_reserve, ReserveTable),
        key(
            {"share": "20%", "nodes": 8, "index": {"env": "NODE_INDEX"}},
            "For on_outage: reserve: what nodes own of the limit. The store holds the rest.",
        ),
    ] = None
    outage_limit: Annotated[
        AnyLimit | None,
        key(
            {"algorithm": "token_bucket", "capacity": 5, "rate": "1/s"},
            "For on_outage: open: what each process admits of a key meanwhile.",
        ),
    ] = None

    def rule(self, **others: Any) -> Rule:
        """The rule that the table says, with `others` in place of what it says there."""
        said = {name: getattr(self, name) for name in type(self).model_fields}
        return Rule(**(said | others))


def _rule(value: Any, reading: Reading) -> Rule:
    stated = table(RuleTable, value, reading)
    if stated.limit is None and stated.mode not in {"deny", "bypass"}:
        limit = "{algorithm: token_bucket, capacity: 20, rate: 5/s}"
        said = f"limit is missing; write limit: {limit}, or mode: deny to block, or mode: bypass to let pass"
        raise wrong_at([((), said)], value)
    if stated.overrides and len(stated.by) != 1:
        said = f"overrides go by one attribute, and by has {len(stated.by)}; name one, for instance by: [org]"
        raise wrong_at([(("overrides",), said)], value)
    try:
        return stated.rule()
    except (PolicyError, CostError, InvalidKey) as error:
        raise wrong_at(_blamed(stated, value) or [_said(stated, error, value)], value) from error


def _blamed(stated: RuleTable, value: dict[str, object]) -> list[tuple[Location, str]]:
    """The entries of the rule's tables that are wrong by themselves, each with what is said about it."""
    blamed: list[tuple[Location, str]] = []
    others: dict[str, Any] = {"match": None, "cost": None, "overrides": None}
    try:
        stated.rule(**others)
    except (PolicyError, CostError, InvalidKey):
        return []  # it is wrong without them
    for name in others:
        entries = getattr(stated, name)
        for entry in entries if isinstance(entries, dict) else ():
            try:
                stated.rule(**(others | {name: {entry: entries[entry]}}))
            except (PolicyError, CostError, InvalidKey) as error:
                _, said = _said(stated, error, value)
                blamed.append(((name, entry), said))
    return blamed


def _said(stated: RuleTable, error: Exception, value: dict[str, object]) -> tuple[Location, str]:
    """What the core says about a rule, without the rule's name, which the place already shows."""
    said = str(error).removeprefix(f"rule {stated.name!r}: ").removeprefix("rule ")
    return place_named(said, value), said


AnyRule: TypeAlias = Annotated[Rule, builds(_rule, RuleTable)]
