"""What is decided without the store: what each rule does in an outage, and which rules have shares.

A store raises StoreUnavailable where it gave no usable answer in time. Whatever it was asked of a rule is
then answered here, by that rule's outage rule. A StoreError of any other kind is a mistake and is never
taken for an outage.

A charge that was sent may have been taken all the same. It is not asked again and stays counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.limits import Limit
from tidegate.core.match import Attributes
from tidegate.core.outage import OnOutage, Reserve, Split, split
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.errors import PolicyError
from tidegate.flows.shares import Shares

ASK_AGAIN_US = 1_000_000
"""What a caller is told who is refused for want of an answer: unlike other hints, a guess."""

_SPLITS_MOST = 1_000
_SMOOTHING = 64


class Embedded(Protocol):
    """A store of this process, for the limits that bound what is admitted without the store."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """Give back or charge on top."""

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""


class Tally:
    """What was lost to outages. Only grows."""

    __slots__ = ("debts_lost", "refunds_lost")

    def __init__(self) -> None:
        self.refunds_lost = 0
        """Times that something could not be given back, so that it stays counted."""
        self.debts_lost = 0
        """Times that something could not be charged on top of a reservation."""


class Reserved:
    """A rule with a reserve: how each of its limits is split. `index` is None on a node that owns nothing."""

    def __init__(self, rule: Rule, workers: int) -> None:
        assert isinstance(rule.reserve, Reserve)
        self.index = rule.reserve.index
        self._rule, self._reserve, self._workers = rule.name, rule.reserve, workers
        self.division = (rule.reserve.share, rule.reserve.nodes, workers)
        self._known: dict[int, tuple[Limit, Split]] = {}  # by identity, for a limit is slow to hash

    def split(self, limit: Limit) -> Split:
        """The limit in its parts. Raises PolicyError for one, from a function, that cannot be split."""
        known = self._known.get(id(limit))
        if known is not None:
            return known[1]
        try:
            parts = split(limit, self._reserve, self._workers)
        except PolicyError as error:
            raise PolicyError(f"rule {self._rule!r}: {error}") from None
        if len(self._known) >= _SPLITS_MOST:
            self._known.clear()
        self._known[id(limit)] = (limit, parts)
        return parts

    def part(self, *, own: bool) -> Fraction:
        """What this process owns of the whole, or what the store holds."""
        return self._reserve.part / self._workers if own else 1 - self._reserve.nodes * self._reserve.part


class Outages:
    """What one limiter does without its store.

    `shares` is None where the store is in this process, so that it cannot be away and nothing is split.
    Raises PolicyError where a strict rule would be open, or a share is less than the largest cost.
    """

    def __init__(
        self,
        policy: Policy,
        default: OnOutage,
        workers: int,
        shares: Shares | None,
        bounds: Callable[[], Embedded],
        now_us: Callable[[], int],
        tally: Tally,
    ) -> None:
        self.workers = workers
        self.shares = shares
        self.bounds = bounds
        self.now_us = now_us
        self.tally = tally
        self.refusing: dict[str, float] = {}
        self.reserved: dict[str, Reserved] = {}
        self._how: dict[str, OnOutage] = {rule.name: rule.on_outage or default for rule in policy}
        self._bounded = {rule.name: rule.outage_limit for rule in policy if rule.outage_limit is not None}
        policy.check_outages(default, workers)
        for rule in policy:
            if isinstance(rule.reserve, Reserve) and shares is not None:
                self.reserved[rule.name] = Reserved(rule, workers)
                if rule.reserve.index is not None:
                    shares.begin(rule.name, rule.reserve.index, self.reserved[rule.name].division)

    def retire(self, successor: Outages) -> None:
        """End the shares that the successor, which decides from now on, does not go on with."""
        for name, reserved in self.reserved.items():
            after = successor.reserved.get(name)
            if reserved.index is not None and (after is None or after.index != reserved.index):
                assert self.shares is not None
                self.shares.end(name, reserved.index)

    def refuses(self, charge: Charge) -> bool:
        """Whether a charge is refused in an outage, whatever else is asked."""
        return charge.mode == "enforce" and self._how.get(charge.rule, "closed") != "open"

    def bound(self, charge: Charge) -> Charge | None:
        """The charge under the limit that bounds what is admitted in an outage; None if there is none."""
        limit = self._bounded.get(charge.rule)
        return None if limit is None or charge.mode != "enforce" else charge._replace(limit=limit)

    def part(self, charge: Charge, limit: Limit) -> Limit:
        """The part of a limit that such a charge is made to: the whole, where the rule has no reserve."""
        reserved = self.reserved.get(charge.rule)
        if reserved is None:
            return charge.limit if charge.share else limit
        parts = reserved.split(limit)
        return parts.process if charge.share else parts.store

    def debt(self, charge: Charge, debt: int) -> int:
        """The part of a rule's debt that may lie where the charge was made, so that the sum is the whole."""
        reserved = self.reserved.get(charge.rule)
        return debt if reserved is None else int(debt * reserved.part(own=charge.share))

    def adjust_share(self, adjustment: Adjustment) -> int:
        """Give back to this node's share, or charge it on top; 0 if it owns none by now."""
        reserved = self.reserved.get(adjustment.charge.rule)
        if reserved is None or reserved.index is None or self.shares is None:
            return 0
        return self.shares.adjust(reserved.index, adjustment)

    def forget(self, named: Sequence[tuple[Rule, Key]], attributes: Attributes) -> None:
        """Make keys fresh in what this process holds of them."""
        for rule, key in named:
            reserved = self.reserved.get(rule.name)
            if reserved is not None and reserved.index is not None and self.shares is not None:
                assert rule.limit is not None
                limit = rule.limit if rule.limit_for is None else rule.limit_for(attributes, key)
                self.shares.forget(rule.name, reserved.index, key, reserved.split(limit).process)
        bounded = [(rule.name, key) for rule, key in named if rule.outage_limit is not None]
        if bounded:
            self.bounds().forget(bounded)

    def answer(self, charge: Charge, share: Outcome | None) -> Outcome:
        """What an unanswered rule says: the share's own refusal where there is one, or a guess."""
        now_us, law = self.now_us(), charge.limit.law
        if not self.refuses(charge):
            return Outcome(charge, True, False, law.advance(None, now_us), now_us, None, True)
        again_us = ASK_AGAIN_US if charge.cost <= law.capacity else None
        if share is not None:
            free_us = share.retry_after_us
            return share._replace(delay_us=again_us and min(again_us, free_us or again_us), outage=True)
        everything = law.holding(law.capacity, now_us, now_us)
        return Outcome(charge, False, False, everything, now_us, again_us, True)

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Remember how often each rule refuses, roughly: it decides which part is asked first."""
        for outcome in outcomes:
            before = self.refusing.get(outcome.rule, 0.0)
            self.refusing[outcome.rule] = before + ((not outcome.allowed) - before) / _SMOOTHING

    def likelihood(self, charges: Sequence[Charge]) -> float:
        """How likely one of the enforced charges is to refuse."""
        return max((self.refusing.get(c.rule, 0.0) for c in charges if c.mode == "enforce"), default=0.0)
