"""The commands about a server that holds a store: store init and store check."""

from __future__ import annotations

from argparse import Namespace

from tidegate.cli.subject import opened
from tidegate.cli.terminal import complain, say, say_json, width
from tidegate.stores import inspection
from tidegate.words.typeset import labelled, paragraph

_MARKS = {"ok": "ok", "warning": "WARNING", "error": "ERROR"}


def store_init(arguments: Namespace) -> int:
    """Prepare a server: its schema, and the note that nothing has been lost yet; 1 if that was not done."""
    with opened(arguments) as (store, _):
        prepared = inspection.init(store, logged=arguments.logged, full=arguments.full)
    text = "\n".join(paragraph(prepared.says, width()))
    if prepared.is_done:
        say(text)
    else:
        complain(text)
    return 0 if prepared.is_done else 1


def store_check(arguments: Namespace) -> int:
    """Tell whether a server can be used, and what it may lose; 1 if something is wrong."""
    with opened(arguments) as (store, _):
        findings = inspection.check(store)
    is_usable = all(finding.grade != "error" for finding in findings)
    if arguments.json:
        names = ("where", "what", "grade", "value", "says")
        told = [{name: getattr(finding, name) for name in names} for finding in findings]
        say_json({"usable": is_usable, "findings": told})
        return 0 if is_usable else 1
    lines: list[str] = []
    for where in dict.fromkeys(finding.where for finding in findings):
        rows = [
            (f"{_MARKS[finding.grade]:<7} {finding.what}", _found(finding))
            for finding in findings
            if finding.where == where
        ]
        lines += [*([""] if lines else []), where, *labelled(rows, width(), indent="  ")]
    say("\n".join(lines))
    return 0 if is_usable else 1


def _found(finding: inspection.Finding) -> str:
    """What is said of one thing; its name is there already, and is not said twice."""
    return finding.says if finding.value == finding.what else f"{finding.value}: {finding.says}"
