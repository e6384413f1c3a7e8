# Runs the examples of a documentation page.
#
# The Python blocks of one page run in order and share their names, as a reader would type them. A block may
# await at its top level. Two ways to promise a result, both checked:
#
#     limiter.peek("a").remaining  # -> 19         the value's repr
#     >>> limiter.peek("a").remaining             a doctest, where a block begins with >>>
#
# A console block marked `check` holds commands behind "$ " and, below each, exactly what it prints; a line
# "..." stands for any lines. Only `tidegate` commands can be checked.

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType

    from tests.structure.markdown import Block

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROMISE = re.compile(r"#\s*->\s*(?P<value>.+?)\s*$")
TIDEGATE = "import sys; sys.argv[0] = 'tidegate'; from tidegate.cli import main; sys.exit(main())"


def run_python(block: Block, names: dict[str, Any], page: str) -> None:
    """Run one block among the names that earlier blocks left. Raises AssertionError for a broken promise."""
    if block.text.lstrip().startswith(">>>"):
        _run_doctest(block, names, page)
        return
    lines = block.text.splitlines()
    tree = ast.parse("\n" * (block.line - 1) + block.text, filename=page)
    for statement in tree.body:
        promise = PROMISE.search(lines[(statement.end_lineno or 0) - block.line])
        if promise and isinstance(statement, ast.Expr):
            value = _run(ast.Expression(statement.value), "eval", names, page)
            said = promise["value"]
            assert repr(value) == said, f"{page}:{statement.lineno}: {value!r}, and the page says {said}"
        else:
            _run(ast.Module([statement], []), "exec", names, page)


def _run(tree: ast.Module | ast.Expression, mode: str, names: dict[str, Any], page: str) -> Any:
    code: CodeType = compile(tree, page, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, names)
    return asyncio.run(_awaited(result)) if inspect.iscoroutine(result) else result


async def _awaited(coroutine: Any) -> Any:
    return await coroutine


def _run_doctest(block: Block, names: dict[str, Any], page: str) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line - 1)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    failed = runner.run(test, out=said.append, clear_globs=False).failed
    names.update(test.globs)
    assert not failed, "".join(said)


def run_console(block: Block, page: str, folder: Path) -> None:
    """Run the commands of one block in the folder and compare what each prints with what stands below it."""
    for number, command, expected in _commands(block):
        program, *arguments = shlex.split(command)
        assert program == "tidegate", (
            f"{page}:{number}: only `tidegate` commands can be checked, not {program}"
        )
        done = subprocess.run(
            [sys.executable, "-c", TIDEGATE, *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        assert matches(done.stdout, expected), f"{page}:{number}: {command}\nprints\n{done.stdout}"


def _commands(block: Block) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            found.append((number, line[2:], ""))
        else:
            assert found, f"a console block begins with a command, not with {line!r}"
            where, command, output = found[-1]
            if command.endswith("\\"):
                found[-1] = (where, command[:-1] + line, output)
            else:
                found[-1] = (where, command, output + line + "\n")
    return found


def matches(printed: str, expected: str) -> bool:
    """Whether the output is the expected one, where a line "..." stands for any number of lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()) + r"[ \t]*\n"
        for line in expected.strip("\n").splitlines()
    )
    return re.fullmatch(pattern + r"\n*", printed.strip("\n") + "\n") is not None
