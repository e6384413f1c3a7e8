"""Reads YAML text into plain values, and remembers where each of them stands.

Two rules make the result safe to trust. First, nothing is guessed: a word that YAML readers understand
differently is a fault (see `words.py`), and so are a key written twice, a tag and a merge key. Second,
the depth has a bound, and so has what aliases expand to; the length of the text is its caller's business.

A fault does not stop the reading, so that one look finds all of them; broken syntax does. Where a
value could not be read, `UNREADABLE` stands in its place and later checks pass over it.

This is the only file that imports PyYAML, and it uses its events alone: no constructor runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from tidegate.config import syntax
from tidegate.config.words import Refused, plain_value
from tidegate.errors import MissingDependency

try:
    import yaml
except ImportError as error:
    raise MissingDependency(
        "reading a configuration file needs PyYAML; install it with: pip install 'tidegate[config]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

Location: TypeAlias = tuple[str | int, ...]

DEPTH_MAX: Final = 32
ALIASED_NODES_MAX: Final = 100_000

_ODD_LINE_BREAK: Final = re.compile(r"[\u0085\u2028\u2029]")
_FAST: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Unreadable:
    """Stands where a value was refused; nothing further is said about it."""

    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = _Unreadable()


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong at a line; `at` says in which value, counted from the top of the file."""

    line: int | None
    at: Location
    message: str


@dataclass(slots=True)
class Node:
    """A value, the line it begins on, and the same for all that it contains."""

    value: object
    line: int
    children: dict[str | int, Node] = field(default_factory=dict)
    key_lines: dict[str, int] = field(default_factory=dict)
    size: int = 1

    def find(self, at: Location) -> tuple[int, Location]:
        """The line of the value at `at`, and the part of `at` that the file really contains.

        Steps that are not in the file are passed over: they come from a check that treats one value
        as a list of one. The line of an entry of a table is that of its key.
        """
        node, line, found = self, self.line, []
        for step in at:
            child = node.children.get(step)
            if child is None:
                continue
            line = node.key_lines[step] if isinstance(step, str) else child.line
            node = child
            found.append(step)
        return line, tuple(found)


@dataclass(frozen=True, slots=True)
class Document:
    """What a text contains: the top node, unless there is none, and everything wrong with the YAML."""

    top: Node | None
    faults: tuple[Fault, ...]


def read(text: str) -> Document:
    """Read one YAML document. Faults are listed, never raised."""
    broken = _ODD_LINE_BREAK.search(text)
    if broken is not None:
        line = text.count("\n", 0, broken.start()) + 1
        message = f"the character U+{ord(broken[0]):04X} ends a line for some YAML readers only; delete it"
        return Document(None, (Fault(line, (), message),))
    try:
        return _Composer(yaml.parse(text, Loader=_FAST)).document()
    except yaml.YAMLError:
        return read_slowly(text)  # the parser in Python says best what is wrong


def read_slowly(text: str) -> Document:
    """The same as `read`, with the parser that is written in Python."""
    try:
        return _Composer(yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as error:
        return Document(None, (_syntax_fault(error, text),))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = f"U+{ord(text[error.position]):04X}"
        return Document(
            None, (Fault(line, (), f"the invisible character {character} is not allowed; delete it"),)
        )


class _StopError(Exception):
    """Reading cannot go on: a bound is reached."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Composer:
    """Turns the parser's events into nodes, collecting faults on the way."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self.events = events
        self.faults: list[Fault] = []
        self.anchors: dict[str, Node | None] = {}  # None: the anchored value is still being read
        self.aliased_nodes = 0
        self.depth = 0  # of values in values; keys of tables may be values too

    def document(self) -> Document:
        try:
            top = self._only_document()
        except _StopError as stop:
            self.faults.append(stop.fault)
            top = None
        return Document(top, tuple(self.faults))

    def _only_document(self) -> Node | None:
        top: Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if top is not None:
                    message = "a second document begins here (---); a configuration is one document"
                    raise _StopError(Fault(_line(event), (), message))
                top = self._node(next(self.events), ())
        return top

    def _node(self, event: yaml.Event, at: Location) -> Node:
        self.depth += 1
        node = self._node_below(event, at)
        self.depth -= 1
        return node

    def _node_below(self, event: yaml.Event, at: Location) -> Node:
        line = _line(event)
        if not isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent | yaml.ScalarEvent):
            assert isinstance(event, yaml.AliasEvent)  # the parser's grammar has no other nodes
            return self._aliased(str(event.anchor), line, at)
        if self.depth > DEPTH_MAX:
            raise _StopError(
                Fault(line, at[:4], f"values are nested more than {DEPTH_MAX} deep; nothing here needs that")
            )
        anchor = event.anchor
        if anchor is not None:
            if anchor in self.anchors:
                self._fault(line, at, f"the anchor &{anchor} is defined twice; give one of them another name")
            self.anchors[anchor] = None
        if event.tag is not None:
            node = self._skipped(event, line, at)
            self._fault(
                line,
                at,
                f"the tag {_tag(event.tag)} is not used here; remove it, and quote the value if it is text",
            )
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._table(line, at)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._list(line, at)
        else:
            node = Node(self._scalar(event, line, at), line)
        if anchor is not None:
            self.anchors[anchor] = node
        return node

    def _table(self, line: int, at: Location) -> Node:
        table: dict[str, object] = {}
        node = Node(table, line)
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key_line = _line(event)
            key = self._key(event, key_line, at)
            value = self._node(next(self.events), at if key is None else (*at, key))
            node.size += value.size
            if key is None:
                continue
            if key in table:
                first = node.key_lines[key]
                where = f"line {first}" if first != key_line else "the same line"
                self._fault(
                    key_line, at, f"the key {key!r} is written twice, first on {where}; keep one of them"
                )
                continue
            table[key] = value.value
            node.children[key] = value
            node.key_lines[key] = key_line
        return node

    def _key(self, event: yaml.Event, line: int, at: Location) -> str | None:
        if not isinstance(event, yaml.ScalarEvent):
            value = self._node(event, at).value
            if isinstance(value, str):
                return value
            if value is not UNREADABLE:
                self._fault(
                    line, at, "a table, a list or a number stands where a key should be; a key is one text"
                )
            return None
        if event.tag is not None:
            self._fault(line, at, f"the tag {_tag(event.tag)} is not used here; remove it")
            return None
        if event.value == "<<" and not event.style:
            self._fault(
                line, at, "merge keys (<<) are not supported; write the keys out, or alias a whole value"
            )
            return None
        value = self._scalar(event, line, at)
        if event.anchor is not None:
            self.anchors[event.anchor] = Node(value, line)
        if isinstance(value, str):
            return value
        if value is not UNREADABLE:
            shown = event.value or "nothing"
            kind = {bool: "a boolean", type(None): "no text"}.get(type(value), "a number")
            self._fault(
                line, at, f'the key {shown} is {kind}; a key is text, so write "{event.value}" in quotes'
            )
        return None

    def _list(self, line: int, at: Location) -> Node:
        items: list[object] = []
        node = Node(items, line)
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            item = self._node(event, (*at, len(items)))
            node.children[len(items)] = item
            node.size += item.size
            items.append(item.value)
        return node

    def _scalar(self, event: yaml.ScalarEvent, line: int, at: Location) -> object:
        if any("\ud800" <= character <= "\udfff" for character in event.value):
            self._fault(line, at, "half a surrogate pair stands here, which is no character; remove it")
            return UNREADABLE
        if event.style:
            return event.value
        value = plain_value(event.value)
        if isinstance(value, Refused):
            self._fault(line, at, value.reason)
            return UNREADABLE
        return value

    def _aliased(self, name: str, line: int, at: Location) -> Node:
        node = self.anchors.get(name)
        if node is None:
            if name in self.anchors:
                reason = (
                    f"the alias *{name} stands inside the value that it names; a value cannot contain itself"
                )
            else:
                reason = f"the alias *{name} names nothing above it; define &{name}, or quote the text"
            self._fault(line, at, reason)
            return Node(UNREADABLE, line)
        self.aliased_nodes += node.size
        if self.aliased_nodes > ALIASED_NODES_MAX:
            raise _StopError(
                Fault(
                    line, at, f"aliases expand to more than {ALIASED_NODES_MAX} values; write fewer of them"
                )
            )
        return node

    def _skipped(self, event: yaml.Event, line: int, at: Location) -> Node:
        if isinstance(event, yaml.MappingStartEvent):
            self._table(line, at)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._list(line, at)
        return Node(UNREADABLE, line)

    def _fault(self, line: int, at: Location, message: str) -> None:
        self.faults.append(Fault(line, at, message))


def _line(event: yaml.Event) -> int:
    """The line that an event begins on, counted from 1."""
    return event.start_mark.line + 1 if event.start_mark is not None else 1


def _tag(tag: str) -> str:
    return "!!" + tag.removeprefix("tag:yaml.org,2002:") if tag.startswith("tag:yaml.org,2002:") else tag


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> Fault:
    lines = text.splitlines() or [""]
    begun = error.context_mark.line + 1 if error.context_mark is not None else None
    mark = error.problem_mark or error.context_mark
    line = min(mark.line + 1, len(lines)) if mark is not None else 1
    if begun is not None and "simple key" in (error.context or ""):
        line, begun = begun, None
    if begun == line:
        begun = None
    return Fault(line, (), syntax.explained(error.problem or "", error.context or "", begun, lines[line - 1]))
