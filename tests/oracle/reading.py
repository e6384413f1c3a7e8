"""Reads the numbers of a limit as the conformance tables write them: exactly, into fractions.

The grammar is that of `conformance/README.md` and no wider: numbers are decimal strings or "a/b",
a rate is "<number>/<count><unit>", a length of time is "<count><unit>".
"""

from __future__ import annotations

import re
from fractions import Fraction

UNIT_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
CALENDAR_UNITS = ("minute", "hour", "day", "week", "month", "year")


class BadInput(ValueError):
    """The operation must be rejected as an error; nothing changes."""


def number(text: str | int | Fraction) -> Fraction:
    """A number of tokens, not negative."""
    value = Fraction(text)
    if value < 0:
        raise BadInput(f"{text} is negative")
    return value


def cost(text: str | int | Fraction) -> Fraction:
    """A cost: whole thousandths of a token."""
    value = number(text)
    if (value * 1000).denominator != 1:
        raise BadInput(f"{text} is finer than a thousandth")
    return value


def rate_per_us(text: str) -> Fraction:
    """Tokens per microsecond: "5/s", "300/5min", "1/30day"."""
    match = re.fullmatch(r"([0-9./]+)/([0-9]*)([a-z]+)", text)
    if match is None:
        raise BadInput(f"{text!r} is not a rate")
    return number(match[1]) / (int(match[2] or 1) * UNIT_US[match[3]])


def duration_us(text: str) -> int:
    """A length of time: "60s", "10min", "30day"."""
    match = re.fullmatch(r"([0-9]+)([a-z]+)", text)
    if match is None:
        raise BadInput(f"{text!r} is not a length of time")
    return int(match[1]) * UNIT_US[match[2]]


def ceil(value: Fraction) -> int:
    """The smallest whole number that is not below the value."""
    return -((-value.numerator) // value.denominator)


def floor(value: Fraction) -> int:
    """The largest whole number that is not above the value."""
    return value.numerator // value.denominator
