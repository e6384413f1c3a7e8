# The rules of style that a program can see.
# What departs on purpose stands in docs/violations.md, with its reason.

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_MOST = 400
NO_IDEA = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base_classes"}
LATER = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")))
MACHINE_PATH = re.compile(r"(?<![\w./])/(?:home|root|Users|work)/\w+")
SILENCE = re.compile(
    r"#\s*(?P<what>type:\s*ignore(\[[\w\-, ]*\])?|noqa(:\s*[A-Z]+[0-9]+([,\s]+[A-Z]+[0-9]+)*)?)(?P<rest>.*)"
)


def files(
    *endings: str, below: tuple[str, ...] = ("src", "tests", "benchmarks", "examples", "conformance")
) -> list[Path]:
    """The project's own files with these endings."""
    return [
        path
        for folder in below
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in endings and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    ]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


CODE = files(".py", ".pyi", ".js", ".css", ".html", ".lua", ".sql", ".c", ".h")
PYTHON = files(".py")
PACKAGE = files(".py", below=("src",))
TESTS = [path for path in files(".py", below=("tests",)) if path.name.startswith("test_")]


def unexplained(source: str) -> list[int]:
    """The lines that silence a checker without saying why behind it."""
    return [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if (found := SILENCE.search(line)) and not re.search(r"\w{3}", found["rest"])
    ]


def undocumented(source: str) -> list[str]:
    """The public functions, classes and methods without a docstring.

    Overloads are described by what they overload, properties' setters by the property, and a method of a
    class that stands below another by that class, if it says nothing new.
    """
    found = []

    def visit(body: list[ast.stmt], prefix: str, *, inherits: bool) -> None:
        for node in body:
            if not isinstance(
                node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
            ) or node.name.startswith("_"):
                continue
            marks = {ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list}
            if (
                not inherits
                and not marks & {"overload", "override", "setter"}
                and not ast.get_docstring(node)
            ):
                found.append(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).partition("[")[0] for base in node.bases} - {
                    "Protocol",
                    "NamedTuple",
                    "Generic",
                }
                visit(node.body, f"{prefix}{node.name}.", inherits=bool(bases))

    visit(ast.parse(source).body, "", inherits=False)
    return found


@pytest.mark.parametrize("path", CODE, ids=name)
def test_a_file_is_short(path: Path):
    """A file holds one idea in at most 400 lines, or docs/violations.md says why this one does not."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    excused = f"`{name(path)}`" in (ROOT / "docs" / "violations.md").read_text(encoding="utf-8")
    assert lines <= LINES_MOST or excused


@pytest.mark.parametrize("path", CODE, ids=name)
def test_nothing_is_left_for_later(path: Path):
    """No file holds a note about work that was not done."""
    assert LATER.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_silence_has_a_reason(path: Path):
    """Whoever silences a checker says why, on the same line: `# type: ignore[arg-type]  # the reason`."""
    assert unexplained(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_what_is_public_has_a_docstring(path: Path):
    """Every public function, class and method of the package says what it does."""
    assert undocumented(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_a_file_says_what_it_decides(path: Path):
    """A module begins with a comment or a docstring; an empty one has nothing to say."""
    source = path.read_text(encoding="utf-8")
    assert not source.strip() or source.startswith(("#", '"""'))


@pytest.mark.parametrize("path", PACKAGE, ids=name)
def test_a_file_is_named_by_its_idea(path: Path):
    """No module is named as a drawer for whatever is left over."""
    assert path.stem not in NO_IDEA


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_a_test_states_a_fact(path: Path):
    """Every test function has a docstring, which is the fact that it proves."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


@pytest.mark.parametrize(
    "path",
    files(".py", ".md", ".yaml", ".json", ".toml", below=("src", "tests", "docs", "benchmarks")),
    ids=name,
)
def test_no_path_of_a_machine(path: Path):
    """No file names the folder in which somebody happened to work on it."""
    assert MACHINE_PATH.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "is_explained"),
    [
        ("x = 1  # type: ignore[assignment]  # the stub is wrong about None", True),
        ("x = 1  # type: ignore[assignment]", False),
        ("x = 1  # type: ignore", False),
        ("except Exception:  # noqa: BLE001 - whatever a hook raises is reported", True),
        ("except Exception:  # noqa: BLE001, S110", False),
        ("x = 1  # noqa", False),
        ("x = 1  # an ordinary comment", True),
    ],
)
def test_an_unexplained_silence_is_seen(line: str, is_explained: bool):
    """A reason is told from a bare code."""
    assert (unexplained(line) == []) is is_explained


def test_a_missing_docstring_is_seen():
    """Functions, classes and methods without one are named; private ones and overloads are not."""
    source = """
def told(): "It is."
def untold(): ...
def _private(): ...
class Told:
    "It is."
    def untold(self): ...
    def __repr__(self): ...
    @overload
    def again(self): ...
class Below(Told):
    "It is."
    def untold(self): ...
"""
    assert undocumented(source) == ["untold", "Told.untold"]
