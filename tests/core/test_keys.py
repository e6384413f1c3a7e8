"""Invariant 9: keys never collide, whatever they hold; and what cannot be a key is an error that says why."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import admitted, at_once
from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.core.keys import KEY_BYTES_MOST, bare_key, key_of, keys_by, present, values_of
from tidegate.errors import InvalidKey
from tidegate.testing import ManualClock

DIFFERENT: list[Any] = [
    *("a b", "a_b", "a\nb", "a\0b", "a'b", 'a"b', "a%b", "a{}b", "{a}b", "a:b", "a|b", "a/b", "%61b"),
    *("\U0001f600", "\ud800", "\udfff", "e\u0301", "\u00e9", "\u05d0\u05d1", "\u202eab"),
    *("A B", "ab", "ab ", " ab", "s2:ab", "n", "i1:5", "5"),
    *(b"a b", b"ab", b"\xff\xfe", b"\xed\xa0\x80", b"s2:ab", b"n", b"5", 5, -5, 50, 0, 2**70, None),
    *(("a", "b:c"), ("a:b", "c"), ("a", ""), ("", "a"), ("a", None), (None, "a"), ("a", "None")),
    *(("1.2.3.4", "5/x"), ("1.2.3.45", "/x"), ("a", 1), ("a", "1"), (1, "a"), ("a", b"b"), ("a", "b")),
    *(("a", ("b",)), (("a",), "b"), (("a", "b"), "c"), ("a", ("b", "c")), ("a", "b", "c")),
    *((("a", "b", "c"), ""), ("", ""), ("", "", ""), (None, None), ((), ()), ((), "a")),
]


def test_a_table_of_keys_that_must_differ():
    """C147, C148: separators, controls, surrogates, bytes that are no text, composed letters and not."""
    assert len({key_of((key,)) for key in DIFFERENT}) == len(DIFFERENT)
    limiter = Limiter(TokenBucket(1, "0/s"), clock=ManualClock())
    for key in DIFFERENT:
        assert limiter.hit(key), key
    for key in DIFFERENT:
        assert not limiter.hit(key), key


parts = st.recursive(
    st.one_of(
        st.none(),
        st.text(alphabet=st.characters(), max_size=6),
        st.text(alphabet="\ud800\udfff:0123sbint", max_size=6),
        st.binary(max_size=6),
        st.integers(-(2**70), 2**70),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


def unwrapped(value: object) -> object:
    """A tuple of one is what it holds."""
    while isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    return value


@given(parts, parts)
def test_no_two_keys_meet(one: object, other: object):
    """C147: whatever is nested in whatever, equal keys come from equal values, and from no others."""
    assert (key_of((one,)) == key_of((other,))) == (unwrapped(one) == unwrapped(other))


@given(st.lists(parts, min_size=2, max_size=3), st.lists(parts, min_size=2, max_size=3))
def test_no_two_rows_of_attributes_meet(one: list[object], other: list[object]):
    """C147: the same for the values of several attributes."""
    assert (key_of(tuple(one)) == key_of(tuple(other))) == (one == other)


@given(st.lists(parts, min_size=1, max_size=4))
def test_values_come_back_from_a_key(values: list[object]):
    """A key gives back the values it was made of, so that an operator can read it."""
    key = key_of(tuple(values))

    assert key_of(values_of(key)) == key
    assert values_of(key_of((("acme", -5, None), "ann", b"x"))) == (("acme", -5, None), "ann", b"x")


@pytest.mark.parametrize("foreign", [b"x", b"s5:abc", b"s-1:", b"i2:zz", b"s1", b"sx:a", b"n5"])
def test_foreign_bytes_are_no_key(foreign: bytes):
    """Bytes that no key is made of are an error that shows them."""
    with pytest.raises(InvalidKey, match="were not made by key_of"):
        values_of(foreign)


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_escape_from_the_namespace(rule: str, key: str):
    """C147: a rule's name is no part of its keys: two rules of one key are two budgets, whatever the name."""
    names = [f"r{rule}"[:60], f"r{rule}{key}"[:60]]
    if names[0] == names[1]:
        names[1] += "2"
    limiter = Limiter(
        Policy(
            [
                Rule(name, TokenBucket(1, "0/s"), by=("k",), match={"r": str(i)})
                for i, name in enumerate(names)
            ]
        ),
        clock=ManualClock(),
    )

    assert [bool(limiter.hit({"k": key, "r": str(i)})) for i in (0, 0, 1, 1)] == [True, False, True, False]


def test_a_tuple_of_one_is_what_it_holds():
    """So that a bare key and the same value of an attribute name one budget."""
    limiter = Limiter(TokenBucket(1, "0/s"), clock=ManualClock())
    assert limiter.hit("a")

    assert not limiter.hit(("a",))
    assert not limiter.hit({"key": "a"})
    assert not limiter.hit((("a",),))
    assert limiter.hit(("a", "a"))


def test_subclasses_are_what_they_derive_from():
    """A text by any other class is the same text, and a number the same number."""

    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "other"

    class Number(IntEnum):
        FIVE = 5

    assert key_of((Name("a"),)) == key_of(("a",)) == "a"
    assert key_of((Name("a"), "b")) == key_of(("a", "b"))
    assert key_of((Number.FIVE,)) == key_of((5,))


@pytest.mark.parametrize("key", ["", b"", ()])
def test_an_empty_key_names_nobody(key: object):
    """An empty plain key is an error that says how to share one budget."""
    with pytest.raises(InvalidKey, match=r"empty key names nobody.*by=\(\)"):
        Limiter(TokenBucket(1, "1/s")).hit(key)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(InvalidKey):
        bare_key(key)


def nested(depth: int) -> tuple[object, ...]:
    value: tuple[object, ...] = ("a", "b")
    for _ in range(depth):
        value = (value, "b")
    return value


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("a" * (KEY_BYTES_MOST + 1), "4097 bytes; the most is 4096"),
        ("\u20ac" * 1366, "4098 bytes"),
        ("\ud800" * 1366, "4098 bytes"),
        (b"a" * KEY_BYTES_MOST, "bytes; the most is 4096"),
        (("a" * 2500, "b" * 2500), "bytes; the most is 4096"),
        (10**5000, "bytes; the most is 4096"),
        (10**50_000, "bytes; the most is 4096"),
        (("a", 10**50_000), "bytes; the most is 4096"),
        (1.5, "1.5 of type float"),
        (True, "True of type bool"),
        (("a", True), "True of type bool"),
        (object, "of type type"),
        (["a"], "of type list"),
        (("a", ["b"]), "of type list"),
        ({"a"}, "of type set"),
        (bytearray(b"a"), "of type bytearray"),
        (("a", "x" * 10_000_000), "bytes; the most is 4096"),
        (("a", ["x" * 1_000_000]), "of type list"),
        (nested(9), "at most 8 deep"),
        (nested(900), "at most 8 deep"),
        (nested(100_000), "at most 8 deep"),
    ],
    ids=range(21),
)
def test_a_thing_that_is_no_key(key: object, says: str):
    """A key of a wrong type, too long or too deep is an error of one short line that says what is allowed."""
    limiter = Limiter(TokenBucket(1, "1/s"))
    for ask in (limiter.hit, limiter.peek, limiter.reset):
        with pytest.raises(InvalidKey) as caught:
            ask(key)  # type: ignore[arg-type]  # what the test is about
        assert says in str(caught.value)
        assert len(str(caught.value)) < 250


def test_the_longest_key():
    """4,096 bytes are a key, in one byte a letter or in several; so are tuples eight deep."""
    limiter = Limiter(TokenBucket(1, "0/s"))
    for key in ("a" * KEY_BYTES_MOST, "\u20ac" * 1365, b"a" * (KEY_BYTES_MOST - 6), nested(7), 2**16_000):
        assert limiter.hit(key)
        assert not limiter.hit(key)


@pytest.mark.parametrize("value", [None, "", " ", "\t\n", "\u2003"])
def test_missing_empty_and_blank_are_one_budget(value: object):
    """C155: a missing attribute, an empty and a blank one are one shared value."""
    limiter = Limiter(Rule("r", TokenBucket(2, "0/s"), by=("user",)), clock=ManualClock())
    assert limiter.hit({"user": value})
    assert limiter.hit({})

    assert not limiter.hit({"user": value})
    assert present(value) is None
    assert limiter.hit({"user": "somebody"})
    assert admitted([limiter.hit({"user": b""}) for _ in range(3)]) == 2


@given(st.one_of(st.none(), st.text(max_size=5), st.binary(max_size=3), st.integers()))
def test_keys_of_one_attribute_are_found_quickly_and_equally(value: object):
    """The shortcut for one attribute gives the key that the general way gives."""
    assert keys_by(("a",))({"a": value}) == key_of((present(value),))
    assert keys_by(("a", "b"))({"a": value}) == key_of((present(value), None))
    assert keys_by(())({"a": value}) == b""


def test_a_plain_key_where_attributes_are_asked():
    """A policy that looks at attributes says which, when it is given a plain key."""
    limiter = Limiter(Policy([Rule("r", TokenBucket(1, "1/s"), by=("org", "user"))]))
    with pytest.raises(InvalidKey, match=r"looks at attributes; pass a mapping.*'org': \.\.\., 'user'"):
        limiter.hit("acme")


def test_case_counts():
    """Upper and lower case are different texts."""
    limiter = Limiter(TokenBucket(1, "0/s"))

    assert admitted(at_once(limiter, 2, key="a")) == admitted(at_once(limiter, 2, key="A")) == 1
