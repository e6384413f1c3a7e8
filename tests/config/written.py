# Writes configuration files for the tests of this folder, and reads what is said about them.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.config import Config, load
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

GOOD = """\
version: 1
rules:
  - name: organization
    limit: {algorithm: token_bucket, capacity: 20, rate: 5/s}
    by: [org]
"""


def loaded(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    """The configuration that `text` says."""
    path = folder / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, env=env or {})


def said(folder: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What is wrong with `text`, a line for each problem, without the folder's name; [] if nothing is."""
    try:
        loaded(folder, text, env)
    except ConfigError as error:
        return [line.removeprefix(f"{folder}/") for line in str(error).splitlines()]
    return []


def fits(line: str, expected: str) -> bool:
    """Whether a line is the expected one; "…" stands for words of the core that may change."""
    return line.startswith(expected[:-1]) if expected.endswith("…") else line == expected


def with_limit(limit: str) -> str:
    """A file whose only rule, called a, has this limit on line 4."""
    return f"version: 1\nrules:\n  - name: a\n    limit: {limit}\n"


def bucket(capacity: str = "20", rate: str = "5/s") -> str:
    """The same with a token bucket of these numbers."""
    return with_limit(f"{{algorithm: token_bucket, capacity: {capacity}, rate: {rate}}}")


def with_rule(*lines: str) -> str:
    """The good file with further lines in its only rule, from line 6 on."""
    return GOOD + "".join(f"    {line}\n" for line in lines)


def with_settings(*lines: str) -> str:
    """The good file with further lines at its top, from line 6 on."""
    return GOOD + "".join(f"{line}\n" for line in lines)
