"""What is known of the terminal: how wide it is, and what it can show. There are no colours."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

WIDTH_LEAST, WIDTH_MOST = 60, 120


def width() -> int:
    """The columns to use: the terminal's or those of COLUMNS, 80 where there is neither, 60 to 120."""
    return max(WIDTH_LEAST, min(WIDTH_MOST, shutil.get_terminal_size((80, 24)).columns))


def can_show(text: str) -> bool:
    """Whether the output's encoding has these characters."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def say(text: str) -> None:
    """Print a result; what the output's encoding does not have is written as an escape."""
    shown = text.removesuffix("\n")
    if not can_show(shown):
        encoding = sys.stdout.encoding or "ascii"
        shown = shown.encode(encoding, "backslashreplace").decode(encoding)
    print(shown)


def say_json(value: Any) -> None:
    """Print a result for programs: JSON in ASCII, so that no encoding can break it."""
    print(json.dumps(value, indent=2, allow_nan=False))


def complain(text: str) -> None:
    """Print what is not a result, on standard error."""
    print(text, file=sys.stderr)
