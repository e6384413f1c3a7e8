"""Rates, durations and costs: read exactly, kept as integers, rounded by name.

This is the border. Outside, people write "5/s", 0.4 and "10min"; inside there are only fractions,
whole microseconds and whole thousandths of a token. A float is read through its shortest decimal
(0.1 is one tenth), never through its binary value. Nothing here reads a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

from tidegate.errors import CostError, LimitError, RateError

Number: TypeAlias = int | float | Decimal | Fraction
Duration: TypeAlias = str | int | float | Decimal | Fraction | timedelta

US_PER_S = 1_000_000
MILLI = 1_000  # thousandths in a token

_UNIT_US = {"us": 1, "ms": 1_000, "s": US_PER_S, "min": 60 * US_PER_S, "h": 3_600 * US_PER_S}
_UNIT_US |= {"day": 86_400 * US_PER_S, "week": 7 * 86_400 * US_PER_S}

_UNIT_OF_WORD = {
    **dict.fromkeys(
        ("us", "\u00b5s", "\u03bcs", "microsecond", "microseconds"), "us"
    ),  # both signs for micro
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("w", "week", "weeks"), "week"),
}
_CALENDAR_OF_WORD = {
    **dict.fromkeys(("month", "months", "mo", "mos"), "month"),
    **dict.fromkeys(("year", "years", "yr", "yrs", "y"), "year"),
}
_UNITS_SPOKEN = "us, ms, s, min, h, day or week"

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_WORD = "[a-zA-Z\u00b5\u03bc]+"
_RATE = re.compile(rf"\s*({_NUMBER})\s*(?:/|\bper\b)\s*({_NUMBER}(?![0-9.]))?\s*({_WORD})\s*", re.ASCII)
_DURATION = re.compile(rf"\s*({_NUMBER})\s*({_WORD})\s*", re.ASCII)
_LONGEST_TEXT = 64
_DIGITS_MOST = 400
_DECIMALS_MOST = 12
_BITS_PRINTED_MOST = 4_096
_BITS_MOST = 96  # of each part of a rate: as text it stays below the length above


def div_ceil(numerator: int, denominator: int) -> int:
    """The quotient, rounded towards plus infinity."""
    return -(-numerator // denominator)


def seconds(us: int) -> float:
    """Microseconds as seconds, for the public border."""
    return us / US_PER_S


def header_seconds(us: int) -> int:
    """Whole seconds for a header, rounded up: 0 only for 0."""
    return div_ceil(us, US_PER_S)


def exact(value: Number, what: str = "number") -> Fraction:
    """The number itself, a float by its shortest decimal.

    Raises LimitError for anything that is not a finite number; a bool is not a number here.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise LimitError(f"{what} is {quoted(value)}; write a number, for instance 5 or 0.5")
    if isinstance(value, int | Fraction):
        return Fraction(value)
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _DIGITS_MOST:
        raise LimitError(f"{what} is {value}; it has more digits than anything here can count")
    try:
        return Fraction(repr(float(value)) if isinstance(value, float) else value)
    except (ValueError, OverflowError):
        raise LimitError(f"{what} is {shown(value)}; it must be finite") from None


def milli(value: Number, what: str = "cost") -> int:
    """A number of tokens as whole thousandths, exactly (docs/decisions/0005).

    Raises CostError if it is negative, not finite, not a number, or finer than a thousandth.
    """
    if type(value) is int and value >= 0:
        return value * MILLI
    try:
        thousandths = exact(value, what) * MILLI
    except LimitError as error:
        raise CostError(str(error)) from None
    if thousandths < 0:
        raise CostError(f"{what} is {shown(value)}; it must not be negative. To give back, use refund()")
    if thousandths.denominator != 1:
        raise CostError(
            f"{what} is {shown(value)}; tokens are counted in thousandths, so round it to three decimals"
        )
    return thousandths.numerator


def duration_us(value: Duration, what: str = "duration") -> int:
    """A length of time in whole microseconds: "50ms", "10min", "2 days", a timedelta, or seconds.

    Raises RateError if it cannot be read, is not positive, or is finer than a microsecond.
    """
    length = _duration_us(value, what)
    if length <= 0:
        raise RateError(f"{what} is {quoted(value)}; it must be longer than zero")
    if length.denominator != 1:
        raise RateError(f"{what} is {quoted(value)}; it must be a whole number of microseconds")
    return length.numerator


def instant_us(value: Number, what: str = "instant") -> int:
    """Seconds on a clock as whole microseconds; finer parts are an error."""
    instant = exact(value, what) * US_PER_S
    if instant.denominator != 1:
        raise LimitError(f"{what} is {shown(value)}; clocks here count whole microseconds")
    return instant.numerator


def _duration_us(value: Duration, what: str) -> Fraction:
    if isinstance(value, timedelta):
        return Fraction((value.days * 86_400 + value.seconds) * US_PER_S + value.microseconds)
    if not isinstance(value, str):
        try:
            return exact(value, what) * US_PER_S
        except LimitError:
            raise RateError(f'{what} is {quoted(value)}; write it like "10min" or as seconds') from None
    match = _DURATION.fullmatch(value) if len(value) <= _LONGEST_TEXT else None
    if match is None:
        raise RateError(
            f'{what} is {quoted(value)}; write a number and a unit, for instance "10min" or "50ms"'
        )
    return Fraction(match[1]) * _unit_us(match[2], what, value)


def _unit_us(word: str, what: str, text: str) -> int:
    unit = _UNIT_OF_WORD.get(word.lower())
    if unit is not None:
        return _UNIT_US[unit]
    calendar_unit = _CALENDAR_OF_WORD.get(word.lower())
    if calendar_unit is not None:
        raise RateError(
            f"{what} is {quoted(text)}; a {calendar_unit} has no fixed length. Write days, for instance "
            f'"30 days", or count calendar units with FixedWindow(limit, "{calendar_unit}")'
        )
    raise RateError(f"{what} is {quoted(text)}; the unit {quoted(word)} is unknown, use {_UNITS_SPOKEN}")


def quoted(value: object) -> str:
    """A value as a message quotes it: on one short line, also where Python would not print it."""
    return _shortened(value, repr)


def shown(value: object) -> str:
    """The same without quotes, for numbers."""
    return _shortened(value, str)


def _shortened(value: object, write: Callable[[object], str]) -> str:
    try:
        text = write(value)
    except ValueError:  # thousands of digits
        return f"a {type(value).__name__} of thousands of digits"
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


class Rate:
    """Sustained work per time, exact: `Rate(300, per="1min")` or `Rate.parse("5/s")`.

    Two rates are equal if the work per time is: "60/min" equals "1/s". Printing keeps the form in
    which the rate was written and reads back to an equal rate.
    """

    __slots__ = ("per_us", "tokens")

    tokens: Fraction
    per_us: int

    def __init__(self, tokens: Number, per: Duration = "1s") -> None:
        amount = exact(tokens, "rate")
        if amount < 0:
            raise RateError(f"rate is {shown(tokens)}; it must not be negative")
        period_us = duration_us(per, "period of the rate")
        if not _is_short_decimal(amount):  # a third per second is one per three seconds
            amount, period_us = Fraction(amount.numerator), period_us * amount.denominator
        if max(amount.numerator, amount.denominator, period_us).bit_length() > _BITS_MOST:
            raise RateError(f"rate is {shown(tokens)} per {shown(per)}; it has too many digits, round it")
        object.__setattr__(self, "tokens", amount)
        object.__setattr__(self, "per_us", period_us)

    @classmethod
    def parse(cls, value: Rate | str) -> Rate:
        """The rate that "5/s", "300/min", "300 per 5 min" or "5/30s" says.

        Raises RateError for a bare number, a list, a calendar month, or anything else.
        """
        if isinstance(value, Rate):
            return value
        if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, bool):
            number = shown(value)
            raise RateError(
                f'rate is {number}; a rate needs a period, for instance "{number}/s" or "{number}/min"'
            )
        if not isinstance(value, str):
            raise RateError(f'rate is {quoted(value)}; write one rate, for instance "5/s" or "300 per 5 min"')
        match = _RATE.fullmatch(value) if len(value) <= _LONGEST_TEXT else None
        if match is None:
            raise RateError(_what_is_wrong(value))
        period = Fraction(match[2] or 1) * _unit_us(match[3], "rate", value)
        if period <= 0 or period.denominator != 1:
            raise RateError(
                f"rate is {quoted(value)}; its period must be a positive number of whole microseconds"
            )
        return cls(Fraction(match[1]), period / US_PER_S)

    @property
    def per_microsecond(self) -> Fraction:
        """Tokens per microsecond, reduced."""
        return self.tokens / self.per_us

    @property
    def per_second(self) -> Fraction:
        """Tokens per second, reduced."""
        return self.tokens * US_PER_S / self.per_us

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Rate cannot be changed; make a new one instead of setting {name}")

    def __eq__(self, other: object) -> bool:
        return self.per_microsecond == other.per_microsecond if isinstance(other, Rate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.per_microsecond)

    def __reduce__(self) -> tuple[type[Rate], tuple[Fraction, Fraction]]:
        return (Rate, (self.tokens, Fraction(self.per_us, US_PER_S)))

    def __str__(self) -> str:
        return f"{decimal_text(self.tokens)}/{_period_text(self.per_us)}"

    def __repr__(self) -> str:
        return f"Rate.parse({str(self)!r})"


def decimal_text(value: Fraction | int) -> str:
    """A number as people write it: "5", "0.25", and "1/3" where no short decimal is equal to it."""
    number = Fraction(value)
    if number.numerator.bit_length() > _BITS_PRINTED_MOST:
        return shown(number)
    if number.denominator == 1:
        return str(number.numerator)
    if not _is_short_decimal(number):
        return str(number)
    whole, rest = divmod(
        abs(number.numerator) * (10**_DECIMALS_MOST // number.denominator), 10**_DECIMALS_MOST
    )
    decimals = f"{rest:0{_DECIMALS_MOST}d}".rstrip("0")
    return f"{'-' if number < 0 else ''}{whole}.{decimals}"


def _is_short_decimal(number: Fraction) -> bool:
    """Whether so few decimals write the number exactly."""
    return 10**_DECIMALS_MOST % number.denominator == 0 and abs(number) < 10**15


def duration_text(us: int) -> str:
    """A length of time in its largest whole unit: "10min", "2 days", "1500ms"."""
    for unit, length_us in reversed(_UNIT_US.items()):
        if us and us % length_us == 0:
            count = us // length_us
            if unit in {"day", "week"}:
                return f"{count} {unit}{'s' if count > 1 else ''}"
            return f"{count}{unit}"
    return f"{us}us"


def _period_text(us: int) -> str:
    """A duration as it stands in a rate, where one second is "s" and not "1s"."""
    text = duration_text(us)
    return text[1:].lstrip() if re.match(r"1\D", text) else text


def _what_is_wrong(text: str) -> str:
    said = quoted(text)
    hint = 'write "5/s", "300/min" or "300 per 5 min"'
    if not text.strip():
        return f"rate is {said}; it is empty, {hint}"
    if re.fullmatch(rf"\s*{_NUMBER}\s*", text, re.ASCII):
        return f'rate is {said}; a rate needs a period, for instance "{text.strip()}/s"'
    if text.lstrip().startswith("-"):
        return f"rate is {said}; it must not be negative"
    if ";" in text or text.count("/") > 1:
        return (
            f"rate is {said}; that is more than one rate. Write one here, and one rule for each further rate"
        )
    if re.match(r"\s*[0-9]+,[0-9]", text):
        return f"rate is {said}; write decimals with a point and thousands without a separator"
    if re.match(r"\s*[0-9.]+[eE]", text):
        return f"rate is {said}; write the number out, without an exponent"
    if re.match(r"\s*[/p]", text):
        return f"rate is {said}; the number of tokens is missing, {hint}"
    if text.rstrip().endswith(("/", "per")):
        return f"rate is {said}; the period is missing, {hint}"
    return f"rate is {said}; {hint}"
