"""What one process keeps for itself beside a store on the network, and all its limiters share.

That is its shares of limits with a reserve, and the limits that bound what is admitted in an outage. Two
limiters of one process over one store have one share between them and not two, so these are kept by the
address of the store. A forked child is another process: it begins anew, with empty shares.
"""

from __future__ import annotations

import os
import threading
import weakref

from tidegate.clock import Clock, SystemClock
from tidegate.flows.shares import Shares
from tidegate.stores.memory import MemoryStore


class Own:
    """The shares and bounds of one process for one store; `clock` tells their instants."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        # A signal handler or finalizer may come in while its own thread holds it: hence reentrant.
        self._lock = threading.RLock()
        self.shares = Shares(self.clock.now_us, self._lock)
        self._bounds: MemoryStore | None = None
        _all.add(self)

    def bounds(self) -> MemoryStore:
        """The store of the limits for outages, made when it is first needed."""
        bounds = self._bounds
        if bounds is None:
            with self._lock:
                bounds = self._bounds = self._bounds or MemoryStore(clock=self.clock)
        return bounds

    def _after_fork(self) -> None:
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the type stubs
        self._bounds = None
        self.shares.restart()


_all: weakref.WeakSet[Own] = weakref.WeakSet()
_at: weakref.WeakValueDictionary[tuple[str, int | None], Own] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def own(store: object, clock: Clock | None) -> Own:
    """What this process keeps beside the store: one thing for all stores at one address."""
    where = getattr(getattr(store, "health", None), "where", None)
    if not isinstance(where, str):
        return Own(clock)
    address = (where, None if clock is None else id(clock))
    with _lock:
        found = _at.get(address)
        if found is None:
            found = _at[address] = Own(clock)
        return found


def _begin_anew() -> None:
    """In a forked child: its parent goes on spending what it had."""
    _lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the type stubs
    for each in list(_all):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
