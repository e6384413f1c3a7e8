# Good files, damaged at random: whatever comes of it is a configuration or a ConfigError.

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.written import EXAMPLES
from tidegate.config import load
from tidegate.config.places import read
from tidegate.errors import ConfigError, Problem

TEXTS = [path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))]
ENV = {"TIDEGATE_PORT": "1", "TIDEGATE_TOKEN": "t"}
VALUES: st.SearchStrategy[object] = st.sampled_from(
    [
        None, True, 0, -1, 1, 2.5, 10**30, 1e-9, "", " ", "x", "5/s", "month", "1:30", "*", "${X}", "{",
        "\x85", "é", "POST /{", [], [[]], [None], ["a", "a"], {}, {"": {}}, {"env": "NOPE"}, {"env": []},
        {"algorithm": "token_bucket"}, {"algorithm": []}, "token_bucket", "memory://?max_keys=x", "x" * 5000,
    ]
)  # fmt: skip


def outcome(text: str) -> tuple[Problem, ...] | None:
    """The problems of a file of this text; None if it loads. Anything else that is raised is a failure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "policy.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            load(path, env=ENV)
        except ConfigError as error:
            problems = error.problems
        else:
            return None
    assert problems
    for problem in problems:
        assert problem.line is None or 1 <= problem.line <= text.count("\n") + 1
        assert "\n" not in str(problem)
        assert "pydantic" not in str(problem)
    return problems


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value inside."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for step, one in inner for place in places(one, (*at, step)))]


@st.composite
def damaged_data(draw: st.DrawFn) -> Any:
    """An example with one to three values deleted, renamed, replaced or repeated."""
    data = yaml.safe_load(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(data)[1:] or [("version",)]))
        parent: Any = data
        for step in way:
            parent = parent[step]
        if last not in (parent if isinstance(parent, dict) else range(len(parent))):
            continue
        how = draw(st.sampled_from(["delete", "rename", "replace", "repeat"]))
        if how == "replace":
            parent[last] = deepcopy(draw(VALUES))
        elif how == "delete":
            del parent[last]
        elif isinstance(parent, list):
            parent.append(deepcopy(parent[last]))
        else:
            name = draw(st.sampled_from(list(parent)) | st.text(max_size=6) | st.just(f"{last}s"))
            parent[name] = parent.pop(last) if how == "rename" else parent[last]
    return data


@given(damaged_data())
def test_a_damaged_table_loads_or_is_explained(data: Any):
    """C163: deleting, renaming, repeating or replacing any key or value raises nothing but ConfigError."""
    outcome(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))


@given(st.sampled_from(TEXTS), st.data())
def test_a_damaged_text_loads_or_is_explained(text: str, data: st.DataObject):
    """C163: lines cut, doubled, moved and overwritten raise nothing but ConfigError."""
    lines = text.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.sampled_from(["cut", "double", "indent", "splice", "type"]))
        column = data.draw(st.integers(0, len(lines[index])))
        if how == "cut":
            lines[index] = lines[index][:column]
        elif how == "double":
            lines.insert(index, lines[index])
        elif how == "indent":
            lines[index] = " " * data.draw(st.integers(1, 4)) + lines[index]
        elif how == "splice":
            lines[index] = data.draw(st.sampled_from(lines))
        else:
            typed = data.draw(
                st.sampled_from(["{", "]", ":", "- ", "\t", "*", "&a ", "!", "'", "#", "0", "\n", ", "])
            )
            lines[index] = lines[index][:column] + typed + lines[index][column:]

    outcome("".join(lines))


@given(st.sampled_from(TEXTS), st.data())
def test_a_key_written_twice_is_always_an_error(text: str, data: st.DataObject):
    """C163: repeating the line of any key of a block is refused, with the line of the first."""
    lines = text.splitlines(keepends=True)
    keys = [
        index for index, line in enumerate(lines) if line.strip()[:1].isalpha() and line.split(":")[1].strip()
    ]
    index = data.draw(st.sampled_from(keys))
    lines.insert(index, lines[index])
    problems = outcome("".join(lines))

    assert problems is not None
    assert any(p.line == index + 2 and f"first on line {index + 1}" in p.message for p in problems)


@given(st.sampled_from(TEXTS), st.data())
def test_a_misspelt_key_is_always_an_error_at_its_line(text: str, data: st.DataObject):
    """C163: a letter too many in any key of a table is refused at its line, and the right key is named."""
    top = read(text).top
    assert top is not None
    closed = [
        (line, key)
        for table in [
            top,
            *top.children["rules"].children.values(),
            *_named(top, "server"),
            *_named(top, "http"),
        ]
        for key, line in table.key_lines.items()
    ]
    line, key = data.draw(st.sampled_from(closed))
    lines = text.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(key, f"{key}x", 1)
    problems = outcome("".join(lines))

    assert problems is not None
    assert [(p.line, p.message) for p in problems if "unknown key" in p.message] == [
        (line, f"unknown key '{key}x'; did you mean '{key}'?")
    ]


def _named(top: Any, name: str) -> list[Any]:
    return [top.children[name]] if name in top.children else []


@pytest.mark.parametrize("opening", ["{1: ", "{? ", "[", "{a: ", "- "])
def test_nesting_ends_somewhere(tmp_path, opening):
    """Values in values, as keys too, are a problem with a place and never the end of the stack."""
    path = tmp_path / "policy.yaml"
    path.write_text(f"version: 1\nrules: {opening * 2000}x\n")
    with pytest.raises(ConfigError):
        load(path)


def test_half_a_surrogate_pair_is_no_text(tmp_path):
    """What no file can hold and an escape can write is a problem with its line."""
    path = tmp_path / "policy.yaml"
    path.write_text('version: 1\nrules:\n  - name: "\\ud800"\n    mode: bypass\n')
    with pytest.raises(ConfigError, match=r"policy\.yaml:3"):
        load(path)
