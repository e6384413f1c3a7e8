"""The oracle against its own definitions, on random traces: hints that are exact, verdicts that agree.

The oracle computes a wait by a formula or a search; here each is taken at its word.
"""

from __future__ import annotations

import copy

import pytest

from tests.oracle.model import Answer, Model
from tests.oracle.play import Case, play
from tests.oracle.reading import number
from tests.oracle.traces import LEVELS, layered_trace, trace

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_hints_are_exact(seed: int) -> None:
    """After exactly retry_after it is admitted, a microsecond earlier not; the same for fresh again."""
    case = trace(seed)
    key, checked = _key(case), 0
    answers: list[Answer | None] = []
    for step in case["steps"]:
        answers.append(_do(key, step, answers))
        if step["op"] == "hit":
            answer = answers[-1]
            assert answer is not None
            if number(step["cost"]) > 0:  # cost 0 writes nothing, so its hints speak of a state not yet moved
                _check_retry(key, step, answer)
                _check_reset(key, step["at_us"], answer)
                checked += 1

    assert checked > 10


def _check_retry(key: Model, step: dict[str, str], answer: Answer) -> None:
    now_us, wait_us = int(step["at_us"]), answer.retry_after_us
    if answer.allowed:
        assert wait_us == 0
        return
    if wait_us is None:
        assert number(step["cost"]) > key.at(now_us)[0].capacity or key.machine.reset_after_us(now_us) is None
        assert not copy.deepcopy(key).hit(now_us + 10**16, step["cost"]).allowed or "zone" in key.limit
        return
    assert wait_us > 0
    assert copy.deepcopy(key).hit(now_us + wait_us, step["cost"]).allowed
    assert not copy.deepcopy(key).hit(now_us + wait_us - 1, step["cost"]).allowed


def _check_reset(key: Model, now_us: int, answer: Answer) -> None:
    wait_us = answer.reset_after_us
    if wait_us is None:
        return
    assert key.at(now_us + wait_us)[0].is_fresh()
    assert wait_us == 0 or not key.at(now_us + wait_us - 1)[0].is_fresh()


@pytest.mark.parametrize("seed", range(30))
def test_the_three_machines_give_the_same_verdicts(seed: int) -> None:
    """Budget, witness and waiting line: the same verdicts, balances and hints; only the waits differ."""
    case = trace(seed, algorithms=("token_bucket",), changes=False)
    told = []
    for algorithm in LEVELS:
        again = copy.deepcopy(case)
        again["limit"]["algorithm"] = algorithm
        if case["limit"]["rate"].startswith("0/"):
            again["limit"]["rate"] = "1/s"
        told.append([{name: each[name] for name in each if name != "wait_us"} for each in play(again)])

    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("seed", range(30))
def test_a_layered_limit_alone_is_the_limit(seed: int) -> None:
    """One limit among one: the verdicts, hints and waits of the single machine."""
    case = layered_trace(seed, steps=30)
    single: Case = {"name": "alone", "limit": case["limits"][0]["limit"], "steps": []}
    layered = {**case, "limits": case["limits"][:1], "steps": []}
    for step in case["steps"]:
        layered["steps"].append({**step, "costs": step["costs"][:1], "keys": ["k"]})
        single["steps"].append({"op": step["op"], "at_us": step["at_us"], "cost": step["costs"][0]})
    extra = {"rule", "outcomes", "admitted"}
    told = [{name: each[name] for name in each if name not in extra} for each in play(layered)]

    assert told == play(single)


def _key(case: Case) -> Model:
    options = dict(case["options"])
    if "max_debt" in options:
        options["max_debt"] = number(options["max_debt"])
    return Model(case["limit"], **options)


def _do(key: Model, step: dict[str, str], answers: list[Answer | None]) -> Answer | None:
    now_us = int(step.get("at_us", 0))
    if step["op"] == "hit":
        return key.hit(now_us, step["cost"])
    if step["op"] in {"refund", "settle"}:
        earlier = answers[int(step["step"])]
        assert earlier is not None
        (key.refund if step["op"] == "refund" else key.settle)(now_us, earlier, step["cost"])
    elif step["op"] == "reset":
        key.reset()
    elif step["op"] == "change":
        key.change(step["limit"])  # type: ignore[arg-type]  # a table is untyped
    return None
