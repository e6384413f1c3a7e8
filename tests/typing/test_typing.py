# What a user's type checker sees of the package.

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def mypy(file: str) -> subprocess.CompletedProcess[str]:
    """Check one file as its author would: strictly, with the package as it is."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-pretty",
            "--no-error-summary",
            f"tests/typing/{file}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_right_use_is_accepted():
    """Good code passes mypy --strict, and each call has the type that a user is told."""
    done = mypy("right_use.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_right_use_runs():
    """What the type checker accepts also works."""
    assert "decision" in runpy.run_path(str(HERE / "right_use.py"))


def test_wrong_use_is_refused():
    """Every mistake in wrong_use.py is reported on its line with its code, and nothing else is."""
    lines = (HERE / "wrong_use.py").read_text(encoding="utf-8").splitlines()
    expected = [
        (number, found[1])
        for number, line in enumerate(lines, 1)
        if (found := re.search(r"# error: ([\w-]+)$", line))
    ]

    done = mypy("wrong_use.py")
    reported = [
        (int(found[1]), found[2])
        for line in done.stdout.splitlines()
        if (found := re.match(r"[^:]+:(\d+): error: .*\[([\w-]+)\]$", line))
    ]
    assert reported == expected, done.stdout + done.stderr
    assert len(expected) >= 10
