# What a rule in a file may say of outages, and what is said about one that cannot be used.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.written import fits, loaded, said, with_rule
from tidegate.core.outage import Reserve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("written", "env", "index"),
    [
        ("{env: NODE_INDEX}", {"NODE_INDEX": "3"}, 3),
        ("{env: NODE_INDEX}", {"NODE_INDEX": "0"}, 0),
        ("null", {}, None),
    ],
)
def test_a_node_learns_its_index_from_the_environment(
    tmp_path: Path, written: str, env: dict[str, str], index: int | None
):
    """The index of this node may stand in a variable, so that all nodes can have one file."""
    lines = "on_outage: reserve", f"reserve: {{share: 40%, nodes: 8, index: {written}}}"
    (rule,) = loaded(tmp_path, with_rule(*lines), env).policy

    assert rule.reserve == Reserve("40%", 8, index)


RESERVE_PROBLEMS = [
    ("20%", ': reserve is "20%"; write for instance reserve: {share: 20%, nodes: 8, index: 0}'),
    ("{share: 20%}", ": nodes is missing; write for instance nodes: 8"),
    ("{share: 20%, instances: 8}", ": unknown key 'instances'; did you mean 'nodes'?"),
    ("{share: 120%, nodes: 8}", ".share: the share of a reserve is '120%'; write a part of the limit…"),
    ("{share: 20, nodes: 8}", ".share: the share of a reserve is 20; write a part of the limit…"),
    ("{share: [1], nodes: 8}", ".share: share is a list; write a part of the limit…"),
    ("{share: 20%, nodes: 0}", ".nodes: nodes is 0; write a whole number from 1 to 10000"),
    ("{share: 40%, nodes: 8, index: 8}", ".index: index of a reserve is 8; write a whole number from 0…"),
    ("{share: 40%, nodes: 8, index: -1}", ".index: index is -1; write a whole number from 0 to 9999"),
    (
        "{share: 40%, nodes: 8, index: {env: NODE}}",
        ".index: index is read from the environment variable NODE, which is not set; set it…",
    ),
    (
        "{share: 40%, nodes: 8, index: {env: WORD}}",
        ".index: index is read from the environment variable WORD, which holds no whole number from 0 on",
    ),
    (
        "{share: 20%, nodes: 8}",
        ": the reserve of 20% over 8 nodes is 0.5 of 20 tokens each, less than the largest cost 1…",
    ),
]


@pytest.mark.parametrize(("written", "problem"), RESERVE_PROBLEMS)
def test_a_reserve_that_cannot_be_used_says_what_to_write(tmp_path: Path, written: str, problem: str):
    """C163: every wrong part of a reserve is an error at its place."""
    lines = "on_outage: reserve", f"reserve: {written}"
    (message,) = said(tmp_path, with_rule(*lines), {"WORD": "first"})

    assert fits(message, f"policy.yaml:7: rules.organization.reserve{problem}")


OUTAGE_PROBLEMS = [
    (("on_outage: shut",), '6: rules.organization.on_outage: on_outage is "shut"; write closed, open or…'),
    (("on_outage: reserve",), "6: rules.organization.on_outage: on_outage is 'reserve'; say which…"),
    (
        ("reserve: {share: 40%, nodes: 8}",),
        "6: rules.organization.reserve: a reserve is there for on_outage 'reserve'…",
    ),
    (
        ("match: {method: POST}", "on_outage: open", "strict: true"),
        "8: rules.organization.strict: a strict rule is a spending cap…",
    ),
    (
        ("outage_limit: {algorithm: token_bucket, capacity: 5, rate: 1/s}",),
        "6: rules.organization.outage_limit: an outage_limit bounds what on_outage 'open' admits…",
    ),
    (("fail_open: true",), "6: rules.organization: unknown key 'fail_open'; did you mean 'on_outage'?"),
    (
        ("on_outage: reserve", "reserve: {share: 40%, nodes: 8}", 'cost: {"/a": 1, "/b": 2}'),
        '8: rules.organization.cost["/b"]: the reserve of 40% over 8 nodes is 1 of 20 tokens each…',
    ),
]


@pytest.mark.parametrize(("lines", "problem"), OUTAGE_PROBLEMS)
def test_outage_rules_that_contradict_themselves(tmp_path: Path, lines: tuple[str, ...], problem: str):
    """C163: what does not belong together is told once, at the line that is to be changed."""
    (message,) = said(tmp_path, with_rule(*lines))

    assert fits(message, f"policy.yaml:{problem}")


def test_the_file_as_a_whole_fits_its_reserves_and_caps(tmp_path: Path):
    """C163: workers may divide a share below the largest cost, and a default may open a spending cap."""
    lines = "on_outage: reserve", "reserve: {share: 40%, nodes: 8}"
    (workers,) = said(tmp_path, with_rule(*lines) + "server: {workers: 2}\n")
    (cap,) = said(tmp_path, with_rule("strict: true") + "store: {url: memory://, on_outage: open}\n")

    at = "rules.organization.reserve: the reserve of 40% over 8 nodes of 2 workers"
    assert fits(workers, f"policy.yaml:7: {at}…")
    assert fits(cap, "policy.yaml:6: rules.organization.strict: a strict rule is a spending cap…")
