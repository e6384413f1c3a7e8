# Keys as words of a command line: whatever is printed is accepted, and means the same key.

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.key_words import key_in, pasted, text_in, text_word, words_of
from tidegate.core.keys import key_of
from tidegate.errors import InvalidKey

scalars = st.one_of(st.text(st.characters(codec=None)), st.binary(), st.integers(), st.none())
values = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.tuples(inner), max_leaves=4)


@given(st.lists(values, max_size=3).map(tuple))
def test_every_key_can_be_pasted_back(parts: tuple[Any, ...]):
    """Of whatever values: the words, quoted for a shell and read again, name the key that was printed."""
    key = key_of(parts)

    assert key_in(shlex.split(pasted(words_of(key)))) == key
    assert pasted(words_of(key)).isprintable()


@given(st.binary(min_size=1))
def test_what_was_not_made_by_us_can_be_pasted_back(key: bytes):
    """Bytes that are no key of ours are named too."""
    assert key_in(words_of(key)) == key


def test_a_text_that_is_too_long_to_be_ours_can_be_pasted_back():
    """Somebody else has written it; it is another key than the same bytes."""
    (word,) = words_of("x" * 5_000)

    assert word.startswith("rawtext:7878")
    assert key_in([word]) == "x" * 5_000


@given(st.text())
def test_rules_can_be_pasted_back(name: str):
    """The name of a rule, whatever is in it; and it is never taken for an option."""
    (word,) = shlex.split(pasted([text_word(name)]))

    assert text_in(word) == name
    assert not word.startswith("-")


@pytest.mark.parametrize(
    ("parts", "printed"),
    [
        (("acme",), "acme"),
        (("acme", "ann"), "acme ann"),
        (("a b",), "'a b'"),
        ((42,), "int:42"),
        (("42",), "42"),
        ((None, -1), "none: int:-1"),
        ((b"\x00\xff",), "bytes:00ff"),
        ((), "all:"),
        (("ac\x07me",), r"'text:ac\x07me'"),
        (("int:7",), "text:int:7"),
        (("--all",), "text:--all"),
        (("",), "text:"),
        (("a\\b",), r"'a\b'"),
        (("a", ("b", 1)), "raw:73313a6174383a73313a6269313a31"),
    ],
)
def test_how_it_looks(parts: tuple[Any, ...], printed: str):
    """A plain text is as it is; whatever else there is says of which kind it is."""
    assert pasted(words_of(key_of(parts))) == printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["int:4.2"], "write int: and a whole number"),
        (["int:"], "write int: and a whole number"),
        (["bytes:0"], "hexadecimal digits, such as bytes:00ff"),
        (["raw:xy"], "hexadecimal digits, such as raw:00ff"),
        (["acme", "all:"], "all: stands alone. The text itself is text:all:"),
        (["none:x"], "with nothing after it"),
        ([r"text:a\b"], "a backslash is written twice"),
        ([r"text:\U00110000"], "a backslash is written twice"),
    ],
)
def test_what_cannot_be_read(words: list[str], said: str):
    """It is told with the way out."""
    with pytest.raises(InvalidKey, match=said.replace("\\", "\\\\")):
        key_in(words)
