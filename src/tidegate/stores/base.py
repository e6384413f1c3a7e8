"""What a store is.

A store keeps the state of keys and decides. Its contract is one verb:

    decide(charges, now_us=None, take=True) -> outcomes

Given the charges of one request (rule, key, limit, cost), it decides all-or-nothing and atomically and
returns an outcome for each, in order, equal to what `core.compose.decide` says of the same states:

- Atomic: no other call sees or changes any of the keys between the reading and the writing. Exactly
  the capacity passes, however many threads, processes or hosts ask together, the first use of a key
  included.
- All-or-nothing: the enforced charges are taken together or not at all. `take=False` asks only.
- Its clock is its own, one for all callers. `now_us` puts another instant in its place, for tests and
  simulation. An instant before the last one is normal (`core/law.py`).
- An absent key equals a fresh one. Only fresh keys may be forgotten; a store that has no room for a
  new key says so in its documentation, and in `Outcome.delay_us`.
- Rules and keys are apart by their names, whatever bytes they hold: (rule, key) is injective.
- A state whose limit has changed is carried over at its first touch (`core/carry.py`).

Two further verbs serve what was decided before: `adjust` gives back or charges on top, each entry for
itself and by the rule of `core.compose.adjust`; `forget` makes keys fresh. A store raises StoreError for
what it cannot answer, and never guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome


class Store(Protocol):
    """A store whose calls do not wait for anything outside the process, or block while they do."""

    @property
    def name(self) -> str:
        """What `Decision.source` says."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """Give back or charge on top; the units by which each level went down, negative if it went up."""

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""

    def close(self) -> None:
        """Let go of whatever the store itself has opened."""
