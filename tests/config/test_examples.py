# The example policies: each loads, and the one that `make run` serves refuses the twenty-first call.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.written import EXAMPLES
from tidegate import Limiter, open_store
from tidegate.config import load
from tidegate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

ENV = {"TIDEGATE_PORT": "8080", "TIDEGATE_TOKEN": "for-tests"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_loads_without_a_doubt(path: Path):
    """An example is valid as it stands, and its store can be opened."""
    config = load(path, env=ENV)

    assert config.warnings == ()
    assert len(config.policy) > 0
    open_store(config.store_url).close()


def test_the_example_of_the_first_run_refuses_the_twenty_first_call():
    """One address is served twenty calls at once and refused the next, with an honest hint."""
    limiter = Limiter(load(EXAMPLES / "policy.yaml").policy, clock=ManualClock())
    request = {"address": "127.0.0.1", "method": "GET", "path": "/auth", "route": "GET /auth"}

    answers = [limiter.hit(request) for _ in range(21)]
    assert [answer.allowed for answer in answers] == [True] * 20 + [False]
    assert (answers[-1].rule, answers[-1].retry_after) == ("address", 0.2)


def test_the_examples_show_every_algorithm():
    """Whoever looks for an algorithm finds it written out."""
    rules = load(EXAMPLES / "algorithms.yaml").policy

    assert {rule.limit.algorithm for rule in rules if rule.limit is not None} == {
        "token_bucket",
        "leaky_bucket",
        "leaky_queue",
        "sliding_log",
        "fixed_window",
        "sliding_window",
    }
