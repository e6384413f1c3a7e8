"""Bucket, meter and queue: one level that drains, by the law."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.oracle.machine import Machine, Receipt
from tests.oracle.reading import BadInput, ceil, number, rate_per_us

ZERO = Fraction(0)


class Level(Machine):
    """TokenBucket and LeakyBucket. Level in tokens, rate in tokens per microsecond."""

    def __init__(self, limit: dict[str, str]) -> None:
        self.capacity = number(limit["capacity"])
        self.rate = rate_per_us(limit["rate"])
        if self.capacity == 0:
            raise BadInput("capacity is 0")
        self.drain = self.rate
        self.level = ZERO
        self.busy_since_us: int | None = None
        self.given_back = ZERO

    def pass_time(self, seen_us: int) -> None:
        assert self.at_us is not None
        self.level = max(ZERO, self.level - self.drain * (seen_us - self.at_us))

    def move_back(self, now_us: int) -> None:
        self.busy_since_us, self.given_back = now_us, ZERO

    def used(self) -> Fraction:
        return self.level

    def admits(self, level: Fraction) -> bool:
        """The law itself."""
        return level <= self.capacity

    def fits(self, cost: Fraction) -> bool:
        return self.admits(self.level + cost)

    def refused_by_patience(self, cost: Fraction, patience_us: int | None) -> bool:
        return not self.admits(self.level + cost - self.rate * (patience_us or 0))

    def wait_us(self, cost: Fraction) -> int:
        return self._drains_in_us(self.level + cost - self.capacity)

    def add(self, cost: Fraction) -> Any:
        if self.level == 0:
            self.busy_since_us, self.given_back = self.at_us, ZERO
        self.level += cost
        return (self.busy_since_us, self.level, self.given_back)

    def retry_after_us(self, cost: Fraction, now_us: int) -> int | None:
        if cost > self.capacity:
            return None
        return self._drained_in_us(self.level + cost - self.capacity)

    def reset_after_us(self, now_us: int) -> int | None:
        return self._drained_in_us(self.level)

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        busy_since_us, level_after, given_back_then = receipt.mark
        if self.level == 0 or busy_since_us != self.busy_since_us:
            return ZERO
        returned = min(amount, receipt.cost - receipt.returned, self.level)
        if not full:
            returned = min(returned, self._still_there(receipt, level_after, given_back_then))
        self.level -= returned
        self.given_back += returned
        return returned

    def _still_there(self, receipt: Receipt, level_after: Fraction, given_back_then: Fraction) -> Fraction:
        """What has not drained of the decision's own level."""
        assert self.at_us is not None
        by_others = self.given_back - given_back_then - receipt.returned
        own_level = max(receipt.cost, level_after - by_others)
        elapsed_us = self.at_us - receipt.at_us
        return max(ZERO, own_level - self.rate * elapsed_us - receipt.returned)

    def hold(self, used: Fraction, at_us: int) -> None:
        self.at_us, self.level, self.busy_since_us, self.given_back = at_us, used, at_us, ZERO

    def _drains_in_us(self, tokens: Fraction) -> int:
        """Microseconds until so much has drained, rounded up, plus how far the clock is behind."""
        return ceil(tokens / self.rate) + self.lag_us if tokens > 0 else 0

    def _drained_in_us(self, tokens: Fraction) -> int | None:
        if tokens > 0 and self.rate == 0:
            return None
        return self._drains_in_us(tokens)


class Queue(Level):
    """LeakyQueue: the same verdict; admitted work is held until the work ahead of it has drained."""

    def __init__(self, limit: dict[str, str]) -> None:
        super().__init__(limit)
        self.first_release = limit.get("first_release", "immediate")
        self.delay_after = number(limit.get("delay_after", "0"))
        if self.first_release not in {"immediate", "interval"}:
            raise BadInput(f"first_release is {self.first_release}")

    def refused_by_patience(self, cost: Fraction, patience_us: int | None) -> bool:
        if not self.fits(cost):
            return True
        return patience_us is not None and self._held(cost) > self.rate * patience_us

    def wait_us(self, cost: Fraction) -> int:
        return self._drains_in_us(self._held(cost))

    def _held(self, cost: Fraction) -> Fraction:
        """The tokens that must drain first."""
        ahead = self.level if self.first_release == "immediate" else self.level + cost
        return max(ZERO, ahead - self.delay_after)
