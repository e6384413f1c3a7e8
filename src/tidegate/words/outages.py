"""What a rule does while its store is away, in words, with the bound that then holds."""

from __future__ import annotations

from tidegate.core.limits import Limit
from tidegate.core.outage import Reserve, split
from tidegate.core.rule import Rule
from tidegate.words.phrases import plainly, rate_words, tokens

_AWAY = "while the store gives no answer"


def outage(rule: Rule, default: str | None) -> str:
    """The sentence on a rule's outages. `default` is what rules do that do not say; None: there are none."""
    assert rule.limit is not None
    if default is None:
        return "none: the state is in the process, so a restart forgets it and every key starts fresh"
    if rule.mode == "shadow":
        return f"{_AWAY} it reports nothing; it never refuses"
    how = rule.on_outage or default
    if how == "reserve" and isinstance(rule.reserve, Reserve):
        return _reserve(rule.limit, rule.reserve)
    if how == "closed":
        return f"closed: {_AWAY} nothing passes, and callers are told to ask again in a second"
    if rule.outage_limit is None:
        return f"open: {_AWAY} everything passes uncounted, without any bound"
    bound = plainly(rule.outage_limit)
    return (
        f"open: {_AWAY} each process counts each key by itself: {bound[:1].lower()}{bound[1:]}; N processes "
        "admit up to N times as much"
    )


def _reserve(limit: Limit, reserve: Reserve) -> str:
    parts = split(limit, reserve)
    who = f"each of {reserve.nodes:,} nodes" if reserve.nodes > 1 else "one node"
    held = (
        f"{who} owns {_amount(parts.node)} of each key and spends it always, first; the store holds the rest"
    )
    here = (
        "this one has no index and owns none"
        if reserve.index is None
        else f"this one is number {reserve.index}, and begins empty after a start"
    )
    return (
        f"reserve: {held}, {_amount(parts.store)}. {_AWAY.capitalize()} a node admits at most its own, and "
        f"all of them together never more than the guarantee; {here}"
    )


def _amount(limit: Limit) -> str:
    assert limit.rate is not None
    return f"{tokens(limit.capacity)} and {rate_words(limit.rate)}"
