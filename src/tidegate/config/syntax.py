"""Says in plain words what a YAML parser means when it cannot go on.

A parser speaks of tokens; the reader of a message has a file open and wants to know what to type.
Nothing here parses: it is a table from the parser's complaint to a sentence and a way out.
"""

from __future__ import annotations

import re
from typing import Final

_SENTENCES: Final = (
    (
        "mapping values are not",
        "a ':' stands where no key can be; quote text with ': ', or correct the indentation",
    ),
    (
        "<block end>, but found '<scalar>'",
        "more text follows a finished value; put quotes around the whole of it",
    ),
    (
        "expected <block end>",
        "the indentation does not fit the block{since}; indent the keys of one table alike",
    ),
    ("expected ',' or", "a ',' or the closing bracket is missing in {container}{since}"),
    ("expected the node content", "a value is missing, or begins with a character that needs quotes"),
    ("escape", "a backslash in double quotes begins an escape; use single quotes to keep it as it is"),
    ("hexadecimal", "a backslash in double quotes begins an escape; use single quotes to keep it as it is"),
    (
        "alphabetic or numeric",
        "a value that begins with * or & is an alias or an anchor in YAML; write it in quotes",
    ),
    ("tag", "a value that begins with ! is a tag in YAML; write it in quotes"),
    ("cannot start any token", "a value cannot begin with {character}; write it in quotes"),
    (
        "not allowed here",
        "a '-' or '?' stands where no list or table can begin; put it on its own line, or in quotes",
    ),
)
"""What a complaint contains, and how we say it; the first that fits."""


def explained(problem: str, context: str, begun: int | None, line_text: str) -> str:
    """The complaint `problem`, raised while the parser was in `context`, as a sentence with a way out.

    `begun` is the line where the unfinished value begins, `line_text` the line complained about.
    """
    since = f" that begins on line {begun}" if begun is not None else ""
    container = _container(context)
    if "'\\t'" in problem or "\t" in line_text[: len(line_text) - len(line_text.lstrip())]:
        return "a tab stands where YAML wants spaces; indent with spaces"
    if "${" in line_text and "expected" in problem:
        return "nothing is filled in here, and YAML reads the { of ${...} as a table; write the value itself"
    if "could not find expected ':'" in problem or "simple key" in context:
        return f"text without a ':'{since}; write key: value, or quote text of several lines"
    if "stream end" in problem or "end of stream" in problem:
        return f"the file ends inside {container}{since}; close it, unless the file is merely half written"
    character = re.search(r"found character (.+?) that", problem)
    for part, said in _SENTENCES:
        if part in problem or (part == "tag" and part in context):
            return said.format(since=since, container=container, character=character[1] if character else "")
    return f"this is not YAML ({problem or context}); check the indentation and the quotes"


def _container(context: str) -> str:
    if "scalar" in context:
        return "a quoted text"
    return "a list [...]" if "sequence" in context else "a table {...}"
