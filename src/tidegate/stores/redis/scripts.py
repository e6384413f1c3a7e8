"""The three scripts of the store, put together from the `.lua` files beside this one.

What most calls need is written at the end of a script; everything else stands in one function before it,
`rarer`, and each law in a function inside that, so that a call makes only what it uses. The files say
themselves what they take and answer: `decide.lua`,
`adjust.lua` and `forget.lua` first.
"""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

_LAWS = {"L": "level", "F": "fixed", "S": "sliding", "G": "log"}


class Script(NamedTuple):
    """A script as the server knows it: `sha` is the name that EVALSHA takes."""

    name: str
    text: str
    sha: str


def _source(name: str) -> str:
    return (files(__package__) / f"{name}.lua").read_text(encoding="utf-8")


def _assembled(name: str, last_of_rarer: str) -> Script:
    laws = [f"function makers.{letter}()\n{_source(law)}end\n" for letter, law in _LAWS.items()]
    rarer = [_source("exact"), "local makers = {}\n", *laws, _source("current"), _source(last_of_rarer)]
    text = f"local function rarer(now, ask, allowance_ms)\n{''.join(rarer)}end\n{_source(name)}"
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


DECIDE = _assembled("decide", "charge")
ADJUST = _assembled("adjust", "entry")
FORGET = _assembled("forget", "freshened")
