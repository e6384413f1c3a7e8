# `tidegate compare`: the same traffic through every algorithm.

from __future__ import annotations

import json

import pytest

from tests.cli.running import Run, assert_golden
from tidegate.simulate import compare as comparing

WEIGHTS = {"TokenBucket": 220, "LeakyBucket": 220, "LeakyQueue": 220, "SlidingLog": 2_000, "FixedWindow": 340}


@pytest.fixture
def same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a key weighs differs between versions of Python, so golden texts hold made-up weights."""
    monkeypatch.setattr(comparing, "bytes_per_key", lambda limit: WEIGHTS.get(type(limit).__name__, 300))


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.usefixtures("same_weights")
def test_the_whole_comparison(run: Run, columns: int):
    """Three kinds of traffic, six algorithms, what each keeps, several servers, and which one is for whom."""
    ran = run("compare", columns=columns)

    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= columns
    assert_golden(f"compare_{columns}", ran.out)


@pytest.mark.usefixtures("same_weights")
def test_other_numbers(run: Run):
    """Any capacity and rate can be compared; long windows keep the tables within the terminal."""
    ran = run("compare", "--capacity", "100", "--rate", "7/min", "--servers", "1")

    assert ran.code == 0
    assert "windows of 14 min 18 s" in ran.words
    assert "spread over one server by chance" in ran.words
    assert max(map(len, ran.out.splitlines())) <= 80


def test_figures_for_programs(run: Run):
    """--json holds what was admitted, the worst second and window, and the waits, by traffic and limit."""
    told = json.loads(run("compare", "--json").out)
    launch, script, bursts = (each["algorithms"] for each in told["traffic"])

    assert {each["admitted"] for each in launch.values()} == {12}
    assert script["TokenBucket"]["admitted"] == script["LeakyQueue"]["admitted"] == 319
    assert bursts["FixedWindow"]["worst_second"] == 40
    assert bursts["SlidingLog"]["worst_window"] == 20
    assert script["LeakyQueue"]["longest_wait_us"] == 3_800_000
    assert all(50 < weight < 5_000 for weight in told["bytes_per_key"].values())
    assert [choice["use"] for choice in told["choose"]][:4] == [
        "TokenBucket",
        "LeakyQueue",
        "LeakyQueue",
        "SlidingLog",
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--rate", "5"], "rate is '5'; a rate needs a period, for instance \"5/s\""),
        (["--rate", "0/s"], "rate is 0/s; to be compared a limit must give something back over time"),
        (["--capacity", "0"], "'0' must be a whole number from 1"),
        (["--capacity", "2.5"], "'2.5' must be a whole number"),
        (["--capacity", "2001"], "capacity is 2001; compare takes a whole number from 1 to 2,000"),
        (["--servers", "0"], "'0' must be a whole number from 1 to 1,000"),
    ],
)
def test_bad_numbers(run: Run, argv: list[str], said: str):
    """Numbers that no algorithm or no picture has are told in one line."""
    ran = run("compare", *argv)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
