# Fixtures of the command line: run it here, in a folder of its own, at a chosen width.

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.running import GOLDEN, POLICY, Ran, Run
from tidegate.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `tidegate` with these arguments in an empty folder that holds policy.yaml."""
    shutil.copy(GOLDEN / POLICY, tmp_path / POLICY)
    monkeypatch.chdir(tmp_path)

    def call(*argv: str, columns: int = 80) -> Ran:
        monkeypatch.setenv("COLUMNS", str(columns))
        code = main(argv)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture
def write(tmp_path: Path) -> object:
    """Write a policy of these rules (YAML, indented by two) to a file; its name."""

    def written(rules: str, name: str = "own.yaml") -> str:
        (tmp_path / name).write_text(f"version: 1\nrules:\n{rules}\n", encoding="utf-8")
        return name

    return written
