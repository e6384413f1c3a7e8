"""Asking a store: take, look, explain, forget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, repeat

from tidegate.core.columns import Decisions
from tidegate.core.decision import Decision
from tidegate.core.explain import Explanation
from tidegate.core.keys import CallKey
from tidegate.core.policy import Plan
from tidegate.errors import CostError
from tidegate.flows.port import Setting
from tidegate.flows.take import decide, decide_many
from tidegate.units import Number, milli

TOGETHER_MOST = 500
"""Requests of one call are decided together, within one deadline, until they have so many charges.

Where something has to be given back, that may take a grace more (`flows/take.py`).
"""


async def ask(
    setting: Setting, key: CallKey, cost: Number, *, caller: Hashable = None, take: bool = True
) -> Decision:
    """The decision on one request; `take=False` changes nothing.

    A request that no rule speaks of is allowed. Raises InvalidKey or CostError.
    """
    policy = setting.policy
    plan = policy.plan(policy.attributes(key), milli(cost))
    if not plan.charges:
        return _by_policy(plan)
    outcomes, source = await decide(setting, plan.charges, take=take)
    return Decision.of(outcomes, source, setting.desk, caller)


async def ask_many(
    setting: Callable[[], Setting], keys: Iterable[CallKey], costs: Number | Sequence[Number]
) -> Decisions:
    """Independent decisions on many requests, in order; one cost for all, or one for each.

    Each is decided by the setting in force at its turn, or many at a time where that saves round trips.
    """
    pairs = with_costs(keys, costs)
    if not setting().port.batches:
        return Decisions([await ask(setting(), key, cost) for key, cost in pairs])
    made: list[Decision] = []
    for first in pairs:
        made += await _ask_some(setting(), chain([first], pairs))
    return Decisions(made)


async def _ask_some(setting: Setting, pairs: Iterator[tuple[CallKey, Number]]) -> list[Decision]:
    """Decisions on as many of the first as travel together; the others are left in the iterator."""
    policy, plans, charges = setting.policy, list[Plan](), 0
    for key, cost in pairs:
        plans.append(policy.plan(policy.attributes(key), milli(cost)))
        charges += len(plans[-1].charges)
        if charges >= TOGETHER_MOST or len(plans) >= TOGETHER_MOST:
            break
    answers = iter(await decide_many(setting, [plan.charges for plan in plans if plan.charges]))
    return [
        Decision.of(*next(answers), setting.desk, None) if plan.charges else _by_policy(plan)
        for plan in plans
    ]


def _by_policy(plan: Plan) -> Decision:
    """The decision where no limit is asked: a rule that denies or bypasses, or none that speaks of it."""
    rule = plan.decided_by
    if rule is None:
        return Decision((), allowed=True, source="policy")
    return Decision((), allowed=rule.mode == "bypass", source="policy", named=rule.name)


def with_costs(keys: Iterable[CallKey], costs: Number | Sequence[Number]) -> Iterator[tuple[CallKey, Number]]:
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
    (docs/decisions/0009). To reset the budget that all share who lack an attribute, name the attribute as
    None. Of a limit with a reserve the store's part and this node's own share become fresh; other nodes keep
    theirs as they are.
    Where the store gives no answer it raises StoreUnavailable and nothing is fresh.
    """
    policy = setting.policy
    attributes = policy.attributes(key)
    named = [
        rule
        for rule in policy
        if rule.limit is not None
        and (any(name in attributes for name in rule.by) if rule.by else not attributes)
    ]
    keys = [(rule, rule.key_for(attributes)) for rule in named]
    await setting.port.forget([(rule.name, key) for rule, key in keys])
    setting.outages.forget(keys, attributes)
