"""From a file to a `Config`: read, check, build, and list everything that is wrong.

A file is taken whole or not at all. What is wrong is reported in one `ConfigError`, a line for each
problem: file, line, path, what stands there, and what to write instead.
"""

from __future__ import annotations

import json
import os
import textwrap
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tidegate.config.places import Document, Fault, Location, Node, read
from tidegate.config.rule_tables import AnyRule, Text  # pydantic reads annotations at run time
from tidegate.config.settings import (
    AttributeField,
    HttpField,
    HttpSettings,
    ServerSettings,
)
from tidegate.config.store_settings import StoreField, StoreSettings
from tidegate.config.tables import Table, check, key, reads, schema_of
from tidegate.config.values import refused, shown
from tidegate.core.policy import RULES_MOST, Policy
from tidegate.errors import ConfigError, PolicyError, Problem
from tidegate.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT_BYTES_MAX: Final = 1 << 20
PROBLEMS_MAX: Final = 100
MESSAGE_MAX: Final = 400
_PATH_NAME_MAX = 60
BUILT_IN_ATTRIBUTES: Final = ("key", "address", "method", "path", "host", "route")
"""The attributes that every HTTP request has, whatever the file says."""


def _version(value: object, _: str) -> int:
    if type(value) is not int or value != 1:
        newer = isinstance(value, int) and value > 1
        raise refused(
            value, "this release reads version: 1, so install a newer one" if newer else "write version: 1"
        )
    return 1


class FileTable(Table):
    """A policy, the store that keeps its state, and the server that answers for it."""

    called = "the file"
    version: Annotated[int, reads(_version, {"const": 1}), key(1, "The version of this format.")]
    rules: Annotated[
        list[AnyRule],
        key(
            [
                {
                    "name": "organization",
                    "limit": {"algorithm": "token_bucket", "capacity": 20, "rate": "5/s"},
                    "by": ["org"],
                }
            ],
            "The rules. A request must pass all that match it.",
        ),
    ]
    store: Annotated[
        StoreField,
        key(
            "memory://",
            "Where state lives: an address, {env: NAME}, or a table with url and what the store is told.",
            default=StoreSettings,
        ),
    ]
    attributes: Annotated[
        dict[Text, AttributeField],
        key(
            {"org": {"header": "X-Org"}},
            "How a request becomes the attributes that rules see, beside those that it always has.",
            default=dict,
        ),
    ]
    server: Annotated[ServerSettings, key({"port": 8080}, "The decision server.", default=ServerSettings)]
    http: Annotated[
        HttpField, key({"fields": "draft-10"}, "How decisions look in HTTP answers.", default=HttpSettings)
    ]


@dataclass(frozen=True, slots=True)
class Source:
    """Which file a configuration was read from: its path as given, and the SHA-256 of its bytes."""

    file: str
    digest: str
    ends_with_newline: bool


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration that is valid as a whole.

    `warnings` are doubts that do not keep it from being used. Nothing in it may be changed.
    """

    policy: Policy
    store: StoreSettings
    attributes: Mapping[str, Mapping[str, object]]
    server: ServerSettings
    http: HttpSettings
    source: Source
    warnings: tuple[Problem, ...] = ()

    @property
    def store_url(self) -> str:
        """The store as one address, for `open_store`."""
        return self.store.url


def load(path: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> Config:
    """Read the configuration in the file at `path`.

    `env` stands in for the environment that `{env: NAME}` reads. Nothing is opened but the file.

    Raises:
        ConfigError: the file cannot be read or used; it lists every problem at once.
    """
    name = os.fspath(path)
    content = _content(Path(name), name)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"the byte 0x{content[error.start]:02X} is not UTF-8; save the file as UTF-8"
        raise ConfigError([Problem(name, line, "", message)]) from None
    document = read(text)
    stated, faults = _checked(document, os.environ if env is None else env)
    if stated is None or document.top is None or faults:
        raise ConfigError(_problems(name, document.top, faults))
    policy = Policy(stated.rules)
    faults = _outages(policy, stated, document.top)
    if faults:
        raise ConfigError(_problems(name, document.top, faults))
    return Config(
        policy=policy,
        store=stated.store,
        attributes=stated.attributes,
        server=stated.server,
        http=stated.http,
        source=Source(name, sha256(content).hexdigest(), text.endswith("\n")),
        warnings=_problems(name, document.top, _doubts(stated, document.top, text)),
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a configuration file, for editors.

    It knows every key and the form of every value. What several values mean together (a cost above a
    capacity, two rules of one name) only `load` can tell.
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "tidegate configuration"}
    return schema | schema_of(FileTable)


def _content(path: Path, name: str) -> bytes:
    """The bytes of the file; all that can be wrong with it is a ConfigError."""
    if path.is_dir():
        message = "this is a directory; name one file. All rules of a policy stand in one file"
        raise ConfigError([Problem(name, None, "", message)])
    try:
        with path.open("rb") as file:
            content = file.read(TEXT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(name, None, "", "there is no such file; check the path")]) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigError([Problem(name, None, "", f"the file cannot be read: {reason}")]) from error
    if len(content) > TEXT_BYTES_MAX:
        message = f"the file is longer than {TEXT_BYTES_MAX} bytes, and no more are read; shorten it"
        raise ConfigError([Problem(name, None, "", message)])
    return content


def _checked(document: Document, env: Mapping[str, str]) -> tuple[FileTable | None, list[Fault]]:
    faults, top = list(document.faults), document.top
    if top is None or top.value is None:
        message = "the file is empty, and no rules would mean no limits; begin with version: 1"
        return None, faults or [Fault(1, (), message)]
    if not isinstance(top.value, dict):
        message = f"the file holds {shown(top.value)}; it is a table that begins with version: 1"
        return None, [*faults, Fault(top.line, (), message)]
    stated, wrong = check(FileTable, top, env)
    faults += wrong
    faults += _clashes(top)
    return stated, faults


def _clashes(top: Node) -> list[Fault]:
    """What is wrong with the list of rules as a whole."""
    rules = top.children.get("rules")
    if rules is None or not isinstance(rules.value, list):
        return []
    faults: list[Fault] = []
    lines: dict[str, int] = {}
    for index in range(len(rules.value)):
        named = rules.children[index].children.get("name")
        if named is None or not isinstance(named.value, str):
            continue
        line = rules.children[index].key_lines["name"]
        if named.value in lines:
            first = lines[named.value]
            message = f"the rule of line {first} is called {shown(named.value)} too; rename one of them"
            faults.append(Fault(line, ("rules", index), message))
        else:
            lines[named.value] = line
    if not rules.value:
        message = (
            "rules is an empty list, which would mean no limits; if so, say it: [{name: all, mode: bypass}]"
        )
        faults.append(Fault(top.key_lines["rules"], ("rules",), message))
    if len(rules.value) > RULES_MOST:
        message = f"there are {len(rules.value)} rules; the most is {RULES_MOST}"
        faults.append(Fault(top.key_lines["rules"], ("rules",), message))
    return faults


def _outages(policy: Policy, stated: FileTable, top: Node) -> list[Fault]:
    """What rules and the rest of the file say of outages that does not fit together."""
    faults = []
    for index, rule in enumerate(policy):
        try:
            Policy([rule]).check_outages(stated.store.on_outage, stated.server.workers)
        except PolicyError as error:
            line, at = top.find(("rules", index, "reserve" if rule.reserve is not None else "strict"))
            faults.append(Fault(line, at, str(error).removeprefix(f"rule {rule.name!r}: ")))
    return faults


def _doubts(stated: FileTable, top: Node, text: str) -> list[Fault]:
    """What is valid and yet probably not meant."""
    doubts = []
    known = {*BUILT_IN_ATTRIBUTES, *stated.attributes}
    for index, rule in enumerate(stated.rules):
        for part, names in (("by", rule.by), ("match", rule.match or ())):
            for name in names:
                close = nearest(name, known)
                # A file that declares nothing leaves attributes to the callers of /v1/decide, slips aside.
                if name not in known and (close or stated.attributes):
                    way_out = (
                        f"did you mean {close!r}?"
                        if close
                        else "declare it, unless only callers of /v1/decide send it"
                    )
                    line, at = top.find(("rules", index, part))
                    message = f"the attribute {name!r} is not declared under attributes; {way_out}"
                    doubts.append(Fault(line, at, message))
    if not text.endswith("\n"):
        message = "the file does not end with a line break; a half-written file may look so"
        doubts.append(Fault(text.count("\n") + 1, (), message))
    return doubts


def _problems(name: str, top: Node | None, faults: list[Fault]) -> tuple[Problem, ...]:
    """The faults in the order of their lines, each once, with their places as a reader would name them."""
    ordered = sorted(dict.fromkeys(faults), key=lambda fault: fault.line or 0)
    problems = []
    for fault in ordered[:PROBLEMS_MAX]:
        message = textwrap.shorten(fault.message, MESSAGE_MAX, placeholder=" …")
        problems.append(Problem(name, fault.line, _path(fault.at, top), message))
    if len(ordered) > PROBLEMS_MAX:
        message = f"{len(ordered) - PROBLEMS_MAX} more problems; correct these first"
        problems.append(Problem(name, None, "", message))
    return tuple(problems)


def _path(at: Location, top: Node | None) -> str:
    """The place in words: rules.organization.limit.rate; a rule without a usable name goes by its number."""
    path = ""
    for depth, step in enumerate(at):
        name = _rule_name(top, step) if depth == 1 and at[0] == "rules" and isinstance(step, int) else step
        if isinstance(name, int):
            path += f"[{name}]"
        elif name.replace("-", "_").isidentifier():
            path += f".{name}" if path else name
        else:
            path += f"[{json.dumps(name[:_PATH_NAME_MAX], ensure_ascii=False)}]"
    return path


def _rule_name(top: Node | None, index: int) -> str | int:
    rules = top.value.get("rules") if top is not None and isinstance(top.value, dict) else None
    named = rules if isinstance(rules, list) else []
    names = [rule.get("name") if isinstance(rule, dict) else None for rule in named]
    name = names[index] if index < len(names) else None
    if not isinstance(name, str) or not name.strip() or len(name) > _PATH_NAME_MAX:
        return index
    return name if names.count(name) == 1 else index
