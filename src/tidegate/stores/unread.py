"""Decisions as the compiled paths leave them: figures in a row, and no outcome until one is read.

Most callers only ask whether they may run. What the embedded store knows of a decision is kept in its own
terms (nanoseconds of its clock's ticks, units of the law) and becomes outcomes on demand, equal to those
of the slow path. Nothing here reads or holds the store.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, cast

from tidegate.core.columns import Decisions
from tidegate.core.decision import Brief, Decision
from tidegate.core.keys import Key
from tidegate.core.level import Level, LevelState
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.ticket import TicketDesk
from tidegate.units import MILLI

_new = tuple.__new__  # makes a named tuple at half the price of its own constructor


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
        read = getattr(self, "_outcomes", None)  # cheaper than an exception
        if read is None:
            bound, key, cost, level, at_ns, busy_since_ns, given_back, gone_us, _ = self._raw
            at_us = (at_ns + bound.offset_ns) // 1_000
            busy_since_us = at_us if at_ns == busy_since_ns else (busy_since_ns + bound.offset_ns) // 1_000
            form, allowed = bound.form, self.allowed
            rule, _, limit, _, mode, carry, _, _, strict, _ = form
            state = _new(LevelState, (level, at_us, busy_since_us, given_back if level else 0, limit.law))
            charge = _new(Charge, (rule, key, limit, cost * MILLI, mode, carry, False, None, strict, False))
            now_us = at_us if gone_us >= 0 else at_us + gone_us
            read = self._outcomes = (_new(Outcome, (charge, allowed, allowed, state, now_us, None, False)),)
        return read

    @property
    def binding(self) -> Outcome:
        """The only outcome there is."""
        return self.outcomes[0]

    @property
    def brief(self) -> Brief:
        """The figures of the only outcome; of an admission without making it, which is most of the cost."""
        bound, _, _, level, _, _, _, gone_us, _ = self._raw
        form = bound.form
        limit = form.limit
        if not self.allowed:
            outcome = self.outcomes[0]
            return Brief(form.rule, limit, outcome.remaining, outcome.retry_after_us)
        law = cast(Level, limit.law)
        fresh_us = None
        if law.p:
            fresh_us = -(-level // law.p)  # div_ceil, without the call
            if gone_us < 0:
                fresh_us -= gone_us
        return _new(Brief, (form.rule, limit, (law.room - level) // law.q, fresh_us))

    @property
    def limits_asked(self) -> int:
        """One."""
        return 1

    @property
    def wait_us(self) -> int:
        """Microseconds for which the admitted work is to be held: none, but for a queue."""
        return 0 if type(self._raw[0].form.limit.law) is Level else self.outcomes[0].wait_us

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


class TogetherDecision(Decision):
    """A decision of several limits as the compiled path leaves it: outcomes are made when one is read."""

    __slots__ = ("_offset_ns", "_read", "_rows")

    def __init__(
        self,
        rows: list[tuple[Any, ...]],
        *,
        allowed: bool,
        source: str,
        desk: TicketDesk,
        caller: Hashable,
        offset_ns: int,
    ) -> None:
        self._rows = rows
        self._read: tuple[Outcome, ...] | None = None
        self._offset_ns = offset_ns
        self.allowed = allowed
        self.source = source
        self.returned = {}
        self._named = ""
        self._desk = desk
        self._caller = caller

    @property
    def limits_asked(self) -> int:
        """How many limits took part, shadows included."""
        return len(self._rows)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What each rule said, in the order of the policy."""
        if self._read is None:
            self._read = tuple([self._outcome(*row) for row in self._rows])
        return self._read

    def _outcome(
        self,
        rule: Any,
        limit: Limit,
        key: Key,
        cost: int,
        own_price: bool,
        before: Any,
        after: Any,
        moved_us: int,
        fits: bool,
    ) -> Outcome:
        charged = fits and self.allowed
        asked = (rule.name, key, limit, cost, rule.mode, rule.carry, own_price, None, rule.strict, False)
        charge = _new(Charge, asked)
        state, now_us = after if charged else before, moved_us
        if type(state) is tuple:  # a level: four figures, and how far its instant moved
            level, at_ns, busy_since_ns, given_back = state
            at_us, since_us = (at_ns + self._offset_ns) // 1_000, (busy_since_ns + self._offset_ns) // 1_000
            state, now_us = (
                _new(LevelState, (level, at_us, since_us, given_back, limit.law)),
                at_us + min(0, moved_us),
            )
        return _new(Outcome, (charge, fits, charged, state, now_us, None, False))


class HotDecisions(Decisions):
    """Decisions as the compiled path leaves them: rows of figures, and no decision until one is read.

    Where the slow path decided, a row is the decision itself.
    """

    __slots__ = ("_bound", "_read", "_rows")

    def __init__(self, rows: list[Any], bound: HotBinding) -> None:
        self._rows = rows
        self._bound = bound
        self._read: tuple[Decision, ...] | None = None

    @property
    def allowed(self) -> list[bool]:
        """Whether each request may run."""
        return [row[0] if type(row) is tuple else row.allowed for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def _decisions(self) -> tuple[Decision, ...]:  # type: ignore[override]  # a slot of the general columns
        if self._read is None:
            self._read = tuple(map(self._decision, self._rows))
        return self._read

    def _decision(self, row: Any) -> Decision:
        if type(row) is not tuple:
            return cast(Decision, row)
        decision = HotDecision.__new__(HotDecision)
        decision.allowed = row[0]
        decision._raw = (self._bound, *row[1:], None)
        return decision
