"""Reads JSON from strangers: what has no single meaning is refused, and nothing costs more than its length.

Refused beyond what JSON itself forbids: a key that stands twice in an object (readers differ on which one
counts), NaN and Infinity, numbers that no double can hold, and numbers of more than 40 characters.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tidegate.server.answers import ProblemError, shown

NUMBER_CHARACTERS_MOST = 40


def read(body: bytes) -> Any:
    """The value that the bytes say. Raises ProblemError (400) with the place of what is wrong."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(
            400, f"The body is not UTF-8: byte {error.start} is 0x{body[error.start]:02X}."
        ) from None
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ProblemError(400, f"The body is no JSON: {error.msg} at {where}.") from None
    except RecursionError:
        raise ProblemError(400, "The body is nested too deeply; a request is three levels deep.") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ProblemError(400, f"The key {shown(key)} stands twice in one object; keep one of them.")
            seen.add(key)
    return values


def _integer(text: str) -> int:
    _check_length(text)
    return int(text)


def _point(text: str) -> float:
    _check_length(text)
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ProblemError(400, f"The number {text} is too large for any use here.")
    return number


def _check_length(text: str) -> None:
    if len(text) > NUMBER_CHARACTERS_MOST:
        raise ProblemError(
            400,
            f"A number has {len(text)} characters; the most is {NUMBER_CHARACTERS_MOST}. Send it as text.",
        )


def _constant(word: str) -> NoReturn:
    raise ProblemError(400, f"{word} is no number of JSON; send a finite one.")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_point, parse_constant=_constant
)
