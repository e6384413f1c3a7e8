"""What a policy would answer to one request, so many times at one instant, with nothing spent before.

The real limiter on a clock that stands still; nothing is kept, and no store is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from tidegate.core.decision import Decision
from tidegate.core.outcome import Outcome
from tidegate.core.policy import Policy
from tidegate.limiter import Limiter
from tidegate.testing.clock import ManualClock
from tidegate.units import US_PER_S, Number
from tidegate.words.typeset import brief, number, paragraph, span, table

TIMES_MOST = 100_000


@dataclass(frozen=True)
class Stretch:
    """Decisions in a row that say the same: the numbers of the first and the last, counted from 1."""

    first: int
    last: int
    decision: Decision
    """The last of them."""
    shortest_wait_us: int
    longest_wait_us: int


@dataclass(frozen=True)
class Trial:
    """What was asked, and the answers."""

    attributes: Mapping[str, str]
    cost: Number
    now_us: int
    decisions: tuple[Decision, ...]

    @property
    def admitted(self) -> int:
        """How many were allowed."""
        return sum(decision.allowed for decision in self.decisions)

    @property
    def stretches(self) -> list[Stretch]:
        """The answers, those in a row with one verdict by one rule told together."""
        found, first = [], 1
        for _, same in groupby(self.decisions, key=lambda decision: (decision.allowed, decision.rule)):
            decisions = list(same)
            waits_us = [decision.wait_us for decision in decisions]
            last = first + len(decisions) - 1
            found.append(Stretch(first, last, decisions[-1], min(waits_us), max(waits_us)))
            first = last + 1
        return found


def attempt(policy: Policy, attributes: Mapping[str, str], *, cost: Number, times: int, now_us: int) -> Trial:
    """Ask for the cost so many times at one instant. Raises CostError or InvalidKey."""
    clock = ManualClock(Fraction(now_us, US_PER_S))
    limiter = Limiter(policy, clock=clock)
    decisions = tuple(limiter.hit(dict(attributes), cost) for _ in range(times))
    return Trial(attributes, cost, now_us, decisions)


def text(trial: Trial, *, width: int = 80) -> str:
    """The answers for a terminal of that width: the verdicts, then each rule as the last request met it."""
    stretches = trial.stretches
    lines: list[str] = []
    numbers = [_numbers(stretch) for stretch in stretches]
    across = max(map(len, numbers))
    for stretch, which in zip(stretches, numbers, strict=True):
        head = f"{which:<{across}}  " if len(trial.decisions) > 1 else ""
        lines += paragraph(_verdict(stretch), width, indent=head, hanging=" " * len(head))
    last = trial.decisions[-1]
    if last.outcomes:
        lines += ["", *_outcome_lines(last.outcomes, width)]
    return "\n".join(lines) + "\n"


def _numbers(stretch: Stretch) -> str:
    return f"{stretch.first:,}" + (f" to {stretch.last:,}" if stretch.last > stretch.first else "")


def _verdict(stretch: Stretch) -> str:
    decision = stretch.decision
    if not decision.outcomes:
        if decision.rule:
            how = "allowed: it bypasses all limits" if decision.allowed else "refused: it is denied, for good"
            return f"{how}, by rule {decision.rule}"
        return "allowed: no rule speaks of it"
    if decision.allowed:
        return f"allowed{_waits(stretch)}"
    if decision.retry_after_us is None:
        return f"refused by rule {decision.rule}: {_never(decision)}"
    return f"refused by rule {decision.rule}: retry after {span(decision.retry_after_us)}"


def _never(decision: Decision) -> str:
    binding = decision.binding
    if binding is not None and binding.cost > binding.limit.capacity:
        asked, most = number(binding.cost), number(Fraction(binding.limit.capacity))
        return f"a cost of {asked} is above the capacity {most} and can never pass"
    return "it cannot pass by waiting"


def _waits(stretch: Stretch) -> str:
    if not stretch.longest_wait_us:
        return ""
    if stretch.shortest_wait_us == stretch.longest_wait_us:
        return f", to be held for {span(stretch.longest_wait_us)}"
    return f", to be held for {span(stretch.shortest_wait_us)} to {span(stretch.longest_wait_us)}"


def _outcome_lines(outcomes: Sequence[Outcome], width: int) -> list[str]:
    waits = any(outcome.wait_us for outcome in outcomes)
    heads = ["rule", "verdict", "cost", "left", *(["held"] if waits else []), "retry after", "fresh in"]
    rows = []
    for outcome in outcomes:
        verdict = "allows" if outcome.allowed else "refuses"
        capacity = Fraction(outcome.limit.capacity)
        rows.append(
            [
                outcome.rule,
                verdict if outcome.mode == "enforce" else f"{verdict} ({outcome.mode})",
                number(outcome.cost),
                f"{number(outcome.balance)} of {number(capacity)}",
                *([span(outcome.wait_us)] if waits else []),
                _span_or_never(outcome.retry_after_us),
                _span_or_never(outcome.reset_after_us),
            ]
        )
    return table(heads, rows, width, left=2)


def _span_or_never(us: int | None) -> str:
    if us is None:
        return "never"
    return brief(us) if us else "-"
