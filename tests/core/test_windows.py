"""Windows that count: fixed lengths, the calendar with its zones, and two weighed counters."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import admitted, at_once, tell
from tidegate import FixedWindow, Limiter, SlidingWindow
from tidegate.core.calendar import Local
from tidegate.core.windows import Even, Sliding
from tidegate.errors import LimitError
from tidegate.testing import ManualClock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_US = 3_600_000_000


def us(text: str) -> int:
    """The instant of an ISO time, with its offset, in microseconds."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


# --- fixed lengths ---


def test_a_window_counts_from_the_epoch():
    """C055, C063: two of two pass, refusals tell the end of the window, and exactly at it the next passes."""
    rows = [(60, 1, True, 0, 60), (119, 1, True, 0, 1)]
    tell(FixedWindow(2, "1min"), "allowed retry_after reset_after", rows)

    clock = ManualClock(60)
    limiter = Limiter(FixedWindow(2, "1min"), clock=clock)
    at_once(limiter, 2)
    for tenth in range(50):
        clock.set(115 + Fraction(tenth, 10))
        decision = limiter.hit("key")
        assert not decision
        assert decision.retry_after_us == 5_000_000 - tenth * 100_000
        assert decision.retry_hint_s is not None
        assert decision.retry_hint_s >= 1
    clock.set(120)
    assert limiter.hit("key")


def test_twice_the_limit_crosses_a_boundary():
    """What its docstring says: up to twice the limit in a stretch of one window's length, and no more."""
    clock = ManualClock(Fraction(59_999_999, 10**6))
    limiter = Limiter(FixedWindow(5, "1min"), clock=clock)

    passed = admitted(at_once(limiter, 50))
    clock.set(60)
    assert passed + admitted(at_once(limiter, 50)) == 10
    clock.set(119)
    assert admitted(at_once(limiter, 50)) == 0


def test_long_windows():
    """C043, C094: a thirty-day window and an hour's, asked once a second or a minute: nothing more passes."""
    for window, limit, step_s in (("30day", 5, 1), ("1h", 100, 60)):
        clock = ManualClock(30 * 86_400 * 700)
        limiter = Limiter(FixedWindow(limit, window), clock=clock)
        assert admitted(at_once(limiter, limit + 1)) == limit
        for _ in range(59):
            clock.advance(step_s)
            assert not limiter.hit("key")


def test_windows_of_a_length_know_no_zone():
    """C192: five hours are 18,000 s across both changes of the clock; a zone beside a length is an error."""
    assert Even(18_000_000_000).window(us("2024-03-31T03:00+02:00"))[1] % 18_000_000_000 == 0
    with pytest.raises(LimitError, match="as long everywhere"):
        FixedWindow(5, "5h", "Europe/Berlin")


@given(st.integers(-(10**16), 10**16), st.integers(1, 10**14))
def test_every_instant_lies_in_its_window(now_us: int, length_us: int):
    """Windows of one length tile all of time, before the epoch too."""
    start_us, end_us = Even(length_us).window(now_us)

    assert start_us <= now_us < end_us
    assert end_us - start_us == length_us
    assert start_us % length_us == 0


# --- the calendar ---


@pytest.mark.parametrize(
    ("unit", "zone", "now", "start", "end"),
    [
        ("day", "UTC", "2024-02-29T12:00+00:00", "2024-02-29T00:00+00:00", "2024-03-01T00:00+00:00"),
        ("month", "UTC", "2024-02-10T00:00+00:00", "2024-02-01T00:00+00:00", "2024-03-01T00:00+00:00"),
        ("month", "UTC", "2023-12-31T23:59+00:00", "2023-12-01T00:00+00:00", "2024-01-01T00:00+00:00"),
        ("year", "UTC", "2024-02-29T12:00+00:00", "2024-01-01T00:00+00:00", "2025-01-01T00:00+00:00"),
        ("week", "UTC", "2024-01-01T00:00+00:00", "2024-01-01T00:00+00:00", "2024-01-08T00:00+00:00"),
        ("week", "UTC", "2023-12-31T23:59+00:00", "2023-12-25T00:00+00:00", "2024-01-01T00:00+00:00"),
        ("day", "Asia/Tokyo", "2024-01-01T23:30+00:00", "2024-01-01T15:00+00:00", "2024-01-02T15:00+00:00"),
        # 23 and 25 hours
        (
            "day",
            "Europe/Berlin",
            "2024-03-31T12:00+02:00",
            "2024-03-31T00:00+01:00",
            "2024-04-01T00:00+02:00",
        ),
        (
            "day",
            "Europe/Berlin",
            "2024-10-27T12:00+01:00",
            "2024-10-27T00:00+02:00",
            "2024-10-28T00:00+01:00",
        ),
        (
            "month",
            "Europe/Berlin",
            "2024-03-31T12:00+02:00",
            "2024-03-01T00:00+01:00",
            "2024-04-01T00:00+02:00",
        ),
        # a midnight that does not exist: the first instant after it
        (
            "day",
            "America/Asuncion",
            "2023-10-01T12:00-03:00",
            "2023-10-01T01:00-03:00",
            "2023-10-02T00:00-03:00",
        ),
        ("day", "Asia/Beirut", "2022-03-27T00:00+03:00", "2022-03-26T00:00+02:00", "2022-03-27T01:00+03:00"),
        (
            "day",
            "America/Sao_Paulo",
            "2018-11-04T05:00+00:00",
            "2018-11-04T01:00-02:00",
            "2018-11-05T00:00-02:00",
        ),
        # one that exists twice: the first
        (
            "day",
            "America/Havana",
            "2023-11-05T00:30-04:00",
            "2023-11-05T00:00-04:00",
            "2023-11-06T00:00-05:00",
        ),
        (
            "day",
            "America/Havana",
            "2023-11-05T00:30-05:00",
            "2023-11-05T00:00-04:00",
            "2023-11-06T00:00-05:00",
        ),
        ("day", "Asia/Amman", "2021-10-29T00:30+02:00", "2021-10-29T00:00+03:00", "2021-10-30T00:00+02:00"),
        # back over a midnight: that day had begun
        (
            "day",
            "America/St_Johns",
            "2010-11-07T00:00-02:30",
            "2010-11-07T00:00-02:30",
            "2010-11-08T00:00-03:30",
        ),
        (
            "day",
            "America/St_Johns",
            "2010-11-06T23:30-03:30",
            "2010-11-07T00:00-02:30",
            "2010-11-08T00:00-03:30",
        ),
        # a day that was skipped whole
        ("day", "Pacific/Apia", "2011-12-29T23:00-10:00", "2011-12-29T00:00-10:00", "2011-12-31T00:00+14:00"),
        ("day", "Pacific/Apia", "2011-12-31T00:00+14:00", "2011-12-31T00:00+14:00", "2012-01-01T00:00+14:00"),
        (
            "week",
            "Pacific/Apia",
            "2011-12-31T00:00+14:00",
            "2011-12-26T00:00-10:00",
            "2012-01-02T00:00+14:00",
        ),
        # half hours
        (
            "day",
            "Australia/Lord_Howe",
            "2024-04-07T12:00+10:30",
            "2024-04-07T00:00+11:00",
            "2024-04-08T00:00+10:30",
        ),
        (
            "day",
            "Asia/Kathmandu",
            "2024-01-01T00:00+05:45",
            "2024-01-01T00:00+05:45",
            "2024-01-02T00:00+05:45",
        ),
    ],
)
def test_a_calendar_unit(unit, zone: str, now: str, start: str, end: str):
    """C193: from its first instant to the first of the next, whatever the zone's clocks do in between."""
    assert Local(unit, zone).window(us(now)) == (us(start), us(end))


ZONES = ["UTC", "Europe/Berlin", "America/Havana", "America/St_Johns", "Pacific/Apia", "Asia/Beirut"]
ZONES += ["Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "Asia/Tehran", "Antarctica/Troll"]


@given(
    st.sampled_from(["day", "week", "month", "year"]),
    st.sampled_from(ZONES),
    st.integers(us("1950-01-01T00:00+00:00"), us("2060-01-01T00:00+00:00")),
)
def test_calendar_windows_tile_time(unit, zone: str, now_us: int):
    """Every instant lies in one window, its neighbours touch it, and it begins on its first local day."""
    calendar = Local(unit, zone)
    start_us, end_us = calendar.window(now_us)
    local = (EPOCH + start_us * timedelta(microseconds=1)).astimezone(ZoneInfo(zone))

    assert start_us <= now_us < end_us
    assert calendar.window(start_us) == calendar.window(end_us - 1) == (start_us, end_us)
    assert calendar.window(end_us)[0] == end_us
    assert calendar.window(start_us - 1)[1] == start_us
    if unit == "day":
        assert end_us - start_us <= 48 * HOUR_US
    if unit == "week":
        assert local.weekday() == 0
    if unit in ("month", "year"):
        assert local.day == 1
    if unit == "year":
        assert local.month == 1


def test_the_same_window_whatever_the_machine(monkeypatch: pytest.MonkeyPatch):
    """C191: days are those of UTC, or of the zone that was named, and never of the machine's own zone."""
    for local in ("Asia/Tokyo", "America/Los_Angeles"):
        monkeypatch.setenv("TZ", local)
        clock = ManualClock(Fraction(us("2024-05-01T23:30+00:00"), 10**6))
        limiter = Limiter(FixedWindow(2, "day"), clock=clock)
        assert [admitted(at_once(limiter, 4)), limiter.peek("key").reset_after] == [2, 1800]
        clock.set(Fraction(us("2024-05-02T00:30+00:00"), 10**6))
        assert admitted(at_once(limiter, 4)) == 2


@pytest.mark.parametrize(
    "zone", ["Nowhere/Else", "", "../etc/passwd", "Europe", "europe/nowhere", None, 5, "UTC\0"]
)
def test_a_zone_that_is_none(zone):
    """C193: an unknown zone is an error that shows how one is written, when the limit is made."""
    with pytest.raises(LimitError, match="no such time zone"):
        FixedWindow(5, "day", zone)


def test_an_instant_outside_the_calendar():
    """Before year 1 and after year 9999 there is no day; the error says so."""
    for now_us in (-(10**20), 10**20):
        with pytest.raises(LimitError, match="outside the calendar"):
            Local("day", "UTC").window(now_us)


def test_a_step_back_keeps_the_count():
    """By up to 60 s the window stays; beyond, the count moves along, and locks no longer than one window."""
    clock = ManualClock(600)
    limiter = Limiter(FixedWindow(2, "10min"), clock=clock)
    at_once(limiter, 2)

    clock.set(595)
    assert limiter.hit("key").retry_after == 605
    clock.set(500)
    assert limiter.hit("key").retry_after == 100
    clock.set(600)
    assert admitted(at_once(limiter, 3)) == 2


# --- two counters ---


def test_the_estimate_of_two_counters():
    """Ten in one window: in the next, they weigh as much as the window still overlaps, rounded up."""
    clock = ManualClock()
    limiter = Limiter(SlidingWindow(10, "10s"), clock=clock)
    assert admitted(at_once(limiter, 11)) == 10

    for at, left in (
        (10, 0),
        (Fraction(10_999_999, 10**6), 0),
        (11, 1),
        (15, 5),
        (Fraction("19.9"), 9),
        (20, 10),
    ):
        clock.set(at)
        assert limiter.peek("key").remaining == left
    clock.set(5)
    assert limiter.peek("key").reset_after == 15


def test_an_estimate_tells_when_it_fits():
    """The announced wait is exact to the tick, within this window and into the next."""
    limit = SlidingWindow(10, "10s")
    clock = ManualClock()
    limiter = Limiter(limit, clock=clock)
    at_once(limiter, 10)
    for cost, wait_us in ((1, 11_000_000), (3, 13_000_000), (10, 20_000_000)):
        decision = limiter.peek("key", cost)
        assert (decision.allowed, decision.retry_after_us) == (False, wait_us)
        for early, passes in ((1, False), (0, True)):
            clock.set(Fraction(wait_us - early, 10**6))
            assert limiter.peek("key", cost).allowed is passes
        clock.set(0)
    assert limiter.peek("key", 11).retry_after is None


@pytest.mark.parametrize(
    ("limit", "window", "tick_us"),
    [(10, "10s", 1), (10**9, "1h", 10**6), (1, "7us", 1), (10**6, "30day", 10**6)],
)
def test_ticks_are_as_fine_as_the_integers_allow(limit: int, window: str, tick_us: int):
    """The smallest of 1, 2, 5, 10, ... microseconds that divides the window and keeps the products exact."""
    law = SlidingWindow(limit, window).law
    assert isinstance(law, Sliding)

    assert law.tick_us == tick_us
    assert law.capacity * law.parts < 2**52


def test_two_counters_far_back_in_time():
    """A long step back keeps what the counters weighed, as spent in the window of now: it grants nothing."""
    clock = ManualClock(1_009)
    limiter = Limiter(SlidingWindow(10, "10s"), clock=clock)
    at_once(limiter, 10)
    clock.set(1_011)
    assert limiter.hit("key").remaining == 0
    clock.set(909)

    assert limiter.hit("key").remaining == 0
    assert not limiter.hit("key")


def test_zones_are_read_once():
    """A hit opens no file: the rules of a zone are read where the limit is built."""
    zones = sorted(name for name in available_timezones() if name.startswith("America/"))[:30]
    limiters = [Limiter(FixedWindow(5, "day", zone=zone), clock=ManualClock(1_700_000_000)) for zone in zones]
    opened = []
    active = True
    sys.addaudithook(lambda event, args: opened.append(args[0]) if active and event == "open" else None)
    for limiter in limiters:
        limiter.hit("k")
    active = False

    assert opened == []
