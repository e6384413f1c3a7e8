"""What one process keeps for itself beside a store on the network, and all its limiters share.

That is its shares of limits with a reserve, and the limits that bound what is admitted in an outage. Two
limiters of one process over one store have one share between them and not two, so these are kept by the
identity of the store. A forked child is another process: it begins anew, with empty shares.

A signal handler or finalizer may come in anywhere while its own thread is in here. So locks are reentrant,
and what there is one of is put in its place by a single step, which whoever comes second finds done.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable

from tidegate.clock import Clock, SystemClock
from tidegate.flows.shares import Shares
from tidegate.stores.memory import MemoryStore


class Own:
    """The shares and bounds of one process for one store; `clock` tells their instants."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.RLock()
        self.shares = Shares(self.clock.now_us, self._lock)
        self._bounds: dict[str, MemoryStore] = {}
        _all.add(self)

    def bounds(self) -> MemoryStore:
        """The store of the limits for outages, made when it is first needed."""
        bounds = self._bounds.get("bounds")
        return self._bounds.setdefault("bounds", MemoryStore(clock=self.clock)) if bounds is None else bounds

    def _after_fork(self) -> None:
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the type stubs
        self._bounds = {}
        self.shares.restart()


_all: weakref.WeakSet[Own] = weakref.WeakSet()
_at: weakref.WeakValueDictionary[tuple[Hashable, int | None], Own] = weakref.WeakValueDictionary()
_coming: dict[tuple[Hashable, int | None], Own] = {}
_lock = threading.RLock()


def own(store: object, clock: Clock | None) -> Own:
    """What this process keeps beside the store: one thing for all stores of one identity."""
    identity = getattr(store, "identity", ("this very store", id(store)))
    place = (identity, None if clock is None else id(clock))
    with _lock:
        found = _at.get(place)
        if found is None:
            found = _coming.setdefault(place, Own(clock))
            found = _at[place] = _at.get(place) or found  # somebody may have come in between
            _coming.pop(place, None)
        return found


def _begin_anew() -> None:
    """In a forked child: its parent goes on spending what it had."""
    _lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the type stubs
    _coming.clear()
    for each in list(_all):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
