# What a policy would answer, with nothing spent before.

from __future__ import annotations

import pytest

from tidegate import CostError, LeakyQueue, Policy, Rule, TokenBucket
from tidegate.simulate.trial import attempt, text

POLICY = Policy([Rule("own", TokenBucket(20, "5/s"), by=("org",), cost={"POST /exports": 5})])


def test_the_worked_example():
    """TokenBucket(20, "5/s"): twenty reads pass at once, the twenty-first is refused for 0.2 s."""
    asked = attempt(POLICY, {"org": "acme"}, cost=1, times=21, now_us=0)

    assert asked.admitted == 20
    assert asked.decisions[-1].retry_after == 0.2
    assert [(each.first, each.last) for each in asked.stretches] == [(1, 20), (21, 21)]


def test_nothing_is_kept():
    """Two trials of one policy know nothing of each other."""
    first, second = (attempt(POLICY, {"org": "acme"}, cost=20, times=1, now_us=0) for _ in range(2))
    assert first.admitted == second.admitted == 1


def test_a_route_has_its_price():
    """An export of cost 5 passes four times."""
    asked = attempt(POLICY, {"org": "acme", "route": "POST /exports"}, cost=1, times=5, now_us=0)
    assert asked.admitted == 4


def test_waits_are_told_from_the_shortest():
    """A stretch tells its shortest and longest wait; a wait for all of them is told once."""
    line = Policy([Rule("line", LeakyQueue(20, "5/s", "interval"))])

    assert "allowed, to be held for 200 ms to 4 s\n" in text(attempt(line, {}, cost=1, times=20, now_us=0))
    assert text(attempt(line, {}, cost=1, times=1, now_us=0)).startswith("allowed, to be held for 200 ms\n")


def test_a_bad_cost_is_an_error():
    """A cost that is none raises before anything is decided."""
    with pytest.raises(CostError):
        attempt(POLICY, {"org": "acme"}, cost=-1, times=1, now_us=0)
