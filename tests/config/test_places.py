# Reading YAML: where values stand, what is wrong with the text, and the bounds.

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.config.written import EXAMPLES
from tidegate.config.places import UNREADABLE, read, read_slowly

SYNTAX = [
    ("a:\n\tb: 1\n", 2, "a tab stands where YAML wants spaces; indent with spaces"),
    ("a: 1\n\t\n b: 2\n", 2, "a tab stands where YAML wants spaces; indent with spaces"),
    (
        "a: b: c\n",
        1,
        "a ':' stands where no key can be; quote text with ': ', or correct the indentation",
    ),
    ("a: 1\nfoo\nb: 2\n", 2, "text without a ':'; write key: value, or quote text of several lines"),
    (
        "rules:\n  - name: a\n   limit: 3\n",
        3,
        "the indentation does not fit the block that begins on line 2; indent the keys of one table alike",
    ),
    ("a: {b: 1\nc: 2\n", 2, "a ',' or the closing bracket is missing in a table {...} that begins on line 1"),
    ("a: [b\nc: 2\n", 2, "a ',' or the closing bracket is missing in a list [...] that begins on line 1"),
    (
        "a: 1\nb: [1,\n  2\n",
        3,
        (
            "the file ends inside a list [...] that begins on line 2; close it, unless the file is "
            "merely half written"
        ),
    ),
    ("a: {b: 1", 1, "the file ends inside a table {...}; close it, unless the file is merely half written"),
    ("a: 'x\n", 1, "the file ends inside a quoted text; close it, unless the file is merely half written"),
    ("a: 'x' y\n", 1, "more text follows a finished value; put quotes around the whole of it"),
    ('a: "\\d"\n', 1, "a backslash in double quotes begins an escape; use single quotes to keep it as it is"),
    ("a: *\n", 1, "a value that begins with * or & is an alias or an anchor in YAML; write it in quotes"),
    ("a: @x\n", 1, "a value cannot begin with '@'; write it in quotes"),
    ("a: !x!y z\n", 1, "a value that begins with ! is a tag in YAML; write it in quotes"),
    ("a: [::1]\n", 1, "a value is missing, or begins with a character that needs quotes"),
    (
        "a: - b\n",
        1,
        "a '-' or '?' stands where no list or table can begin; put it on its own line, or in quotes",
    ),
    (
        "a: {b: ${RATE}}\n",
        1,
        "nothing is filled in here, and YAML reads the { of ${...} as a table; write the value itself",
    ),
    ("a: \x01\n", 1, "the invisible character U+0001 is not allowed; delete it"),
    ("a: 1\nb: x\u2028y\n", 2, "the character U+2028 ends a line for some YAML readers only; delete it"),
    ("a: 1\n---\nb: 1\n", 2, "a second document begins here (---); a configuration is one document"),
]


@pytest.mark.parametrize(("text", "line", "message"), SYNTAX)
def test_broken_yaml_is_explained_at_its_line(text: str, line: int, message: str):
    """C163: what the parser cannot read is said in plain words, with the line and the way out."""
    document = read(text)

    assert document.top is None
    assert [(fault.line, fault.message) for fault in document.faults] == [(line, message)]


FAULTS = [
    ("a: 1\nb: 2\na: 3\n", 3, (), "the key 'a' is written twice, first on line 1; keep one of them"),
    (
        "a: {b: 1, b: 2}\n",
        1,
        ("a",),
        "the key 'b' is written twice, first on the same line; keep one of them",
    ),
    ("5: a\n", 1, (), 'the key 5 is a number; a key is text, so write "5" in quotes'),
    ("true: a\n", 1, (), 'the key true is a boolean; a key is text, so write "true" in quotes'),
    ("~: a\n", 1, (), 'the key ~ is no text; a key is text, so write "~" in quotes'),
    ("!x a: b\n", 1, (), "the tag !x is not used here; remove it"),
    ("&x a: 1\n*x : 2\n", 2, (), "the key 'a' is written twice, first on line 1; keep one of them"),
    ("on: a\n", 1, (), 'on means true to some YAML readers and is text to others; write true, or "on"'),
    ("? [a]\n: b\n", 1, (), "a table, a list or a number stands where a key should be; a key is one text"),
    (
        "a: &x {b: 1}\nc:\n  <<: *x\n",
        3,
        ("c",),
        "merge keys (<<) are not supported; write the keys out, or alias a whole value",
    ),
    (
        "a: !!python/object:os.system x\n",
        1,
        ("a",),
        "the tag !!python/object:os.system is not used here; remove it, and quote the value if it is text",
    ),
    (
        "a: !!str 5\n",
        1,
        ("a",),
        "the tag !!str is not used here; remove it, and quote the value if it is text",
    ),
    (
        "a: !secret [1, 2]\n",
        1,
        ("a",),
        "the tag !secret is not used here; remove it, and quote the value if it is text",
    ),
    ("a: *x\n", 1, ("a",), "the alias *x names nothing above it; define &x, or quote the text"),
    (
        "a: &x\n  b: *x\n",
        2,
        ("a", "b"),
        "the alias *x stands inside the value that it names; a value cannot contain itself",
    ),
    ("a: &x 1\nb: &x 2\n", 2, ("b",), "the anchor &x is defined twice; give one of them another name"),
]


@pytest.mark.parametrize(("text", "line", "at", "message"), FAULTS)
def test_yaml_that_hides_something_is_a_fault(text: str, line: int, at: tuple[str, ...], message: str):
    """C163: keys written twice or that are no text, tags, merge keys and odd aliases are not passed over."""
    document = read(text)

    assert [(fault.line, fault.at, fault.message) for fault in document.faults] == [(line, at, message)]


def test_all_faults_are_found_and_the_rest_is_read():
    """A value that could not be read is marked; the others have their values."""
    document = read("a: yes\nb: 010\nc: 3\nc: 4\n")

    assert [fault.line for fault in document.faults] == [1, 2, 4]
    assert document.top is not None
    assert document.top.value == {"a": UNREADABLE, "b": UNREADABLE, "c": 3}


def test_every_value_has_its_line():
    """A table's entry stands at its key, a list's where it begins; aliases point to what they name."""
    document = read("a:\n  b: &x\n    - 1\n    - c: 2\nd:\n  text\ne: *x\n")
    assert document.top is not None

    lines = [
        document.top.find(at)[0] for at in [("a",), ("a", "b"), ("a", "b", 1), ("a", "b", 1, "c"), ("d",)]
    ]
    assert lines == [1, 2, 4, 4, 5]
    assert document.top.find(("e", 1, "c")) == (4, ("e", 1, "c"))
    assert document.top.find(("a", "b", "missing")) == (2, ("a", "b"))


def test_a_key_may_be_named_and_used_again():
    """An anchor at a key names its text."""
    document = read("&x a: 1\nb: *x\n")
    assert document.top is not None

    assert (document.faults, document.top.value) == ((), {"a": 1, "b": "a"})


def test_aliases_cannot_blow_up():
    """Nine lines that mean a thousand million values are refused, and quickly."""
    names = "abcdefghi"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{names[i]}'] * 10)}]" for i, name in enumerate(names[1:])]
    document = read("\n".join(lines) + "\n")

    (fault,) = document.faults
    assert (document.top, fault.line) == (None, 5)
    assert fault.message == "aliases expand to more than 100000 values; write fewer of them"


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000])
def test_nesting_has_a_bound(text: str):
    """Brackets without end are refused after 32 of them, without exhausting the stack."""
    (fault,) = read(text).faults

    assert fault.message == "values are nested more than 32 deep; nothing here needs that"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\n\n"])
def test_nothing_is_nothing(text: str):
    """An empty text has no faults and no value."""
    document = read(text)

    assert document.faults == ()
    assert document.top is None or document.top.value is None


CORPUS = [text for text, *_ in SYNTAX if "\u2028" not in text] + [text for text, *_ in FAULTS]
CORPUS += [path.read_text() for path in sorted(EXAMPLES.glob("*.yaml"))]


@pytest.mark.parametrize("text", CORPUS)
def test_both_parsers_see_the_same(text: str):
    """The fast parser and its twin in Python give the same values, lines and faults."""
    assert read(text) == read_slowly(text)


@given(st.text(alphabet="ab:{}[],-\n '\"&*!?#|>\t1.~<", max_size=40))
def test_no_text_breaks_the_reader(text: str):
    """Whatever the text, nothing is raised; and what the parser in Python takes, the fast one reads alike."""
    document, slowly = read(text), read_slowly(text)

    assert document.top is not None or slowly.top is None
    if not slowly.faults:
        assert document.faults == ()
        assert (document.top and document.top.value) == (slowly.top and slowly.top.value)


@given(
    st.recursive(
        st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc é:'\"#{-", max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text("abc:é", max_size=5), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_what_is_dumped_is_read_back(value: object):
    """Values that another program writes as YAML are read as they were meant."""
    document = read(yaml.safe_dump(value, allow_unicode=True))

    assert document.top is not None
    assert (document.faults, document.top.value) == ((), value)
