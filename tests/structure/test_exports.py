# What `import tidegate` gives, and what it costs.

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import tidegate
from tidegate import errors

ROOT = Path(__file__).resolve().parents[2]

LIMITS = {"TokenBucket", "LeakyBucket", "LeakyQueue", "SlidingLog", "FixedWindow", "SlidingWindow", "Rate"}
DECIDING = {"Rule", "Policy", "Limiter", "AsyncLimiter", "Decision", "open_store"}
ERRORS = {
    "TidegateError",
    "LimitError",
    "RateError",
    "PolicyError",
    "ConfigError",
    "CostError",
    "CostTooLarge",
    "InvalidKey",
    "StoreError",
    "StoreUnavailable",
    "MissingDependency",
    "RateLimited",
}
ABOUT = {"__version__", "__impl__"}

# Modules of the standard library that take long to import and that deciding does not need.
HEAVY = {
    "asyncio",
    "concurrent.futures",
    "email",
    "http.client",
    "logging",
    "multiprocessing",
    "sqlite3",
    "ssl",
    "xml",
}


def modules_after(statement: str) -> set[str]:
    """The modules that the statement adds to those of a bare interpreter."""
    program = f"import sys; before = set(sys.modules)\n{statement}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{program}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_the_public_names():
    """`tidegate.__all__` is exactly the documented names, each once, and each exists."""
    assert sorted(tidegate.__all__) == sorted(LIMITS | DECIDING | ERRORS | ABOUT)
    assert all(hasattr(tidegate, name) for name in tidegate.__all__)


def test_nothing_else_is_public():
    """Whatever else can be seen on the package is a module of it."""
    seen = {name for name in vars(tidegate) if not name.startswith("_")} - set(tidegate.__all__)
    assert {
        name for name in seen if not inspect.ismodule(getattr(tidegate, name)) and name != "annotations"
    } == set()


def test_the_whole_tree_of_errors_is_public():
    """Every error class that tidegate raises can be caught by a name of the package, and has one root."""
    classes = {
        name
        for name, found in vars(errors).items()
        if inspect.isclass(found) and issubclass(found, Exception) and found.__module__ == errors.__name__
    }
    assert classes == ERRORS
    assert all(issubclass(getattr(tidegate, name), tidegate.TidegateError) for name in ERRORS)


def test_the_version_is_stated_once():
    """`tidegate.__version__` is the version that pyproject.toml gives the distribution."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tidegate.__version__ == project["version"]


def test_the_implementation_is_named():
    """`tidegate.__impl__` says which engine decides in process."""
    assert tidegate.__impl__ in {"python", "c"}


def test_importing_needs_no_other_library():
    """Without any site-packages `import tidegate` works, and what it imports is Python's own."""
    added = {name.partition(".")[0] for name in modules_after("import tidegate")}
    foreign = added - {"tidegate"} - sys.stdlib_module_names
    assert {name for name in foreign if not name.startswith("_sysconfigdata")} == set()  # named by platform


def test_importing_is_light():
    """`import tidegate` loads no event loop, no network and no logging, and few modules in all."""
    added = modules_after("import tidegate")

    assert added & HEAVY == set()
    of_python = {name for name in added if not name.startswith("tidegate")}
    assert len(of_python) < 90, sorted(of_python)
