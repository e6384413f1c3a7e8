"""Why a request would pass or not: what each rule holds of its key, as figures and as a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from tidegate.core.decision import Decision
from tidegate.core.limits import Limit
from tidegate.core.outcome import Outcome
from tidegate.units import MILLI, decimal_text, duration_text, seconds


class RuleExplained(NamedTuple):
    """One rule's view of one request. Amounts are exact, in tokens; times in seconds."""

    rule: str
    limit: Limit
    mode: str
    allowed: bool
    level: Fraction
    """What is used and has not come back."""
    balance: Fraction
    """Capacity minus level; negative while in debt."""
    largest_cost: Fraction
    """The largest cost that would pass now."""
    earliest: float | None
    """When the cost asked about first passes: 0 now, None never."""
    reset_after: float | None
    """When the key is as fresh; None never by itself."""
    share: bool = False
    """Whether these figures are those of this node's own share, and not of what the store holds."""
    outage: bool = False
    """Whether the store gave no answer, so that nobody knows what it holds and the outage rule decides."""

    def __str__(self) -> str:
        held = f"{decimal_text(self.level)} of {decimal_text(Fraction(self.limit.capacity))} used"
        if self.balance < 0:
            held += f", {decimal_text(-self.balance)} owed"
        if self.share:
            held = f"this node's share: {held}"
        if self.outage:
            held = f"{held}, the store gave no answer" if self.share else "the store gave no answer"
        if self.outage and (self.allowed or self.earliest is not None):
            again = "" if self.earliest is None else duration_text(round(self.earliest * 1_000_000))
            verdict = "passes by its outage rule" if self.allowed else f"refused, ask again in {again}"
        elif self.allowed:
            verdict = f"passes; up to {decimal_text(self.largest_cost)} would"
        elif self.earliest is None:
            verdict = "can never pass" if self.balance >= 0 else "cannot pass by waiting"
        else:
            verdict = f"passes in {duration_text(round(self.earliest * 1_000_000))}"
        return f"{self.rule} ({self.mode}): {held}; {verdict}"


class Explanation:
    """What every rule says of one request, changing nothing. Printing it gives one line a rule."""

    __slots__ = ("decision", "rules")

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.rules = tuple(_explained(outcome) for outcome in decision.outcomes)

    @property
    def allowed(self) -> bool:
        """Whether the request would pass."""
        return self.decision.allowed

    def __iter__(self) -> Iterator[RuleExplained]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, rule: str) -> RuleExplained:
        for explained in self.rules:
            if explained.rule == rule:
                return explained
        raise KeyError(rule)

    def __str__(self) -> str:
        return "\n".join([str(self.decision), *(f"  {explained}" for explained in self.rules)])


def _explained(outcome: Outcome) -> RuleExplained:
    law = outcome.limit.law
    largest = max(0, outcome.left)
    if outcome.limit.algorithm == "sliding_log":
        largest -= largest % MILLI
    earliest_us = outcome.retry_after_us
    return RuleExplained(
        rule=outcome.rule,
        limit=outcome.limit,
        mode=outcome.mode,
        allowed=outcome.allowed,
        level=Fraction(law.capacity, MILLI) - outcome.balance,
        balance=outcome.balance,
        largest_cost=Fraction(largest, MILLI),
        earliest=None if earliest_us is None else seconds(earliest_us),
        reset_after=outcome.reset_after,
        share=outcome.charge.share,
        outage=outcome.outage,
    )
