# Random traces: equal seeds make equal ones, a right store passes, a wrong one is found and made small.

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from tests.store_tools.broken import Forgiving, OneByOne, Rewarding, Tight
from tidegate.stores.memory import MemoryStore
from tidegate.testing import run_traces
from tidegate.testing.draw import STEPS, draw
from tidegate.testing.reference import ReferenceStore


def test_a_right_store_passes():
    """The embedded store answers as the reference does, step by step."""
    report = run_traces(MemoryStore, seed=11, traces=150)

    assert report, report
    assert (report.total, report.agreed) == (150, 150)


@pytest.mark.parametrize("store", [Forgiving, Tight, OneByOne, Rewarding])
def test_a_wrong_store_is_found(store: type[MemoryStore]):
    """Each fault shows within thirty traces, in a few steps, the last of which is the one that differs."""
    report = run_traces(store, seed=1, traces=30)

    assert not report
    first = report.differences[0]
    steps = [step for step in first.steps if not step.startswith("rule ")]
    assert 1 <= len(steps) <= 6
    assert first.expected != first.answered
    assert first.replay[:2] == ("--seed", "1")


def test_a_difference_comes_back():
    """The trace that a difference names shows the same difference when it is played alone."""
    report = run_traces(Tight, seed=1, traces=30)
    number = int(report.differences[0].replay[-1])
    alone = run_traces(Tight, seed=1, only=number)

    assert (alone.total, alone.differing) == (1, 1)
    assert alone.differences[0] == report.differences[0]


def test_a_trace_follows_from_its_seed():
    """Equal sources of chance make equal traces, and unequal ones others."""
    assert draw(Random("1/2")) == draw(Random("1/2"))
    assert draw(Random("1/2")) != draw(Random("1/3"))


def test_traces_look_for_trouble():
    """All algorithms, operations and ways of the clock occur, so that none is never compared."""
    drawn = [draw(Random(f"0/{number}")) for number in range(200)]
    limits = Counter(type(rule.limit).__name__ for trace in drawn for rule in trace.rules)
    done = Counter(step.op for trace in drawn for step in trace.steps)
    gaps = [after.at_us - before.at_us for trace in drawn for before, after in pairwise(trace.steps)]

    assert len(limits) == 6
    assert set(done) == {"hit", "peek", "refund", "settle", "reset", "change"}
    assert min(done.values()) > 50
    assert {len(trace.steps) for trace in drawn} == {STEPS}
    assert sum(gap == 0 for gap in gaps) > 1_000
    assert sum(gap < 0 for gap in gaps) > 200
    assert sum(gap < -60_000_000 for gap in gaps) > 50


def test_the_clock_does_go_back():
    """What is compared still holds steps back of the clock, although none past what was forgotten."""
    seen: list[int] = []

    class Watched(ReferenceStore):
        def decide(self, charges, now_us=None, *, take=True):
            seen.append(now_us)
            return super().decide(charges, now_us, take=take)

    assert run_traces(Watched, seed=2, traces=100)
    backwards = [before - after for before, after in pairwise(seen) if before > after]
    assert sum(us <= 60_000_000 for us in backwards) > 25
    assert sum(us > 60_000_000 for us in backwards) > 3
