"""What can be written behind `tidegate keys` and `tidegate store`, the commands for operators."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tidegate.cli import on_keys, on_servers, readers
from tidegate.cli.layout import layout, wrapped

_CONFIG = "the policy's file: its store as `serve` opens it, and its rules"
_VALUES = "int:42, bytes:00ff and none: are what they say, all: is the key that all share"


def keys(group: Any) -> None:
    """Add the commands about keys: list, show, reset."""
    actions = _group(group, "keys", "look at the keys of a shared store, and reset them")

    def action(name: str, run: Callable[[argparse.Namespace], int], short: str, *examples: str) -> Any:
        made = _action(actions, f"keys {name}", run, short, *examples)
        which = made.add_mutually_exclusive_group(required=True)
        which.add_argument("--store", metavar="URL", help="the store, such as redis://localhost:6379/0")
        which.add_argument("--config", metavar="FILE", help=_CONFIG)
        made.add_argument("--json", action="store_true", help="print the result as JSON")
        return made

    made = action(
        "list",
        on_keys.keys_list,
        "list what is held and counts, a page after another",
        "--config policy.yaml",
        "--store redis://localhost:6379/0 --rule organization --prefix ac",
    )
    made.add_argument("--rule", metavar="NAME", help="of this rule only")
    made.add_argument(
        "--prefix", default="", metavar="TEXT", help="only keys whose first value begins with it"
    )
    made.add_argument(
        "--most",
        type=readers.whole(1, 10**6),
        default=100,
        metavar="N",
        help="at most so many (default: 100)",
    )
    made.add_argument("--cursor", metavar="TEXT", help="go on where an earlier list ended")

    made = action(
        "show",
        on_keys.keys_show,
        "show what is held of one key",
        "--store redis://localhost:6379/0 organization acme",
        "--config policy.yaml account int:42",
    )
    made.add_argument("rule", metavar="RULE", help="the rule")
    made.add_argument(
        "values",
        nargs="*",
        metavar="VALUE",
        help=f"the values of its attributes, in the order of `by`; {_VALUES}",
    )

    made = action(
        "reset",
        on_keys.keys_reset,
        "make keys fresh: one by its values, those of a prefix, or all of a rule",
        "--store redis://localhost:6379/0 organization acme",
        "--store redis://localhost:6379/0 organization --prefix ac",
    )
    made.add_argument("rule", metavar="RULE", help="the rule")
    made.add_argument("values", nargs="*", metavar="VALUE", help=f"the values of one key; {_VALUES}")
    made.add_argument("--prefix", metavar="TEXT", help="all keys whose first value begins with it")
    made.add_argument("--all", action="store_true", help="all keys of the rule")


def store(group: Any) -> None:
    """Add the commands about a server: init, check."""
    actions = _group(group, "store", "prepare a server for tidegate, and check it")
    made = _action(
        actions,
        "store init",
        on_servers.store_init,
        "prepare a server, once: make the schema of PostgreSQL, or let strict budgets in Redis begin full",
        "postgresql://localhost/limits",
        "--config policy.yaml --full",
    )
    _which(made)
    made.add_argument(
        "--logged",
        action="store_true",
        help="PostgreSQL: tables that survive a crash, at the price of a flush",
    )
    made.add_argument(
        "--full",
        action="store_true",
        help="Redis: it has never held anything, so nothing was lost, and strict budgets begin full",
    )
    made = _action(
        actions,
        "store check",
        on_servers.store_check,
        "tell whether a server can be used: version, clock, round trip, and what it may lose",
        "redis://localhost:6379/0",
        "--config policy.yaml",
    )
    _which(made)
    made.add_argument("--json", action="store_true", help="print the findings as JSON")


def _which(made: Any) -> None:
    """Let a command be told its store: by an address, or by a file."""
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("store", nargs="?", metavar="URL", help="the store")
    which.add_argument("--config", metavar="FILE", help=_CONFIG)


def _group(group: Any, name: str, short: str) -> Any:
    """A command that consists of several."""
    made = group.add_parser(
        name, help=short, description=wrapped(f"{short[:1].upper()}{short[1:]}."), formatter_class=layout
    )
    return made.add_subparsers(title="commands", metavar="COMMAND", required=True)


def _action(
    actions: Any, name: str, run: Callable[[argparse.Namespace], int], short: str, *examples: str
) -> Any:
    made = actions.add_parser(
        name.rpartition(" ")[2],
        help=short,
        description=wrapped(f"{short[:1].upper()}{short[1:]}."),
        epilog="examples:\n" + "\n".join(f"  tidegate {name} {example}" for example in examples),
        formatter_class=layout,
    )
    made.set_defaults(run=run)
    return made
