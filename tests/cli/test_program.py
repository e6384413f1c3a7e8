# The program as a whole: help, exit codes, pipes, encodings, and the process that a user starts.

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import GOLDEN, Run
from tidegate import __version__
from tidegate.cli import main, on_limits

ROOT = Path(__file__).parents[2]
COMMANDS = ("serve", "check", "schema", "explain", "decide", "compare", "conformance", "hammer")


def started(*argv: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The program as its own process, without a terminal."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *argv],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=kept | {"PYTHONPATH": "src"} | env,
        timeout=50,
    )


def test_help_names_every_command(run: Run):
    """`tidegate --help` fits 80 columns, names every command in a line, and tells the exit codes."""
    ran = run("--help")

    assert (ran.code, ran.err) == (0, "")
    assert all(f"\n    {command}" in ran.out for command in COMMANDS)
    assert "exit codes:" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(run: Run, command: str, columns: int):
    """The help of a command says what it does, shows an example, and fits the terminal."""
    ran = run(command, "--help", columns=columns)

    assert (ran.code, ran.err) == (0, "")
    assert f"usage: tidegate {command} " in ran.out
    assert f"examples:\n  tidegate {command}" in ran.out
    assert max(map(len, ran.out.splitlines())) <= columns


def test_the_version(run: Run):
    """`tidegate --version` is the version of the package."""
    assert run("--version")[:2] == (0, f"tidegate {__version__}\n")


def test_no_command_at_all(run: Run):
    """Without arguments the help is shown as a complaint."""
    ran = run()

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("usage: tidegate")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["explian"], "invalid choice: 'explian'"),
        (
            ["explain"],
            "tidegate explain: the following arguments are required: CONFIG (help: tidegate explain --help)",
        ),
        (["explain", "policy.yaml", "--target", "200"], "write a number and a unit"),
        (["explain", "policy.yaml", "--target", "0s"], "it must be longer than zero"),
        (["explain", "policy.yaml", "--clients", "-1"], "'-1' must be a whole number from 1"),
        (["explain", "policy.yaml", "again.yaml"], "again.yaml is not understood here"),
        (["serve", "--port", "65536"], "'65536' must be a whole number from 0 to 65,535"),
    ],
)
def test_a_wrong_call_is_one_line(run: Run, argv: list[str], said: str):
    """A call that cannot be understood is told in one line with the way to the help; the exit code is 2."""
    ran = run(*argv)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_serve_hands_over(monkeypatch: pytest.MonkeyPatch):
    """`tidegate serve` hands over the file, host and port that were named, and returns its exit code."""
    from tidegate.server import serve

    asked: list[tuple[str | None, str | None, int | None]] = []

    def run(config_path: str | None, *, host: str | None = None, port: int | None = None) -> int:
        asked.append((config_path, host, port))
        return len(asked) - 1

    monkeypatch.setattr(serve, "run", run)

    assert main(["serve"]) == 0
    assert main(["serve", "own.yaml", "--host", "::1", "--port", "0"]) == 1
    assert asked == [(None, None, None), ("own.yaml", "::1", 0)]


def test_a_missing_library_says_what_to_install():
    """Without the libraries of an extra, a command that needs them says which to install, in one line."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['yaml', 'pydantic', 'uvicorn']))\n"
        "from tidegate.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    for argv in (["serve"], ["check", "x.yaml"], ["explain", "x.yaml"], ["schema"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *argv],
            capture_output=True,
            check=False,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "tidegate[" in done.stderr
        assert done.stderr.count("\n") == 1


def test_commands_without_a_file_need_no_library():
    """`compare` needs the standard library alone."""
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['yaml', 'pydantic', 'uvicorn']))\n"
        "from tidegate.cli import main; sys.exit(main(['compare', '--capacity', '3', '--json']))"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{program}",
        ],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Control-C ends a command with 130 and a word, and no traceback."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(on_limits, "run_compare", interrupted)
    ran = run("compare")

    assert (ran.code, ran.out, ran.err) == (130, "", "tidegate compare: interrupted\n")


def test_a_process_of_its_own():
    """`python -m tidegate` gives text and code; into a pipe without escape codes, in 80 columns."""
    explained = started("explain", str((GOLDEN / "policy.yaml").relative_to(ROOT)))
    refused = started("decide", str(GOLDEN / "policy.yaml"), "address=a", "--times", "51")

    assert (explained.returncode, explained.stderr) == (0, b"")
    assert b"\x1b" not in explained.stdout
    assert max(map(len, explained.stdout.decode().splitlines())) <= 80
    assert refused.returncode == 1


def test_a_terminal_without_blocks(monkeypatch: pytest.MonkeyPatch):
    """Where the encoding has no block characters the charts are drawn in ASCII."""
    plain = started("compare", "--capacity", "5", PYTHONIOENCODING="ascii")
    full = started("compare", "--capacity", "5", PYTHONIOENCODING="utf-8")

    assert plain.returncode == full.returncode == 0
    assert plain.stdout.isascii()
    assert "█" in full.stdout.decode()
    assert len(plain.stdout.splitlines()) == len(full.stdout.splitlines())


def test_a_name_that_the_terminal_cannot_show(run: Run, write, monkeypatch: pytest.MonkeyPatch):
    """A rule's name beyond the output's encoding is written as an escape instead of failing."""
    name = write("  - {name: grüße, by: [org], limit: {algorithm: token_bucket, capacity: 1, rate: 1/s}}")
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)

    assert main(["explain", name]) == 0
    assert b"gr\\xfc\\xdfe" in out.buffer.getvalue()


def test_a_reader_that_leaves():
    """`tidegate explain | head -1` ends quietly when the reader has seen enough."""
    reader = (
        f"{sys.executable} -m tidegate schema | {sys.executable} -c 'input()'; "
        "code=${PIPESTATUS[0]}; test $code = 0 || test $code = 141"
    )
    done = subprocess.run(
        ["bash", "-c", reader],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"},
        timeout=50,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_else_prints():
    """Only the command line's own files print; the others return what is to be shown."""
    package = ROOT / "src" / "tidegate"
    printing = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if any(line.lstrip().startswith("print(") for line in path.read_text(encoding="utf-8").splitlines())
    }
    assert printing <= {"cli", "server"}
