"""How help is laid out: as wide as the terminal, with the lines of examples left as they are."""

from __future__ import annotations

import argparse
import textwrap

from tidegate.cli.terminal import width


def layout(prog: str) -> argparse.HelpFormatter:
    """The formatter of every parser."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=26, width=width() - 1)


def wrapped(text: str) -> str:
    """A description in lines."""
    return textwrap.fill(text, width() - 1)
