# What travels: arguments as the scripts describe them, and replies of which nothing is believed unread.

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.redis.plain import the_outcome
from tidegate import FixedWindow, LeakyQueue, SlidingLog, SlidingWindow, StoreUnavailable, TokenBucket
from tidegate.core.compose import Adjustment, decide
from tidegate.core.law import EXACT, Receipt
from tidegate.core.level import LevelState
from tidegate.core.outcome import Charge
from tidegate.errors import LimitError, StoreError
from tidegate.stores.redis import scripts
from tidegate.stores.redis.causes import error_said
from tidegate.stores.redis.names import Names, slot
from tidegate.stores.redis.wire import (
    INSTANT_US_MOST,
    Missed,
    decode_adjust,
    decode_decide,
    decode_forget,
    encode_adjust,
    encode_decide,
    encode_forget,
)

NAMES = Names()
BUCKET = TokenBucket(20, "5/s")
LAW: Any = BUCKET.law
CHARGE = Charge("rule", "acme", BUCKET, 1_000)
DECODERS: tuple[tuple[Any, Any], ...] = (
    (decode_decide, [[CHARGE]]),
    (decode_adjust, [None]),
    (decode_forget, [None]),
)
DAY = FixedWindow(5, "day", "Europe/Berlin")


def test_a_plain_charge_is_a_cost_and_a_law():
    """What most calls send is short: the cost in units, and the law as its states begin."""
    keys, args = encode_decide([[CHARGE], [CHARGE]], NAMES)

    assert keys == [b"tidegate:{acme}:rule"] * 2
    assert args == [b"", b"take", b"\x01\x01", *[b"200000", b"L1 4000000 200000 1 "] * 2]


def test_everything_else_is_told_in_words():
    """Mode, way, patience, epoch and windows follow the cost."""
    charge = CHARGE._replace(mode="shadow", carry="keep_level", patience_us=400_000, strict=True)
    keys, args = encode_decide([[charge, charge._replace(limit=DAY, key="b")]], NAMES, now_us=0, take=False)

    assert keys == [b"tidegate:{acme}:rule", b"tidegate:{b}:rule", b"tidegate:epoch"]
    assert args[:3] == [b"0", b"look", b"\x02"]
    assert args[3:5] == [b"200000 s keep_level 4200000 3", b"L1 4000000 200000 1 "]
    day_us = 86_400_000_000
    bounds = b" ".join(b"%d" % (number * day_us - 3_600_000_000) for number in (-1, 0, 1, 2))
    assert args[5:] == [b"1000 s keep_level - 3 " + bounds, b"F1 5000 day:Europe/Berlin "]


def test_on_a_cluster_each_epoch_lies_beside_its_key():
    """Every key of a call is in the slot of the charge, the epoch too."""
    charge = CHARGE._replace(strict=True)
    for clustered in (True, False):
        keys, _ = encode_decide([[charge]], NAMES, clustered=clustered)
        forgotten, _ = encode_forget([("rule", "acme")], NAMES, clustered=clustered)
        owed, _ = encode_adjust([Adjustment(charge, Receipt(1_000, 0, 0), 1)], NAMES, clustered=clustered)

        assert keys == forgotten == owed
        assert (slot(keys[0]) == slot(keys[1])) is clustered


@pytest.mark.parametrize(
    ("limit", "patience_us", "cost", "most"),
    [
        (TokenBucket(20, "5/s"), 0, 1_000, 3_800_000),
        (TokenBucket(20, "5/s"), 10**30, 1_000, 2**53 - 1 - 4_000_000 - 200_000),
        (TokenBucket(20, "5/s"), 10**30, 21_000, -1),
        (TokenBucket(20, "0/s"), 10**9, 1_000, 19_000),
        (LeakyQueue(20, "5/s"), 10**30, 1_000, 3_800_000),
        (LeakyQueue(20, "5/s"), 400_000, 1_000, 400_000),
        (LeakyQueue(20, "5/s", "interval"), 400_000, 1_000, 200_000),
        (LeakyQueue(20, "5/s", "interval"), 0, 1_000, -1),
        (LeakyQueue(20, "5/s", delay_after=2), 400_000, 1_000, 800_000),
    ],
)
def test_patience_becomes_the_highest_level_that_fits(limit, patience_us, cost, most):
    """The verdict of the law for every level around it is that of one comparison."""
    charge = Charge("rule", "acme", limit, cost, patience_us=patience_us)
    told = encode_decide([[charge]], NAMES)[1][3].split()[3]
    law: Any = limit.law

    assert int(told) == most
    for level in {0, max(0, most - 1), max(0, most), most + 1} - {EXACT}:
        assert law.fits(LevelState(level, 0, 0, 0, law), cost, patience_us) is (level <= most)


@given(st.integers(0, 10**25), st.sampled_from([BUCKET, DAY, SlidingWindow(5, "1s"), SlidingLog(5, "1s")]))
def test_a_cost_that_never_fits_is_sent_short(cost: int, limit):
    """No number beyond the exact integers travels, and what fits travels as it is."""
    (_, args) = encode_decide([[Charge("rule", "acme", limit, cost)]], NAMES, windows_at_us=0)
    units, room = cost * limit.law.grain, limit.law.capacity * limit.law.grain

    assert int(args[3].split()[0]) == (units if units <= room else room + 1)


def test_what_cannot_be_asked_is_an_error():
    """Too many charges, instants too far away, and instants that no calendar has."""
    assert encode_decide([[CHARGE] * 255], NAMES)[1][2] == b"\xff"
    with pytest.raises(StoreError, match="more than 255 charges"):
        encode_decide([[CHARGE] * 256], NAMES)
    for now_us in (INSTANT_US_MOST + 1, -INSTANT_US_MOST - 1):
        with pytest.raises(StoreError, match="too far from 1970"):
            encode_decide([[CHARGE]], NAMES, now_us=now_us)
    with pytest.raises(LimitError, match="outside the calendar"):
        encode_decide([[CHARGE._replace(limit=DAY)]], NAMES, windows_at_us=10**18)


def test_a_request_without_charges_is_answered():
    """It has nothing to decide, and does not disturb the others."""
    assert encode_decide([[], [CHARGE]], NAMES)[1][2] == b"\x00\x01"
    empty, one = decode_decide(b"7\n\n3 200000 7 0 0\n", [[], [CHARGE]])

    assert empty == []
    assert isinstance(one, list)


def test_outcomes_are_those_of_the_core():
    """A reply becomes what the layered function says of the same state."""
    reply = b"12 000345\n3 200000 12000345 0 0\n1 5 12000400 -7 9\n?\n!WRONGTYPE Operation\n"
    charged, allowed, missed, failed = decode_decide(reply, [[CHARGE]] * 4)

    assert charged == decide([CHARGE], [None], 12_000_345)
    assert isinstance(allowed, list)
    assert allowed[0].state == LevelState(5, 12_000_400, 12_000_407, 9, LAW)
    assert (allowed[0].allowed, allowed[0].charged) == (True, False)
    assert missed == Missed(12_000_345)
    assert type(failed) is StoreError
    assert "WRONGTYPE" in str(failed)


@pytest.mark.parametrize(
    ("limit", "line", "used"),
    [
        (DAY, b"0 5000 10 3 0 100", 5_000),
        (SlidingWindow(5, "1s"), b"0 1000 4500 10 3 0", 5_500),
        (SlidingLog(5, "1s"), b"0 5000 10 3 4 9", 5_000),
        (SlidingLog(5, "1s"), b"1 0 10 3 10 10", 0),
    ],
)
def test_states_of_every_law_are_read(limit, line: bytes, used: int):
    """Each law has a record of its own."""
    charge = Charge("rule", "acme", limit, 1_000)
    outcome = the_outcome(decode_decide(b"10\n" + line + b"\n", [[charge]]))

    assert limit.law.used(outcome.state) == used
    assert (outcome.state.at_us, outcome.state.busy_since_us) == (10, 7)


def broken(text: bytes) -> list[bytes]:
    """What a faulty connection might make of a reply."""
    return [text[:cut] for cut in range(len(text))] + [text + b"0\n", b"x" + text, text + text, b"\n" + text]


@pytest.mark.parametrize(
    "reply", [None, 1, [], [b"7", b"3"], b"", b"OK", "x\n", RuntimeError("x"), b"\xff\n\n"]
)
def test_no_reply_is_an_outage(reply: object):
    """C143: nothing, an error object, a list, or bytes that mean nothing: a typed outage, no other error."""
    for decode, asked in DECODERS:
        with pytest.raises(StoreUnavailable) as caught:
            decode(reply, asked)
        assert caught.value.cause == "broken_reply"


@pytest.mark.parametrize(("decode", "asked"), DECODERS)
def test_the_answer_to_another_call_is_none(decode, asked):
    """Each reply begins with the tag of its call; another one's is an outage, whatever it says."""
    said = {decode_decide: b"7\n3 200000 7 0 0\n", decode_adjust: b"7\n0\n", decode_forget: b"\n1\n"}[decode]
    assert decode(b"12 " + said, asked, b"12 ")

    for other in (b"11 ", b"1 ", b"", b"112 "):
        with pytest.raises(StoreUnavailable) as raised:
            decode(other + said, asked, b"12 ")
        assert raised.value.cause == "broken_reply"


@pytest.mark.parametrize(
    ("decode", "asked", "reply"),
    [
        (decode_decide, [[CHARGE]], b"7 000001\n3 200000 7 0 0\n"),
        (decode_decide, [[CHARGE], [CHARGE, CHARGE]], b"7\n?\n0 1 7 0 0 1 1 7 0 0\n"),
        (decode_adjust, [None, None], b"7\n-200000\n0\n"),
        (decode_forget, [None, None], b"\n1\n!x\n"),
    ],
)
def test_part_of_a_reply_is_an_outage(decode, asked, reply: bytes):
    """C143: a truncated or doubled reply is never taken for an answer."""
    decode(reply, asked)

    for text in broken(reply):
        with pytest.raises(StoreUnavailable):
            decode(text, asked)


@given(st.binary(max_size=40) | st.text("0123456789 -?!\n", max_size=40).map(str.encode))
def test_any_bytes_are_an_answer_or_an_outage(reply: bytes):
    """Whatever comes back, nothing but the typed error is raised."""
    for decode, asked in DECODERS:
        try:
            answers = decode(reply, asked)
        except StoreUnavailable:
            continue
        assert len(answers) == 1


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "out_of_memory"),
        ("@user_script: 117: -OOM command not allowed when used memory > 'maxmemory'. ", "out_of_memory"),
        ("READONLY You can't write against a read only replica.", "read_only"),
        ("-READONLY You can't write against a read only replica.", "read_only"),
        ("MISCONF Valkey is configured to save RDB snapshots", "read_only"),
        ("NOREPLICAS Not enough good replicas to write.", "read_only"),
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("BUSY Redis is busy running a script.", "busy"),
        ("NOAUTH Authentication required.", "authentication"),
        ("WRONGPASS invalid username-password pair", "authentication"),
        ("NOPERM this user has no permissions", None),
        ("CLUSTERDOWN The cluster is down", "cluster_down"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "busy"),
        ("ERR max number of clients reached", "connection"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", None),
        ("CROSSSLOT Keys in request don't hash to the same slot", None),
        ("ERR Error compiling script", None),
        ("ERR user_script:1: attempt to index a nil value", None),
        ("", None),
    ],
)
def test_errors_of_the_server(text: str, cause: str | None):
    """C134: an outage has its cause; a mistake is a plain error, and never an outage."""
    error = error_said(text)

    assert getattr(error, "cause", None) == cause
    assert text in str(error)


def test_the_package_brings_its_scripts():
    """The patterns of pyproject.toml take every script along, and each is part of one that is sent."""
    root = Path(__file__).parents[3]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    package = root / "src" / "tidegate"
    taken = {path for pattern in settings["package-data"]["tidegate"] for path in package.glob(pattern)}
    parts = set(package.rglob("*.lua"))

    assert parts
    assert parts <= taken
    sent = "".join(script.text for script in (scripts.DECIDE, scripts.ADJUST, scripts.FORGET))
    assert all(path.read_text(encoding="utf-8") in sent for path in parts)
