"""What the keys are called in the server: readable, injective, and in the slot of whom they limit.

    tidegate:{acme}:organization           the key "acme" of the rule "organization"
    tidegate:{acme}:per-user:s5:alice      the key of ("acme", "alice"): the first value is the hash tag, so
                                           that the rules of one tenant lie in one slot of a cluster
    tidegate:{(n)}:per-user:s5:alice       a first value that is no text tells its kind: none, i2a (42), ...
    tidegate:{(all)}:everyone              a budget that all share (by=())
    tidegate:epoch, tidegate:epoch:{...}   since when nothing was lost; on a cluster one for each slot

Percent signs, brackets of all kinds, colons, * and ?, backslashes, spaces and control characters are written
as %XX; other characters stay as they are. Whatever a name holds, it can be read back.
"""

from __future__ import annotations

import re
from binascii import crc_hqx
from functools import lru_cache

from tidegate.core.keys import Key
from tidegate.errors import StoreError

SLOTS = 16_384

_HOSTILE = re.compile(rb"[\x00-\x20%(){}:*?\[\]\\\x7f]")
_HOSTILE_IN_REST = re.compile(rb"[\x00-\x20%(){}*?\[\]\\\x7f]")  # nothing follows a rest: a colon may stay
_PLAIN = re.compile(r"[^\x00-\x20%(){}:*?\[\]\\\x7f\ud800-\udfff]+").fullmatch
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")
_FIRST_PART = re.compile(rb"n|([sbit])(0|[1-9][0-9]*):")
_PREFIX = re.compile(r"[^\s{}*?\[\]\\\x00-\x1f\x7f]+")


class Names:
    """The names below one prefix, which tells one program's keys from another's."""

    def __init__(self, prefix: str = "tidegate") -> None:
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise StoreError(
                f"prefix is {prefix!r}; write a text without spaces and none of {{ }} * ? [ ] \\, "
                'for instance "tidegate" or "shop:limits"'
            )
        self.prefix = prefix
        self._begin = prefix.encode("utf-8", "surrogatepass")
        self._rules: dict[str, bytes] = {}

    def key(self, rule: str, key: Key) -> bytes:
        """The name of a rule's key."""
        if isinstance(key, str):
            if _PLAIN(key):
                return b"%b:{%b}:%b" % (self._begin, key.encode(), self._rule(rule))
            tag = _escaped(key.encode("utf-8", "surrogatepass")) or b"()"
            return b"%b:{%b}:%b" % (self._begin, tag, self._rule(rule))
        tag, rest = _tag_and_rest(key)
        end = b"" if rest is None else b":" + _HOSTILE_IN_REST.sub(_escape, rest)
        return b"%b:{%b}:%b%b" % (self._begin, tag, self._rule(rule), end)

    def parse(self, name: bytes) -> tuple[str, Key] | None:
        """The rule and the key that a name says; None if it is none of these names."""
        if not name.startswith(self._begin + b":{"):
            return None
        tag, closed, after = name[len(self._begin) + 2 :].partition(b"}:")
        if not closed:
            return None
        rule_text, has_rest, rest = after.partition(b":")
        try:
            rule = _unescaped(rule_text).decode("utf-8", "surrogatepass")
            key = _key_of(tag, _unescaped(rest) if has_rest else None)
        except (ValueError, UnicodeDecodeError):
            return None
        return (rule, key) if self.key(rule, key) == name else None

    def epoch(self, slot: int | None = None) -> bytes:
        """The name of the epoch: one for all, or on a cluster the one that lies in this slot."""
        if slot is None:
            return self._begin + b":epoch"
        return b"%b:epoch:{%b}" % (self._begin, _tag_in(slot))

    def pattern(self, rule: str | None = None, key_prefix: str | None = None) -> bytes:
        """What SCAN ... MATCH takes to find these keys and few others; `parse` tells those."""
        begin = b"" if key_prefix is None else _escaped(key_prefix.encode("utf-8", "surrogatepass"))
        end = b"" if rule is None else b":" + self._rule(rule)
        return b"%b:{%b*}%b*" % (self._begin, begin, end)

    def _rule(self, rule: str) -> bytes:
        escaped = self._rules.get(rule)
        if escaped is None:
            if len(self._rules) >= 10_000:
                self._rules.clear()
            escaped = self._rules[rule] = _escaped(rule.encode("utf-8", "surrogatepass"))
        return escaped


def slot(name: bytes) -> int:
    """The slot of a name, by the rules of the cluster: only what stands in the first braces counts."""
    _, opened, after = name.partition(b"{")
    tag, closed, _ = after.partition(b"}")
    return crc_hqx(tag if opened and closed and tag else name, 0) % SLOTS


def _tag_and_rest(key: bytes) -> tuple[bytes, bytes | None]:
    """The tag, which says the first value, and what follows that; no rest where nothing can follow."""
    if not key:
        return b"(all)", None
    part = _FIRST_PART.match(key)
    kind, start = key[:1], part.end() if part else 0
    end = start + int(part[2] or 0) if part and len(part[2] or b"") < 9 else len(key) + 1
    if end > len(key):  # no key of ours: told as a whole
        return b"(=%b)" % _escaped(key), None
    if kind == b"s":
        return _escaped(key[start:end]) or b"()", key[end:]
    return b"(%b%b)" % (kind, _escaped(key[start:end])), key[end:] or None


def _key_of(tag: bytes, rest: bytes | None) -> Key:
    """The key of a tag and a rest. Raises ValueError for what can be none."""
    if tag == b"(all)":
        return b""
    if tag[:1] != b"(" or tag == b"()":
        text = b"" if tag == b"()" else _unescaped(tag)
        return (
            text.decode("utf-8", "surrogatepass") if rest is None else b"s%d:%b%b" % (len(text), text, rest)
        )
    kind, text = tag[1:2], _unescaped(tag[2:-1])
    if kind == b"=":
        return text
    return (b"n" if kind == b"n" else b"%b%d:%b" % (kind, len(text), text)) + (rest or b"")


def _escape(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % found[0][0]


def _escaped(text: bytes) -> bytes:
    return _HOSTILE.sub(_escape, text)


def _unescaped(text: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), text)


@lru_cache(maxsize=SLOTS)
def _tag_in(wanted: int) -> bytes:
    """Four characters of @ABCDEFGHIJKLMNO that lie in the slot.

    A checksum of this kind is linear: flipping one bit of the text flips the same bits of it, whatever the
    others are. So the four times four bits that may be flipped make a basis, and the slot is put together
    from it.
    """
    start = crc_hqx(b"@@@@", 0) % SLOTS
    basis: list[tuple[int, int]] = []
    for bit in range(16):
        change, flips = crc_hqx(_flipped(1 << bit), 0) % SLOTS ^ start, 1 << bit
        for other, others_flips in basis:
            if change ^ other < change:
                change, flips = change ^ other, flips ^ others_flips
        if change:
            basis.append((change, flips))
    rest, flips = wanted ^ start, 0
    for change, others_flips in sorted(basis, reverse=True):
        if rest ^ change < rest:
            rest, flips = rest ^ change, flips ^ others_flips
    assert rest == 0, wanted
    return _flipped(flips)


def _flipped(flips: int) -> bytes:
    return bytes(64 + (flips >> 4 * place & 15) for place in range(4))
