"""The compiled path: `hit` of one limit of the level family on the embedded store, as one closure.

It is the fast twin of `MemoryStore.decide` for a policy of a single rule, and both run the same tests.
What it does not know (a new key, a changed limit, a clock that stepped back far, an unusual cost or
key) it hands to the slow path.

It takes no lock. CPython with its global lock changes threads, and runs signal handlers, only where a
call returns, a loop turns or a function begins; between the reading of `held` and the last write below
there is none of these, and nothing is allocated that the collector tracks. So these lines are one step
to every other thread, and the slow path, which sets `held` before it reads anything, never sees half of
one. Where the interpreter gives no such promise there is no compiled path, and the lock decides. (A trace
function written in Python, as debuggers have, is called between lines and breaks the promise too.)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any

from tidegate.core.decision import Decision, HotBinding, HotDecision
from tidegate.core.law import STEP_US
from tidegate.core.level import Level
from tidegate.core.outcome import Charge
from tidegate.core.ticket import TicketDesk
from tidegate.stores.memory import MemoryStore

Hit = Callable[..., Decision]

HAS_GLOBAL_LOCK = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


def compiled_hit(store: MemoryStore, form: Charge, desk: TicketDesk, slow: Hit) -> Hit | None:
    """A `hit` for a policy whose only charge has this form, or None if it has no fast twin here.

    `form` is the charge with key and cost still open; `slow` decides whatever is out
    of the ordinary. Instants are the store's.
    """
    law = form.limit.law
    if not HAS_GLOBAL_LOCK or not isinstance(law, Level) or form.mode != "enforce":
        return None
    cells, held = store.table(form.rule).cells, store.held
    room, q, p = law.room, law.q, law.p
    ticks_ns = store.ticks_ns
    bound = HotBinding(form, store.name, desk, store.offset_ns)
    one, make = 1, HotDecision.__new__

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
            return slow(key, cost, caller=caller)
        if held.by is not None or cell.law is not law:  # from here on: no call, no loop, no container
            return slow(key, cost, caller=caller)
        level, at_ns = cell.level, cell.at_ns
        gone_us = (asked_ns - at_ns) // 1_000  # first the difference: small numbers divide faster
        if gone_us > 0:
            level -= p * gone_us
            at_ns += gone_us * 1_000
        elif gone_us < -STEP_US:
            return slow(key, cost, caller=caller)
        if level > 0:
            busy_since_ns, given_back = cell.busy_since_ns, cell.given_back
        else:
            level, busy_since_ns, given_back = 0, at_ns, 0
        after = level + units
        allowed = after <= room
        if allowed:
            cell.level = level = after
            cell.at_ns, cell.busy_since_ns, cell.given_back = at_ns, busy_since_ns, given_back
        decision = make(HotDecision)  # to here
        decision.allowed = allowed
        decision._raw = (bound, key, cost, level, at_ns, busy_since_ns, given_back, gone_us, caller)
        return decision

    return hit
