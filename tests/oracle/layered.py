"""Several limits on one request: all of them admit it, or nothing changes in any.

A refusal names, of the limits that refuse, the one that frees last (never is last of all; ties: the
first). An admission names the limit with the fewest such requests left (ties: the first); a limit that
is charged nothing binds only where all are, by what is left. An admission waits for the longest wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.oracle.model import Answer, Model
from tests.oracle.reading import BadInput, floor
from tests.oracle.reading import cost as read_cost

Limits = Sequence[tuple[str, dict[str, str]]]


@dataclass(frozen=True)
class LayeredAnswer:
    """The answer of the binding limit, by name, and the answers of all in their order."""

    rule: str
    allowed: bool
    remaining: int
    balance: Fraction
    wait_us: int
    retry_after_us: int | None
    reset_after_us: int | None
    outcomes: tuple[Answer, ...]


class Layered:
    """Named limits in the order of the policy; each keeps a state for each key it is asked about."""

    def __init__(self, limits: Limits, **options: object) -> None:
        self.limits = limits
        self.options = options
        self.models: dict[tuple[int, str], Model] = {}
        for _, limit in limits:
            Model(limit)  # a bad limit is an error now

    def model(self, index: int, key: str) -> Model:
        if (index, key) not in self.models:
            self.models[index, key] = Model(self.limits[index][1], **self.options)  # type: ignore[arg-type]  # options of a table
        return self.models[index, key]

    def _asked(self, costs: Sequence[str], keys: Sequence[str] | None) -> list[tuple[Model, Fraction]]:
        keys = keys or ["k"] * len(self.limits)
        if not len(costs) == len(keys) == len(self.limits):
            raise BadInput("one cost and one key for each limit")
        return [(self.model(i, keys[i]), read_cost(costs[i])) for i in range(len(self.limits))]

    def peek(self, now_us: int, costs: Sequence[str], keys: Sequence[str] | None = None) -> LayeredAnswer:
        """What a hit would be answered, with the states as they are before it."""
        asked = self._asked(costs, keys)
        return self._chosen(asked, [model.peek(now_us, cost) for model, cost in asked])

    def hit(self, now_us: int, costs: Sequence[str], keys: Sequence[str] | None = None) -> LayeredAnswer:
        """Take it from all, or from none."""
        asked = self._asked(costs, keys)
        peeked = [model.peek(now_us, cost) for model, cost in asked]
        if all(answer.allowed for answer in peeked):
            return self._chosen(asked, [model.hit(now_us, cost) for model, cost in asked])
        for model, cost in asked:
            model.touch(now_us, cost)
        return self._chosen(asked, peeked)

    def refund(
        self, now_us: int, decision: LayeredAnswer, keys: Sequence[str] | None = None
    ) -> list[Fraction]:
        """Give back all that the decision took, from each limit by its own rule."""
        keys = keys or ["k"] * len(self.limits)
        return [self.model(i, keys[i]).refund(now_us, outcome) for i, outcome in enumerate(decision.outcomes)]

    def reset(self) -> None:
        """Forget all keys."""
        self.models.clear()

    def _chosen(self, asked: list[tuple[Model, Fraction]], outcomes: list[Answer]) -> LayeredAnswer:
        allowed = all(outcome.allowed for outcome in outcomes)
        binding = 0
        for i in range(1, len(outcomes)):
            if allowed:
                better = _requests_left(outcomes[i], asked[i][1]) < _requests_left(
                    outcomes[binding], asked[binding][1]
                )
            else:
                better = _frees_at(outcomes[i]) > _frees_at(outcomes[binding])
            binding = i if better else binding
        shown = outcomes[binding]
        return LayeredAnswer(
            self.limits[binding][0],
            allowed,
            shown.remaining,
            shown.balance,
            max(outcome.wait_us for outcome in outcomes) if allowed else 0,
            0 if allowed else shown.retry_after_us,
            shown.reset_after_us,
            tuple(outcomes),
        )


def _requests_left(outcome: Answer, cost: Fraction) -> tuple[bool, int]:
    """How many such requests still pass; a limit that is charged nothing comes last, by what it has left."""
    thousandths = max(0, floor(outcome.balance * 1000))
    return (cost == 0, thousandths // int(cost * 1000) if cost else thousandths)


def _frees_at(outcome: Answer) -> float:
    """When it frees; a limit that does not refuse comes before all that do."""
    if outcome.allowed:
        return -1
    return float("inf") if outcome.retry_after_us is None else outcome.retry_after_us
