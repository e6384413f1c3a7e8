"""How a key is written on a command line, so that what is printed can be pasted back.

    acme            a text, as it is
    int:42          a whole number: not the text "42"
    bytes:00ff      bytes, in hexadecimal
    none:           an absent value
    all:            the key that all share (by=()); it stands alone
    text:...        a text with escapes as in Python, for what cannot be printed or looks like the others
    raw:7432...     a whole key as stores keep it, in hexadecimal: with tuples in it, or not made by us
    rawtext:41...   the same of a key that is a text, and one that we would not make

A key of several values is several words, in the order of `by`. What a shell would not take as it is, is
quoted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from tidegate.core.keys import KEY_BYTES_MOST, Key, key_of, values_of
from tidegate.errors import InvalidKey
from tidegate.units import quoted

_MARKS = ("text:", "int:", "bytes:", "none:", "all:", "raw:", "rawtext:")
_DECIMAL_BITS_MOST = 128
"""A larger number is written in hexadecimal; Python does not read thousands of decimal digits."""
_ESCAPE = re.compile(r"\\(?:([\\nrt])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)")
_ESCAPED = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|[0-9]{1,40})", re.ASCII | re.IGNORECASE)


def words_of(key: Key) -> list[str]:
    """The words that name a key."""
    try:
        values = values_of(key)
        has_words = not any(isinstance(value, tuple) for value in values) and key_of(values) == key
    except InvalidKey:
        return [_raw(key)]
    if not has_words:
        return [_raw(key)]
    if not values:
        return ["all:"]
    return [_word(value) for value in values]


def key_in(words: Sequence[str]) -> Key:
    """The key that these words name; none of them name what all share. Raises InvalidKey."""
    if len(words) == 1 and words[0].startswith("raw:"):
        return _hexadecimal(words[0])
    if len(words) == 1 and words[0].startswith("rawtext:"):
        return _hexadecimal(words[0]).decode("utf-8", "surrogatepass")
    if not words or list(words) == ["all:"]:
        return b""
    return key_of(tuple(_value(word) for word in words))


def text_word(text: str) -> str:
    """The word for a text, such as a rule's name."""
    if not text or text.startswith(("-", *_MARKS)) or not text.isprintable():
        return "text:" + "".join(map(_escaped, text))
    return text


def text_in(word: str) -> str:
    """The text of a word. Raises InvalidKey."""
    if not word.startswith("text:"):
        return word
    return _ESCAPE.sub(lambda found: _unescaped(found, word), word.removeprefix("text:"))


def pasted(words: Sequence[str]) -> str:
    """The words as a shell takes them."""
    return shlex.join(words)


def _word(value: object) -> str:
    if value is None:
        return "none:"
    if isinstance(value, bytes):
        return f"bytes:{value.hex()}"
    if isinstance(value, int):
        return f"int:{value}" if value.bit_length() <= _DECIMAL_BITS_MOST else f"int:{value:#x}"
    return text_word(str(value))


def _value(word: str) -> object:
    if word == "none:":
        return None
    if word.startswith("bytes:"):
        return _hexadecimal(word)
    if word.startswith("int:"):
        number = word.removeprefix("int:")
        if not _NUMBER.fullmatch(number) or len(number) > 2 * KEY_BYTES_MOST:
            raise InvalidKey(f"key part is {quoted(word)}; write int: and a whole number, such as int:42")
        return int(number, 16 if "x" in number.lower() else 10)
    if word.startswith(("all:", "raw:", "rawtext:", "none:")):
        mark = word.partition(":")[0]
        way_out = (
            f"{mark}: stands alone" if mark != "none" else "none: is an absent value, with nothing after it"
        )
        raise InvalidKey(f"key part is {quoted(word)}; {way_out}. The text itself is text:{word}")
    return text_in(word)


def _raw(key: Key) -> str:
    if isinstance(key, str):
        return f"rawtext:{key.encode('utf-8', 'surrogatepass').hex()}"
    return f"raw:{key.hex()}"


def _hexadecimal(word: str) -> bytes:
    mark, _, digits = word.partition(":")
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise InvalidKey(
            f"key part is {quoted(word)}; write {mark}: and hexadecimal digits, such as {mark}:00ff"
        ) from None


def _escaped(char: str) -> str:
    return "\\\\" if char == "\\" else char if char.isprintable() else repr(char)[1:-1]


def _unescaped(found: re.Match[str], word: str) -> str:
    if found[1]:
        return _ESCAPED[found[1]]
    digits = found[2] or found[3] or found[4]
    if not digits or int(digits, 16) > 0x10FFFF:
        raise InvalidKey(f"key part is {quoted(word)}; after text: a backslash is written twice")
    return chr(int(digits, 16))
