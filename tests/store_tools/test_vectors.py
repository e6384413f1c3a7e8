# The player of conformance tables: it passes what is right, and finds what is wrong.

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.store_tools.broken import Forgiving, OneByOne, Rewarding, Tight
from tidegate.stores.memory import MemoryStore
from tidegate.testing import run_vectors
from tidegate.testing.conformance import table_names
from tidegate.testing.reference import ReferenceStore

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "conformance"


@pytest.mark.parametrize("store", [MemoryStore, ReferenceStore])
def test_a_right_store_passes(store: type[MemoryStore | ReferenceStore]):
    """Every case of every table holds for the embedded store and for the reference."""
    report = run_vectors(store)

    assert report, report
    assert report.total == sum(len(json.loads(path.read_text())["cases"]) for path in TABLES.glob("*.json"))
    assert report.agreed == report.total
    assert [name for name, _, _ in report.of_each] == table_names()


def test_the_tables_come_with_the_package():
    """The package's tables are those of conformance/, by a link that the build follows."""
    assert table_names() == sorted(path.stem for path in TABLES.glob("*.json"))


@pytest.mark.parametrize(
    ("store", "table"),
    [
        (Forgiving, "token_bucket"),
        (Tight, "leaky_bucket"),
        (OneByOne, "layered"),
        (Rewarding, "clock"),
    ],
)
def test_a_wrong_store_is_found(store: type[MemoryStore], table: str):
    """Lost charges, `<` for `<=`, half-taken requests and credit from a clock that went back are seen."""
    report = run_vectors(store, tables=table)

    assert not report
    assert 0 < report.differing == len(report.differences) or report.differing > 20
    first = report.differences[0]
    assert first.where.startswith(f"{table}.json, case ")
    assert first.expected != first.answered
    assert first.replay[:2] == ("--tables", table)
    assert str(first) in str(report)


def test_only_so_many_are_told():
    """The differences told are bounded; what differs is counted all the same."""
    report = run_vectors(Forgiving, differences_most=2)

    assert len(report.differences) == 2
    assert report.differing > 2


def test_nothing_is_left_in_the_store():
    """After a run no key of it holds anything that a later caller could meet."""
    kept: list[MemoryStore] = []

    def factory() -> MemoryStore:
        kept.append(MemoryStore())
        return kept[0]

    run_vectors(factory, tables="token_bucket")
    states = [table.state(key) for table in kept[0]._tables.values() for key in table.cells]
    assert all(state.law.is_fresh(state) for state in states)


def test_the_build_takes_the_tables_along():
    """The patterns of pyproject.toml name every table, so an installed package has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    package = ROOT / "src" / "tidegate"
    taken = {path.name for pattern in settings["package-data"]["tidegate"] for path in package.glob(pattern)}
    assert {f"{name}.json" for name in table_names()} <= taken
