"""What an unquoted word of a YAML file means, and which words are refused because readers differ.

YAML 1.1 and YAML 1.2 count 010, 1e3, 1_000, 1:30, yes and on differently, and both versions are in use. A
limit must not depend on that: such a word is refused with what to write instead, and so is a number that
is not finite. What both versions read alike is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DIGITS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Refused:
    """A plain word that is not taken, and why."""

    reason: str


_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_POINT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+", re.ASCII)
_GROUPED = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+|0o[0-7]+", re.ASCII)
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", re.ASCII)
_BINARY = re.compile(r"[-+]?0b[01_]+", re.ASCII)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WORDS_OF_YAML_1_1 = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def plain_value(word: str) -> object:
    """What an unquoted word means in YAML 1.1 and 1.2 alike, or `Refused` where they differ."""
    if word in {"", "~", "null", "Null", "NULL"}:
        return None
    if word in _BOOLEANS:
        return _BOOLEANS[word]
    if word.lower() in _WORDS_OF_YAML_1_1 and word in {word.lower(), word.capitalize(), word.upper()}:
        meant = _WORDS_OF_YAML_1_1[word.lower()]
        return Refused(
            f'{word} means {meant} to some YAML readers and is text to others; write {meant}, or "{word}"'
        )
    if word[0] not in "-+.0123456789":
        return word
    if _DECIMAL.fullmatch(word) or _HEXADECIMAL.fullmatch(word):
        if len(word) > DIGITS_MAX:
            return Refused(f"a number of {len(word)} digits is too long; at most {DIGITS_MAX} are read")
        return int(word, 16 if word.startswith("0x") else 10)
    if _NOT_FINITE.fullmatch(word):
        return Refused(f"{word} is not a finite number; write one that can be counted, for instance 20")
    if _POINT.fullmatch(word):
        number = float(word)
        if number in {float("inf"), float("-inf")}:
            return Refused(f"{word} is too large for any use here; write a smaller number")
        return number
    return _differing(word)


def _differing(word: str) -> object:
    """A word that only some YAML readers take for a number; ordinary text passes."""
    quoted = f'or "{word}" if text is meant'
    differs = f"{word} is a number to some YAML readers and text to others"
    if _EXPONENT.fullmatch(word):
        return Refused(f"{differs}; write {_written_out(word)}, {quoted}")
    if _LEADING_ZERO.fullmatch(word):
        decimal = word.lstrip("+-0o") or "0"
        octal = f"{int(word.replace('o', ''), 8)}" if re.fullmatch(r"[-+0-7o]+", word) else decimal
        meant = decimal if octal == decimal else f"{decimal} or {octal}"
        return Refused(f"{word} is counted in tens or in eights, by its first zero; write {meant}, {quoted}")
    if "_" in word and _GROUPED.fullmatch(word):
        return Refused(f"{differs}; write {word.replace('_', '')}, {quoted}")
    if _SIXTIES.fullmatch(word):
        return Refused(
            f"{word} is counted in sixties by some YAML readers and text to others; "
            f"write a length of time with its unit, for instance 90s, {quoted}"
        )
    if _BINARY.fullmatch(word):
        return Refused(f"{differs}; write it in tens, {quoted}")
    return word


def _written_out(word: str) -> str:
    number = float(word)
    if abs(number) >= 1e15 or 0 < abs(number) < 1e-12:
        return "the number in full"
    return str(int(number)) if number == int(number) else f"{number:.12f}".rstrip("0").rstrip(".")
