"""Plays a conformance case on the oracle: what it answers to each step, in the tables' own form."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.oracle.layered import Layered, LayeredAnswer
from tests.oracle.model import Answer, BadInput, Model
from tests.oracle.reading import number

Step = dict[str, Any]
Case = dict[str, Any]

EXPECTED = {  # the fields of an answer
    "allowed",
    "admitted",
    "rule",
    "remaining",
    "balance",
    "wait_us",
    "retry_after_us",
    "reset_after_us",
    "returned",
    "error",
    "outcomes",
}


def text(value: Fraction) -> str:
    """A number of tokens as the tables write it: a decimal string, or "a/b" where none is exact."""
    if value.denominator == 1:
        return str(value.numerator)
    digits = 1
    while digits <= 18:
        if (value * 10**digits).denominator == 1:
            whole = abs(value.numerator) * 10**digits // value.denominator
            sign = "-" if value < 0 else ""
            return f"{sign}{whole // 10**digits}.{whole % 10**digits:0{digits}d}"
        digits += 1
    return str(value)


def play(case: Case, model: type[Model] = Model) -> list[Step]:
    """For each step what was answered: the fields of README.md. Raises BadInput if the limit is rejected."""
    options: dict[str, Any] = dict(case.get("options", {}))
    if "max_debt" in options:
        options["max_debt"] = number(options["max_debt"])
    if "limits" in case:
        return _play_layered(
            case, Layered([(each["name"], each["limit"]) for each in case["limits"]], **options)
        )
    return _play_single(case, model(case["limit"], **options))


def differences(case: Case, model: type[Model] = Model) -> list[str]:
    """Every expectation of the case that the oracle does not meet."""
    return compared(case, model)[0]


def compared(case: Case, model: type[Model] = Model) -> tuple[list[str], list[Step]]:
    """The expectations that are not met, and all that was answered."""
    try:
        answers = play(case, model)
    except BadInput as error:
        return ([] if case.get("rejected") else [f"{case['name']}: rejected: {error}"]), []
    if case.get("rejected"):
        return [f"{case['name']}: must be rejected"], []
    found = []
    for index, (step, answer) in enumerate(zip(case["steps"], answers, strict=True)):
        if "error" in answer and "error" not in step:
            found.append(f"{case['name']}, step {index}: rejected as an error")
        found += [
            f"{case['name']}, step {index}: {field} {step[field]}, oracle {answer.get(field)}"
            for field in sorted(EXPECTED.intersection(step))
            if step[field] != answer.get(field, "(nothing)")
        ]
        for place, expected in enumerate(step.get("each", ())):
            for field, value in expected.items():
                actual = answer["outcomes"][place][field]
                if value != actual:
                    found.append(
                        f"{case['name']}, step {index}, limit {place}: {field} {value}, oracle {actual}"
                    )
    return found, answers


def _play_single(case: Case, key: Model) -> list[Step]:
    decisions: list[Answer | None] = []
    answers = []
    for step in case["steps"]:
        answer: Step = {}
        decision = None
        try:
            for _ in range(step.get("times", 1)):
                answer, decision = _one(step, key, decisions, answer)
        except BadInput:
            answer = {"error": True}
        decisions.append(decision)
        answers.append(answer)
    return answers


def _one(step: Step, key: Model, decisions: list[Answer | None], before: Step) -> tuple[Step, Answer | None]:
    op, now_us = step["op"], step.get("at_us", 0)
    if op == "hit":
        decision = key.hit(now_us, step["cost"], step.get("patience_us"))
        answer = _fields(decision)
        if "times" in step:
            answer["admitted"] = before.get("admitted", 0) + decision.allowed
            if decision.allowed and before.get("admitted", 0) < before.get("seen", 0):
                raise AssertionError("the admitted ones of a repeated step must be the first ones")
            answer["seen"] = before.get("seen", 0) + 1
        return answer, decision
    if op == "peek":
        return _looked(_fields(key.peek(now_us, step["cost"]))), None
    if op in {"refund", "settle"}:
        earlier = decisions[step["step"]]
        assert earlier is not None, "refund and settle name the step of a hit"
        verb = key.refund if op == "refund" else key.settle
        return {"returned": text(verb(now_us, earlier, step["cost"]))}, None
    if op == "reset":
        key.reset()
        return {}, None
    assert op == "change", op
    key.change(step["limit"])
    return {}, None


def _fields(answer: Answer | LayeredAnswer) -> Step:
    return {
        "allowed": answer.allowed,
        "remaining": answer.remaining,
        "balance": text(answer.balance),
        "wait_us": answer.wait_us,
        "retry_after_us": answer.retry_after_us,
        "reset_after_us": answer.reset_after_us,
    }


def _play_layered(case: Case, limits: Layered) -> list[Step]:
    decisions: list[LayeredAnswer | None] = []
    answers = []
    for step in case["steps"]:
        answer: Step = {}
        decision = None
        keys = step.get("keys")
        for _ in range(step.get("times", 1)):
            admitted = answer.get("admitted", 0)
            if step["op"] == "refund":
                earlier = decisions[step["step"]]
                assert earlier is not None
                returned = limits.refund(step["at_us"], earlier, keys)
                answer = {"returned": [text(amount) for amount in returned]}
            elif step["op"] == "reset":
                limits.reset()
            else:
                verb = {"hit": limits.hit, "peek": limits.peek}[step["op"]]
                decision = verb(step["at_us"], step["costs"], keys)
                answer = _fields(decision) | {"rule": decision.rule, "admitted": admitted + decision.allowed}
                answer = answer if step["op"] == "hit" else _looked(answer)
                answer["outcomes"] = [_outcome(outcome) for outcome in decision.outcomes]
        decisions.append(decision)
        answers.append(answer)
    return answers


def _looked(answer: Step) -> Step:
    """A look holds no work: it has no wait."""
    return {name: value for name, value in answer.items() if name != "wait_us"}


def _outcome(outcome: Answer) -> Step:
    fields = _fields(outcome)
    return {name: fields[name] for name in ("allowed", "remaining", "retry_after_us", "reset_after_us")}
