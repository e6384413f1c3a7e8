"""What is used under a new limit, given what was used under the old one. Five ways."""

from __future__ import annotations

from fractions import Fraction

from tests.oracle.reading import ceil

WAYS = ("strict", "keep_level", "keep_tokens", "proportional", "reset")
ZERO = Fraction(0)


def carried(way: str, used: Fraction, old: Fraction, new: Fraction) -> Fraction:
    """What counts as used under the new capacity, in whole thousandths, rounded up."""
    used = _thousandths_up(used)
    if way == "strict":  # neither refills nor forgives
        return max(used, new - max(ZERO, old - used))
    if way == "keep_level":
        return used
    if way == "keep_tokens":
        return max(ZERO, new - (old - used))
    if way == "proportional":
        return _thousandths_up(used * new / old)
    if way == "reset":
        return ZERO
    raise ValueError(f"{way} is not a way to carry over")


def _thousandths_up(tokens: Fraction) -> Fraction:
    return Fraction(ceil(tokens * 1000), 1000)
