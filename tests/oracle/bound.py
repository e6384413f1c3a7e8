"""The bound, by brute force: what was admitted in any interval, against capacity + rate * its length."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Admission = tuple[int, Fraction, Fraction]
"""An instant, a cost, and what of it was given back, ever: work given back did not happen."""


def worst_excess(admissions: Sequence[Admission], capacity: Fraction, rate_per_us: Fraction) -> Fraction:
    """The most by which an interval holds more than it may; 0 or less means that the bound holds.

    An interval that starts or ends between two admissions is no worse than the one that starts or
    ends at the nearest admission inside it, so all pairs of admissions are all intervals that matter.
    """
    events = sorted((at_us, cost - refunded) for at_us, cost, refunded in admissions)
    worst = -capacity
    for first in range(len(events)):
        admitted = Fraction(0)
        for at_us, cost in events[first:]:
            admitted += cost
            worst = max(worst, admitted - capacity - rate_per_us * (at_us - events[first][0]))
    return worst
