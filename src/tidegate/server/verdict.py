"""What a decision looks like as JSON.

Amounts are tokens and durations are seconds, both as JSON numbers: exact to a thousandth of a token and to
a microsecond. Null says never (`retry_after`, `reset_after`) or that there is nothing to say. Names are
those of `Decision`; keys are never repeated, since who asked knows them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tidegate.units import MILLI, seconds

if TYPE_CHECKING:
    from tidegate.core.decision import Decision
    from tidegate.core.limits import Limit
    from tidegate.core.outcome import Outcome
    from tidegate.http.fields import Writer


def verdict(decision: Decision, fields: Writer | None = None) -> dict[str, Any]:
    """The decision, each rule's outcome, and by `fields` the header fields for whoever passes the answer on.

    Without `fields` nobody was told to come back, so there is no `retry_hint` either: reading one takes a
    place in the line of those who were refused.
    """
    outcomes = [_outcome(outcome) for outcome in decision.outcomes]
    binding = decision.binding
    allowed = decision.allowed
    told: dict[str, Any] = {"allowed": allowed, "rule": "", "source": decision.source}
    if binding is None:
        told |= {
            "rule": decision.rule,
            "cost": None,
            "remaining": None if allowed else 0,
            "balance": None,
            "retry_after": 0 if allowed else None,
            "reset_after": 0 if allowed else None,
            "wait": 0,
        }
    else:
        bound = next(
            told for told, outcome in zip(outcomes, decision.outcomes, strict=True) if outcome is binding
        )
        told |= {name: bound[name] for name in _BINDING}
        told["wait"] = _seconds(decision.wait_us)
    if fields is not None:
        told["retry_hint"] = 0 if allowed else _seconds(decision.retry_hint_us)
        told["headers"] = dict(fields(decision))
    told["outcomes"] = outcomes
    return told


_BINDING = ("rule", "cost", "remaining", "balance", "retry_after", "reset_after")


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "rule": outcome.rule,
        "mode": outcome.mode,
        "allowed": outcome.allowed,
        "cost": _tokens(outcome.charge.cost),
        "remaining": outcome.remaining,
        "balance": _tokens(outcome.left),
        "retry_after": _seconds(outcome.retry_after_us),
        "reset_after": _seconds(outcome.reset_after_us),
        "wait": _seconds(outcome.wait_us),
        "limit": limit_told(outcome.limit),
    }


def limit_told(limit: Limit) -> dict[str, Any]:
    """The numbers of a limit; `window` is the time in which a whole quota comes back."""
    rate, window_us = limit.rate, limit.quota_window_us
    return {
        "algorithm": limit.algorithm,
        "capacity": _tokens(int(Fraction(limit.capacity) * MILLI)),
        "rate": None if rate is None else str(rate),
        "window": _seconds(window_us),
    }


def _tokens(thousandths: int) -> int | float:
    whole, rest = divmod(thousandths, MILLI)
    return whole if not rest else thousandths / MILLI


def _seconds(us: int | None) -> float | int | None:
    return us and seconds(us)
