# The example policies: each loads, and the one that `make run` serves refuses the twenty-first call.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.written import EXAMPLES
from tests.servers.redis_like import RedisLike
from tidegate import Limiter, open_store
from tidegate.config import load
from tidegate.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

ENV = {"TIDEGATE_PORT": "8080", "TIDEGATE_TOKEN": "for-tests"}
ENV |= {"TIDEGATE_STORE": "redis://127.0.0.1:1/0", "NODE_INDEX": "0"}


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


def test_the_shared_example_decides_on_a_server(valkey: RedisLike):
    """Two hosts draw on one budget; what is paid for begins empty where it is not known what was spent."""
    hosts = []
    for index in ("0", "1"):
        config = load(EXAMPLES / "shared.yaml", env=ENV | {"TIDEGATE_STORE": valkey.url, "NODE_INDEX": index})
        hosts.append(Limiter(config.policy, store=f"{config.store_url}&deadline=10s"))
    calls = [host.hit({"org": "acme", "path": "/v1/list"}, 300) for host in hosts]
    paid = hosts[0].hit({"org": "globex", "path": "/v1/generate"})

    assert [call.allowed for call in calls] == [True, False]
    assert (paid.allowed, paid.rule) == (False, "paid tokens")
    assert valkey.command("EXISTS", "shop:{acme}:organization") == 1
    for host in hosts:
        host.close()


def test_the_shared_example_in_an_outage():
    """Pages pass within their limit, what is paid for is refused."""
    config = load(EXAMPLES / "shared.yaml", env=ENV)
    with Limiter(config.policy, store=config.store_url, on_outage=config.store.on_outage) as limiter:
        pages = [limiter.hit({"user": "ann", "path": "/pages/1"}) for _ in range(5)]
        paid = limiter.hit({"org": "acme", "path": "/v1/generate"})

    assert [(page.allowed, page.source) for page in pages] == [(True, "outage")] * 5
    assert (paid.allowed, paid.rule, paid.source) == (False, "paid tokens", "outage")


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
