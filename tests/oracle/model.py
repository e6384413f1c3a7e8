"""The verbs, over any of the machines: one key under one limit.

    key = Model({"algorithm": "token_bucket", "capacity": "20", "rate": "5/s"})
    answer = key.hit(now_us, cost)

Rules that all algorithms share: a refusal changes nothing, except that a clock which stepped back far
and a changed limit take effect at the first hit, whatever its verdict. A peek changes nothing at all,
a cost of 0 neither, and a refund or settlement that returns and adds nothing neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tests.oracle.level import Level, Queue
from tests.oracle.log import Log
from tests.oracle.machine import Machine, Receipt
from tests.oracle.reading import BadInput, floor, number, rate_per_us
from tests.oracle.reading import cost as read_cost
from tests.oracle.windows import Fixed, Sliding

MACHINES: dict[str, type[Machine]] = {
    "token_bucket": Level,
    "leaky_bucket": Level,
    "leaky_queue": Queue,
    "sliding_log": Log,
    "fixed_window": Fixed,
    "sliding_window": Sliding,
}


@dataclass(frozen=True)
class Answer:
    """What a hit or a peek answers. `receipt` is there when the work was admitted by a hit."""

    allowed: bool
    remaining: int
    balance: Fraction
    wait_us: int
    retry_after_us: int | None
    reset_after_us: int | None
    receipt: Receipt | None = None


class Model:
    """One key. `give_back` is "bounded" or "full", `max_debt` the capacity unless given."""

    machines: Mapping[str, type[Machine]] = MACHINES

    def __init__(
        self,
        limit: dict[str, str],
        *,
        give_back: str = "bounded",
        max_debt: Fraction | None = None,
        carry: str = "strict",
    ) -> None:
        self.limit = limit
        self.give_back = give_back
        self.max_debt = max_debt
        self.carry = carry
        self.machine = self._fresh(limit)
        self.written_under = limit
        self.epoch = 0

    def _fresh(self, limit: dict[str, str]) -> Machine:
        return self.machines[limit["algorithm"]](limit)

    def change(self, limit: dict[str, str]) -> None:
        """Put another limit in force. The state is carried over at the first touch."""
        self._fresh(limit)  # a bad limit is an error now
        self.limit = limit

    def reset(self) -> None:
        """Forget the key."""
        self.machine, self.written_under = self._fresh(self.limit), self.limit
        self.epoch += 1

    def at(self, now_us: int) -> tuple[Machine, bool]:
        """The machine as it is at the instant, and whether what was before is void (moved back, carried)."""
        machine = self.machine.copied()
        if not _is_change(self.written_under, self.limit):
            moved = machine.move_to(now_us)
            return (machine if self.written_under == self.limit else self._under_another_name(machine)), moved
        new = self._fresh(self.limit)
        if self._is_forgotten(now_us):
            new.move_to(now_us)
            return new, True
        if isinstance(machine, Level) and isinstance(new, Level):
            machine.drain = min(machine.rate, new.rate)
        machine.move_to(now_us)
        assert machine.at_us is not None
        new.take_over(machine, self.carry)
        if new.is_fresh():  # with nothing carried over, it has no instant either
            new.move_to(now_us)
        return new, True

    def _under_another_name(self, machine: Machine) -> Machine:
        """The state of a level as it is, under another algorithm of the same numbers."""
        new = self._fresh(self.limit)
        kept = ("at_us", "lag_us", "level", "busy_since_us", "given_back")
        vars(new).update({name: getattr(machine, name) for name in kept})
        return new

    def _is_forgotten(self, now_us: int) -> bool:
        """Whether the key is as fresh by the limit that wrote it, so that a store may have forgotten it."""
        own = self.machine.copied()
        own.move_to(now_us)
        return own.is_fresh()

    def _write(self, machine: Machine, void: bool) -> None:
        self.machine, self.written_under = machine, self.limit
        self.epoch += void

    def hit(self, now_us: int, cost: Fraction | int | str = 1, patience_us: int | None = None) -> Answer:
        """Take it now or be told no."""
        cost = read_cost(cost)
        machine, void = self.at(now_us)
        answer = self._answer(machine, now_us, cost, patience_us)
        if answer.allowed and cost > 0:
            mark = machine.add(cost)
            assert machine.at_us is not None
            receipt = Receipt(cost, machine.at_us, self.epoch + void, mark)
            answer = self._shown(machine, now_us, True, answer.wait_us, 0, receipt)
            self._write(machine, void)
        elif cost > 0:
            self.touch(now_us, cost)
        return answer

    def touch(self, now_us: int, cost: Fraction) -> None:
        """What a refused hit leaves behind: nothing, or the state moved back or carried over."""
        machine, void = self.at(now_us)
        if void and cost > 0:
            self._write(machine, void)

    def peek(self, now_us: int, cost: Fraction | int | str = 0) -> Answer:
        """What a hit would be answered, with the state as it is before it. Changes nothing."""
        machine, _ = self.at(now_us)
        return self._answer(machine, now_us, read_cost(cost), None)

    def refund(self, now_us: int, decision: Answer, amount: Fraction | int | str | None = None) -> Fraction:
        """Give back at most the amount (None: all) of what the decision took; the tokens returned."""
        receipt = decision.receipt
        wanted = None if amount is None else read_cost(amount)
        if receipt is None:
            return Fraction(0)
        left = receipt.cost - receipt.returned
        return self._return(now_us, receipt, left if wanted is None else min(wanted, left))

    def settle(self, now_us: int, decision: Answer, actual: Fraction | int | str) -> Fraction:
        """Make the cost the actual one. What was returned; negative, if more was charged."""
        receipt, actual = decision.receipt, read_cost(actual)
        if receipt is None:
            return Fraction(0)
        if actual <= receipt.cost:
            return self._return(now_us, receipt, min(receipt.cost - actual, receipt.cost - receipt.returned))
        machine, void = self.at(now_us)
        machine.check_cost(actual)
        debt = machine.capacity if self.max_debt is None else self.max_debt
        added = max(Fraction(0), min(actual - receipt.cost, machine.capacity + debt - machine.used()))
        if added:
            machine.add(added)
            self._write(machine, void)
        return -added

    def _return(self, now_us: int, receipt: Receipt, amount: Fraction) -> Fraction:
        machine, void = self.at(now_us)
        if void or receipt.epoch != self.epoch:
            return Fraction(0)
        machine.check_cost(amount)
        returned = machine.give_back(receipt, amount, full=self.give_back == "full")
        if returned:
            receipt.returned += returned
            self._write(machine, False)
        return returned

    def _answer(self, machine: Machine, now_us: int, cost: Fraction, patience_us: int | None) -> Answer:
        machine.check_cost(cost)
        if cost > machine.capacity:
            return self._shown(machine, now_us, False, 0, None)
        admitted = (
            machine.fits(cost) if patience_us is None else not machine.refused_by_patience(cost, patience_us)
        )
        if admitted:
            return self._shown(machine, now_us, True, machine.wait_us(cost) if cost else 0, 0)
        return self._shown(machine, now_us, False, 0, machine.retry_after_us(cost, now_us))

    def _shown(
        self,
        machine: Machine,
        now_us: int,
        allowed: bool,
        wait_us: int,
        retry_after_us: int | None,
        receipt: Receipt | None = None,
    ) -> Answer:
        balance = machine.balance()
        return Answer(
            allowed,
            floor(max(Fraction(0), balance)),
            balance,
            wait_us,
            retry_after_us,
            machine.reset_after_us(now_us),
            receipt,
        )


def _is_change(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether state must be carried over: bucket, meter and queue of the same numbers share theirs."""
    levels = {"token_bucket", "leaky_bucket", "leaky_queue"}
    if {before["algorithm"], after["algorithm"]} <= levels:
        numbers = [(number(limit["capacity"]), rate_per_us(limit["rate"])) for limit in (before, after)]
        return numbers[0] != numbers[1]
    return before != after


__all__ = ["Answer", "BadInput", "Model"]
