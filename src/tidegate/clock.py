"""Where instants come from: one clock per store, in whole microseconds.

The machine's clock is read once, for its epoch; from then on only the monotonic clock counts. So a
fixed window begins where the wall clock says, and no step of the wall clock can add or take tokens. A
process that runs across a correction of its wall clock keeps the windows it started with
(docs/decisions/0007).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Tells the instant. It may stand still, leap, or go back; the law copes."""

    def now_us(self) -> int:
        """Microseconds since the epoch of this clock."""


class SystemClock:
    """Microseconds since 1970 at the start of the process, monotonic from then on.

    `ticks_ns` and `offset_ns` are the same clock for the compiled path: now = (ticks + offset) // 1000.
    """

    __slots__ = ("offset_ns",)

    ticks_ns = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self.offset_ns = time.time_ns() - time.monotonic_ns()

    def now_us(self) -> int:
        """Microseconds since 1970, as this process counts them."""
        return (time.monotonic_ns() + self.offset_ns) // 1_000

    def __reduce__(self) -> tuple[type[SystemClock], tuple[()]]:
        return SystemClock, ()  # another process has another monotonic clock: it takes its own bearings


def ticks(clock: Clock) -> tuple[Callable[[], int], int]:
    """A function and an offset whose sum is the clock in nanoseconds, for the compiled path."""
    if isinstance(clock, SystemClock):
        return clock.ticks_ns, clock.offset_ns
    return lambda: clock.now_us() * 1_000, 0
