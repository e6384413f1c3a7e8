"""What each algorithm must say about one key, so that the verbs can be written once, in `model.py`.

A machine is one limit and the state of one key under it. `move_to` brings it to an instant; after that
all questions are about that instant. Machines are copied freely (`copy.copy`), so their states are
plain values that are replaced and never changed in place.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tests.oracle.carry import carried

STEP_US = 60_000_000


@dataclass
class Receipt:
    """What a decision remembers, so that it can be given back."""

    cost: Fraction
    at_us: int
    epoch: int
    mark: Any = None
    returned: Fraction = Fraction(0)


class Machine:
    """One limit, one key. `at_us` is None while the key was never used."""

    capacity: Fraction
    at_us: int | None = None
    lag_us: int = 0

    def __init__(self, limit: dict[str, str]) -> None:
        raise NotImplementedError

    def copied(self) -> Machine:
        return copy.copy(self)

    def move_to(self, now_us: int) -> bool:
        """Let time pass. True if the clock stepped back so far that the state had to move with it."""
        if self.at_us is None or self.is_fresh():  # a fresh key has no instant: a store may have forgotten it
            moved = self.at_us is not None and now_us < self.at_us
            self.at_us, self.lag_us = now_us, 0
            return moved
        if now_us < self.at_us - STEP_US:
            self.move_back(now_us)
            self.at_us, self.lag_us = now_us, 0
            return True
        seen_us = max(now_us, self.at_us)
        self.pass_time(seen_us)
        self.at_us, self.lag_us = seen_us, seen_us - now_us
        return False

    def check_cost(self, cost: Fraction) -> None:
        """Reject what this algorithm does not count."""

    def fits(self, cost: Fraction) -> bool:
        return self.used() + cost <= self.capacity

    def balance(self) -> Fraction:
        return self.capacity - self.used()

    def is_fresh(self) -> bool:
        return self.used() == 0

    def wait_us(self, cost: Fraction) -> int:
        """How long the work is held if the cost is admitted on top of the present state."""
        return 0

    def refused_by_patience(self, cost: Fraction, patience_us: int | None) -> bool:
        return patience_us is not None and self.wait_us(cost) > patience_us

    def take_over(self, old: Machine, way: str) -> None:
        """Begin with what is used of another limit, at the instant of its machine."""
        assert old.at_us is not None
        self.hold(carried(way, old.used(), old.capacity, self.capacity), old.at_us)
        self.lag_us = old.lag_us

    # What each algorithm decides for itself.

    def pass_time(self, seen_us: int) -> None:
        raise NotImplementedError

    def move_back(self, now_us: int) -> None:
        raise NotImplementedError

    def used(self) -> Fraction:
        raise NotImplementedError

    def add(self, cost: Fraction) -> Any:
        """Count the cost; the mark for the receipt."""
        raise NotImplementedError

    def retry_after_us(self, cost: Fraction, now_us: int) -> int | None:
        """How long after now the cost first fits, if nothing else happens."""
        raise NotImplementedError

    def reset_after_us(self, now_us: int) -> int | None:
        raise NotImplementedError

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        """Uncount at most the amount; what was returned."""
        raise NotImplementedError

    def hold(self, used: Fraction, at_us: int) -> None:
        """Begin with so much used at this instant."""
        raise NotImplementedError
