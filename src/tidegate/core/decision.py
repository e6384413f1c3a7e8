"""The answer: allowed or not, why, what is left, when to come back, how long to wait first.

An outcome is what one rule said; a decision is what a request got. Both only keep the state that
decided and the instant; every figure is computed from them when it is read, by the law that decided.
Durations are seconds here, with a twin in whole microseconds (`..._us`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from tidegate.core.carry import Carry
from tidegate.core.law import Receipt
from tidegate.core.level import Level, LevelState
from tidegate.core.limits import Limit
from tidegate.core.ticket import TicketDesk
from tidegate.units import MILLI, decimal_text, header_seconds, seconds

Mode: TypeAlias = Literal["enforce", "shadow", "deny", "bypass"]
Key: TypeAlias = str | bytes


class Charge(NamedTuple):
    """What one rule is asked about one request: may `cost` thousandths be taken from `key`?

    `own_price` tells that the rule set the cost and not the call, so that settling leaves it alone.
    """

    rule: str
    key: Key
    limit: Limit
    cost: int
    mode: Mode = "enforce"
    carry: Carry = "strict"
    own_price: bool = False
    patience_us: int | None = None


class Outcome(NamedTuple):
    """What one rule said. `state` is the key's after the decision; `charged` tells whether the cost was taken.

    `delay_us` is set where not the limit refused but the store had no room for a new key: it is then
    the wait until there may be some.
    """

    charge: Charge
    allowed: bool
    charged: bool
    state: Any
    now_us: int
    delay_us: int | None = None

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.charge.rule

    @property
    def limit(self) -> Limit:
        """The limit that decided."""
        return self.charge.limit

    @property
    def mode(self) -> Mode:
        """How the rule takes part: "enforce", or "shadow" if it only reports."""
        return self.charge.mode

    @property
    def cost(self) -> Fraction:
        """What the request cost in this rule, in tokens."""
        return Fraction(self.charge.cost, MILLI)

    @property
    def left(self) -> int:
        """Capacity minus what is used, in thousandths, rounded down; negative while in debt."""
        law = self.charge.limit.law
        return int(law.left(self.state) // law.grain)

    @property
    def balance(self) -> Fraction:
        """Capacity minus what is used, in tokens: exact, and negative while in debt."""
        law = self.charge.limit.law
        return Fraction(law.left(self.state), law.grain * MILLI)

    @property
    def remaining(self) -> int:
        """Whole tokens left, rounded down, never negative."""
        return max(0, self.left // MILLI)

    @property
    def retry_after_us(self) -> int | None:
        """Microseconds until a lone caller passes this rule: 0 if allowed, None if never."""
        if self.allowed:
            return 0
        if self.delay_us is not None:
            return self.delay_us
        return self.limit.law.retry_after_us(self.state, self.charge.cost, self.now_us)

    @property
    def retry_after(self) -> float | None:
        """Seconds until a lone caller passes this rule: 0 if allowed, None if never."""
        return _seconds(self.retry_after_us)

    @property
    def reset_after_us(self) -> int | None:
        """Microseconds until the key is as fresh; None if never by itself."""
        return self.limit.law.reset_after_us(self.state, self.now_us)

    @property
    def reset_after(self) -> float | None:
        """Seconds until the key is as fresh; None if never by itself."""
        return _seconds(self.reset_after_us)

    @property
    def wait_us(self) -> int:
        """Microseconds for which the admitted work is to be held; 0 unless a queue admitted it."""
        return self.limit.law.wait_us(self.state, self.charge.cost, self.now_us) if self.charged else 0

    @property
    def wait(self) -> float:
        """Seconds for which the admitted work is to be held; 0 unless a queue admitted it."""
        return seconds(self.wait_us)

    @property
    def receipt(self) -> Receipt:
        """What has to be remembered so that the cost can be given back."""
        return self.limit.law.receipt(self.state, self.charge.cost)


class Decision:
    """The answer to one request; true if it may run.

    Where several limits took part, a refusal shows the one that frees last (one that never frees
    before all others), an admission the one with the fewest requests left.
    """

    __slots__ = ("_caller", "_desk", "_hints_us", "_named", "_outcomes", "allowed", "returned", "source")

    allowed: bool
    """Whether the request may run."""
    source: str
    """Who decided: the store's name, or "policy" where no limit was asked."""
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
        enforced = [outcome for outcome in self.outcomes if outcome.mode == "enforce"]
        if not self.allowed:
            return max((o for o in enforced if not o.allowed), key=_frees_in, default=None)
        return min(enforced, key=_requests_left, default=None)

    @property
    def rule(self) -> str:
        """The rule that binds, denies or bypasses; "" where none applied."""
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
        """Whole tokens left in the binding limit: 0 if denied, None if no limit took part."""
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
        return _seconds(self.retry_after_us)

    @property
    def reset_after_us(self) -> int | None:
        """Microseconds until the binding key is as fresh; None if never by itself, 0 if no limit took part."""
        binding = self.binding
        if binding is None:
            return 0 if self.allowed else None
        return binding.reset_after_us

    @property
    def reset_after(self) -> float | None:
        """Seconds until the binding key is as fresh; None if never by itself."""
        return _seconds(self.reset_after_us)

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
        return _seconds(self.retry_hint_us)

    @property
    def retry_hint_s(self) -> int | None:
        """Whole seconds for a `Retry-After` header: rounded up, spread over the callers; 0 only if allowed."""
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
        line = (charge.rule, charge.key)
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
            return f"{verdict} by {self._named}" if self._named else f"{verdict}; no limit applies"
        text = f"{verdict} by {binding.rule}: {binding.remaining} of {decimal_text(Fraction(binding.limit.capacity))} left"
        if self.allowed:
            return text + (f", wait {self.wait:g} s" if self.wait_us else "")
        return text + (
            ", can never pass" if self.retry_after is None else f", retry after {self.retry_after:g} s"
        )

    def __repr__(self) -> str:
        return f"<Decision {self}>"


class HotBinding(NamedTuple):
    """What all decisions of one compiled path share."""

    form: Charge
    source: str
    desk: TicketDesk
    offset_ns: int


class HotDecision(Decision):
    """A decision of one limit as the compiled path leaves it: the figures, and no outcome until one is read.

    The compiled path fills two slots; everything else is made of them on demand.
    """

    __slots__ = ("_raw", "_returned")

    _raw: tuple[HotBinding, Key, int, int, int, int, int, int, Hashable]
    _returned: dict[str, int]

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the only rule said."""
        try:
            return self._outcomes
        except AttributeError:
            bound, key, cost, level, at_ns, busy_since_ns, given_back, gone_us, _ = self._raw
            at_us = (at_ns + bound.offset_ns) // 1_000
            busy_since_us = (busy_since_ns + bound.offset_ns) // 1_000
            state = LevelState(level, at_us, busy_since_us, given_back, cast(Level, bound.form.limit.law))
            now_us = at_us + min(0, gone_us)
            charge = bound.form._replace(key=key, cost=cost * MILLI)
            self._outcomes = (Outcome(charge, self.allowed, self.allowed, state, now_us),)
            return self._outcomes

    @property
    def source(self) -> str:  # type: ignore[override]  # a slot of the general decision
        """Who decided: the store's name."""
        return self._raw[0].source

    @property
    def returned(self) -> dict[str, int]:  # type: ignore[override]  # a slot of the general decision
        """What was given back of this decision, by rule, in the law's units. The limiter keeps it."""
        try:
            return self._returned
        except AttributeError:
            self._returned = {}
            return self._returned

    @property
    def _desk(self) -> TicketDesk:  # type: ignore[override]  # a slot of the general decision
        return self._raw[0].desk

    @property
    def _caller(self) -> Hashable:  # type: ignore[override]  # a slot of the general decision
        return self._raw[8]

    @property
    def _named(self) -> str:  # type: ignore[override]  # a slot of the general decision
        return ""


def _seconds(us: int | None) -> float | None:
    return None if us is None else seconds(us)


def _frees_in(outcome: Outcome) -> float:
    """What orders refusals: never comes last of all. Ties keep the order of the policy."""
    us = outcome.retry_after_us
    return float("inf") if us is None else us


def _requests_left(outcome: Outcome) -> int:
    """How many requests of this cost are left, rounded down."""
    return outcome.left // (outcome.charge.cost or MILLI)


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
