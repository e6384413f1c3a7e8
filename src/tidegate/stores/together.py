"""The fast twin of the general path: all rules of a request decided in one pass on the embedded store.

It decides what `core.compose.decide` decides, under the store's lock, without making an outcome that
nobody reads; levels are decided on their cells in place. It knows prices and overrides from tables, and
all of a request's keys must be held already. Whatever else there is (a new key, a changed limit, a rule
that denies or bypasses, functions of the user's) goes to the slow path, which runs the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import get_ident
from typing import Any

from tidegate.core.decision import Decision
from tidegate.core.law import STEP_US
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.core.ticket import TicketDesk
from tidegate.stores.memory import MemoryStore
from tidegate.stores.table import LevelCell
from tidegate.stores.unread import TogetherDecision
from tidegate.units import MILLI

Asked = tuple[Rule, Any, Any, int, bool, dict[Any, Any]]
"""What one rule is asked: the rule, its limit for this key, the key, the cost in thousandths, whether that
is the rule's own price, and its cells."""


def knows(policy: Policy) -> bool:
    """Whether there is a fast twin for a policy: functions would be asked twice where it has to give up."""
    return any(rule.limit for rule in policy) and not any(
        callable(rule.cost) or callable(rule.overrides) for rule in policy
    )


def compiled_together(
    policy: Policy, store: MemoryStore, desk: TicketDesk, slow: Callable[..., Decision]
) -> tuple[Callable[..., Decision], Callable[[], None]]:
    """A `hit` for a policy that `knows` says yes to, and what makes it slow for good."""
    rules = [(rule, store.table(rule.name).cells if rule.limit else {}) for rule in policy]
    lock, held, ticks_ns = store.lock, store.held, store.ticks_ns
    source, offset_ns, plain = store.name, store.offset_ns, policy.bare
    live = True

    def hit(key: Any, cost: Any = 1, *, caller: Hashable = None) -> Decision:
        if type(key) is dict and not policy.of_one_limit:
            attributes = key
        elif plain and type(key) is str and key and not key.isspace():
            attributes = {"key": key}
        else:
            return slow(key, cost, caller=caller)
        if type(cost) is not int or cost <= 0 or held.by is not None or not live:
            return slow(key, cost, caller=caller)
        asked = _asked(rules, attributes, cost * MILLI)
        if not asked:
            return slow(key, cost, caller=caller)
        thread = get_ident()  # here: between taking the lock and saying so there must be no call
        with lock:
            held.by = thread
            try:
                rows, passes = _decide(asked, ticks_ns(), offset_ns)
            finally:
                held.by = None
        if not rows:
            return slow(key, cost, caller=caller)
        return TogetherDecision(
            rows, allowed=passes, source=source, desk=desk, caller=caller, offset_ns=offset_ns
        )

    def retire() -> None:
        nonlocal live
        live = False

    return hit, retire


def _asked(rules: list[tuple[Rule, Any]], attributes: dict[str, Any], cost: int) -> list[Asked]:
    """What each rule that matches is asked; nothing if the slow path has to tell."""
    asked: list[Asked] = []
    for rule, cells in rules:
        if rule.matches is not None and not rule.matches(attributes):
            continue
        limit = rule.limit
        if limit is None:
            return []
        key = rule.key_for(attributes)
        if rule.limit_for is not None:
            limit = rule.limit_for(attributes, key)
        price = None if rule.price_of is None else rule.price_of(attributes)
        if price is not None and (price == 0 or price % MILLI):
            return []
        taken = cost if price is None else price
        asked.append((rule, limit, key, taken, price is not None, cells))
    return asked


def _decide(asked: list[Asked], now_ns: int, offset_ns: int) -> tuple[list[Any], bool]:
    """The rows of a decision and whether it passes; no rows where the slow path has to decide.

    The arithmetic of levels is that of `core/level.py`, step by step; other laws are asked themselves. A
    row holds what `TogetherDecision` reads.
    """
    passes = True
    rows: list[Any] = []
    holders: list[Any] = []  # where the states are kept; a decision must not know
    for rule, limit, key, cost, own_price, cells in asked:
        cell, law = cells.get(key), limit.law
        if cell is None or cell.law is not law:
            return [], False
        if type(cell) is not LevelCell:
            now_us = (now_ns + offset_ns) // 1_000
            state = law.advance(cell, now_us)
            if state.at_us < cell.at_us:  # the clock stepped back far
                return [], False
            fits = law.fits(state, cost)
            rows.append([rule, limit, key, cost, own_price, state, None, now_us, fits])
            holders.append(cells)
        else:
            level, at_ns, busy_since_ns, given_back = (
                cell.level,
                cell.at_ns,
                cell.busy_since_ns,
                cell.given_back,
            )
            gone_us = (now_ns - at_ns) // 1_000
            if gone_us > 0:
                level -= law.p * gone_us
                at_ns += gone_us * 1_000
            elif gone_us < 0 and (gone_us < -STEP_US or level == 0):
                return [], False
            if level > 0:
                before = level, at_ns, busy_since_ns, given_back
            else:
                level, given_back = 0, 0
                before = 0, at_ns, busy_since_ns, 0
                busy_since_ns = at_ns if at_ns > busy_since_ns else busy_since_ns + 1_000  # as begun_us
            after = level + cost * law.q // MILLI, at_ns, busy_since_ns, given_back
            fits = after[0] <= law.room
            rows.append((rule, limit, key, cost, own_price, before, after, gone_us, fits))
            holders.append(cell)
        if not fits and rule.mode == "enforce":
            passes = False
    if passes:
        _take(rows, holders)
    return rows, passes


def _take(rows: list[Any], holders: list[Any]) -> None:
    """Charge every rule whose limit the cost fits."""
    for row, held in zip(rows, holders, strict=True):
        _, limit, key, cost, _, before, after, _, fits = row
        if not fits:
            continue
        if after is None:
            row[6] = held[key] = limit.law.spend(before, cost)
        else:
            held.level, held.at_ns, held.busy_since_ns, held.given_back = after
