"""Guidance to refused callers: different places, kept by who comes early, later for who obeyed in vain."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import FixedWindow, LeakyQueue, Limiter, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.ticket import HINT_US_MOST, TicketDesk
from tidegate.testing import ManualClock

LIMITS = [
    TokenBucket(20, "5/s"),
    LeakyQueue(3, "1/s"),
    SlidingLog(5, "10s"),
    FixedWindow(5, "10s"),
    SlidingWindow(5, "10s"),
]


class Crowd:
    """Callers who all come at once and then do as they are told, until each has been admitted."""

    def __init__(self, limit, callers: int, *, header: bool, named: bool = True) -> None:
        self.clock = ManualClock(1_000)
        limiter = Limiter(limit, clock=self.clock)
        self.tries = dict.fromkeys(range(callers), 0)
        self.asked_at_us: dict[int, list[int]] = {caller: [] for caller in range(callers)}
        coming = [(self.clock.now_us(), caller) for caller in range(callers)]
        while coming:
            now_us, caller = heapq.heappop(coming)
            self.clock.set(Fraction(now_us, 10**6))
            decision = limiter.hit("key", caller=caller if named else None)
            self.tries[caller] += 1
            self.asked_at_us[caller].append(now_us)
            if not decision:
                assert decision.retry_hint_us is not None
                assert decision.retry_hint_s is not None
                hint_us = decision.retry_hint_s * 10**6 if header else decision.retry_hint_us
                heapq.heappush(coming, (now_us + hint_us, caller))

    def mean(self) -> float:
        """Tries of a caller, on average."""
        return sum(self.tries.values()) / len(self.tries)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize(
    "limit",
    [
        TokenBucket(20, "5/s"),
        LeakyQueue(20, "5/s"),
        TokenBucket(1, "5/s"),
        TokenBucket(4, "10/s"),
        TokenBucket(5, "100/s"),
        SlidingWindow(50, "10s"),
    ],
    ids=repr,
)
def test_two_hundred_obedient_callers(limit, header: bool, named: bool):
    """They need about two tries each, and not a hundred, also by whole seconds and where capacity < rate."""
    crowd = Crowd(limit, 200, header=header, named=named)
    waits_s = max(max(asked) for asked in crowd.asked_at_us.values()) / 10**6 - 1_000

    assert crowd.mean() <= 2 if waits_s <= 60 else crowd.mean() <= 2 + waits_s / 60
    assert max(crowd.tries.values()) <= 4 + waits_s // 30


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("limit", [SlidingLog(50, "10s"), FixedWindow(50, "10s")], ids=repr)
def test_a_window_that_frees_as_a_whole(limit, header: bool):
    """Where a whole window's places come back at one instant, the places are spread over it all the same."""
    assert Crowd(limit, 200, header=header).mean() <= 3


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_refused_together_told_apart(limit):
    """Refused at one instant, each gets a hint of its own; the exact one stays the same for all."""
    clock = ManualClock(1_000)
    limiter = Limiter(limit, clock=clock)
    while limiter.hit("key"):
        pass
    refused = [limiter.hit("key", caller=name) for name in "abcdefgh"]
    hints_us = [decision.retry_hint_us for decision in refused]

    assert len({decision.retry_after_us for decision in refused}) == 1
    assert len(set(hints_us)) == len(hints_us)
    assert hints_us == sorted(hints_us)  # type: ignore[type-var]  # none of these can never pass


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
@pytest.mark.parametrize("header", [False, True])
def test_a_lone_caller_who_obeys_is_admitted(limit, header: bool):
    """It waits as it was told, and passes."""
    for named in (True, False):
        assert set(Crowd(limit, 1, header=header, named=named).tries.values()) == {1}
    clock = ManualClock(1_000)
    limiter = Limiter(limit, clock=clock)
    while (decision := limiter.hit("key", caller="me")).allowed:
        pass
    clock.advance(decision.retry_hint_s if header else decision.retry_hint)  # type: ignore[arg-type]  # it can pass

    assert limiter.hit("key", caller="me")


def refused(limiter: Limiter, caller: Hashable):
    decision = limiter.hit("key", caller=caller)
    assert not decision
    return decision


@pytest.mark.parametrize("header", [False, True])
def test_who_asks_early_keeps_its_place(header: bool):
    """Asking again before its time moves nobody: not the one who asks, and nobody behind."""
    clock = ManualClock()
    limiter = Limiter(TokenBucket(1, "1/10s"), clock=clock)
    limiter.hit("key")

    def told_s(caller: str) -> Fraction:
        decision = refused(limiter, caller)
        return Fraction(clock.now_us(), 10**6) + Fraction(
            decision.retry_hint_s * 10**6 if header else decision.retry_hint_us, 10**6
        )

    places = {caller: told_s(caller) for caller in "abc"}
    clock.set(9)
    for _ in range(50):
        assert {caller: told_s(caller) for caller in "abc"} == places
    assert places == {"a": 10, "b": 20, "c": 30}
    assert told_s("d") == 40


@given(st.lists(st.integers(1, 4_000_000), max_size=30))
def test_who_asks_early_keeps_its_whole_second(steps_us: list[int]):
    """A caller that goes by the header never loses its place by asking before it, however often it asks."""
    desk, limit = TicketDesk(), TokenBucket(1, "5/s")
    for name in range(10):
        desk.hints_us(limit, "key", name, 1_000, 200_000, 0)
    _, hint_us = desk.hints_us(limit, "key", "me", 1_000, 200_000, 0)
    now_us = 0
    for step_us in steps_us:
        now_us += step_us
        if now_us >= hint_us:
            break
        assert desk.hints_us(limit, "key", "me", 1_000, 1, now_us)[1] == hint_us - now_us


def test_who_obeys_in_vain_gets_a_later_place_and_a_wider_spread():
    """Each time it obeyed and is refused again, its next place is later, with twice the room behind it."""
    desk, limit = TicketDesk(), TokenBucket(1, "1/s")
    now_us, places_us, spreads = 0, [], []
    for _ in range(7):
        place_us = now_us + desk.hints_us(limit, "key", "me", 1_000, 1_000, now_us)[0]
        behind_us = now_us + desk.hints_us(limit, "key", None, 1_000, 1_000, now_us)[0]
        places_us.append(place_us)
        spreads.append((behind_us - place_us) // 10**6)
        now_us = place_us

    assert places_us == sorted(set(places_us))
    assert spreads == [1, 2, 4, 8, 16, 16, 16]


@given(
    st.sampled_from(LIMITS),
    st.lists(
        st.tuples(st.integers(0, 3 * 10**6), st.sampled_from(["a", "b", None]), st.integers(0, 10**8)),
        max_size=40,
    ),
)
def test_hints_are_bounded(limit, asks):
    """Never earlier than the exact wait, and at most a minute later than that or than a minute."""
    desk, now_us = TicketDesk(), 0
    for step_us, caller, need_us in asks:
        now_us += step_us - 10**6
        for hint_us in desk.hints_us(limit, "key", caller, 1_000, need_us, now_us):
            assert need_us <= hint_us <= max(need_us, HINT_US_MOST) + HINT_US_MOST


def test_a_long_line_is_capped():
    """The thousandth of a line is told a minute, no more: many clients ignore longer hints."""
    desk, limit = TicketDesk(), TokenBucket(1, "1/s")
    hints_us = [desk.hints_us(limit, "key", name, 1_000, 10**6, 0)[0] for name in range(1000)]

    assert max(hints_us) == HINT_US_MOST
    assert hints_us[:60] == [place * 10**6 for place in range(1, 61)]


def test_the_desk_is_bounded():
    """Invariant 10: it remembers so many lines and callers, and forgets the oldest first."""
    desk, limit = TicketDesk(lines_most=10, places_most=20), TokenBucket(1, "1/s")
    for number in range(1000):
        desk.hints_us(limit, f"line {number}", f"caller {number}", 1_000, 10**6, 0)

    assert len(desk) <= 30
    assert desk.hints_us(limit, "line 999", "other", 1_000, 10**6, 0)[0] == 2 * 10**6
    assert desk.hints_us(limit, "line 0", "other", 1_000, 10**6, 0)[0] == 10**6


def test_an_admission_takes_no_ticket():
    """Neither does a refusal that can never pass, nor one whose hint nobody reads."""
    limiter = Limiter(TokenBucket(1, "1/s"), clock=ManualClock())

    admitted, never = limiter.hit("key"), limiter.hit("key", 2)
    assert (admitted.retry_hint, admitted.retry_hint_us, admitted.retry_hint_s) == (0, 0, 0)
    assert (never.retry_hint, never.retry_hint_us, never.retry_hint_s) == (None, None, None)
    limiter.hit("key")
    assert len(limiter._desk) == 0


def test_a_ticket_is_taken_once():
    """Reading a decision's hints again gives the same ones, and pushes nobody back."""
    limiter = Limiter(TokenBucket(1, "1/s"), clock=ManualClock())
    limiter.hit("key")
    decision = limiter.hit("key")

    assert {decision.retry_hint_us for _ in range(100)} == {10**6}
    assert (decision.retry_hint, decision.retry_hint_s) == (1, 1)
    assert limiter.hit("key").retry_hint == 2


@pytest.mark.parametrize(
    ("wait_s", "header"), [(1, 1), (2, 2), (7, 7), (Fraction(2001, 1000), 3), (Fraction(1999, 1000), 2)]
)
def test_whole_seconds_for_a_header(wait_s: Fraction, header: int):
    """C054, C055: rounded up, whole ones left alone, and never 0 on a refusal."""
    clock = ManualClock()
    limiter = Limiter(TokenBucket(1, "1/10s"), clock=clock)
    limiter.hit("key")
    clock.set(10 - wait_s)

    assert limiter.hit("key").retry_hint_s == header
