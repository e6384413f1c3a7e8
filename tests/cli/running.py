# Runs the command line in this process, and keeps golden texts.
#
# A golden text is looked at by a person before it is kept: UPDATE_GOLDEN=1 pytest tests/cli writes them anew.

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

GOLDEN = Path(__file__).with_name("golden")
POLICY = "policy.yaml"


class Ran(NamedTuple):
    """What a call of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """The output with its line breaks and gaps as single spaces, for sentences that were wrapped."""
        return " ".join(self.out.split())


Run: TypeAlias = Callable[..., Ran]


def assert_golden(name: str, text: str) -> None:
    """The text is the one that was kept under this name."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
