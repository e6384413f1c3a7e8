"""The three scripts of the store, put together from the `.lua` files beside this one.

What most calls need is written at the end of a script; everything else stands in one function before it,
`rarer`, and each law in a function inside that, so that a call makes only what it uses. The files say
themselves what they take and answer: `decide.lua`,
`adjust.lua` and `forget.lua` first.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_MADE = {"L": "level", "F": "fixed", "S": "sliding", "G": "log", "carry": "carry"}
_LAST_OF_RARER = {"decide": "charge", "adjust": "entry", "forget": "freshened"}


class Script(NamedTuple):
    """A script as the server knows it: `sha` is the name that EVALSHA takes."""

    name: str
    text: str
    sha: str


def source(part: str) -> str:
    """The text of a `.lua` file of this folder."""
    return (files(__package__) / f"{part}.lua").read_text(encoding="utf-8")


def assembled(name: str, source: Callable[[str], str] = source) -> Script:
    """The script of this name, made of these texts."""
    made = [f"local function {part}_made()\n{source(part)}end\n" for part in _MADE.values()]
    makers = ", ".join(f"{key} = {part}_made" for key, part in _MADE.items())
    last = source(_LAST_OF_RARER[name])
    rarer = [source("exact"), *made, f"local makers = {{ {makers} }}\n", source("current"), last]
    text = f"local function rarer(now, ask, allowance_ms)\n{''.join(rarer)}end\n{source(name)}"
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


DECIDE = assembled("decide")
ADJUST = assembled("adjust")
FORGET = assembled("forget")
