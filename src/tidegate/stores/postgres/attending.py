"""What is done beside the callers: probing a server that does not answer, and sweeping.

Nobody waits for it. While the breaker is open a probe goes out every tenth of a second, until one is answered or
nobody has asked for a while. Where decisions are made, a sweep begins at most once a second: it deletes up to
1,000 rows of keys that are fresh, by its own deadline. If it found fewer there is time until the next; if it did
not end in time it takes fewer rows.
"""

from __future__ import annotations

import logging
import random
import time

from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import PROBE_EVERY_US
from tidegate.stores.postgres.asking import Asking, Shared
from tidegate.stores.postgres.causes import Lost
from tidegate.stores.postgres.ports import Port

SWEEP_EVERY_S = 1.0
SWEEP_SELDOM_S = 10.0
SWEEP_WITHIN_S = 0.5
ROWS_MOST = 1_000
ROWS_LEAST = 20
PROBE_WITHIN_S = 2.0
PROBED_WITHOUT_DEMAND_S = 10.0


class Attendant:
    """Does so for the faces and loops of one store: one probe and one sweep at a time."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._demanded_at_s = 0.0
        self._probing_since_s = 0.0
        self._rows = ROWS_MOST
        self._has_complained = False
        self.is_closed = False
        self.sweeps_at_s = time.monotonic() + SWEEP_EVERY_S * random.random()  # noqa: S311 - not all at once

    def look(self, port: Port, asking: Asking) -> None:
        """See what there is to be done, and have it done beside. Called after every decision."""
        now_s = time.monotonic()
        if self._shared.health.is_open:
            self._demanded_at_s = now_s
            if now_s - self._probing_since_s > PROBE_WITHIN_S:
                self._probing_since_s = now_s
                self._beside(port, asking, self._probe)
        elif now_s >= self.sweeps_at_s and not self.is_closed:
            self.sweeps_at_s = now_s + SWEEP_SELDOM_S
            self._beside(port, asking, self._sweep)
