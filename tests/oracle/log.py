"""The sliding log: a plain list of what was spent when."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.oracle.carry import carried
from tests.oracle.machine import Machine, Receipt
from tests.oracle.reading import BadInput, duration_us, number

ZERO = Fraction(0)


class Log(Machine):
    """At most `limit` in any stretch of `window`: a spend at t counts while now < t + window."""

    def __init__(self, limit: dict[str, str]) -> None:
        self.capacity = number(limit["limit"])
        self.window_us = duration_us(limit["window"])
        self.entries: list[tuple[int, Fraction, object]] = []
        if not 1 <= self.capacity <= 100_000 or self.capacity.denominator != 1:
            raise BadInput("a log keeps 1 to 100,000 whole tokens")

    def check_cost(self, cost: Fraction) -> None:
        if cost.denominator != 1:
            raise BadInput("a log counts whole tokens")

    def pass_time(self, seen_us: int) -> None:
        self.entries = [entry for entry in self.entries if seen_us < entry[0] + self.window_us]

    def move_back(self, now_us: int) -> None:
        self.hold(self.used(), now_us)

    def used(self) -> Fraction:
        return sum((amount for _, amount, _ in self.entries), ZERO)

    def add(self, cost: Fraction) -> Any:
        assert self.at_us is not None
        name = object()
        self.entries = [*self.entries, (self.at_us, cost, name)]
        return name

    def retry_after_us(self, cost: Fraction, now_us: int) -> int | None:
        if cost > self.capacity:
            return None
        if self.fits(cost):
            return 0
        ends_at_us = sorted(entry[0] + self.window_us for entry in self.entries)
        for end_at_us in ends_at_us:
            left = sum(
                (amount for at_us, amount, _ in self.entries if end_at_us < at_us + self.window_us), ZERO
            )
            if left + cost <= self.capacity:
                return end_at_us - now_us
        raise AssertionError("an empty log admits any cost up to the limit")

    def reset_after_us(self, now_us: int) -> int | None:
        if not self.entries:
            return 0
        return max(at_us for at_us, _, _ in self.entries) + self.window_us - now_us

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        returned = ZERO
        kept = []
        for at_us, counted, name in self.entries:
            mine = name is receipt.mark
            if mine:
                returned = min(amount, counted)
            if counted > returned or not mine:
                kept.append((at_us, counted - returned if mine else counted, name))
        self.entries = kept
        return returned

    def take_over(self, old: Machine, way: str) -> None:
        """A log keeps the entries of a log where the level is kept; what strict adds counts from now on."""
        if not isinstance(old, Log) or way not in {"strict", "keep_level"}:
            super().take_over(old, way)
            return
        self.at_us, self.lag_us, self.entries = old.at_us, old.lag_us, old.entries
        assert self.at_us is not None
        self.pass_time(self.at_us)
        owed = carried(way, self.used(), old.capacity, self.capacity) - self.used()
        if owed:
            self.add(owed)

    def hold(self, used: Fraction, at_us: int) -> None:
        self.at_us = at_us
        self.entries = [(at_us, used, object())] if used else []
