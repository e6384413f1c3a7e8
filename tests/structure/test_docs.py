# The documentation keeps its word: every example runs, every promised output is what is printed, every link
# leads somewhere. How a page is read stands in markdown.py, how its examples run in snippets.py. Where
# examples name a server, a real one is started and takes the place of the address (ADDRESSES).

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.structure.markdown import Block, anchors, blocks, links
from tests.structure.snippets import matches, run_console, run_python

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
LANGUAGES = {"python", "console", "sh", "text", "yaml", "json", "nginx", "http", "html", "toml"}

# An address that examples may name, and how a server is had that stands for it.
ADDRESSES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "redis://localhost:6379": lambda request: request.getfixturevalue("valkey").url.removesuffix("/0"),
    "redis+cluster://localhost:7000": lambda request: (
        request.getfixturevalue("redis_cluster").url.removesuffix("/0").replace("redis:", "redis+cluster:")
    ),
    "postgresql://localhost/limits": lambda request: request.getfixturevalue("database").url,
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run examples in, with the project's `examples/` in it."""
    if (ROOT / "examples").exists():
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def there(request: pytest.FixtureRequest) -> Callable[[Block], Block]:
    """A block with the addresses of real servers in place of those that examples name."""
    real: dict[str, str] = {}

    def replaced(block: Block) -> Block:
        text = block.text
        for address, started in ADDRESSES.items():
            if address in text:
                real[address] = real.get(address) or started(request)
                text = re.sub(rf"(from_url\(.){re.escape(address)}", rf"\1{real[address]}", text)
                # With time enough: how quick the server is on a busy machine is not what a page is about.
                text = re.sub(rf"{re.escape(address)}(/\d+)?", rf"{real[address]}\1?deadline=10s", text)
        return block._replace(text=text)

    return replaced


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_python_examples_run(path: Path, folder: Path, there: Callable[[Block], Block]):
    """Every Python block of a page runs, in order, and gives the values that the page promises."""
    names: dict[str, Any] = {"__name__": "example"}
    examples = [block for block in blocks(read(path)) if block.language == "python"]
    for block in examples:
        run_python(there(block), names, name(path))

    assert len(examples) == read(path).count("```python\n")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_console_examples_print_what_they_show(path: Path, folder: Path, there: Callable[[Block], Block]):
    """Every command of a console block marked `check` prints what stands below it."""
    examples = [
        block for block in blocks(read(path)) if (block.language, block.marks) == ("console", ("check",))
    ]
    for block in examples:
        run_console(there(block), name(path), folder)

    assert len(examples) == read(path).count("```console check\n")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_example_has_a_known_language(path: Path):
    """A block is in a language that a test knows, so that a misspelled one does not escape its test."""
    unknown = [block for block in blocks(read(path)) if block.language not in LANGUAGES]
    marked = [block for block in blocks(read(path)) if set(block.marks) - {"check"}]
    assert unknown == []
    assert marked == []


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path):
    """Every link within the project names a file that exists, and a heading that exists in it."""
    assert broken_links(read(path), path) == []


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=name)
def test_every_page_can_be_reached(path: Path):
    """Each page of docs/ is linked to from the index of its folder or of docs/."""
    if path == ROOT / "docs" / "README.md":
        assert (path.resolve()) in linked_from(ROOT / "README.md")
        return
    indexes = {ROOT / "docs" / "README.md", path.parent / "README.md"} - {path}
    assert any(path.resolve() in linked_from(index) for index in indexes if index.exists())


def linked_from(page: Path) -> set[Path]:
    return {(page.parent / unquote(link.target.partition("#")[0])).resolve() for link in links(read(page))}


def broken_links(page: str, path: Path) -> list[str]:
    """The links of a page that lead nowhere, a sentence each. Addresses outside are not followed."""
    found = []
    for link in links(page):
        if link.target.startswith(("https://", "mailto:")):
            continue
        file, _, anchor = unquote(link.target).partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" in link.target:
            found.append(f"line {link.line}: {link.target} is not https")
        elif not target.is_relative_to(ROOT) or not target.exists():
            found.append(f"line {link.line}: there is no {link.target}")
        elif (
            anchor
            and target.suffix == ".md"
            and anchor not in anchors(page if target == path else read(target))
        ):
            found.append(f"line {link.line}: {file or 'this page'} has no heading #{anchor}")
    return found


# --- the readers themselves ---


def python(text: str) -> Block:
    return Block("python", (), text, 1)


def test_a_promise_is_checked():
    """A value that differs from the promise fails, an equal one passes; names stay for the next block."""
    names: dict[str, Any] = {}
    run_python(python("left = 2\nleft + 1  # -> 3\n"), names, "page")
    run_python(python(">>> left\n2\n"), names, "page")
    run_python(python("import asyncio\nawait asyncio.sleep(0, left)  # -> 2\n"), names, "page")

    with pytest.raises(AssertionError, match="page:1: 3, and the page says 4"):
        run_python(python("left + 1  # -> 4\n"), names, "page")
    with pytest.raises(AssertionError, match="Expected"):
        run_python(python(">>> left\n3\n"), names, "page")


def test_output_is_compared():
    """Printed lines must be the expected ones; "..." is any lines; spaces at line ends do not matter."""
    assert matches("a\nb \nc\n", "a\nb\nc\n")
    assert matches("a\nb\nc\n", "a\n...\n")
    assert matches("a\n", "a\n...\n")
    assert not matches("a\nb\n", "a\n")
    assert not matches("a\nb\n", "...\na\n")


def test_blocks_are_found():
    """Fences give their language, marks, text and line; a longer fence may hold a shorter one."""
    page = "x\n```python\na = 1\n```\n- item\n  ```console check\n  $ b\n  ```\n````text\n```\n````\n"
    assert list(blocks(page)) == [
        Block("python", (), "a = 1\n", 3),
        Block("console", ("check",), "$ b\n", 7),
        Block("text", (), "```\n", 10),
    ]
    with pytest.raises(ValueError, match="line 1 is never closed"):
        list(blocks("```python\n"))


def test_a_broken_link_is_seen():
    """Missing files, missing headings and plain http are reported; links in code are not links."""
    page = (
        "# A title, here\n[ok](#a-title-here) [no](#nowhere) [gone](gone.md)\n"
        "`[code](gone.md)` [ok](pyproject.toml) [plain](http://example.org)\n"
    )
    assert broken_links(page, ROOT / "README.md") == [
        "line 2: this page has no heading #nowhere",
        "line 2: there is no gone.md",
        "line 3: http://example.org is not https",
    ]
