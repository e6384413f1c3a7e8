"""Which store a command for operators is about: that of an address, or that of a policy's file.

A file's store is opened as `serve` opens it, with its prefix or schema and all else that it is told; and the
rules of the file are known, whether anything is held of them or not.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.stores.opening import open_store

if TYPE_CHECKING:
    from tidegate.core.rule import Rule


class Subject(NamedTuple):
    """A store, and the rules of the file that named it by their names; None if no file did."""

    store: Any
    rules: Mapping[str, Rule] | None

    def is_strict(self, rule: str) -> bool | None:
        """Whether this rule is strict; None if that is not known."""
        found = (self.rules or {}).get(rule)
        return None if found is None else found.strict


def rules_of(arguments: Namespace) -> Mapping[str, Rule] | None:
    """The rules of the file, if one is named; its address then stands where one that is given would."""
    if arguments.config is None:
        return None
    from tidegate.config import load  # here, for it needs more than Python alone

    config = load(arguments.config)
    arguments.store = config.store_url
    return {rule.name: rule for rule in config.policy}


@contextmanager
def opened(arguments: Namespace, rules: Mapping[str, Rule] | None = None) -> Iterator[Subject]:
    """The subject of a command, closed at the end. `rules` are those of the file, if it was read before."""
    known = rules_of(arguments) if rules is None else rules
    with closing(open_store(arguments.store)) as store:
        yield Subject(store, known)
