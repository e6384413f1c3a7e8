"""Keys: who is limited, as attribute values encoded so that no two different ones ever meet.

A single text is its own key. Everything else (several values, bytes, numbers, an absent value) becomes
bytes in which every part states its type and length, so ("a", "b_c") is not ("a_b", "c"), 1 is not
"1", and no separator can be smuggled in. Text is compared as it is: composed and decomposed letters
differ, and so do upper and lower case. A key that is a tuple of one is what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidegate.errors import InvalidKey
from tidegate.units import quoted

Key: TypeAlias = str | bytes
"""A key as stores keep it."""

CallKey: TypeAlias = str | bytes | int | tuple[object, ...] | Mapping[str, object] | None
"""What a call may name: a plain key, or the attributes of a request."""

KEY_BYTES_MOST = 4_096
"""The longest key, encoded. Longer ones are an error: hash what is longer."""

DEPTH_MOST = 8
"""Tuples may hold tuples, so deep."""

_TYPES = "str, bytes, int, None, or a tuple of these"


def key_of(values: tuple[object, ...]) -> Key:
    """The key that these attribute values make; None is an absent value. Raises InvalidKey."""
    if len(values) == 1:
        value = values[0]
        while isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            return _checked(value if type(value) is str else str.__str__(value))
        values = value if isinstance(value, tuple) else (value,)
    return _joined([_part(value) for value in values])


def values_of(key: Key) -> tuple[object, ...]:
    """The attribute values that make this key: the inverse of `key_of`. Raises InvalidKey for other bytes."""
    if isinstance(key, str):
        return (key,)
    try:
        return _unpacked(key)
    except (ValueError, IndexError):
        raise InvalidKey(f"key is {quoted(key)}; these bytes were not made by key_of") from None


def keys_by(names: tuple[str, ...]) -> Callable[[Mapping[str, object]], Key]:
    """A function that gives the key which a request's attributes of these names make."""
    if not names:
        return lambda attributes: b""
    (name, *more) = names

    def of_one(attributes: Mapping[str, object]) -> Key:
        value = attributes.get(name)
        if type(value) is str and value and not value.isspace():
            return _checked(value)
        return key_of((present(value),))

    def of_several(attributes: Mapping[str, object]) -> Key:
        return _joined([_part(present(attributes.get(name))) for name in names])

    return of_several if more else of_one


def bare_key(key: object) -> tuple[object, ...]:
    """The values of a key that was given as it is, not as attributes. Raises InvalidKey if it is empty."""
    if isinstance(key, str | bytes | tuple) and not key:
        raise InvalidKey(
            f"key is {quoted(key)}; an empty key names nobody. For one shared budget use a rule with by=()"
        )
    return key if isinstance(key, tuple) else (key,)


def present(value: object) -> object:
    """An attribute's value; empty and blank text counts as absent, so that it is one shared budget."""
    return None if isinstance(value, str) and not value.strip() else value


def _checked(text: str) -> str:
    if len(text) > KEY_BYTES_MOST // 4:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > KEY_BYTES_MOST:
            raise _too_long(size)
    return text


def _joined(parts: list[bytes]) -> bytes:
    encoded = b"".join(parts)
    if len(encoded) > KEY_BYTES_MOST:
        raise _too_long(len(encoded))
    return encoded


def _too_long(size: int) -> InvalidKey:
    return InvalidKey(
        f"key has {size} bytes; the most is {KEY_BYTES_MOST}, so use a digest of what is longer"
    )


def _part(value: object, depth: int = 0) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, str):
        body, kind = value.encode("utf-8", "surrogatepass"), b"s"
    elif isinstance(value, bytes):
        body, kind = bytes(value), b"b"
    elif isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > 8 * KEY_BYTES_MOST:
            raise _too_long(value.bit_length() // 8)
        body, kind = b"%x" % value, b"i"
    elif isinstance(value, tuple):
        if depth == DEPTH_MOST:
            raise InvalidKey(f"key holds tuples in tuples; at most {DEPTH_MOST} deep")
        body, kind = b"".join([_part(part, depth + 1) for part in value]), b"t"
    else:
        raise InvalidKey(
            f"key part is {quoted(value)} of type {type(value).__name__}; a key is made of {_TYPES}"
        )
    return b"%b%d:%b" % (kind, len(body), body)


def _unpacked(encoded: bytes) -> tuple[object, ...]:
    values: list[object] = []
    at = 0
    while at < len(encoded):
        kind = encoded[at : at + 1]
        if kind == b"n":
            values.append(None)
            at += 1
            continue
        colon = encoded.index(b":", at)
        digits = encoded[at + 1 : colon]
        past = colon + 1 + int(digits)
        body = encoded[colon + 1 : past]
        if not digits.isdigit() or past > len(encoded):
            raise ValueError(digits)
        values.append(_value(kind, body))
        at = past
    return tuple(values)


def _value(kind: bytes, body: bytes) -> object:
    if kind == b"s":
        return body.decode("utf-8", "surrogatepass")
    if kind == b"b":
        return body
    if kind == b"i":
        return int(body, 16)
    if kind == b"t":
        return _unpacked(body)
    raise ValueError(kind)
