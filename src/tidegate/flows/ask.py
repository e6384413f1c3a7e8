"""Asking a store: take, look, explain, forget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat

from tidegate.core.columns import Decisions
from tidegate.core.decision import Decision
from tidegate.core.explain import Explanation
from tidegate.core.keys import CallKey
from tidegate.errors import CostError
from tidegate.flows.port import Setting
from tidegate.units import Number, milli


async def ask(
    setting: Setting, key: CallKey, cost: Number, *, caller: Hashable = None, take: bool = True
) -> Decision:
    """The decision on one request; `take=False` changes nothing.

    A request that no rule speaks of is allowed. Raises InvalidKey or CostError.
    """
    policy = setting.policy
    charges, decided_by = policy.plan(policy.attributes(key), milli(cost))
    if decided_by is not None:
        return Decision((), allowed=decided_by.mode == "bypass", source="policy", named=decided_by.name)
    if not charges:
        return Decision((), allowed=True, source="policy")
    outcomes = await setting.port.decide(charges, setting.instant_us(), take=take)
    return Decision.of(outcomes, setting.port.name, setting.desk, caller)


async def ask_many(
    setting: Callable[[], Setting], keys: Iterable[CallKey], costs: Number | Sequence[Number]
) -> Decisions:
    """Independent decisions on many requests, in order; one cost for all, or one for each.

    Each is decided by the setting in force at its turn.
    """
    pairs = with_costs(keys, costs)
    return Decisions([await ask(setting(), key, cost) for key, cost in pairs])


def with_costs(keys: Iterable[CallKey], costs: Number | Sequence[Number]) -> Iterable[tuple[CallKey, Number]]:
    """Keys with their costs. Raises CostError if there are not as many, before anything is taken."""
    listed = list(keys)
    if not isinstance(costs, Sequence):
        milli(costs)
        return zip(listed, repeat(costs))
    if len(costs) != len(listed):
        raise CostError(
            f"costs has {len(costs)} entries for {len(listed)} keys; give one for each, or one number"
        )
    each = list(costs)
    for cost in each:
        milli(cost)
    return zip(listed, each, strict=True)


async def explain(setting: Setting, key: CallKey, cost: Number) -> Explanation:
    """What each rule holds of this key, and why a request of this cost would pass or not."""
    return Explanation(await ask(setting, key, cost, take=False))


async def reset(setting: Setting, key: CallKey) -> None:
    """Make the key fresh in every rule that it names somebody in, whatever else the rule matches.

    Rules with `by=()` are everybody's budget: they are reset only by a key that is an empty mapping
    (docs/decisions/0009). To
    reset the budget that all share who lack an attribute, name the attribute as None.
    """
    policy = setting.policy
    attributes = policy.attributes(key)
    named = [
        rule
        for rule in policy
        if rule.limit is not None
        and (any(name in attributes for name in rule.by) if rule.by else not attributes)
    ]
    await setting.port.forget([(rule.name, rule.key_for(attributes)) for rule in named])
