# Reads what a documentation page promises: its examples, its links, its headings.
#
# Only what the pages of this project use is understood: fences of three backticks or more, headings with #,
# links and images as [text](target). A fence's first word is its language, the others are marks for tests.

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")


class Block(NamedTuple):
    """One fenced example: its language, the marks behind it, its text, and the line it begins on."""

    language: str
    marks: tuple[str, ...]
    text: str
    line: int


class Link(NamedTuple):
    """Where a link leads, and the line it stands on."""

    target: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order. Raises ValueError if one is not closed."""
    opened: re.Match[str] | None = None
    begin = 0
    held: list[str] = []
    for number, line in enumerate(page.splitlines(), 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence:
                opened, begin, held = fence, number + 1, []
        elif fence and len(fence["ticks"]) >= len(opened["ticks"]) and not fence["info"].strip():
            language, *marks = opened["info"].split() or [""]
            yield Block(language, tuple(marks), "".join(held), begin)
            opened = None
        else:
            indent = len(opened["indent"])
            held.append((line[indent:] if line[:indent].isspace() else line) + "\n")
    if opened is not None:
        raise ValueError(f"the block that begins on line {begin - 1} is never closed")


def prose(page: str) -> list[str]:
    """The lines of a page with its blocks and its code spans blanked, so that line numbers stay."""
    inside = False
    lines = []
    for line in page.splitlines():
        if FENCE.match(line):
            inside = not inside
            lines.append("")
        else:
            lines.append("" if inside else re.sub(r"`[^`]*`", "", line))
    return lines


def links(page: str) -> Iterator[Link]:
    """Every link and image of the page, those in code aside."""
    for number, line in enumerate(prose(page), 1):
        for found in LINK.finditer(line):
            yield Link(found["target"], number)


def anchors(page: str) -> set[str]:
    """The names under which a page's headings can be linked to, as the common renderers make them."""
    inside = False
    found: set[str] = set()
    for line in page.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside and (heading := re.match(r"#+\s+(.*)", line)):
            words = re.sub(r"[^\w\- ]", "", heading[1].strip().lower())
            anchor = words.replace(" ", "-")
            number = 0
            while (anchor if not number else f"{anchor}-{number}") in found:
                number += 1
            found.add(anchor if not number else f"{anchor}-{number}")
    return found
