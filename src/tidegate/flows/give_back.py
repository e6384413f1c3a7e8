"""Giving back what was taken, and settling what was only estimated.

A decision is the receipt: it knows what was taken where, and what has come back already. The amount is
claimed on the decision before the store is asked, so two that give back the same decision at once cannot
both do it; if the store fails in between, the rest stays counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tidegate.core.compose import Adjustment
from tidegate.core.decision import Decision
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.rule import check_cost
from tidegate.flows.port import Setting
from tidegate.units import MILLI, Number, milli


async def refund(setting: Setting, decision: Decision, cost: Number | None = None) -> Fraction:
    """Give back `cost` tokens of an admitted decision, or all that it took; what came back, in tokens.

    Where several were charged, it is what came back in the enforced rule where least did. A part is given
    back only where the call's own cost counted; a rule with its own price keeps it. A late refund returns
    less, so that it cannot buy a second burst (see `Rule.give_back`). A copy of a decision is another
    receipt: give back one of them.
    """
    part = None if cost is None else milli(cost, "refund")
    return await _give_back(setting, decision, part)


async def settle(setting: Setting, decision: Decision, actual: Number) -> Fraction:
    """Replace the reserved cost by the actual one; what came back, in tokens, negative if it cost more.

    Less than reserved is given back like a refund, and 0 gives back all, also where the rule sets the
    price. More is charged on top, up to the rule's `max_debt` beyond the capacity; it never fails half-way.
    """
    spent = milli(actual, "actual cost")
    if spent == 0:
        return await _give_back(setting, decision, None)
    took = [
        outcome.charge.cost
        for outcome in decision.outcomes
        if outcome.charged and not outcome.charge.own_price
    ]
    if not took:
        return Fraction(0)
    reserved = took[0]  # all rules without a price of their own took the call's cost
    if spent <= reserved:
        return await _give_back(setting, decision, reserved - spent)
    return await _charge_on_top(setting, decision, spent - reserved)


async def _give_back(setting: Setting, decision: Decision, part: int | None) -> Fraction:
    charged = [o for o in decision.outcomes if o.charged and not (part is not None and o.charge.own_price)]
    for outcome in charged:
        check_cost(outcome.limit, part or 0, outcome.rule)
    claims: list[Adjustment] = []
    with setting.lock:
        for outcome in charged:
            grain = outcome.limit.law.grain
            own = decision.returned.get(outcome.rule, 0)
            wanted = outcome.charge.cost if part is None else part
            units = min(wanted * grain, outcome.charge.cost * grain - max(0, own))
            if units > 0:
                decision.returned[outcome.rule] = own + units
                claims.append(_adjustment(setting, outcome, -units, own))
    if not claims:
        return Fraction(0)
    returned = await setting.port.adjust(claims, setting.instant_us())
    with setting.lock:
        for claim, units in zip(claims, returned, strict=True):
            decision.returned[claim.charge.rule] += units + claim.units
    return _least(claims, returned)


async def _charge_on_top(setting: Setting, decision: Decision, more: int) -> Fraction:
    charged = [outcome for outcome in decision.outcomes if outcome.charged and not outcome.charge.own_price]
    for outcome in charged:
        check_cost(outcome.limit, more, outcome.rule)
    claims = [
        _adjustment(setting, outcome, more * _in_force(setting, outcome).limit.law.grain, 0)
        for outcome in charged
    ]
    changed = await setting.port.adjust(claims, setting.instant_us())
    return _least(claims, changed)


def _in_force(setting: Setting, outcome: Outcome) -> Charge:
    """The charge under the limit that its key has by now.

    A limit that a function chose stays as it was, for the attributes that it was asked with are gone.
    """
    rule = setting.policy.get(outcome.rule)
    if rule is None or rule.limit is None or callable(rule.overrides):
        return outcome.charge
    limit = rule.limit if rule.limit_for is None else rule.limit_for({}, outcome.charge.key)
    return outcome.charge._replace(limit=limit)


def _adjustment(setting: Setting, outcome: Outcome, units: int, own: int) -> Adjustment:
    rule, charge = setting.policy.get(outcome.rule), _in_force(setting, outcome)
    debt = charge.limit.law.capacity if rule is None or rule.debt is None else rule.debt
    full = rule is not None and rule.give_back == "full"
    return Adjustment(charge, outcome.receipt, units, own, full, debt)


def _least(claims: Sequence[Adjustment], returned: Sequence[int]) -> Fraction:
    """What came back in the enforced rule where least did, in tokens; a shadow rule has no say."""
    tokens = [
        (claim.charge.mode, Fraction(units, claim.charge.limit.law.grain * MILLI))
        for claim, units in zip(claims, returned, strict=True)
    ]
    enforced = [amount for mode, amount in tokens if mode == "enforce"]
    return min(enforced or [amount for _, amount in tokens])
