"""The command that needs no policy: compare the algorithms."""

from __future__ import annotations

from argparse import Namespace

from tidegate.cli.terminal import can_show, say, say_json, width
from tidegate.simulate import sheet
from tidegate.simulate.compare import compare as run_compare


def compare(arguments: Namespace) -> int:
    """Run the same traffic through every algorithm and print what came out."""
    comparison = run_compare(arguments.capacity, arguments.rate, servers=arguments.servers)
    if arguments.json:
        say_json(sheet.as_json(comparison))
    else:
        say(sheet.text(comparison, width=width(), plain=not can_show(sheet.BARS)))
    return 0
