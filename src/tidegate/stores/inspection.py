"""What an operator may ask of a store on the network: what lies there, and whether its server can be trusted.

None of it is part of deciding. Each question is bounded, in what it reads at a time and in what it returns.
How it is answered stands beside each store, in its files check.py and browse.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from tidegate.core.keys import Key
from tidegate.core.limits import TokenBucket
from tidegate.core.outcome import Charge
from tidegate.errors import StoreError, StoreUnavailable

_SLOW_US = 5_000_000

BEGINS_EMPTY = (
    "knows nothing of before, so strict rules begin used up there and fill at their rates; if nothing was "
    "ever spent, say so once: tidegate store init --full"
)


class Finding(Protocol):
    """One thing that was looked at: how it is, and what that means. "error": limits cannot be kept there."""

    where: str
    what: str
    grade: str
    value: str
    says: str


class KeyHeld(NamedTuple):
    """One key that a store holds. `state` is as core knows it, None if it cannot be read.

    `now_us` is the instant of the store's clock; `forgotten_after_us` is None where it is kept for good.
    `foreign` says what stands in its place, such as "list", where somebody else has written there.
    """

    rule: str
    key: Key
    state: Any
    now_us: int
    forgotten_after_us: int | None
    foreign: str | None = None


class KeyPage(NamedTuple):
    """Some keys, each a rule and a key. `cursor` is where to go on; None: that was all."""

    keys: Sequence[tuple[str, Key]]
    cursor: str | None


class Prepared(NamedTuple):
    """What was done to prepare a server, in words, and whether that is all that was asked for."""

    says: str
    is_done: bool


def init(store: Any, *, logged: bool = False, full: bool = False) -> Prepared:
    """Prepare the server: the schema of PostgreSQL, or the epochs of Redis. It is asked in any case.

    `logged` asks for tables that survive a crash. `full` says of a Redis server that it has never held
    anything, so that strict budgets begin full. Raises StoreError for what makes no sense of this store.
    """
    if store.name == "postgres":
        if full:
            raise StoreError("PostgreSQL notes by itself, when its schema is made, that nothing was lost yet")
        return Prepared(str(store.init(logged=logged)), True)
    epochs = _beside(store, "epochs")
    if logged:
        raise StoreError("only PostgreSQL has logged tables; leave that out")
    found = epochs.begin_full(store) if full else epochs.look(store)
    return Prepared(str(found), found.is_done)


def check(store: Any) -> Sequence[Finding]:
    """Look at the server: version, clock, round trip, what it may lose. Writes nothing that stays."""
    found: Sequence[Finding] = _beside(store, "check").check(store)
    return found


def first_look(store: Any, *, strict: bool, within_us: int) -> str | None:
    """Ask once whether the server can be used, for strict rules too where there are some. Charges nothing.

    Returns what there is to say of it, such as `BEGINS_EMPTY`. Raises StoreUnavailable where it gives no
    usable answer, and StoreError for what waiting does not mend, which a wrong password is too. Takes
    `within_us` and as long again at most.
    """
    look = Charge("tidegate", "look", TokenBucket(1, "1/s"), 1_000, strict=strict)
    try:
        (outcome,) = store.decide([look], take=False, deadline_us=within_us)
        beside = _beside(store, "check")
        reason = beside.reason_not_to_be_strict(store, within_us) if strict else None
    except StoreUnavailable as error:
        if error.cause != "authentication":
            raise
        raise StoreError(str(error)) from error
    if reason is not None:
        raise StoreError(reason)
    return None if outcome.allowed else BEGINS_EMPTY


def list_keys(
    store: Any, rule: str | None = None, prefix: str = "", *, cursor: str | None = None, most: int = 100
) -> KeyPage:
    """Keys of a rule (None: of all) whose first value begins with `prefix`, at most `most` at a time."""
    page = _beside(store, "browse").list_keys(store, rule, prefix or None, cursor=cursor, most=most)
    return KeyPage(page.keys, page.cursor)


def show_key(store: Any, rule: str, key: Key) -> KeyHeld | None:
    """What is held of one key; None if nothing is that matters, which means that it is fresh."""
    held = _beside(store, "browse").show_key(store, rule, key)
    if held is None:
        return None
    if held.foreign is not None:
        return KeyHeld(rule, key, None, 0, held.forgotten_after_us(0), held.foreign)
    look = Charge(rule, key, TokenBucket(1, "1/s"), 0)
    now_us = store.decide([look], take=False, deadline_us=_SLOW_US)[0].now_us
    state = held.core_state
    if held.is_reset or (state is not None and state.law.is_fresh(state.law.advance(state, now_us))):
        return None
    return KeyHeld(rule, key, state, now_us, held.forgotten_after_us(now_us))


def strict_since_us(store: Any, rule: str, key: Key) -> int | None:
    """Since when a strict rule would have such a key fill from empty, of which nothing is held that matters.

    0: it is fresh for such a rule too. None: it would begin empty at its first request.
    """
    browse = _beside(store, "browse")
    if browse.show_key(store, rule, key) is not None:  # the note that it was made fresh, or a fresh state
        return 0
    since_us: int | None = browse.epoch_us(store, rule, key)
    return since_us


def reset_keys(store: Any, rule: str, prefix: str = "") -> int:
    """Make all such keys fresh; how many were held."""
    count: int = _beside(store, "browse").reset_keys(store, rule, prefix or None)
    return count


def rules_held(store: Any, wanted: str) -> Collection[str]:
    """The rules of which keys are held, `wanted` among them if it is one. A large store is read in part."""
    found: Collection[str] = _beside(store, "browse").rules_held(store, wanted)
    return found


def _beside(store: Any, name: str) -> Any:
    """The module of that name beside the store's own. Raises StoreError for a store in a process."""
    package = type(store).__module__.rpartition(".")[0]
    if not hasattr(store, "health"):
        raise StoreError(
            f"a {store.name} store lives inside one process; there is nothing to look at from another"
        )
    return import_module(f"{package}.{name}")
