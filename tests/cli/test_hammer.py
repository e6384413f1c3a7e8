# `tidegate hammer`: a store under real threads.

from __future__ import annotations

import json

import pytest

from tests.cli.running import Run
from tests.store_tools.broken import Generous, Late
from tidegate.cli import on_stores
from tidegate.testing.hammer import hammer


@pytest.mark.real_time
def test_the_embedded_store_is_exact(run: Run):
    """C001: eight threads at once on one key get what the limit allows, no more and no less."""
    ran = run("hammer", "--threads", "8", "--seconds", "0.3", "--json")
    told = json.loads(ran.out)

    assert ran.code == 0
    assert told["ok"] is True
    assert told["lower"] <= told["admitted"] <= told["upper"]
    assert told["admitted"] >= 100
    assert (told["processes"], told["threads"], told["store"]) == (1, 8, "memory")


@pytest.mark.real_time
def test_what_is_printed(run: Run):
    """The text says who shares what, both bounds with their meaning, and the verdict."""
    ran = run("hammer", "--seconds", "0.2", "--capacity", "10", "--rate", "100/s", "--cost", "2.5")

    assert ran.code == 0
    assert "memory, asked by 1 process with 8 threads for 0." in ran.words
    assert "State in memory:// lives in one process" in ran.words
    assert "ok        yes: lower <= admitted <= upper\n" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.real_time
def test_a_store_that_admits_too_much(run: Run, monkeypatch: pytest.MonkeyPatch):
    """A store that lets more through than the limit is found out: exit code 1."""
    monkeypatch.setattr(
        on_stores, "run_hammer", lambda url, **how: hammer(url, opener=lambda _: Generous(), **how)
    )
    ran = run("hammer", "--seconds", "0.2", "--threads", "2")

    assert ran.code == 1
    assert "ok        NO\n" in ran.out


@pytest.mark.real_time
def test_missed_calls_are_told(run: Run, monkeypatch: pytest.MonkeyPatch):
    """How many there were, and what they mean for the bound below; the verdict is not theirs."""
    monkeypatch.setattr(
        on_stores, "run_hammer", lambda url, **how: hammer(url, opener=lambda _: Late(30), **how)
    )
    how = ("hammer", "--store", "redis://late", "--seconds", "0.2", "--processes", "1")
    ran, told = run(*how, columns=120), json.loads(run(*how, "--json").out)

    assert ran.code == 0
    assert "missed    30 calls had no answer in time: charged or not" in ran.out
    assert "capacity + rate x T - (2 + 30 missed) x cost" in ran.out
    assert "yes: lower <= admitted <= upper, with 30 calls missed" in ran.out
    assert (told["missed"], told["calls"]) == (30, told["refused"] + told["admitted"] + 30)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--processes", "8"], "8 processes would have a budget each; hammer it with --threads 8"),
        (["--threads", "0"], "'0' must be a whole number from 1 to 256"),
        (["--seconds", "0"], "'0' must be more than 0 seconds and at most 3,600"),
        (["--seconds", "inf"], "'inf' must be a number"),
        (["--rate", "5/month"], "a month has no fixed length"),
        (["--capacity", "0"], "'0' must be more than 0"),
        (["--cost", "101"], "cost 101 is above the capacity 100"),
        (["--store", "nosuch://"], "store is 'nosuch://'"),
    ],
)
def test_bad_input(run: Run, argv: list[str], said: str):
    """What cannot be hammered is told in one line, before anything starts."""
    ran = run("hammer", *argv)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
