"""The conformance tables against the oracle: both say the same, and the tables notice a wrong law."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import pytest

from conformance import generate
from tests.oracle.level import Level, Queue
from tests.oracle.log import Log
from tests.oracle.machine import Machine, Receipt
from tests.oracle.model import MACHINES, Answer, Model
from tests.oracle.play import Case, differences
from tests.oracle.windows import Fixed, Sliding

TABLES = sorted((Path(__file__).parents[2] / "conformance").glob("*.json"))
TOLD: list[tuple[str, Case]] = [
    (f"{table.stem}: {case['name']}", case)
    for table in TABLES
    for case in json.loads(table.read_text(encoding="utf-8"))["cases"]
]
CASES = [pytest.param(case, id=name) for name, case in TOLD]
SHORT = [case for _, case in TOLD if len(case["steps"]) <= 40 and "limit" in case]


@pytest.mark.parametrize("case", CASES)
def test_the_oracle_meets_every_expectation_of(case: Case) -> None:
    """Every field of every step of the table is what the oracle answers."""
    assert differences(case) == []


def test_the_tables_are_what_the_stories_say() -> None:
    """No table was edited by hand: `python conformance/generate.py --check` finds no difference."""
    assert generate.main(["--check"]) == 0


def test_no_case_is_told_twice() -> None:
    """Within a table each case has its own name, and says why it is there."""
    for table in TABLES:
        cases = json.loads(table.read_text(encoding="utf-8"))["cases"]
        assert len({case["name"] for case in cases}) == len(cases), table.name
        assert all(case["why"].endswith(".") for case in cases), table.name


class AdmitsBelowCapacityOnly(Level):
    """`<` in place of `<=` in the law."""

    def admits(self, level: Fraction) -> bool:
        return level < self.capacity


class FixedBelowLimitOnly(Fixed):
    """`<` in place of `<=` in a window."""

    def fits(self, cost: Fraction) -> bool:
        return self.used() + cost < self.capacity


class LogCountsTooLong(Log):
    """A spend that still counts at exactly t + window."""

    def pass_time(self, seen_us: int) -> None:
        self.entries = [entry for entry in self.entries if seen_us <= entry[0] + self.window_us]


class SlidingRoundsDown(Sliding):
    """An estimate that is rounded in the direction of admitting more."""

    def used(self) -> Fraction:
        assert self.at_us is not None
        k = self.at_us % self.window_us // self.tick_us
        weighed = self.before * 1000 * (self.ticks - k) / self.ticks
        return Fraction(weighed.numerator // weighed.denominator, 1000) + self.count


class RoundsHintsDown(Level):
    """A wait that ends a microsecond too early."""

    def _drains_in_us(self, tokens: Fraction) -> int:
        return int(tokens / self.rate) + self.lag_us if tokens > 0 else 0


class ForgetsTheStepBack(Level):
    """A hint that does not say how far the clock is behind."""

    def _drains_in_us(self, tokens: Fraction) -> int:
        return super()._drains_in_us(tokens) - self.lag_us if tokens > 0 else 0


class DrainsAtEveryReading(Level):
    """A clock that goes back and forth earns each time it goes forth."""

    def move_to(self, now_us: int) -> bool:
        moved = self.at_us is not None and now_us < self.at_us
        if moved:
            self.at_us, self.lag_us = now_us, 0
            return True
        return super().move_to(now_us)


class RefundsInFull(Level):
    """The naive refund."""

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        return super().give_back(receipt, amount, full=True)


class ForgetsItsOwnRefunds(Level):
    """A refund that is bounded each time, but not in sum."""

    def _still_there(self, receipt: Receipt, level_after: Fraction, given_back_then: Fraction) -> Fraction:
        own = receipt.returned
        return super()._still_there(receipt, level_after, given_back_then) + own


class ForgetsTheRefundsOfOthers(Level):
    """A refund that is bounded by the level after the decision alone."""

    def _still_there(self, receipt: Receipt, level_after: Fraction, given_back_then: Fraction) -> Fraction:
        return super()._still_there(receipt, level_after + self.given_back, given_back_then)


class MixesUpTheBusyPeriods(Level):
    """A refund into another busy period."""

    def give_back(self, receipt: Receipt, amount: Fraction, *, full: bool) -> Fraction:
        receipt.mark = (self.busy_since_us, *receipt.mark[1:])
        return super().give_back(receipt, amount, full=full)


class CountsOwnWork(Queue):
    """A queue that makes the first of an empty line wait."""

    def _held(self, cost: Fraction) -> Fraction:
        return super()._held(cost) + cost


class ChargesRefusals(Model):
    """A refusal that counts."""

    def hit(self, now_us: int, cost: Fraction | int | str = 1, patience_us: int | None = None) -> Answer:
        answer = super().hit(now_us, cost, patience_us)
        if not answer.allowed:
            machine, void = self.at(now_us)
            machine.add(Fraction(cost))
            self._write(machine, void)
        return answer


@pytest.mark.parametrize(
    "mutant",
    [
        AdmitsBelowCapacityOnly,
        FixedBelowLimitOnly,
        LogCountsTooLong,
        SlidingRoundsDown,
        RoundsHintsDown,
        ForgetsTheStepBack,
        DrainsAtEveryReading,
        RefundsInFull,
        ForgetsItsOwnRefunds,
        ForgetsTheRefundsOfOthers,
        MixesUpTheBusyPeriods,
        CountsOwnWork,
    ],
)
def test_the_tables_notice(mutant: type[Machine]) -> None:
    """An engine with this one mistake fails at least one case."""

    class Mutated(Model):
        machines = MappingProxyType(
            {name: mutant if known in mutant.__bases__ else known for name, known in MACHINES.items()}
        )

    assert any(differences(case, Mutated) for case in SHORT)


def test_the_tables_notice_a_refusal_that_counts() -> None:
    """Saving on refusal changes later answers, and a table says so."""
    assert any(differences(case, ChargesRefusals) for case in SHORT)
