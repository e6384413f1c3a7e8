"""Whether a store answers: a circuit breaker that probes, one log line per outage, and counts.

    closed      calls go to the store; so many failures in a row that no answer came open it
    open        calls are answered at once with StoreUnavailable; every `PROBE_EVERY_US` one probe may go
    closed      again, as soon as one probe is answered

An outage begins with the first call that got no usable answer, and is over once calls have been answered
for `QUIET_US` and none has failed: a server that answers some and fails others is one outage, in two lines.
Only decisions count, and where writes were refused, only those that wrote: a full server answers a probe, and
tells who has used up his budget so, all the time.

Whoever owns the connections asks `check` before a call and says afterwards how it went. A probe is sent
beside the callers (a thread, or a task), so that nobody waits for it, and there is one at a time, so that a
server that comes back is not met by a herd. It ends where nobody asks for a while; then the breaker knows
nothing any more, and the first caller waits for a probe, by his deadline (`is_overdue`). An answer that is
an error (out of memory, read-only) came in time: it is counted, and does not open the breaker. Instants are
those of a monotonic clock, passed in.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tidegate.errors import StoreUnavailable

if TYPE_CHECKING:
    import logging

FAILURES_TO_OPEN = 3
PROBE_EVERY_US = 100_000
PROBE_LOST_US = 2_000_000
"""A probe of which nothing was heard for so long is lost, with its thread or its loop."""
OVERDUE_US = 750_000
"""Whoever probes does so more often, and a server that is back is asked again within a second."""
QUIET_US = 1_000_000
PROBED, DECIDED, CHARGED, KEPT = range(4)
"""What an answer proves, more and more: that somebody answers, decides, takes a charge, has copies of it."""
REFUSING = frozenset({"out_of_memory", "read_only"})
"""The causes that mean that writes are refused: until one is taken, the outage is not over."""
SILENT = ("deadline", "connection", "authentication")
"""The causes that mean that no answer came: these, so many in a row, open the breaker."""


class HealthStats(NamedTuple):
    """What a store has been through; all but `open` only grow."""

    open: bool
    outages: int
    unavailable: dict[str, int]
    """Calls without a usable answer, by cause; "breaker" are those that were not sent."""


class Health:
    """The breaker of one store, shared by its faces, threads and loops. `where` is its name in logs."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.is_open = False
        self.is_well = True
        """Whether nothing has failed since the last outage was over: then `answered` need not be said."""
        self._lock = threading.RLock()  # a signal handler may come in while its own thread holds it
        self._in_a_row = 0
        self._troubled_since_us: int | None = None
        self._well_since_us: int | None = None
        self._proof_wanted = PROBED
        self._probed_at_us = 0
        self._next_probe_us = 0
        self._probing_since_us: int | None = None
        self._outages = 0
        self._unavailable: Counter[str] = Counter()
        self._without_store = 0
        _all.add(self)

    def check(self) -> None:
        """Raise StoreUnavailable at once while the breaker is open."""
        if self.is_open:
            with self._lock:
                self._count("breaker")
            raise StoreUnavailable(f"{self.where} did not answer lately; it is being probed", "breaker")

    def answered(self, now_us: int, proof: int = CHARGED) -> None:
        """A call or a probe was answered, which proves so much. Closes the breaker."""
        if not self.is_well:
            with self._lock:
                self._in_a_row, self.is_open = 0, False
                since_us, well_us = self._troubled_since_us, self._well_since_us
                if proof < self._proof_wanted:
                    return
                if since_us is None or well_us is None:
                    self._well_since_us = now_us
                    return
                if now_us - well_us < QUIET_US:
                    return
                self._troubled_since_us = self._well_since_us = None
                self.is_well, self._proof_wanted = True, PROBED
                missed, self._without_store = self._without_store, 0
            lasted_s = max(0, well_us - since_us) / 1_000_000
            _log().warning(
                "%s answers again after %.1f s; %d calls had no answer", self.where, lasted_s, missed
            )

    def failed(self, error: StoreUnavailable, now_us: int, calls: int = 1, wanted: int = DECIDED) -> None:
        """So many calls, sent together, got no usable answer. The first of an outage is logged.

        `wanted` is what an answer must prove at least for the outage to be over.
        """
        with self._lock:
            self._count(error.cause, calls)
            self._well_since_us, self.is_well = None, False
            refused = CHARGED if error.cause in REFUSING else DECIDED
            self._proof_wanted = max(self._proof_wanted, wanted, refused)
            first = self._troubled_since_us is None
            if first:
                self._troubled_since_us = now_us
                self._outages += 1
            if error.cause in SILENT:
                self._in_a_row += 1
                if self._in_a_row >= FAILURES_TO_OPEN and not self.is_open:
                    self.is_open, self._next_probe_us, self._probed_at_us = True, now_us, now_us
            else:
                self._in_a_row = 0
        if first:
            _log().error(
                "%s gives no usable answer (%s); outage rules decide: %s", self.where, error.cause, error
            )

    def take_probe(self, now_us: int) -> bool:
        """Whether the caller is to probe now; true for one at a time, and not more often than wanted."""
        if not self.is_open or now_us < self._next_probe_us:
            return False
        with self._lock:
            since_us = self._probing_since_us
            is_probing = since_us is not None and now_us - since_us < PROBE_LOST_US
            if is_probing or not self.is_open or now_us < self._next_probe_us:
                return False
            self._probing_since_us = self._probed_at_us = now_us
            self._next_probe_us = now_us + PROBE_EVERY_US
            return True

    def is_overdue(self, now_us: int) -> bool:
        """Whether nobody has probed for so long that an open breaker says nothing about the server."""
        return self.is_open and now_us - self._probed_at_us > OVERDUE_US

    def probed(self) -> None:
        """The probe has ended, however it went; `answered` says that it went well."""
        self._probing_since_us = None

    def stats(self) -> HealthStats:
        """What has happened so far."""
        with self._lock:
            return HealthStats(self.is_open, self._outages, dict(self._unavailable))

    def inherit(self, gone: HealthStats) -> None:
        """Go on with the counts of what is not asked any more."""
        with self._lock:
            self._outages += gone.outages
            self._unavailable.update(gone.unavailable)

    def _count(self, cause: str, calls: int = 1) -> None:
        self._unavailable[cause] += calls
        self._without_store += calls

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._probing_since_us = None


def proof_in(answers: Iterable[object]) -> int:
    """What answers prove: lists of outcomes, units that were given back or owed, and others."""
    for answer in answers:
        if isinstance(answer, list):
            if any(outcome.charged for outcome in answer):
                return CHARGED
        elif isinstance(answer, int) and answer:
            return CHARGED
    return DECIDED


_all: weakref.WeakSet[Health] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: nobody there could release a lock, or end a probe, that another thread had."""
    for health in list(_all):
        health._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _log() -> logging.Logger:
    import logging  # here, for deciding in process needs none of it

    return logging.getLogger("tidegate.store")
