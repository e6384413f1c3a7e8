"""State carried across a changed limit: a change neither refills a key nor forgives what it owes.

At the first touch after a change the old state is drained at the smaller of the two rates (nobody
knows when in between the change came), converted upwards into thousandths of a token, and taken over
in one of five ways. With capacity C1 before and C2 after, and U in use:

    strict        max(U, C2 - max(0, C1 - U))   what was left may shrink, never grow. Default.
                  Bound in any interval d: max(C1, C2) + the rate over the time.
    keep_level    U              what was spent stays spent; room that was added is there at once.
                  Bound: the same, max(C1, C2) + the rate over the time.
    keep_tokens   max(0, C2 - (C1 - U))         what was left stays left. Bound over one change: as strict;
                  over several: the sum of their capacities + the rate over the time.
    proportional  U * C2 / C1, rounded up       the same fraction is left. Bounds as keep_tokens.
    reset         0              a fresh key. Bound: C1 + C2 + the rate over the time.

A key that is as fresh by the limit that wrote it has nothing to carry: a store may have forgotten it.
Refunds of decisions made before the change return nothing.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from tidegate.core.law import AnyLaw
from tidegate.core.level import Level, LevelState
from tidegate.core.log import Log, LogState
from tidegate.units import div_ceil

Carry: TypeAlias = Literal["strict", "keep_level", "keep_tokens", "proportional", "reset"]

WAYS: tuple[Carry, ...] = get_args(Carry)


def carry(state: Any, law: AnyLaw, now_us: int, how: Carry = "strict") -> Any:
    """The state of a key whose limit has become `law`, at `now_us`. Under an equal law it stays as it is."""
    before: AnyLaw = state.law
    if not is_change(before, law):
        return state._replace(law=law)
    since_us = state.busy_since_us + 1
    own = before.advance(state, now_us)
    if before.is_fresh(own):
        return law.holding(0, own.at_us, since_us)
    if isinstance(state, LevelState) and isinstance(law, Level):
        used, at_us = _drained_slowly(state, law, now_us)
    else:
        used, at_us = before.used(own), own.at_us
    if isinstance(state, LogState) and isinstance(law, Log) and how in ("strict", "keep_level"):
        kept = law.advance(own._replace(law=law, busy_since_us=since_us), now_us)
        owed = _carried(law.used(kept), before.capacity, law.capacity, how) - law.used(kept)
        return law.spend(kept, owed)
    return law.holding(_carried(used, before.capacity, law.capacity, how), at_us, since_us)


def is_change(before: AnyLaw, law: AnyLaw) -> bool:
    """Whether a state must be carried over: bucket, meter and line of the same numbers share it."""
    if isinstance(before, Level) and isinstance(law, Level):
        return (before.room, before.q, before.p) != (law.room, law.q, law.p)
    return bool(before != law)


def _carried(used: int, before: int, after: int, how: Carry) -> int:
    if how == "strict":
        return max(used, after - max(0, before - used))
    if how == "keep_tokens":
        return max(0, after - (before - used))
    if how == "proportional":
        return div_ceil(used * after, before)
    return used if how == "keep_level" else 0


def _drained_slowly(state: LevelState, law: Level, now_us: int) -> tuple[int, int]:
    """What is used after draining at the smaller rate, in thousandths rounded up, and the instant."""
    before = state.law
    if before.p * law.q <= law.p * before.q:
        drained = before.advance(state, now_us)
        return before.used(drained), drained.at_us
    converted = law.holding(before.used(state), state.at_us, state.busy_since_us)
    drained = law.advance(converted, now_us)
    return law.used(drained), drained.at_us
