# `tidegate check` and `tidegate schema`.

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml

from tests.cli.running import Run
from tests.limiter.remote import Remote, Servers
from tidegate import MissingDependency, StoreError
from tidegate.testing import ManualClock

BUCKET = "  - {name: own, by: [org], limit: {algorithm: token_bucket, capacity: 50, rate: 5/s}}"
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_a_good_file(run: Run):
    """A file that can be served is told to be valid, with its rules."""
    ran = run("check", "policy.yaml")

    assert (ran.code, ran.err) == (0, "")
    assert ran.words.startswith("policy.yaml is valid: 8 rules, internal, address, organization, reports,")


def test_everything_wrong_at_once(run: Run, write):
    """Each problem has a line of its own, with file and line; nothing else is printed, and the code is 2."""
    name = write(
        "  - {name: a, by: [org], limit: {algorithm: token_bucket, capacity: 0, rate: 5}}\n  - {nam: b}"
    )
    ran = run("check", name)

    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert len(lines) >= 3
    assert all(line.startswith(("own.yaml:3: ", "own.yaml:4: ")) for line in lines)


def test_a_file_that_is_not_there(run: Run):
    """A missing file is one line, and no traceback, whatever the command."""
    for command in ("check", "explain", "decide"):
        ran = run(command, "nowhere.yaml")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == "nowhere.yaml: there is no such file; check the path\n"


def test_a_doubt_is_no_problem(run: Run, write):
    """What is valid and probably not meant is told aside; the file stays valid."""
    rule = "  - {name: a, by: [ogr], limit: {algorithm: token_bucket, capacity: 1, rate: 5/s}}"
    name = write(f"{rule}\nattributes: {{org: {{header: X-Org}}}}")
    ran = run("check", name)

    assert ran.code == 0
    assert "is valid: 1 rule, a." in ran.out
    assert ran.err.endswith("(a warning)\n")
    assert "did you mean 'org'?" in ran.err


def test_for_programs(run: Run, write):
    """--json lists the problems with their places, for an editor or a pipeline."""
    good = json.loads(run("check", "policy.yaml", "--json").out)
    bad = run("check", write("  - {name: a, mode: blocked}"), "--json")
    told = json.loads(bad.out)

    assert good == {"file": "policy.yaml", "valid": True, "problems": [], "warnings": []}
    assert (bad.code, bad.err, told["valid"]) == (2, "", False)
    assert told["problems"][0]["line"] == 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_schema_takes_what_is_valid(run: Run, path: Path):
    """The schema that is printed is one, and every example of the project follows it."""
    ran = run("schema")
    printed = json.loads(ran.out)

    assert ran.code == 0
    jsonschema.Draft202012Validator.check_schema(printed)
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), printed)


def test_a_store_that_cannot_be_opened(run: Run, write, monkeypatch: pytest.MonkeyPatch):
    """A store whose address it does not take, or whose library is missing, is a problem of the file."""

    def make(url: str) -> Any:
        raise error

    module = ModuleType("tidegate.stores.redis.store")
    monkeypatch.setattr(module, "RedisStore", make, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    name = write(f"{BUCKET}\nstore: 'redis://host?db=x'")
    for error in (
        StoreError("db is 'x'; write a whole number"),
        MissingDependency("install tidegate[redis]"),
    ):
        ran = run("check", name)
        assert (ran.code, ran.err) == (2, f"{name}: store: {error}\n")


def test_a_store_that_can_be_opened_is_closed(run: Run, write, monkeypatch: pytest.MonkeyPatch):
    """Checking makes the store, connects to nothing, and lets go of it."""
    made: list[Remote] = []

    def make(url: str) -> Remote:
        made.append(Remote(Servers(ManualClock())))
        return made[-1]

    module = ModuleType("tidegate.stores.redis.store")
    monkeypatch.setattr(module, "RedisStore", make, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert run("check", write(f"{BUCKET}\nstore: redis://host")).code == 0
    assert [store.closed for store in made] == [True]
