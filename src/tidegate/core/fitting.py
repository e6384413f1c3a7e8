"""Which integers a limit has: units so fine that nothing is rounded, and so few that all of it stays exact.

The condition is that of docs/decisions/0012. A limit that does not meet it is refused with the nearest one.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from tidegate.core.law import EXACT
from tidegate.units import MILLI, Rate, decimal_text

PATIENCE_US_LEAST = 60_000_000
"""The integers of every bucket have room for a caller who would wait at least this long."""


def units_of(rate: Rate) -> tuple[int, int]:
    """Units that drain in a microsecond, and units in a token; both whole (docs/decisions/0012)."""
    flow = rate.per_microsecond
    q = lcm(flow.denominator, MILLI)
    return int(flow * q), q


def fits_integers(size: Fraction, p: int, q: int) -> bool:
    """Whether a capacity of so many tokens stays exact, a minute's patience included."""
    return 2 * size * q + p * PATIENCE_US_LEAST < EXACT


def nearest_that_fits(size: Fraction, rate: Rate) -> str:
    """What is wrong with a capacity and a rate that do not fit, and the nearest ones that do."""
    p, q = units_of(rate)
    fits = []
    most = (EXACT - 1 - p * PATIENCE_US_LEAST) // (2 * q)
    if most >= 1:
        fits.append(f"a capacity of {most} at this rate")
    near = _rate_that_fits(size, rate)
    if near is not None:
        fits.append(f"rate {near} at this capacity")
    ways_out = (
        "nearest is " + " or ".join(fits) if fits else "use a smaller capacity and a rate in rounder numbers"
    )
    return f"capacity {decimal_text(size)} at {rate} does not fit the exact integers; {ways_out}"


def _rate_that_fits(size: Fraction, rate: Rate) -> Rate | None:
    """The nearest rate that fits, among rounder numbers per second, minute, hour and day."""
    near = []
    for period_s in (1, 60, 3_600, 86_400):
        wanted = rate.per_second * period_s
        near += [Rate(Fraction(round(wanted * 10**digits), 10**digits), period_s) for digits in range(7)]
    fitting = [other for other in near if other.tokens and fits_integers(size, *units_of(other))]
    return min(fitting, key=lambda other: abs(other.per_second - rate.per_second), default=None)


def finest_tick_us(capacity: int, window_us: int) -> int | None:
    """The finest tick of 1, 2, 5, 10, ... microseconds that divides the window and keeps products exact."""
    for power in range(13):
        for digit in (1, 2, 5):
            tick_us = digit * 10**power
            if window_us % tick_us == 0 and capacity * (window_us // tick_us) < EXACT // 2:
                return int(tick_us)
    return None
