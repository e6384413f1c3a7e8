"""Giving back what was taken, and settling what was only estimated.

A decision is the receipt: it knows what was taken where, and what has come back already. The amount is
claimed on the decision before the store is asked, so two that give back the same decision at once cannot
both do it; if the store fails in between, the rest stays counted.

What was taken from this node's own share goes back there, what the store took goes to the store. Where
the store gives no answer nothing comes back, and what was to be charged on top is not: both are tallied
and neither is asked again, for it may have been done.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from tidegate.core.compose import Adjustment
from tidegate.core.decision import Decision
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.rule import check_cost
from tidegate.errors import StoreUnavailable
from tidegate.flows.port import Setting, ends_us
from tidegate.units import MILLI, Number, milli


class Claim(NamedTuple):
    """What is asked for of one charge; `outage` where it was charged to a limit for outages."""

    adjustment: Adjustment
    outage: bool


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
    claims: list[Claim] = []
    with setting.lock:
        for outcome in charged:
            grain = outcome.limit.law.grain
            own = decision.returned.get(outcome.rule, 0)
            wanted = outcome.charge.cost if part is None else part
            units = min(wanted * grain, outcome.charge.cost * grain - max(0, own))
            if units > 0:
                decision.returned[outcome.rule] = own + units
                claims.append(Claim(_adjustment(setting, outcome, -units, own), outcome.outage))
    if not claims:
        return Fraction(0)
    returned = await _adjusted(setting, claims)
    setting.outages.tally.refunds_lost += returned.count(None)
    with setting.lock:
        for claim, units_back in zip(claims, returned, strict=True):
            if units_back is not None:  # else it may have come back: it is not asked again
                decision.returned[claim.adjustment.charge.rule] += units_back + claim.adjustment.units
    return _least(claims, returned)


async def _charge_on_top(setting: Setting, decision: Decision, more: int) -> Fraction:
    charged = [outcome for outcome in decision.outcomes if outcome.charged and not outcome.charge.own_price]
    for outcome in charged:
        check_cost(outcome.limit, more, outcome.rule)
    claims = []
    for outcome in charged:
        claim = _adjustment(setting, outcome, 0, 0)
        claims.append(Claim(claim._replace(units=more * claim.charge.limit.law.grain), outcome.outage))
    changed = await _adjusted(setting, claims)
    setting.outages.tally.debts_lost += changed.count(None)
    return _least(claims, changed)


async def _adjusted(setting: Setting, claims: Sequence[Claim]) -> list[int | None]:
    """The units that came back of each claim, from where it was charged; None where there was no answer."""
    outages, port = setting.outages, setting.port
    returned: list[int | None] = [None] * len(claims)
    of_store = []
    for at, (adjustment, outage) in enumerate(claims):
        if outage:
            returned[at] = outages.bounds().adjust([adjustment], outages.now_us())[0]
        elif adjustment.charge.share:
            returned[at] = outages.adjust_share(adjustment)
        else:
            of_store.append(at)
    parts: Sequence[Sequence[int]] = [of_store] if of_store else []
    if len(of_store) > 1 and port.splits:
        charges = [claims[at].adjustment.charge for at in of_store]
        parts = [[of_store[place] for place in part] for part in port.parts(charges)]
    for part, until_us in zip(parts, ends_us(port, len(parts)), strict=True):
        try:
            units = await port.adjust(
                [claims[at].adjustment for at in part], setting.instant_us(), until_us=until_us
            )
        except StoreUnavailable:
            continue
        for at, back in zip(part, units, strict=True):
            returned[at] = back
    return returned


def _in_force(setting: Setting, outcome: Outcome) -> Charge:
    """The charge under the limit that its key has by now, or the part of it that was charged.

    A limit that a function chose stays as it was, for the attributes that it was asked with are gone.
    """
    rule = setting.policy.get(outcome.rule)
    if rule is None or rule.limit is None or callable(rule.overrides):
        return outcome.charge
    if outcome.outage:
        return outcome.charge._replace(limit=rule.outage_limit or outcome.limit)
    limit = rule.limit if rule.limit_for is None else rule.limit_for({}, outcome.charge.key)
    return outcome.charge._replace(limit=setting.outages.part(outcome.charge, limit))


def _adjustment(setting: Setting, outcome: Outcome, units: int, own: int) -> Adjustment:
    rule, charge = setting.policy.get(outcome.rule), _in_force(setting, outcome)
    debt = charge.limit.law.capacity
    if rule is not None and rule.debt is not None:
        debt = setting.outages.debt(charge, rule.debt)
    full = rule is not None and rule.give_back == "full"
    return Adjustment(charge, outcome.receipt, units, own, full, debt)


def _least(claims: Sequence[Claim], returned: Sequence[int | None]) -> Fraction:
    """What came back in the enforced rule where least did, in tokens; a shadow rule has no say."""
    tokens = [
        (charge.mode, Fraction(units or 0, charge.limit.law.grain * MILLI))
        for charge, units in zip([claim.adjustment.charge for claim in claims], returned, strict=True)
    ]
    enforced = [amount for mode, amount in tokens if mode == "enforce"]
    return min(enforced or [amount for _, amount in tokens])
