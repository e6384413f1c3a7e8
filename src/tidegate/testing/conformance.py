"""Plays the conformance tables on a store: every step of every case, compared without tolerance.

The tables are data (`conformance/README.md` describes them); this file says what each of their words
means for a store. For the author of a store, in a test:

    report = run_vectors(lambda: MyStore("..."))
    assert report, report
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeAlias
from uuid import uuid4

from tidegate.core.decision import Decision
from tidegate.core.limits import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.policy import ONLY_RULE, Policy
from tidegate.core.rule import Rule
from tidegate.errors import TidegateError
from tidegate.limiter import Limiter
from tidegate.reservation import Reservation
from tidegate.stores.base import Store
from tidegate.testing.clock import ManualClock
from tidegate.testing.report import Difference, Report
from tidegate.units import MILLI, US_PER_S, Number, decimal_text, milli

Table: TypeAlias = dict[str, Any]

_ANSWERS = (
    *("allowed", "admitted", "rule", "remaining", "balance", "wait_us", "retry_after_us"),
    *("reset_after_us", "outcomes", "returned", "error"),
)
_LEVELS = {"token_bucket": TokenBucket, "leaky_bucket": LeakyBucket}


def run_vectors(
    store_factory: Callable[[], Store],
    *,
    tables: str | None = None,
    case: str | None = None,
    differences_most: int = 20,
) -> Report:
    """Play all tables on a store that the factory makes; the report is true iff every answer was right.

    `tables` and `case` select by name. The store is opened once and closed at the end; its keys are made
    up for the run, and forgotten after it. At most `differences_most` are told, the first of each case.
    """
    agreed: dict[str, list[int]] = {}
    found: list[Difference] = []
    run = uuid4().hex[:12]
    with closing(store_factory()) as store:
        for number, (name, told) in enumerate(_cases(tables)):
            if case is not None and told["name"] != case:
                continue
            difference = _Play(store, told, f"{run}-{number}").difference(name)
            agreed.setdefault(name, []).append(difference is None)
            found += [difference] if difference is not None else []
    total = sum(map(len, agreed.values()))
    of_each = tuple((name, sum(each), len(each)) for name, each in agreed.items())
    return Report(total, len(found), tuple(found[:differences_most]), of_each)


def table_names() -> list[str]:
    """The names of the tables that came with this version, in order."""
    return sorted(path.name.removesuffix(".json") for path in _folder().iterdir() if _is_table(path.name))


def _cases(only: str | None) -> Iterator[tuple[str, Table]]:
    for name in table_names():
        if only is None or name == only:
            content = (_folder() / f"{name}.json").read_text(encoding="utf-8")
            for case in json.loads(content)["cases"]:
                yield name, case


def _folder() -> Traversable:
    return files("tidegate.testing") / "vectors"


def _is_table(name: str) -> bool:
    return name.endswith(".json")


def limit_of(table: Table) -> Limit:
    """The limit that a table of a case says. Raises LimitError."""
    algorithm = table["algorithm"]
    if algorithm in _LEVELS:
        return _LEVELS[algorithm](Fraction(table["capacity"]), table["rate"])
    if algorithm == "leaky_queue":
        free = Fraction(table.get("delay_after", "0"))
        release = table.get("first_release", "immediate")
        return LeakyQueue(Fraction(table["capacity"]), table["rate"], release, free)
    size = Fraction(table["limit"])
    if algorithm == "fixed_window":
        return FixedWindow(size, table["window"], table.get("zone", "UTC"))
    if algorithm == "sliding_window":
        return SlidingWindow(size, table["window"])
    return SlidingLog(size, table["window"])  # type: ignore[arg-type]  # it refuses fractions itself


class _Play:
    """One case on one store: its limits as a policy, its keys made unique, its decisions kept by step."""

    def __init__(self, store: Store, case: Table, prefix: str) -> None:
        self._store = store
        self._case = case
        self._prefix = prefix
        self._clock = ManualClock()
        self._decisions: list[Decision | None] = []
        self._touched: set[tuple[str, Any]] = set()
        self._limiter: Limiter | None = None

    def difference(self, table: str) -> Difference | None:
        """The first answer that is not the expected one; the keys of the case are forgotten afterwards."""
        try:
            return self._first_difference(table)
        finally:
            self._store.forget(sorted(self._touched, key=repr))

    def _first_difference(self, table: str) -> Difference | None:
        case = self._case
        try:
            self._limiter = Limiter(self._policy(), store=self._store, clock=self._clock)
        except TidegateError as error:
            if case.get("rejected"):
                return None
            return self._differs(table, -1, "a limit", f"the error {error}")
        if case.get("rejected"):
            return self._differs(table, -1, "an error when the limit is made", "a limit")
        for index, step in enumerate(case["steps"]):
            answer = self._answer(step)
            if "error" in answer and "error" not in step:
                return self._differs(table, index, "an answer", f"the error {answer['error']}")
            wrong = [name for name in _ANSWERS if name in step and not _same(step[name], answer.get(name))]
            if wrong:
                expected = ", ".join(f"{name} {step[name]}" for name in wrong)
                answered = ", ".join(f"{name} {_shown(answer.get(name, '(nothing)'))}" for name in wrong)
                return self._differs(table, index, expected, answered)
        return None

    def _answer(self, step: Table) -> Table:
        """What the store answers to a step: the fields of the tables."""
        self._decisions.append(None)
        if "at_us" in step:
            self._clock.set(Fraction(step["at_us"], US_PER_S))
        try:
            return self._ask(step) if step["op"] in ("hit", "peek") else self._change(step)
        except TidegateError as error:
            return {"error": str(error)}

    def _ask(self, step: Table) -> Table:
        """Hit or look, so many times; the answer is the last one's, with how many were admitted."""
        charges = [charge._replace(patience_us=step.get("patience_us")) for charge in self._charges(step)]
        decisions = [
            Decision.of(outcomes, self._store.name, None, None)
            for outcomes in self._outcomes(charges, step.get("times", 1), take=step["op"] == "hit")
        ]
        self._decisions[-1] = decisions[-1]
        return _fields(decisions[-1]) | {"admitted": sum(decision.allowed for decision in decisions)}

    def _outcomes(self, charges: list[Charge], times: int, *, take: bool) -> Iterator[list[Outcome]]:
        """What the store says to the same request so many times; in one call, where it takes many at once."""
        now_us, many = self._clock.now_us(), getattr(self._store, "decide_many", None)
        if times == 1 or not take or many is None:
            for _ in range(times):
                yield self._store.decide(charges, now_us, take=take)
            return
        for answer in many([charges] * times, now_us):
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def _change(self, step: Table) -> Table:
        """Give back, reset, or put another limit in force."""
        assert self._limiter is not None
        op = step["op"]
        if op in ("refund", "settle"):
            earlier = self._decisions[step["step"]]
            assert earlier is not None, "a refund names the step of a hit"
            return {"returned": self._returned(step, earlier)}
        if op == "reset":
            self._store.forget([(charge.rule, charge.key) for charge in self._charges({})])
        else:
            assert op == "change", op
            self._limiter.replace_policy(self._one_rule(step["limit"]))
        return {}

    def _charges(self, step: Table) -> list[Charge]:
        """What the step asks of each limit."""
        assert self._limiter is not None
        policy = self._limiter.policy
        costs = step.get("costs") or [step.get("cost", "0")] * len(policy)
        keys = step.get("keys") or [""] * len(policy)
        attributes: dict[str, object] = {}
        for rule, cost, key in zip(policy, costs, keys, strict=True):
            attributes[f"key {rule.name}"] = f"{self._prefix} {key}"
            attributes[f"cost {rule.name}"] = Fraction(cost)
        stated = 0 if "costs" in step else milli(Fraction(costs[0]))
        charges = policy.plan(attributes, stated).charges
        self._touched.update((charge.rule, charge.key) for charge in charges)
        return charges

    def _returned(self, step: Table, earlier: Decision) -> Fraction | list[Fraction]:
        assert self._limiter is not None
        if "limits" not in self._case:
            cost = Fraction(step["cost"])
            if step["op"] == "settle":
                return Reservation(self._limiter, earlier).settle(cost)
            return self._limiter.refund(earlier, cost)
        before = dict(earlier.returned)
        self._limiter.refund(earlier)
        return [
            Fraction(
                earlier.returned.get(outcome.rule, 0) - before.get(outcome.rule, 0),
                outcome.limit.law.grain * MILLI,
            )
            for outcome in earlier.outcomes
        ]

    def _policy(self) -> Policy:
        if "limits" not in self._case:
            return self._one_rule(self._case["limit"])
        return Policy(
            self._rule(each["name"], each["limit"], cost=_cost_from(f"cost {each['name']}"))
            for each in self._case["limits"]
        )

    def _one_rule(self, limit: Table) -> Policy:
        return Policy([self._rule(ONLY_RULE, limit)])

    def _rule(self, name: str, limit: Table, **more: Any) -> Rule:
        options = dict(self._case.get("options", {}))
        if "max_debt" in options:
            options["max_debt"] = Fraction(options["max_debt"])
        return Rule(name, limit_of(limit), by=(f"key {name}",), **options, **more)

    def _differs(self, table: str, index: int, expected: str, answered: str) -> Difference:
        steps: Sequence[Table] = self._case.get("steps", ())[: index + 1]
        limits = self._case.get("limits") or [self._case["limit"]]
        return Difference(
            where=f"{table}.json, case {self._case['name']!r}",
            steps=(*(f"limit {json.dumps(limit)}" for limit in limits), *map(_asked, steps)),
            expected=expected,
            answered=answered,
            replay=("--tables", table, "--case", self._case["name"]),
        )


def _cost_from(attribute: str) -> Callable[[Any], Number]:
    return lambda attributes: attributes[attribute]


def _fields(decision: Decision) -> Table:
    return {
        "allowed": decision.allowed,
        "rule": decision.rule,
        "remaining": decision.remaining,
        "balance": decision.balance,
        "wait_us": decision.wait_us,
        "retry_after_us": decision.retry_after_us,
        "reset_after_us": decision.reset_after_us,
        "outcomes": [
            {
                "allowed": outcome.allowed,
                "remaining": outcome.remaining,
                "retry_after_us": outcome.retry_after_us,
                "reset_after_us": outcome.reset_after_us,
            }
            for outcome in decision.outcomes
        ],
    }


def _same(expected: Any, answered: Any) -> bool:
    """Whether they are equal; amounts of tokens are texts in the tables and fractions here."""
    if isinstance(answered, Fraction):
        return Fraction(expected) == answered
    if isinstance(answered, list) and isinstance(expected, list) and len(answered) == len(expected):
        return all(map(_same, expected, answered))
    if expected is True and isinstance(answered, str):  # an error, whatever it says
        return True
    return bool(expected == answered)


def _shown(answered: Any) -> str:
    if isinstance(answered, Fraction):
        return decimal_text(answered)
    if isinstance(answered, list):
        return f"[{', '.join(map(_shown, answered))}]"
    return json.dumps(answered)


def _asked(step: Table) -> str:
    asked = {name: value for name, value in step.items() if name not in {*_ANSWERS, "op", "at"}}
    return " ".join([step["op"], *(f"{name}={json.dumps(value)}" for name, value in asked.items())])
