# `tidegate conformance`: whether a store answers as it must.

from __future__ import annotations

import json
import shlex

import pytest

from tests.cli.running import Run
from tests.store_tools.broken import Forgiving
from tidegate.cli import main, on_stores
from tidegate.stores.memory import MemoryStore


def test_the_embedded_store_conforms(run: Run):
    """The last line counts tables and traces, and there is no difference."""
    ran = run("conformance", "--store", "memory://", "--seed", "3", "--traces", "60")
    *tables, last = ran.out.splitlines()

    assert (ran.code, ran.err) == (0, "")
    assert len(tables) >= 13
    vectors = last.removeprefix("vectors ").partition("/")[0]
    assert last == f"vectors {vectors}/{vectors}, traces 60/60, differences 0"
    assert int(vectors) > 300


def test_a_difference_is_small_and_can_be_repeated(run: Run, monkeypatch: pytest.MonkeyPatch):
    """Each difference comes with the command that shows it again, and only it."""
    monkeypatch.setattr(on_stores, "open_store", lambda url: Forgiving())
    ran = run("conformance", "--tables", "token_bucket")
    commands = [line.split("repeat", 1)[1].strip() for line in ran.out.splitlines() if "  repeat " in line]

    assert ran.code == 1
    assert int(ran.out.split()[-1]) >= len(commands) > 0
    again = run(*shlex.split(commands[0])[1:])
    assert again.code == 1
    assert again.out.splitlines()[-1] == "vectors 0/1, traces 0/0, differences 1"


def test_a_trace_can_be_repeated(run: Run, monkeypatch: pytest.MonkeyPatch):
    """--trace plays one trace of the seed and no tables."""
    monkeypatch.setattr(on_stores, "open_store", lambda url: Forgiving())
    ran = run("conformance", "--seed", "4", "--traces", "30", "--json")
    shown = [each for each in json.loads(ran.out)["shown"] if "--trace" in each["repeat"]]

    assert ran.code == 1
    again = run(*shlex.split(shown[0]["repeat"])[1:])
    assert again.out.splitlines()[-1] == "vectors 0/0, traces 0/1, differences 1"
    assert shown[0]["expected"] in again.out


def test_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The command that repeats a difference names a store with a password as URL."""
    monkeypatch.setattr(on_stores, "open_store", lambda url: Forgiving())
    main(["conformance", "--store", "other://me:secret@host/0", "--tables", "token_bucket"])
    out, err = capsys.readouterr()

    assert "--store URL --tables token_bucket" in out
    assert "secret" not in out + err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--store", "amqp://me:secret@localhost/0"], "store is 'amqp://***@localhost/0'"),
        (["--store", "memory://?max_keys=0"], "max_keys is 0"),
        (["--tables", "nothing"], "there are no tables 'nothing'; there is "),
        (["--case", "nothing"], "no case is called 'nothing'"),
        (["--seed", "x"], "'x' must be a whole number from 0"),
    ],
)
def test_bad_input(run: Run, argv: list[str], said: str):
    """What cannot be played is told in one line, without a password."""
    ran = run("conformance", *argv)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "secret" not in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ("memory://", "memory://"),
        ("redis://here:6379", "redis://here:6379?deadline=5s"),
        ("redis://here:6379?prefix=a", "redis://here:6379?prefix=a&deadline=5s"),
        ("redis://here:6379?deadline=9ms", "redis://here:6379?deadline=9ms"),
    ],
)
def test_a_store_is_given_time_unless_its_address_says_how_much(monkeypatch, given, opened):
    """Answers are compared and not times, so a busy machine makes no differences."""
    seen = []

    def opening(url):
        seen.append(url)
        return MemoryStore()

    monkeypatch.setattr(on_stores, "open_store", opening)
    main(["conformance", "--store", given, "--tables", "layered", "--traces", "1"])
    assert set(seen) == {opened}
