# Keys that must never meet, and input that is wrong: an error that names it, and nothing taken.

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.limiter.faces import FACES
from tidegate import (
    CostError,
    InvalidKey,
    Limiter,
    PolicyError,
    SlidingLog,
    StoreError,
    TokenBucket,
)
from tidegate.testing import ManualClock


@pytest.mark.parametrize(
    "cost",
    [-1, -0.5, float("nan"), float("inf"), Decimal("NaN"), 0.0001, Fraction(1, 3), True, "1", None, [1], 1j],
    ids=repr,
)
def test_a_wrong_cost_is_an_error(face, clock, cost):
    """C082: a cost that is negative, not finite, too fine or no number is an error that names it, and takes
    nothing.
    """
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    limiter.hit("k")
    for ask in (limiter.hit, limiter.peek, limiter.explain, limiter.reserve):
        with pytest.raises(CostError, match="cost is"):
            ask("k", cost)
    with pytest.raises(CostError):
        limiter.hit_many(["k", "j"], cost)
    with pytest.raises(CostError):
        limiter.hit_many(["k", "j"], [1, cost])
    assert limiter.peek("k").remaining == 9
    assert limiter.peek("j").remaining == 10


def test_a_sliding_log_takes_whole_tokens(face, clock):
    """A cost of one and a half in a log is an error that says what the log counts."""
    with pytest.raises(CostError, match="whole tokens"):
        face(SlidingLog(10, "10s"), clock=clock).hit("k", 1.5)


@pytest.mark.parametrize(
    "key", ["", b"", (), "x" * 5000, b"x" * 5000, "\N{PILE OF POO}" * 1100], ids=lambda k: repr(k)[:9]
)
def test_an_empty_or_huge_key_is_an_error(face, clock, key):
    """An empty key names nobody, a huge one is to be hashed: both are errors, and nothing is kept."""
    limiter = face(TokenBucket(10, "1/s"), clock=clock)
    for ask in (limiter.hit, limiter.peek, limiter.explain, limiter.reset):
        with pytest.raises(InvalidKey, match="key"):
            ask(key)
    assert limiter.store.stats().keys == 0


@pytest.mark.parametrize(
    "key",
    [1.5, [1], True, {"key": 1.5}, pytest.param({"key": object()}, id="an object"), ("a", 1.5), {1, 2}],
    ids=repr,
)
def test_a_key_of_a_wrong_type_is_an_error(face, clock, key):
    """A key is text, bytes, a whole number or a tuple of these: whatever else is an error that names the
    type.
    """
    with pytest.raises(InvalidKey, match="type"):
        face(TokenBucket(10, "1/s"), clock=clock).hit(key)


KEYS = [
    ("1.2.3.4", "5/x"),
    ("1.2.3.45", "/x"),
    ("a", "b:c"),
    ("a:b", "c"),
    ("a", ""),
    ("", "a"),
    ("a", None),
    (None, "a"),
    ("a", "b_c"),
    ("a_b", "c"),
    ("a",) * 2,
    "a",
    "a b",
    "a_b",
    "a\nb",
    "a\0b",
    "a'b",
    'a"b',
    "a%b",
    "a{}b",
    "\N{GRINNING FACE}",
    "\ud800",
    "\udc80",
    b"\x80",
    b"a",
    "e\u0301",
    "\u00e9",
    "\u05d0",
    "A",
    1,
    "1",
    b"1",
    ("1",) * 2,
    ((1,), 1),
    (1, (1,)),
    -1,
    0,
    "b1:a",
    b"s1:a",
]


def test_keys_never_meet(face, clock):
    """C147, C148: keys with separators, odd characters, bytes and numbers are all different budgets."""
    limiter = face(TokenBucket(1, "0/s"), clock=clock)
    assert all(limiter.hit(key) for key in KEYS)
    assert not any(limiter.hit(key) for key in KEYS)
    assert limiter.store.stats().keys == len(KEYS)


def test_a_plain_key_is_its_attribute(face, clock):
    """hit("k") and hit({"key": "k"}) are one budget, and so is a tuple of one; further attributes do not
    count.
    """
    limiter = face(TokenBucket(4, "0/s"), clock=clock)
    answers = [limiter.hit(key) for key in ("k", {"key": "k"}, ("k",), {"key": "k", "more": 1}, "k")]
    assert [d.remaining for d in answers] == [3, 2, 1, 0, 0]


@pytest.mark.parametrize(
    "given",
    ["5/s", b"5/s", None, 5, {"a": 1}, ["5/s"], ("1/second",), [TokenBucket(1, "1/s")], [None], TokenBucket],
    ids=repr,
)
def test_what_is_no_policy(given):
    """C160: a text, a list of texts or of bare limits, None: an error at construction that says what to
    write.
    """
    for make in FACES.values():
        with pytest.raises(PolicyError, match=r"(?i)policy"):
            make(given)


def test_what_is_no_store_or_clock():
    """A store or clock that cannot be one is refused at construction, and not at the first request."""
    limit = TokenBucket(1, "1/s")
    stores: list[Any] = [5, object(), "", Limiter, ["memory://"]]
    for store in stores:
        with pytest.raises(StoreError, match="store"):
            Limiter(limit, store=store)
    clocks: list[Any] = [5, object(), ManualClock, lambda: 0]
    for clock in clocks:
        with pytest.raises(StoreError, match="clock"):
            Limiter(limit, clock=clock)
