# How numbers, durations and tables are set.

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.words.typeset import brief, labelled, listed, number, paragraph, span, table

S = 1_000_000
DAY = 86_400 * S


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (18_050, "18,050"),
        (1_000_000, "1,000,000"),
        (Fraction(3, 2), "1.5"),
        (Fraction(304, 3), "101.333"),
        (Fraction(2, 3), "0.666"),
        (Fraction(-5, 2), "-2.5"),
        (Fraction(-1, 2), "-0.5"),
        (-1_234, "-1,234"),
        (10**15, "1,000,000,000,000,000"),
    ],
)
def test_a_number(value: Fraction | int, text: str):
    """Thousands are set apart, and what has more than three decimals is cut, never raised."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("us", "text", "short"),
    [
        (0, "0 s", "0 s"),
        (1, "1 us", "1 us"),
        (999, "999 us", "999 us"),
        (1_500, "1.5 ms", "1.5 ms"),
        (200_000, "200 ms", "200 ms"),
        (3_800_000, "3.8 s", "3.8 s"),
        (6_666_667, "6.667 s", "6.667 s"),
        (60 * S, "60 s", "60 s"),
        (119_999_999, "120 s", "120 s"),
        (120 * S, "2 min", "2 min"),
        (120 * S + 1, "2 min 1 s", "2 min 1 s"),
        (10_000 * S, "2 h 46 min 40 s", "2 h 47 min"),
        (DAY, "1 day", "1 day"),
        (DAY + 1, "1 day 1 s", "1 day 1 h"),
        (2 * DAY + 5_405 * S, "2 days 1 h 30 min 5 s", "2 days 2 h"),
        (1_000 * DAY, "1,000 days", "1,000 days"),
    ],
)
def test_a_span(us: int, text: str, short: str):
    """A length of time is told in units that people use, and shortened upwards."""
    assert (span(us), brief(us)) == (text, short)


@pytest.mark.parametrize(
    ("words", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_a_list(words: list[str], text: str):
    """Words are counted as a sentence counts them."""
    assert listed(words) == text


def test_a_table_is_aligned():
    """Names stand to the left and numbers to the right."""
    lines = table(["name", "n"], [["a", "10"], ["longer", "5"]], 80, indent="  ")
    assert lines == ["  name     n", "  a       10", "  longer   5"]


def test_a_wide_table_is_turned():
    """A table that does not fit stands upright, row after row."""
    lines = table(["name", "n"], [["a", "10"], ["longer", "5"]], 9)
    assert lines == ["name  a", "n     10", "", "name  longer", "n     5"]


def test_labels_hang():
    """What belongs to a label stays beside it when it is wrapped."""
    assert labelled([("a", "one two"), ("long", "")], 9) == ["a     one", "      two", "long"]


@given(st.text(st.sampled_from("ab c"), max_size=200), st.integers(12, 80))
def test_no_line_is_wider_than_asked(text: str, width: int):
    """A paragraph keeps its words, and its width unless one word is wider."""
    lines = paragraph(text, width, indent="  ")

    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
