"""The answer: allowed or not, why, what is left, when to come back, how long to wait first.

A decision is what a request got from all rules together. It keeps their outcomes, and every figure is
computed when it is read. Durations are seconds here, with a twin in whole microseconds (`..._us`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tidegate.core.limits import Limit
from tidegate.core.outcome import Outcome, seconds_or_none
from tidegate.core.ticket import TicketDesk
from tidegate.units import decimal_text, header_seconds, seconds


class Brief(NamedTuple):
    """What a header field says of a decision: the limit that binds, what is left, and when there is more.

    `after_us` is the time until the key is as fresh if the request was allowed, until it passes if it
    was refused; None: never.
    """

    rule: str
    limit: Limit
    remaining: int
    after_us: int | None


class Decision:
    """The answer to one request; true if it may run.

    Where several limits took part, a refusal shows the one that frees last (one that never frees
    before all others), an admission the one with the fewest requests left.
    """

    __slots__ = ("_caller", "_desk", "_hints_us", "_named", "_outcomes", "allowed", "returned", "source")

    allowed: bool
    """Whether the request may run."""
    source: str
    """Who decided: the store's name; "policy" where no limit was asked; "reserve" where this node's own
    shares were enough; "outage" where the store gave no answer and some rule's outage rule decided."""
    returned: dict[str, int]
    """What was given back of this decision, by rule, in the law's units. The limiter keeps it."""

    _outcomes: tuple[Outcome, ...]
    _hints_us: tuple[int, int] | None

    def __init__(
        self,
        outcomes: tuple[Outcome, ...],
        *,
        allowed: bool,
        source: str,
        named: str = "",
        desk: TicketDesk | None = None,
        caller: Hashable = None,
    ) -> None:
        self._outcomes = outcomes
        self.allowed = allowed
        self.source = source
        self.returned = {}
        self._named = named
        self._desk = desk
        self._caller = caller

    @classmethod
    def of(
        cls, outcomes: Sequence[Outcome], source: str, desk: TicketDesk | None, caller: Hashable
    ) -> Decision:
        """The decision that these outcomes make: allowed iff every enforced rule allows."""
        allowed = all(outcome.allowed for outcome in outcomes if outcome.mode == "enforce")
        return cls(tuple(outcomes), allowed=allowed, source=source, desk=desk, caller=caller)

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What each rule said, in the order of the policy; empty where no limit was asked."""
        return self._outcomes

    @property
    def binding(self) -> Outcome | None:
        """The outcome that this decision shows; None where no enforced limit took part."""
        outcomes = self.outcomes
        if len(outcomes) == 1 and outcomes[0].mode == "enforce":
            return outcomes[0]
        enforced = [outcome for outcome in outcomes if outcome.mode == "enforce"]
        if not self.allowed:
            return max((o for o in enforced if not o.allowed), key=_frees_in, default=None)
        answered = [outcome for outcome in enforced if not outcome.outage]
        return min(answered or enforced, key=_requests_left, default=None)

    @property
    def brief(self) -> Brief | None:
        """The figures of the outcome that this decision shows; None where no enforced limit took part.

        None too where that outcome was decided without the store, for then nobody knows what is left.
        """
        binding = self.binding
        if binding is None or binding.outage:
            return None
        after_us = binding.reset_after_us if self.allowed else binding.retry_after_us
        return Brief(binding.rule, binding.limit, binding.remaining, after_us)

    @property
    def limits_asked(self) -> int:
        """How many limits took part, shadows included."""
        return len(self.outcomes)

    @property
    def rule(self) -> str:
        """The rule that binds, denies or bypasses; "" where no enforced one applied."""
        binding = self.binding
        return self._named if binding is None else binding.rule

    @property
    def limit(self) -> Limit | None:
        """The limit that binds; None where none took part."""
        binding = self.binding
        return None if binding is None else binding.limit

    @property
    def cost(self) -> Fraction | None:
        """What the request cost in the binding rule, in tokens."""
        binding = self.binding
        return None if binding is None else binding.cost

    @property
    def remaining(self) -> int | None:
        """Whole tokens left in the binding limit; without one 0 if a rule denied, None if none took part."""
        binding = self.binding
        if binding is None:
            return None if self.allowed else 0
        return binding.remaining

    @property
    def balance(self) -> Fraction | None:
        """What is left in the binding limit, in tokens: exact, negative while in debt."""
        binding = self.binding
        return None if binding is None else binding.balance

    @property
    def retry_after_us(self) -> int | None:
        """Microseconds until a lone caller passes all limits: 0 if allowed, None if never."""
        if self.allowed:
            return 0
        binding = self.binding
        return None if binding is None else binding.retry_after_us

    @property
    def retry_after(self) -> float | None:
        """Seconds until a lone caller passes all limits: 0 if allowed, None if never. Exact, rounded up."""
        return seconds_or_none(self.retry_after_us)

    @property
    def reset_after_us(self) -> int | None:
        """Microseconds until the binding key is as fresh: None if never by itself, 0 if there is none."""
        binding = self.binding
        if binding is None:
            return 0 if self.allowed else None
        return binding.reset_after_us

    @property
    def reset_after(self) -> float | None:
        """Seconds until the binding key is as fresh; None if never by itself."""
        return seconds_or_none(self.reset_after_us)

    @property
    def wait_us(self) -> int:
        """Microseconds for which the admitted work is to be held: the longest that a queue asks for."""
        return max((outcome.wait_us for outcome in self.outcomes if outcome.mode == "enforce"), default=0)

    @property
    def wait(self) -> float:
        """Seconds for which the admitted work is to be held; 0 unless a queue admitted it."""
        return seconds(self.wait_us)

    @property
    def retry_hint_us(self) -> int | None:
        """Microseconds that a refused caller should be told: its ticket, never before `retry_after_us`.

        The first reading takes the ticket; later ones repeat it.
        """
        hints_us = self._hints()
        return None if hints_us is None else hints_us[0]

    @property
    def retry_hint(self) -> float | None:
        """Seconds that a refused caller should be told: its ticket, never before `retry_after`."""
        return seconds_or_none(self.retry_hint_us)

    @property
    def retry_hint_s(self) -> int | None:
        """Whole seconds for a `Retry-After` header: rounded up, spread over callers, 0 only if allowed."""
        hints_us = self._hints()
        return None if hints_us is None else header_seconds(hints_us[1])

    def _hints(self) -> tuple[int, int] | None:
        try:
            return self._hints_us
        except AttributeError:
            self._hints_us = self._take_ticket()
            return self._hints_us

    def _take_ticket(self) -> tuple[int, int] | None:
        need_us = self.retry_after_us
        binding = self.binding
        if not need_us or binding is None or self._desk is None:
            return None if need_us is None else (need_us, need_us)
        charge = binding.charge
        # What was not the store's to decide has instants of this process's clock, and so a line of its own.
        apart = charge.share or binding.outage
        line = (charge.rule, charge.key, "own clock") if apart else (charge.rule, charge.key)
        return self._desk.hints_us(charge.limit, line, self._caller, charge.cost, need_us, binding.now_us)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.outcomes, self.allowed, self.source, self._named, self._hints(), self.returned)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision):
            return NotImplemented
        return (self.outcomes, self.allowed, self.source, self.rule) == (
            other.outcomes,
            other.allowed,
            other.source,
            other.rule,
        )

    __hash__ = None  # type: ignore[assignment]  # equal by value, and `returned` changes

    def __str__(self) -> str:
        verdict = "allowed" if self.allowed else "refused"
        binding = self.binding
        if binding is None:
            return f"{verdict} by {self._named}" if self._named else f"{verdict}; no enforced limit applies"
        capacity = decimal_text(Fraction(binding.limit.capacity))
        left = "the store gave no answer" if binding.outage else f"{binding.remaining} of {capacity} left"
        text = f"{verdict} by {binding.rule}: {left}"
        if self.allowed:
            return text + (f", wait {self.wait:g} s" if self.wait_us else "")
        return text + (
            ", can never pass" if self.retry_after is None else f", retry after {self.retry_after:g} s"
        )

    def __repr__(self) -> str:
        return f"<Decision {self}>"


def _frees_in(outcome: Outcome) -> float:
    """What orders refusals: never comes last of all. Ties keep the order of the policy."""
    us = outcome.retry_after_us
    return float("inf") if us is None else us


def _requests_left(outcome: Outcome) -> tuple[bool, int]:
    """How many such requests are left; a limit that is charged nothing comes last, by what it has left."""
    cost = outcome.charge.cost
    return cost == 0, outcome.left // (cost or 1)


def _rebuilt(
    outcomes: tuple[Outcome, ...],
    allowed: bool,
    source: str,
    named: str,
    hints_us: tuple[int, int] | None,
    returned: dict[str, int],
) -> Decision:
    decision = Decision(outcomes, allowed=allowed, source=source, named=named)
    decision._hints_us = hints_us
    decision.returned.update(returned)
    return decision
