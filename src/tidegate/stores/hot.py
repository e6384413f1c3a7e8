"""The compiled path: `hit` of one limit of the level family on the embedded store, as one closure.
Policies of several such rules have theirs in `together.py`.

It is the fast twin of `MemoryStore.decide` for a policy of a single rule, and both run the same tests.
What it does not know (a new key, a changed limit, a clock that stepped back far, an unusual cost or
key) it hands to the slow path.

It takes no lock. CPython with its global lock changes threads, and runs signal handlers, only where a
call returns, a loop turns or a function begins; between the reading of `held` and the last write below
there is none of these, and nothing is allocated that the collector tracks. So these lines are one step
to every other thread, and the slow path, which sets `held` before it reads anything, never sees half of
one. Where the interpreter gives no such promise every path takes the lock (docs/decisions/0006). (A trace
function written in Python, as debuggers have, is called between lines and breaks the promise too.)

The lines stand here twice, once for one key and once for many: a call between them would end the promise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from tidegate.core.columns import Decisions
from tidegate.core.decision import Decision
from tidegate.core.keys import KEY_BYTES_MOST, CallKey
from tidegate.core.law import STEP_US
from tidegate.core.level import Level
from tidegate.core.outcome import Charge
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.core.ticket import TicketDesk
from tidegate.stores.memory import MemoryStore
from tidegate.stores.together import compiled_together, knows
from tidegate.stores.unread import HotBinding, HotDecision, HotDecisions
from tidegate.units import Number

HAS_GLOBAL_LOCK = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


class Compiled(NamedTuple):
    """A rule's fast twins. `retire` makes all of them slow for good, for callers who kept one."""

    hit: Callable[..., Decision]
    hit_many: Callable[[Iterable[tuple[CallKey, Number]]], Decisions]
    retired: list[Callable[[], None]]

    def retire(self) -> None:
        """Leave every further decision to the slow path."""
        for make_slow in self.retired:
            make_slow()


class Parts(NamedTuple):
    """What the twins of one rule are made of. `law` is the one that a cell must be under."""

    store: MemoryStore
    bound: HotBinding
    law: Level
    slow: Callable[..., Decision]


def compiled(
    policy: Policy, store: object, desk: TicketDesk, slow: Callable[..., Decision]
) -> Compiled | None:
    """The fast twins of a policy, or None if it has none on this store.

    `slow` decides whatever is out of the ordinary, and every instant is the store's own.
    """
    if type(store) is not MemoryStore or not knows(policy):
        return None
    if HAS_GLOBAL_LOCK and len(policy) == 1 and _is_simple(policy.rules[0]):
        return _compiled_rule(policy.rules[0], store, desk, slow)
    hit, retire = compiled_together(policy, store, desk, slow)
    return Compiled(hit, lambda pairs: Decisions([hit(key, cost) for key, cost in pairs]), [retire])


def _is_simple(rule: Rule) -> bool:
    return (
        isinstance(getattr(rule.limit, "law", None), Level)
        and rule.mode == "enforce"
        and len(rule.by) == 1
        and rule.cost is None
        and rule.overrides is None
    )


def _compiled_rule(
    rule: Rule, store: MemoryStore, desk: TicketDesk, slow: Callable[..., Decision]
) -> Compiled:
    assert rule.limit is not None
    law = rule.limit.law
    assert isinstance(law, Level)
    form = Charge(rule.name, "", rule.limit, 0, rule.mode, rule.carry, strict=rule.strict)
    bound = HotBinding(form, store.name, desk, store.offset_ns)
    if rule.by == ("key",) and rule.matches is None:
        parts = Parts(store, bound, law, slow)
        (hit, make_slow), (hit_many, make_many_slow) = _compiled_hit(parts), _compiled_hit_many(parts)
        return Compiled(hit, hit_many, [make_slow, make_many_slow])
    hit_value, make_slow = _compiled_hit(Parts(store, bound, law, _unknown))
    hit = _by_attribute(hit_value, rule, slow)
    return Compiled(hit, lambda pairs: Decisions([hit(key, cost) for key, cost in pairs]), [make_slow])


def _by_attribute(
    hit_key: Callable[..., Decision | None], rule: Rule, slow: Callable[..., Decision]
) -> Callable[..., Decision]:
    """A `hit` whose key is one attribute of a mapping."""
    (name,), matches = rule.by, rule.matches

    def hit(key: Any, cost: Any = 1, *, caller: Hashable = None) -> Decision:
        if type(key) is dict and (matches is None or matches(key)):
            decision = hit_key(key.get(name), cost, caller=caller)
            if decision is not None:
                return decision
        return slow(key, cost, caller=caller)

    return hit


def _is_usual(key: str) -> bool:
    """Whether a text is a key as it is: not blank, and short enough however it is encoded."""
    return 0 < len(key) <= KEY_BYTES_MOST // 4 and not key.isspace()


def _unknown(key: object, cost: object = 1, *, caller: Hashable = None) -> Any:
    """No decision: for a caller who knows a slow path of its own."""
    return None


def _compiled_hit(parts: Parts) -> tuple[Callable[..., Decision], Callable[[], None]]:
    store, bound, law, slow = parts
    cells, held, ticks_ns = store.table(bound.form.rule).cells, store.held, store.ticks_ns
    room, q, p = law.room, law.q, law.p
    ours: Level | None = law  # None once retired: then no cell is ours
    one, make = 1, HotDecision.__new__
    begin, rule = store.begin, bound.form.rule

    def hit(key: Any, cost: Any = 1, *, caller: Hashable = None) -> Decision:
        if type(key) is not str:
            return slow(key, cost, caller=caller)
        if cost is one:
            units = q
        elif type(cost) is int and cost > 0:
            units = cost * q
        else:
            return slow(key, cost, caller=caller)
        asked_ns = ticks_ns()
        try:
            cell = cells[key]
        except KeyError:
            begun_ns = begin(rule, key, law, units) if ours is law and _is_usual(key) else None
            if begun_ns is None:
                return slow(key, cost, caller=caller)
            decision = make(HotDecision)
            decision.allowed = True
            decision._raw = (bound, key, cost, units, begun_ns, begun_ns, 0, 0, caller)
            return decision
        if held.by is not None or cell.law is not ours:  # from here on: no call, no loop, no container
            return slow(key, cost, caller=caller)
        level, at_ns = cell.level, cell.at_ns
        gone_us = (asked_ns - at_ns) // 1_000  # first the difference: small numbers divide faster
        if gone_us > 0:
            level -= p * gone_us
            at_ns += gone_us * 1_000
        elif gone_us < 0 and (gone_us < -STEP_US or level == 0):
            return slow(key, cost, caller=caller)
        busy_since_ns, given_back = cell.busy_since_ns, cell.given_back
        if level < 0:  # noqa: PLR1730  # max() would be a call
            level = 0
        after = level + units
        allowed = after <= room
        if allowed:
            if level == 0:  # the same as begun_us
                given_back, busy_since_ns = 0, at_ns if at_ns > busy_since_ns else busy_since_ns + 1_000
            cell.level = level = after
            cell.at_ns, cell.busy_since_ns, cell.given_back = at_ns, busy_since_ns, given_back
        decision = make(HotDecision)  # to here
        decision.allowed = allowed
        decision._raw = (bound, key, cost, level, at_ns, busy_since_ns, given_back, gone_us, caller)
        return decision

    def retire() -> None:
        nonlocal ours
        ours = None

    return hit, retire


def _compiled_hit_many(parts: Parts) -> tuple[Callable[..., Decisions], Callable[[], None]]:
    store, bound, law, slow = parts
    cells, held, ticks_ns = store.table(bound.form.rule).cells, store.held, store.ticks_ns
    room, q, p = law.room, law.q, law.p
    ours: Level | None = law
    one, known = 1, cells.get

    def hit_many(pairs: Iterable[tuple[Any, Any]]) -> Decisions:
        asked_ns = ticks_ns()  # one instant for all, for they are asked at once
        made: list[Any] = []
        tell = made.append
        for key, cost in pairs:
            cell = known(key) if type(key) is str else None
            if (
                cell is None
                or (cost is not one and (type(cost) is not int or cost <= 0))
                or held.by is not None  # from here on, as above
                or cell.law is not ours
                or (gone_us := (asked_ns - cell.at_ns) // 1_000) < -STEP_US
                or (cell.level == 0 and gone_us < 0)
            ):
                tell(slow(key, cost))
                continue
            level, at_ns = cell.level, cell.at_ns
            if gone_us > 0:
                level -= p * gone_us
                at_ns += gone_us * 1_000
            busy_since_ns, given_back = cell.busy_since_ns, cell.given_back
            if level < 0:  # noqa: PLR1730  # max() would be a call
                level = 0
            after = level + cost * q
            allowed = after <= room
            if allowed:
                if level == 0:
                    given_back, busy_since_ns = 0, at_ns if at_ns > busy_since_ns else busy_since_ns + 1_000
                cell.level = level = after
                cell.at_ns, cell.busy_since_ns, cell.given_back = at_ns, busy_since_ns, given_back
            tell((allowed, key, cost, level, at_ns, busy_since_ns, given_back, gone_us))  # to here
        return HotDecisions(made, bound)

    def retire() -> None:
        nonlocal ours
        ours = None

    return hit_many, retire
