"""How a key is named in the tables: injective, whatever the rule and the key are.

An entry of an index must fit into a third of a page, 2,704 bytes. So a key that is long is named by its
digest, and its row says besides what it is in full (`whole` in schema.sql). A name begins with what it is a
name of, so a digest is never taken for a key.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias

from tidegate.core.keys import Key

Place: TypeAlias = tuple[bytes, bytes]
"""A rule and a key, as they are named in the tables."""

NAMED_BYTES_MOST = 1_001
"""The longest key that is named by itself has a thousand bytes."""
_DIGEST = ord("h")


def place_of(rule: str, key: Key) -> Place:
    """How (rule, key) is named in the tables."""
    named = b"t" + key.encode("utf-8", "surrogatepass") if isinstance(key, str) else b"b" + key
    if len(named) > NAMED_BYTES_MOST:
        named = b"h" + sha256(named).digest()
    return rule.encode("utf-8", "surrogatepass"), named


def is_digest(named: bytes) -> bool:
    """Whether the key is named by its digest."""
    return named[0] == _DIGEST


def whole_of(key: Key) -> bytes:
    """What the row of a key holds besides its name: the key in full, or nothing where the name says it."""
    if len(key) * 4 < NAMED_BYTES_MOST:  # no character has more bytes
        return b""
    named = b"t" + key.encode("utf-8", "surrogatepass") if isinstance(key, str) else b"b" + key
    return named if len(named) > NAMED_BYTES_MOST else b""


def key_in(named: bytes) -> Key:
    """The key that is named so, or that is this in full."""
    return named[1:].decode("utf-8", "surrogatepass") if named[:1] == b"t" else named[1:]


def rule_in(named: bytes) -> str:
    """The rule that is named so."""
    return named.decode("utf-8", "surrogatepass")
