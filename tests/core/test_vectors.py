"""Every conformance table, played on the package by each of its paths."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.engine import PATHS, Player, cases, differences


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{table}: {case['name']}") for table, case in cases()]
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
