"""Plays a conformance case on the package, step by step, and tells where it answers differently.

`PATHS` are the ways a hit can be decided: by the closure that a limiter compiles, for one key or for many;
by the pass that decides several rules together (here the rule and a shadow of it, on the same key); by the
layered function; and by the asynchronous twin. The package comes in as an argument, so that a mutated copy
of it can be played too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import tidegate
import tidegate.drive
import tidegate.testing

Case = dict[str, Any]
Step = dict[str, Any]
PATHS = ("compiled", "many", "together", "layered", "awaited")
ANSWERED = ("allowed", "remaining", "balance", "wait_us", "retry_after_us", "reset_after_us")
TABLES = sorted((Path(__file__).parents[2] / "conformance").glob("*.json"))


def cases() -> Iterator[tuple[str, Case]]:
    """Every case of every table, with the name of its table."""
    for table in TABLES:
        for case in json.loads(table.read_text(encoding="utf-8"))["cases"]:
            yield table.stem, case


def limit_of(spec: dict[str, str], lib: ModuleType = tidegate) -> Any:
    """The limit that a case describes."""
    make = {
        "token_bucket": lambda: lib.TokenBucket(Fraction(spec["capacity"]), spec["rate"]),
        "leaky_bucket": lambda: lib.LeakyBucket(Fraction(spec["capacity"]), spec["rate"]),
        "leaky_queue": lambda: lib.LeakyQueue(
            Fraction(spec["capacity"]),
            spec["rate"],
            spec.get("first_release", "immediate"),
            Fraction(spec.get("delay_after", "0")),
        ),
        "sliding_log": lambda: lib.SlidingLog(Fraction(spec["limit"]), spec["window"]),
        "fixed_window": lambda: lib.FixedWindow(
            Fraction(spec["limit"]), spec["window"], spec.get("zone", "UTC")
        ),
        "sliding_window": lambda: lib.SlidingWindow(Fraction(spec["limit"]), spec["window"]),
    }
    return make[spec["algorithm"]]()


class Player:
    """One limiter that plays one case."""

    def __init__(self, case: Case, path: str, lib: ModuleType = tidegate) -> None:
        self.lib = lib
        self.path = path
        self.clock = lib.testing.ManualClock()
        self.named = "limits" in case
        options = dict(case.get("options", {}))
        if "max_debt" in options:
            options["max_debt"] = Fraction(options["max_debt"])
        self.options = options
        kind = lib.AsyncLimiter if path == "awaited" else lib.Limiter
        self.limiter = kind(self._policy(case), clock=self.clock)
        self.decisions: list[Any] = []

    def _policy(self, case: Case) -> Any:
        if not self.named:
            rules = [("limit", "enforce"), ("shadow", "shadow")][: 2 if self.path == "together" else 1]
            return self.lib.Policy(
                [
                    self.lib.Rule(
                        name, limit_of(case["limit"], self.lib), by=("key",), mode=mode, **self.options
                    )
                    for name, mode in rules
                ]
            )
        return self.lib.Policy(
            [
                self.lib.Rule(
                    each["name"],
                    limit_of(each["limit"], self.lib),
                    by=(f"key {place}",),
                    cost=_cost_at(place),
                    **self.options,
                )
                for place, each in enumerate(case["limits"])
            ]
        )

    def step(self, step: Step) -> Step:
        """What the package answers to a step."""
        if "at_us" in step:
            self.clock.set(Fraction(step["at_us"], 10**6))
        decision, answer = None, cast("Step", {})
        try:
            for _ in range(step.get("times", 1)):
                decision, answer = self._once(step, answer)
        except self.lib.TidegateError:
            answer = {"error": True}
        self.decisions.append(decision)
        return answer

    def _once(self, step: Step, before: Step) -> tuple[Any, Step]:
        verb = step["op"]
        if verb in {"hit", "peek"}:
            decision = self._ask(step, take=verb == "hit")
            answer = self._fields(decision)
            admitted = before.get("admitted", 0)
            if decision.allowed and admitted < before.get("asked", 0):
                answer["not the first"] = True
            return decision, answer | {
                "admitted": admitted + decision.allowed,
                "asked": before.get("asked", 0) + 1,
            }
        if verb in {"refund", "settle"}:
            return None, {"returned": self._return(step, self.decisions[step["step"]])}
        if verb == "reset":
            for key in [self._key(step)] if self.named else ["k"]:
                self._run(self.limiter.reset(key))
        else:
            self.limiter.replace_policy(self._policy(step))
        return None, {}

    def _key(self, step: Step) -> Any:
        if not self.named:
            return "k"
        count = len(self.limiter.policy)
        keys, costs = step.get("keys") or ["k"] * count, step.get("costs") or ["1"] * count
        return {f"key {place}": key for place, key in enumerate(keys)} | {"costs": costs}

    def _ask(self, step: Step, *, take: bool) -> Any:
        key, cost = self._key(step), _number(step.get("cost", "1"))
        if "patience_us" in step:
            return self._with_patience(key, cost, step["patience_us"])
        if not take:
            return self._run(self.limiter.peek(key, cost))
        if self.path == "many":
            return self.limiter.hit_many([key], [cost])[0]
        if self.path == "layered":
            return self.lib.Limiter.hit(self.limiter, key, cost)
        return self._run(self.limiter.hit(key, cost))

    def _with_patience(self, key: Any, cost: Fraction | int, patience_us: int) -> Any:
        policy = self.limiter.policy
        charges, _ = policy.plan(policy.attributes(key), int(cost * 1000))
        patient = [charge._replace(patience_us=patience_us) for charge in charges]
        return self.lib.Decision.of(self.limiter.store.decide(patient), "memory", None, None)

    def _return(self, step: Step, decision: Any) -> Any:
        if step["op"] == "settle":
            reservation = self.lib.limiter.Reservation(self.limiter, decision)
            if self.path == "awaited":
                reservation = self.lib.limiter.AsyncReservation(self.limiter, decision)
            return text(self._run(reservation.settle(_number(step["cost"]))))
        before = dict(decision.returned)
        amount = self._run(self.limiter.refund(decision, _number(step["cost"]) if "cost" in step else None))
        if not self.named:
            return text(amount)
        return [
            text(
                Fraction(
                    decision.returned.get(outcome.rule, 0) - before.get(outcome.rule, 0),
                    outcome.limit.law.grain * 1000,
                )
            )
            for outcome in decision.outcomes
        ]

    def _fields(self, shown: Any) -> Step:
        fields = {name: getattr(shown, name) for name in ANSWERED}
        fields["balance"] = text(fields["balance"])
        if self.named:
            fields["rule"] = shown.rule
            fields["outcomes"] = [
                {
                    name: getattr(outcome, name)
                    for name in ("allowed", "remaining", "retry_after_us", "reset_after_us")
                }
                for outcome in shown.outcomes
            ]
        return fields

    def _run(self, result: Any) -> Any:
        return self.lib.drive.run_blocking(result) if hasattr(result, "send") else result


def differences(case: Case, path: str, lib: ModuleType = tidegate) -> Iterator[str]:
    """Every expectation of the case that the package does not meet."""
    try:
        player = Player(case, path, lib)
    except lib.TidegateError as error:
        if not case.get("rejected"):
            yield f"rejected: {error}"
        return
    if case.get("rejected"):
        yield "not rejected"
        return
    for number, step in enumerate(case["steps"]):
        answer = player.step(step)
        if "error" in answer and "error" not in step:
            yield f"step {number}: an error"
        if answer.get("not the first"):
            yield f"step {number}: admitted after a refusal"
        for field in (*ANSWERED, "admitted", "rule", "outcomes", "returned", "error"):
            if field in step and step[field] != answer.get(field):
                yield f"step {number}: {field} is {answer.get(field)}, expected {step[field]}"


def text(tokens: Fraction) -> str:
    """A number of tokens as the tables write it: a decimal where one of at most 18 places is exact."""
    scaled = tokens * 10**18
    if scaled.denominator != 1:
        return str(tokens)
    whole, rest = divmod(abs(scaled.numerator), 10**18)
    decimals = f"{rest:018d}".rstrip("0")
    return f"{'-' if tokens < 0 else ''}{whole}{'.' if decimals else ''}{decimals}"


def _number(written: str) -> Fraction | int:
    """A cost as a caller writes it: whole ones as an int, which is what the compiled path knows."""
    value = Fraction(written)
    return value.numerator if value.denominator == 1 else value


def _cost_at(place: int) -> Callable[[Any], Fraction]:
    return lambda attributes: Fraction(attributes["costs"][place])
