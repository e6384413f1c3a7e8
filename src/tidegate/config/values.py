"""Reads the single values of a configuration: numbers, rates, lengths of time, words, addresses.

Each function returns the value or raises ValueError with a sentence that shows what stands in the
file and says what to write. The sentence of a `RefusedError` begins with the value's key, which is added by
whoever reports it.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final

from tidegate.config.places import UNREADABLE
from tidegate.nearest import nearest
from tidegate.units import Rate, duration_us, milli

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_MAX: Final = 60
CALENDAR_WORDS: Final = ("second", "minute", "hour", "day", "week", "month", "year")

_CALENDAR = re.compile(
    r"([0-9]{1,6}(?:\.[0-9]{1,6})?)?\s*\b(month|year|mo|yr)s?\s*$", re.IGNORECASE | re.ASCII
)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)


class RefusedError(ValueError):
    """A value is not taken. The sentence begins with its key, which whoever reports it knows best."""

    def __init__(self, value: object, way_out: str) -> None:
        super().__init__(f"{shown(value)}; {way_out}")


class AlreadySaidError(ValueError):
    """Raised where a fault of the YAML text has been noted; adds no second message."""


def shown(value: object) -> str:
    """The value as it would stand in the file, cut to a line."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        if isinstance(value.get("env"), str):
            return f"{{env: {value['env']}}}"
        return "a table" if value else "an empty table"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def refused(value: object, way_out: str) -> ValueError:
    """The error for a value that is not taken; silent where the YAML itself was at fault."""
    if value is UNREADABLE:
        return AlreadySaidError()
    if isinstance(value, dict) and "env" in value:
        way_out = f"the environment is read for addresses and secrets only. Here {way_out}"
    return RefusedError(value, way_out)


def either(words: Iterable[str]) -> str:
    """The words as a choice: "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def whole(value: object, least: int, most: int) -> int:
    """A whole number between two bounds, both included."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise refused(value, f"write a whole number from {least} to {most}")
    return value


def number(value: object, name: str) -> int | float:
    """A number of tokens, to the thousandth, zero included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        if isinstance(value, str) and re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", value):
            raise refused(value, f"that is text; write the number without quotes: {name}: {value.strip()}")
        if isinstance(value, str) and "/" in value:
            raise refused(
                value,
                f"write the number alone ({name}: {value.partition('/')[0].strip() or 20}), without a period",
            )
        raise refused(value, f"write one number, for instance {name}: 20")
    if value < 0:
        raise refused(value, "it must not be negative")
    milli(value, name)
    return value


def size(value: object, name: str) -> int | float:
    """A number of tokens that a limit can have: more than zero."""
    tokens = number(value, name)
    if tokens == 0:
        raise refused(
            value,
            "a limit must allow something. To block, give the rule mode: deny; to allow all, mode: bypass",
        )
    return tokens


def rate(value: object, name: str) -> Rate:
    """A rate with its period, such as 5/s."""
    if not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise refused(
                value, f"a rate needs a period; write for instance {name}: {value}/s or {value}/min"
            )
        raise refused(value, f"write one rate, for instance {name}: 5/s, or 300 per 5 min")
    _no_calendar(value)
    return Rate.parse(value)


def length(value: object, name: str) -> str:
    """A length of time with its unit, such as 10min."""
    text = _timed_text(value, name)
    _no_calendar(text)
    if text in CALENDAR_WORDS:
        raise refused(text, f"write how many: {name}: 1 {text}")
    duration_us(text, name)
    return text


def window(value: object, name: str) -> str:
    """A length of time, or a calendar unit: day, week, month, year."""
    text = _timed_text(value, name)
    if text in CALENDAR_WORDS:
        return text
    if re.fullmatch(r"[A-Za-z]+", text):
        close = nearest(text, CALENDAR_WORDS)
        raise refused(
            text, f"did you mean {close}?" if close else f"write a length (10min) or {either(CALENDAR_WORDS)}"
        )
    return length(text, name)


def _timed_text(value: object, name: str) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise refused(
            value, f"a length of time needs a unit; write for instance {name}: {value}s or {value}min"
        )
    if not isinstance(value, str):
        raise refused(value, f"write one length of time, for instance {name}: 10min")
    return value


def _no_calendar(text: str) -> None:
    """Raise for a length in months or years, and show the same in days."""
    unit = _CALENDAR.search(text)
    if unit is None:
        return
    word = "month" if unit[2].lower().startswith("m") else "year"
    days = (30 if word == "month" else 365) * float(unit[1] or 1)
    written = f"{text[: unit.start()].strip()} {days:.12g} days".replace("/ ", "/").strip()
    raise refused(
        text,
        f"a {word} has no fixed length. Write days ({written}), or count by the calendar: "
        f"{{algorithm: fixed_window, limit: ..., window: {word}}}",
    )


def one_of(value: object, words: tuple[str, ...]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in words:
        return value
    close = nearest(value, words)
    raise refused(value, f"did you mean {close}?" if close else f"write {either(words)}")


def text(value: object) -> str:
    """A text that says something."""
    if isinstance(value, int | float):
        raise refused(value, f'text is wanted, so put it in quotes: "{shown(value)}"')
    if not isinstance(value, str):
        raise refused(value, "text is wanted")
    if not value.strip():
        raise refused(value, "it must not be empty")
    return value


def header(value: object) -> str:
    """The name of a header field."""
    written = text(value)
    if not _HEADER.fullmatch(written):
        raise refused(
            value, "that is no name of a header; write it without colon and spaces, for instance X-Org"
        )
    return written


def network(value: object) -> str:
    """An address, a range of addresses as 10.0.0.0/8, or unix for peers on a UNIX socket."""
    written = text(value)
    if written == "unix":
        return written
    try:
        meant = ip_network(written, strict=False)
    except ValueError:
        raise refused(
            value, "write an address or a range of addresses, for instance 10.0.0.0/8, or unix"
        ) from None
    if meant.prefixlen == 0:
        raise refused(
            value, "who trusts everybody lets every client choose its address; write your proxies' addresses"
        )
    if "/" in written and meant.network_address != ip_address(written.partition("/")[0]):
        raise refused(value, f"its address has bits beyond the prefix; write {meant}")
    return str(meant)
