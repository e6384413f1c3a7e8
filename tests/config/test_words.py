# What an unquoted word means, and which are refused because YAML readers differ.

from __future__ import annotations

from math import copysign

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.words import Refused, plain_value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("20", 20),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("0x1F", 31),
        ("2.5", 2.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.0e+3", 1000.0),
        ("true", True),
        ("False", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("memory://", "memory://"),
        ("5/s", "5/s"),
        ("1.2.3", "1.2.3"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("2026-11-30", "2026-11-30"),
        ("nan", "nan"),
        ("y", "y"),
        ("-", "-"),
    ],
)
def test_what_all_readers_understand_alike_is_taken(word: str, value: object):
    """Numbers, booleans, nothing, and text: the value that YAML 1.1 and YAML 1.2 both see."""
    assert plain_value(word) == value
    assert type(plain_value(word)) is type(value)


REFUSED = [
    ("yes", 'yes means true to some YAML readers and is text to others; write true, or "yes"'),
    ("ON", 'ON means true to some YAML readers and is text to others; write true, or "ON"'),
    ("No", 'No means false to some YAML readers and is text to others; write false, or "No"'),
    ("off", 'off means false to some YAML readers and is text to others; write false, or "off"'),
    ("1e3", '1e3 is a number to some YAML readers and text to others; write 1000, or "1e3" if text is meant'),
    (
        "1.5e3",
        '1.5e3 is a number to some YAML readers and text to others; write 1500, or "1.5e3" if text is meant',
    ),
    (
        "25e-1",
        '25e-1 is a number to some YAML readers and text to others; write 2.5, or "25e-1" if text is meant',
    ),
    (
        "1e99",
        (
            "1e99 is a number to some YAML readers and text to others; write the number in full, or "
            '"1e99" if text is meant'
        ),
    ),
    (
        "010",
        '010 is counted in tens or in eights, by its first zero; write 10 or 8, or "010" if text is meant',
    ),
    ("08", '08 is counted in tens or in eights, by its first zero; write 8, or "08" if text is meant'),
    (
        "0o17",
        '0o17 is counted in tens or in eights, by its first zero; write 17 or 15, or "0o17" if text is meant',
    ),
    (
        "1_000",
        '1_000 is a number to some YAML readers and text to others; write 1000, or "1_000" if text is meant',
    ),
    (
        "0b11",
        (
            '0b11 is a number to some YAML readers and text to others; write it in tens, or "0b11" '
            "if text is meant"
        ),
    ),
    (
        "1:30",
        (
            "1:30 is counted in sixties by some YAML readers and text to others; write a length of time "
            'with its unit, for instance 90s, or "1:30" if text is meant'
        ),
    ),
    (".nan", ".nan is not a finite number; write one that can be counted, for instance 20"),
    ("-.Inf", "-.Inf is not a finite number; write one that can be counted, for instance 20"),
    ("1.0e+400", "1.0e+400 is too large for any use here; write a smaller number"),
    ("9" * 41, "a number of 41 digits is too long; at most 40 are read"),
]


@pytest.mark.parametrize(("word", "reason"), REFUSED)
def test_a_word_on_which_readers_differ_says_what_to_write(word: str, reason: str):
    """C085, C157: nothing is guessed; the message shows each way to write what may have been meant."""
    assert plain_value(word) == Refused(reason)


@given(st.from_regex(r"\A[-+.0-9_:eExXobaBfF~ynoYNtrue]{0,12}\Z"))
def test_what_is_taken_is_what_yaml_1_1_reads(word: str):
    """Whatever word is taken has the value that PyYAML, a reader of YAML 1.1, gives it."""
    value = plain_value(word)

    if not isinstance(value, Refused):
        theirs = yaml.safe_load(f"- {word}") if yaml.safe_dump([word])[2:3] not in {"'", '"'} else None
        read_by_11 = yaml.SafeLoader("").resolve(yaml.ScalarNode, word, (True, False))
        kinds = {int: "int", float: "float", bool: "bool", type(None): "null", str: "str"}
        assert read_by_11 in {f"tag:yaml.org,2002:{kinds[type(value)]}", "tag:yaml.org,2002:timestamp"}
        if isinstance(value, int | float) and not isinstance(value, bool):
            theirs = yaml.safe_load(word)
            assert (theirs, copysign(1, theirs)) == (value, copysign(1, value))
