"""Every conformance table, played on the package by each of its paths."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.engine import PATHS, Player, cases, differences


def hits(case: dict[str, Any]) -> int:
    """How many hits a case makes."""
    return sum(step.get("times", 1) for step in case["steps"] if step["op"] == "hit")


@pytest.mark.parametrize(
    ("case", "path"),
    [
        pytest.param(case, path, id=f"{table}: {case['name']}: {path}")
        for table, case in cases()
        for path in (PATHS if hits(case) < 1_000 else PATHS[:1])
    ],
)
def test_the_package_meets_every_expectation_of(case: dict[str, Any], path: str):
    """Verdict, remaining, balance, wait, retry_after, reset_after: step by step what the table says."""
    assert list(differences(case, path)) == []


def test_the_compiled_path_is_compiled():
    """One level limit is decided by a closure of the limiter, and not by the method of its class."""
    case = {
        "limit": {"algorithm": "token_bucket", "capacity": "20", "rate": "5/s"},
        "steps": [],
    }

    assert "hit" in vars(Player(case, "compiled").limiter)
    assert "hit" not in vars(Player(case, "awaited").limiter)
