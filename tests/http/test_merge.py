# One set of fields where application and limiter both have something to say, and the names in them.

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import (
    Limiter,
    Policy,
    Rule,
    TokenBucket,
)
from tidegate.http.fields import (
    fields,
    merge_fields,
    policy_name,
    retry_after_s,
)


@pytest.mark.parametrize(
    ("rule", "name", "item"),
    [
        ("per user", "per user", '"per user"'),
        ('say "hi"', 'say "hi"', r'"say \"hi\""'),
        ("back\\slash", "back\\slash", r'"back\\slash"'),
        ("50%", "50%25", '"50%25"'),
        ("größe", "gr%C3%B6%C3%9Fe", '"gr%C3%B6%C3%9Fe"'),
        ("a\r\nSet-Cookie: x", "a%0D%0ASet-Cookie: x", '"a%0D%0ASet-Cookie: x"'),
        ("\x7f\t", "%7F%09", '"%7F%09"'),
    ],
)
def test_names_become_structured_strings(rule: str, name: str, item: str):
    """Quotes and backslashes are escaped; what is not printable ASCII is percent-encoded."""
    said = dict(fields(Limiter(Policy([Rule(rule, TokenBucket(2, "1/s"))])).hit({})))

    assert policy_name(rule) == name
    assert said["RateLimit"] == f"{item};r=1;t=1"


@given(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=2, unique=True))
def test_two_names_never_look_the_same(names: list[str]):
    """The encoding is injective."""
    assert policy_name(names[0]) != policy_name(names[1])


NOW_S = 1_700_000_000


DATE = formatdate(NOW_S + 100, usegmt=True)


@pytest.mark.parametrize(
    ("theirs", "ours", "sent"),
    [
        ("120", "5", "120"),
        ("5", "120", "120"),
        ("120", "120", "120"),
        (DATE, "5", DATE),
        (DATE, "100", DATE),
        (DATE, "101", "101"),
        (formatdate(NOW_S - 100, usegmt=True), "5", "5"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "5", "5"),
        ("soon", "5", "5"),
        ("1.5", "5", "5"),
        ("", "5", "5"),
        ("-7", "5", "5"),
        ("9" * 400, "5", "9" * 400),
        ("²", "5", "5"),
    ],
)
def test_one_retry_after_and_never_an_earlier_one(theirs: str, ours: str, sent: str):
    """C072: a number or a date from the application and ours become one, the later."""
    merged = merge_fields([("A", "b"), ("retry-after", theirs)], [("Retry-After", ours)], now_s=NOW_S)

    assert merged == [("A", "b"), ("Retry-After", sent)]


def test_several_of_theirs_become_one():
    """C072: even an application that sends two ends with one, the latest."""
    theirs = [("Retry-After", "7"), ("Retry-After", DATE), ("Retry-After", "9")]

    assert merge_fields(theirs, [("Retry-After", "8")], now_s=NOW_S) == [("Retry-After", DATE)]


def test_lists_go_on_and_other_fields_stay_theirs():
    """A limiter inside has its own items; a form that cannot be repeated keeps the application's word."""
    ours = [("RateLimit", '"outer";r=1'), ("RateLimit-Policy", '"outer";q=5'), ("X-RateLimit-Limit", "5")]
    theirs = [
        ("ratelimit", '"inner";r=0;t=3'),
        ("RateLimit-Policy", '"inner";q=2'),
        ("x-ratelimit-limit", "2"),
    ]

    assert merge_fields(theirs, ours, now_s=NOW_S) == [*theirs, *ours[:2]]
    assert merge_fields(
        [("RateLimit", "limit=2, remaining=0, reset=3")],
        [("RateLimit", "limit=5, remaining=1, reset=9"), ("RateLimit-Policy", "5;w=9")],
        now_s=NOW_S,
    ) == [("RateLimit", "limit=2, remaining=0, reset=3"), ("RateLimit-Policy", "5;w=9")]


@given(
    st.text() | st.dates().map(str) | st.from_regex(r"\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ \w*", fullmatch=True)
)
def test_no_retry_after_is_an_error(text: str):
    """C072: whatever an application writes, it is read as seconds or not at all."""
    said_s = retry_after_s(text, now_s=NOW_S)

    assert said_s is None or said_s >= 0
