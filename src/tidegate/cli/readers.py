"""What one argument of the command line says: each reader gives the value, or a line that says what is wrong.

argparse puts the argument's name before the message.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tidegate.errors import TidegateError
from tidegate.testing.hammer import SECONDS_MOST
from tidegate.units import Rate, duration_us, instant_us, milli


def whole(least: int, most: int) -> Callable[[str], int]:
    """A reader of whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.replace(",", "").replace("_", "")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 25 and least <= int(digits) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least:,} to {most:,}")
        return int(digits)

    return read


def _read(what: Callable[[str], Any]) -> Callable[[str], Any]:
    """An argument that is read elsewhere, whose errors say what is wrong."""

    def read(text: str) -> Any:
        try:
            return what(text)
        except TidegateError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _decimal(text: str) -> Fraction:
    digits = text.strip()
    if not (digits.isascii() and digits.removeprefix("-").replace(".", "", 1).isdigit() and len(digits) < 40):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number such as 5 or 0.5")
    return Fraction(digits)


def seconds(text: str) -> float:
    """More than 0 seconds, and at most as many as a run may take."""
    number = _decimal(text)
    if not 0 < number <= SECONDS_MOST:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0 seconds and at most {SECONDS_MOST:,}")
    return float(number)


def tokens(text: str) -> Fraction:
    """More than 0 tokens, exact to a thousandth."""
    number = _decimal(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be more than 0")
    return Fraction(_read(lambda _: milli(number, "the amount"))(text), 1_000)


def attribute(text: str) -> tuple[str, str]:
    """An attribute, name=value."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} must be an attribute, name=value, such as org=acme")
    return name, value


cost = _read(lambda text: Fraction(milli(_decimal(text)), 1_000))
duration = _read(lambda text: duration_us(text, "it"))
rate = _read(Rate.parse)
instant = _read(lambda text: instant_us(_decimal(text), "the instant"))
