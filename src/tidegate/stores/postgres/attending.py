"""What is done beside the callers: probing a server that does not answer, and sweeping.

Nobody waits for it. While the breaker is open a probe goes out every tenth of a second, until one is answered
or nobody has asked for a while. Where decisions are made, a sweep begins at most once a second: it deletes up
to 1,000 rows of keys that are fresh, by a deadline of its own. If it found fewer, the next has time; if it
did not end in time, the next takes fewer. A thread or a task is begun for each, after a decision has been
answered.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import PROBE_EVERY_US, Health
from tidegate.stores.postgres.causes import Lost
from tidegate.stores.postgres.ports import Port, Work

if TYPE_CHECKING:
    import logging

    from tidegate.stores.postgres.trips import Trips

SWEEP_EVERY_S = 1.0
SWEEP_SELDOM_S = 10.0
SWEEP_WITHIN_S = 0.5
ROWS_MOST = 1_000
ROWS_LEAST = 10
PROBE_WITHIN_S = 0.5
PROBE_LOST_S = 2.0
"""Whoever probes and was not heard of for so long is gone, with its thread or its loop."""
PROBED_WITHOUT_DEMAND_S = 10.0


class Attendant:
    """Does so for all faces and loops of one store: one probes at a time, and one sweeps."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._demanded_at_s = 0.0
        self._probed_at_s = 0.0
        self._rows = ROWS_MOST
        self._has_complained = False
        self.is_closed = False
        self.sweeps_at_s = time.monotonic() + random.uniform(SWEEP_EVERY_S, SWEEP_SELDOM_S)  # noqa: S311 - so that processes do not sweep together

    def see_to_probe(self, port: Port, trips: Trips) -> None:
        """Have the server probed, for the breaker is open and somebody has asked."""
        now_s = self._demanded_at_s = time.monotonic()
        if now_s - self._probed_at_s > PROBE_LOST_S:
            self._probed_at_s = now_s
            _begin(port, lambda: self._probe(port, trips))

    def see_to_sweep(self, port: Port, trips: Trips) -> None:
        """Have fresh rows deleted, if it is time for that."""
        now_s = time.monotonic()
        if now_s >= self.sweeps_at_s:
            self.sweeps_at_s = now_s + SWEEP_SELDOM_S
            _begin(port, lambda: self._sweep(port, trips))

    async def _probe(self, port: Port, trips: Trips) -> None:
        health = self._health
        while health.is_open and not self.is_closed:
            now_s = self._probed_at_s = time.monotonic()
            if now_s - self._demanded_at_s > PROBED_WITHOUT_DEMAND_S:
                break
            if health.take_probe(int(now_s * 1_000_000)):
                try:
                    await trips.probe(port.now_s() + PROBE_WITHIN_S)
                finally:
                    health.probed()
            await port.sleep(PROBE_EVERY_US / 2_000_000)
        self._probed_at_s = 0.0

    async def _sweep(self, port: Port, trips: Trips) -> None:
        rows = self._rows
        try:
            gone = await trips.sweep(rows, port.now_s() + SWEEP_WITHIN_S)
        except StoreUnavailable:
            self._rows = max(ROWS_LEAST, rows // 2)
        except StoreError as error:  # no permission, for instance: decisions go on, and the table grows
            if not self._has_complained:
                self._has_complained = True
                _log().error("%s cannot be swept: %s", self._health.where, error)
        else:
            self._rows = min(ROWS_MOST, rows * 2)
            if gone >= rows:
                self.sweeps_at_s = time.monotonic() + SWEEP_EVERY_S


def _begin(port: Port, work: Work) -> None:
    try:
        port.beside(work)
    except Lost:  # the interpreter ends
        return


def _log() -> logging.Logger:
    import logging  # here, for deciding needs none of it

    return logging.getLogger("tidegate.store")
