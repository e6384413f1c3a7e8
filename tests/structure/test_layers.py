# The layering of the package, and proof that the reader of imports sees what it must see.

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.structure.layers import EXCUSED, LEVELS, libraries, modules_below, problems

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = modules_below(ROOT / "src" / "tidegate")

# Libraries whose import name is not the name they are installed by.
INSTALLED_AS = {"yaml": "pyyaml", "pydantic_core": "pydantic"}


def test_imports_point_down():
    """Every module of the package keeps to the levels, to purity, and to one file for each library."""
    assert problems(PACKAGE) == []


def test_every_excuse_is_needed_and_written_down():
    """An upward import is excused only while it is there, and only if docs/violations.md gives its reason."""
    violations = (ROOT / "docs" / "violations.md").read_text(encoding="utf-8")
    for module, target in EXCUSED:
        assert f"`{module}`" in violations
        assert target in PACKAGE[module]


def test_the_package_was_found():
    """The test above looked at something: the bottom and the public names are among the modules."""
    assert {"tidegate", "tidegate.errors", "tidegate.units", "tidegate.core"} <= set(PACKAGE)


def test_every_library_is_declared():
    """What the package imports beside Python's own library stands in an extra of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = {
        re.split(r"[\[<>=! ]", requirement)[0].lower().replace("_", "-")
        for name, requirements in extras.items()
        if name not in {"dev", "bench"}
        for requirement in requirements
    }

    needed = {INSTALLED_AS.get(name, name.replace("_", "-")) for name in libraries(PACKAGE)}
    assert needed - declared == set()


def test_a_missing_library_says_what_to_install():
    """Without an optional library the file that wraps it can be imported, or says which extra brings it."""
    for library, users in libraries(PACKAGE).items():
        for module in users:
            program = (
                f"import sys; sys.modules[{library!r}] = None\n"
                "from tidegate.errors import MissingDependency\n"
                f"try:\n    import {module}\n"
                "except MissingDependency as error:\n    assert 'tidegate[' in str(error), error\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", program], cwd=ROOT / "src", capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{module} without {library}: {done.stderr}"


GOOD = {
    "tidegate": "from tidegate.limiter import Limiter",
    "tidegate.errors": "class TidegateError(Exception): ...",
    "tidegate.units": "from tidegate.errors import TidegateError",
    "tidegate.core": "",
    "tidegate.core.level": "import math\nfrom tidegate import units\nfrom tidegate.core import law",
    "tidegate.core.law": "from fractions import Fraction",
    "tidegate.stores": "from tidegate.stores import memory",
    "tidegate.stores.base": "from tidegate.core.law import Law",
    "tidegate.stores.memory": "import threading\nfrom .base import Store",
    "tidegate.flows.hit": "from tidegate.stores.base import Store",
    "tidegate.limiter": "from tidegate.flows.hit import hit\nimport tidegate.stores.memory",
    "tidegate.http.asgi": "from tidegate import Limiter",
    "tidegate.server.app": "import uvicorn\nfrom tidegate.http import asgi",
}


def test_a_good_package_has_no_problem():
    """Downward imports, imports within a group, and a library in one file are all allowed."""
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("tidegate.core.level", "from tidegate.limiter import Limiter", "imports tidegate.limiter, upwards"),
        ("tidegate.core.level", "from tidegate import limiter", "imports tidegate.limiter, upwards"),
        ("tidegate.core.level", "from ..stores import memory", "imports tidegate.stores.memory, upwards"),
        ("tidegate.core.level", "from tidegate import Rate", "imports tidegate, upwards"),
        ("tidegate.units", "def f():\n    import tidegate.core.law", "imports tidegate.core.law, upwards"),
        ("tidegate.flows.hit", "import tidegate.stores.memory", "imports tidegate.stores.memory, sideways"),
        ("tidegate.stores.memory", "from tidegate.flows import hit", "imports tidegate.flows.hit, sideways"),
        ("tidegate.stores.base", "import tidegate.stores.redis", "imports tidegate.stores.redis, upwards"),
        ("tidegate.clock", "from tidegate import drive", "imports tidegate, upwards"),
        (
            "tidegate.limiter",
            "import importlib\nimportlib.import_module('tidegate.cli')",
            "tidegate.cli, upwards",
        ),
        (
            "tidegate.core.level",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tidegate.limiter",
            "tidegate.core.level:3 imports tidegate.limiter, upwards",
        ),
        ("tidegate.errors", "import tidegate.core.decision", "imports tidegate.core.decision, upwards"),
        ("tidegate.core.level", "import time", "tidegate.core.level:1 imports time"),
        ("tidegate.flows.hit", "from asyncio import sleep", "imports asyncio"),
        (
            "tidegate.core.level",
            "def f():\n    from random import random",
            "tidegate.core.level:2 imports random",
        ),
        ("tidegate.core.level", "import datetime\ndatetime.datetime.now()", "reads a clock by datetime.now"),
        ("tidegate.core.law", "from tidegate.core import level", "in a circle: tidegate.core.l"),
        (
            "tidegate.http.asgi",
            "import uvicorn",
            "uvicorn is imported by tidegate.http.asgi, tidegate.server.app",
        ),
        ("tidegate.helpers", "", "tidegate.helpers has no level: add it"),
    ],
)
def test_a_bad_module_is_seen(module: str, source: str, complaint: str):
    """Each way to break the layering is reported, once, with the line to look at."""
    found = problems({**GOOD, module: source})

    assert len(found) == 1, found
    assert complaint in found[0]


def test_no_module_stands_in_two_places():
    """Every entry of the table stands there once, so that a module has one level."""
    entries = [entry for level in LEVELS for group in level for entry in group]
    assert len(entries) == len(set(entries))
