"""Several limits on one request, all-or-nothing.

A refusal by any enforced rule leaves every other as it was. A shadow rule decides by itself and
reports; it never blocks, and it is charged only where the request passes and it would have allowed it.
This is the layered function that every store follows; the compiled path is its fast twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegate.core.carry import carry, is_change
from tidegate.core.law import Receipt
from tidegate.core.outcome import Charge, Outcome


def current(charge: Charge, state: Any, now_us: int) -> Any:
    """The key's state at `now_us` under the charge's limit, carried over if the limit has changed."""
    law = charge.limit.law
    if state is not None and state.law is not law:
        state = carry(state, law, now_us, charge.carry)
    return law.advance(state, now_us)


def decide(
    charges: Sequence[Charge], states: Sequence[Any], now_us: int, *, take: bool = True
) -> list[Outcome]:
    """What each rule says, given the stored states in the same order; `take=False` only asks.

    Two charges of one request must not name the same rule and key. The outcomes hold the states as they
    are afterwards; `written` says which of them a store must keep.
    """
    seen = []
    passes = take
    for charge, stored in zip(charges, states, strict=True):
        state = current(charge, stored, now_us)
        fits = charge.limit.law.fits(state, charge.cost, charge.patience_us)
        if not fits and charge.mode == "enforce":
            passes = False
        seen.append((charge, state, fits))
    if not passes:
        return [Outcome(charge, fits, False, state, now_us) for charge, state, fits in seen]
    outcomes = []
    for charge, state, fits in seen:
        charged = fits and charge.cost > 0
        after = charge.limit.law.spend(state, charge.cost) if charged else state
        outcomes.append(Outcome(charge, fits, charged, after, now_us))
    return outcomes


def must_write(outcome: Outcome, stored: Any) -> bool:
    """Whether the store must keep the outcome's state.

    It must after a charge. A refusal changes nothing, with two exceptions that grant nothing: a state
    carried over to a changed limit, and one moved back after the clock stepped back far
    (docs/decisions/0004). Looking and
    a cost of 0 write nothing at all.
    """
    if outcome.charged:
        return True
    if stored is None or outcome.charge.cost == 0:
        return False
    return is_change(stored.law, outcome.limit.law) or bool(outcome.state.at_us < stored.at_us)


class Adjustment(NamedTuple):
    """What is given back (`units` < 0) or owed on top (`units` > 0) of an earlier charge."""

    charge: Charge
    receipt: Receipt
    units: int
    own: int = 0
    full: bool = False
    debt: int = 0


def adjust(adjustment: Adjustment, state: Any, now_us: int) -> tuple[int, Any]:
    """The units by which the level went down (or up, if negative), and the state after."""
    charge, receipt, units, own, full, debt = adjustment
    law = charge.limit.law
    if units > 0:
        before = current(charge, state, now_us)
        after = law.overdraw(before, units // law.grain, debt)
        return law.left(after) - law.left(before), after
    if state is None or is_change(state.law, law):  # a changed limit voids what was taken before it
        return 0, state
    return law.give_back(law.advance(state, now_us), receipt, -units, own=own, full=full)
