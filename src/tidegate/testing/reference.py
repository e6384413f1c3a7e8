"""The reference that other stores are compared with: `core.compose` over a dict, and nothing else.

It forgets only when told, has no lock, no clock and no bound. What makes a store fast or shared is left
out, so what remains is what a store must answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.core.compose import Adjustment, adjust, decide, must_write
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError


class ReferenceStore:
    """A store for one thread that is told every instant. For comparisons, not for use."""

    name = "reference"

    def __init__(self) -> None:
        self._states: dict[tuple[str, Key], Any] = {}
        self.forgets_before_us = 0
        """When a key last became fresh: at an earlier instant it may or may not still be there."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""
        stored = [self._states.get((charge.rule, charge.key)) for charge in charges]
        outcomes = decide(charges, stored, _told(now_us), take=take)
        if take and None in stored:  # a store that still had the fresh key may have moved it to this instant
            self.forgets_before_us = max(self.forgets_before_us, _told(now_us))
        for outcome, state in zip(outcomes, stored, strict=True):
            if take and must_write(outcome, state):
                self._states[outcome.rule, outcome.charge.key] = outcome.state
        return outcomes

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """Give back or charge on top; the units by which each level went down, negative if it went up."""
        changes = []
        for adjustment in adjustments:
            place = (adjustment.charge.rule, adjustment.charge.key)
            units, state = adjust(adjustment, self._states.get(place), _told(now_us))
            if units:
                self._states[place] = state
            changes.append(units)
        return changes

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""
        for place in keys:
            state = self._states.get(place)
            if state is not None:  # fresh, but its busy periods go on being told apart
                self._states[place] = state.law.holding(0, state.at_us, state.busy_since_us)
                self.forgets_before_us = max(self.forgets_before_us, state.at_us + 1)

    def forget_fresh(self, now_us: int) -> None:
        """Drop what has become fresh by now, and remember when it did."""
        for place, state in list(self._states.items()):
            left_us = state.law.reset_after_us(state, state.at_us)
            if left_us == 0 or (left_us is not None and state.at_us + left_us <= now_us):
                self.forgets_before_us = max(self.forgets_before_us, state.at_us + (left_us or 1))
                del self._states[place]

    def close(self) -> None:
        """Nothing was opened."""


def _told(now_us: int | None) -> int:
    if now_us is None:
        raise StoreError("the reference store has no clock; give the limiter one, such as ManualClock()")
    return now_us
