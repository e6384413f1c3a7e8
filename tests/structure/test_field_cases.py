# Cases that users and builders of rate limiters have met, by number. The docstring of a test names the cases
# that it holds for their whole kind ("C053: ..."), and here stands that none is missing: each is named by
# a test, or belongs to a part that is not built yet. Whoever builds that part moves its cases up.

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
NUMBER = re.compile(r"\bC\d{3}\b")

HELD = """
    C001 C007 C012 C013 C014 C016 C020 C023 C024 C026 C029 C032 C036 C043 C044 C045 C047 C049 C053 C054
    C055 C056 C057 C059 C060 C063 C065 C066 C067 C068 C069 C072 C073 C074 C075 C076 C079 C080 C081 C082
    C085 C086 C087 C089 C090 C091 C094 C095 C096 C097 C098 C101 C113 C117 C120 C121 C122 C125 C126 C128
    C129 C142 C144 C146 C147 C148 C150 C151 C152 C153 C155 C157 C158 C160 C161 C162 C163 C165 C167 C168
    C170 C172 C173 C174 C175 C177 C178 C180 C182 C184 C185 C186 C187 C190 C191 C192 C193 C196
""".split()

LATER = {
    "callers that wait, which come with acquire and hold": """
        C008 C010 C027 C030 C037 C102 C103 C105 C106 C108 C109 C111 C114 C115 C118
    """.split(),
    "an adaptive client, which is not offered": """
        C022
    """.split(),
    "the tuner that reads access logs, which is not built yet": """
        C197 C198 C199 C200 C202 C204 C206
    """.split(),
}


def named() -> dict[str, list[str]]:
    """Which tests name each case in their docstrings."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                for number in NUMBER.findall(ast.get_docstring(node) or ""):
                    found.setdefault(number, []).append(f"{path.name}: {getattr(node, 'name', '')}")
    return found


@pytest.fixture(scope="module")
def cases() -> dict[str, list[str]]:
    return named()


@pytest.mark.parametrize("number", HELD)
def test_a_case_is_held_by_a_test(cases: dict[str, list[str]], number: str):
    """Every case of what is built is named in the docstring of at least one test."""
    assert number in cases


def test_a_test_names_only_cases_that_there_are(cases: dict[str, list[str]]):
    """A docstring names no case that nobody knows, so that a misspelled one does not count."""
    known = {*HELD, *(number for numbers in LATER.values() for number in numbers)}
    assert {number: tests for number, tests in cases.items() if number not in known} == {}


def test_every_case_has_one_place():
    """No case stands both among those that are held and among those of later parts, or twice."""
    listed = [*HELD, *(number for numbers in LATER.values() for number in numbers)]
    assert sorted(listed) == sorted(set(listed))
    assert len(listed) == 139


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("C053, C054: rounded up", ["C053", "C054"]), ("ABC053 C53 C0531 c053", []), ("(C001)", ["C001"])],
)
def test_a_number_is_read_as_a_whole(text: str, numbers: list[str]):
    """A case is C and three digits, with nothing else at either end."""
    assert NUMBER.findall(text) == numbers
