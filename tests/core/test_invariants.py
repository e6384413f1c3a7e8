"""The invariants of the core as properties, for every algorithm where they apply.

Random stories are played on a limiter; what comes out is held against brute force or against a second run.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.stories import MACHINES
from tests.oracle.bound import worst_excess
from tidegate import (
    Decision,
    FixedWindow,
    LeakyQueue,
    Limiter,
    Policy,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.limits import Limit
from tidegate.limiter import Reservation
from tidegate.testing import ManualClock

US = 10**6
RATES = ["1/s", "5/s", "1/3s", "166.666/s", "80000/s", "7/min"]
capacities = st.sampled_from([1, 2, 3, 5, 10, 2.5])
levels = st.builds(TokenBucket, capacities, st.sampled_from(RATES))
queues = st.builds(
    LeakyQueue,
    capacities,
    st.sampled_from(RATES),
    st.sampled_from(["immediate", "interval"]),
    st.sampled_from([0, 2]),
)
logs = st.builds(SlidingLog, st.integers(1, 6), st.sampled_from(["1s", "10s", "7us"]))
fixed = st.builds(FixedWindow, st.integers(1, 6), st.sampled_from(["1s", "10s", "7us"]))
counters = st.builds(SlidingWindow, st.integers(1, 6), st.sampled_from(["1s", "10s", "7us"]))
every_kind = st.one_of(levels, queues, logs, fixed, counters)

gaps_us = st.sampled_from([0, 0, 0, 1, 12, 1_000, 200_000, 333_333, US, 3 * US, 20 * US])
costs = st.sampled_from([1, 1, 1, 2, 3])
stories = st.lists(st.tuples(gaps_us, costs), max_size=30)
steps_back_us = st.sampled_from([0, 0, 0, -1, -200_000, -US, -60 * US, -60 * US - 1, -3_600 * US])


def started(limit: Limit, **options: Any) -> tuple[Limiter, ManualClock]:
    clock = ManualClock(1_000_000)
    return Limiter(Policy([Rule("r", limit, by=("key",), **options)]), clock=clock), clock


def hit(limiter: Limiter, cost: Any) -> Decision:
    """What the compiled path says, where there is one."""
    return limiter.hit("key", cost)


def figures(decision: Decision) -> tuple[object, ...]:
    return (
        decision.allowed,
        decision.balance,
        decision.remaining,
        decision.wait_us,
        decision.retry_after_us,
        decision.reset_after_us,
    )


# --- 1: the bound ---


@given(st.one_of(levels, queues), stories)
def test_a_level_keeps_its_bound(limit, story):
    """Invariant 1: in every interval at most capacity + rate * d is admitted."""
    limiter, clock = started(limit)
    taken = []
    for gap_us, cost in story:
        clock.advance(Fraction(gap_us, US))
        if hit(limiter, cost):
            taken.append((clock.now_us(), Fraction(cost), Fraction(0)))

    assert worst_excess(taken, Fraction(limit.capacity), limit.rate.per_microsecond) <= 0


@given(
    levels,
    st.lists(
        st.tuples(gaps_us, st.sampled_from(["hit", "hit", "refund", "settle"]), costs, st.integers(0, 99)),
        max_size=40,
    ),
)
def test_giving_back_never_breaks_the_bound(limit, story):
    """Invariant 1: work given back did not happen, and no order of taking and returning buys more."""
    limiter, clock = started(limit)
    taken: list[tuple[int, Decision]] = []
    returned: dict[int, Fraction] = {}
    for gap_us, verb, cost, which in story:
        clock.advance(Fraction(gap_us, US))
        if verb == "hit":
            decision = hit(limiter, cost)
            if decision:
                taken.append((clock.now_us(), decision))
        elif taken:
            place = which % len(taken)
            decision = taken[place][1]
            if verb == "refund":
                amount = limiter.refund(decision, Fraction(which, 50))
            else:
                amount = Reservation(limiter, decision).settle(decision.cost / 2 if decision.cost else 0)
            returned[place] = returned.get(place, Fraction(0)) + amount
    admissions = [
        (at, Fraction(d.cost or 0), returned.get(n, Fraction(0))) for n, (at, d) in enumerate(taken)
    ]

    assert all(0 <= back <= cost for _, cost, back in admissions)
    assert worst_excess(admissions, Fraction(limit.capacity), limit.rate.per_microsecond) <= 0


@given(
    levels,
    st.sampled_from([None, 0, 3]),
    st.lists(st.tuples(gaps_us, costs, st.integers(0, 12)), max_size=25),
)
def test_debts_keep_their_bound(limit, max_debt, story):
    """Invariant 1: what is charged, settlements included, is at most capacity + max_debt + rate * d."""
    limiter, clock = started(limit, max_debt=max_debt)
    charged = []
    for gap_us, cost, actual in story:
        clock.advance(Fraction(gap_us, US))
        reservation = limiter.reserve("key", cost)
        if reservation:
            charged.append((clock.now_us(), Fraction(cost), Fraction(0)))
            if actual > cost:
                more = -reservation.settle(actual)
                charged.append((clock.now_us(), more, Fraction(0)))
    debt = limit.capacity if max_debt is None else max_debt
    balance = limiter.peek("key").balance

    assert worst_excess(charged, Fraction(limit.capacity) + Fraction(debt), limit.rate.per_microsecond) <= 0
    assert balance is not None
    assert balance >= -debt


@given(queues, stories)
def test_departures_keep_the_rate(limit, story):
    """Invariant 1, shaped: one job + rate * (d + 1 us) leaves, in the order of arrival."""
    limiter, clock = started(limit)
    leave = []
    for gap_us, cost in story:
        clock.advance(Fraction(gap_us, US))
        decision = hit(limiter, cost)
        if decision:
            leave.append((clock.now_us() + decision.wait_us, Fraction(cost), Fraction(0)))

    assert leave == sorted(leave, key=lambda job: job[0])
    if limit.delay_after == 0:
        once = max((cost for _, cost, _ in leave), default=Fraction(1))
        rate = limit.rate.per_microsecond
        assert worst_excess(leave, once + rate, rate) <= 0


@given(st.one_of(logs, fixed, counters), stories)
def test_windows_keep_what_they_promise(limit, story):
    """Invariant 1: a log's limit in any stretch; for counting windows once a window, twice a stretch."""
    limiter, clock = started(limit)
    taken = []
    for gap_us, cost in story:
        clock.advance(Fraction(gap_us, US))
        taken += [clock.now_us()] * cost if hit(limiter, cost) else []
    window_us = limit.quota_window_us
    most = max((sum(at <= other < at + window_us for other in taken) for at in taken), default=0)
    in_one = max((sum(other // window_us == at // window_us for other in taken) for at in taken), default=0)

    assert most <= limit.limit * (1 if isinstance(limit, SlidingLog) else 2)
    if not isinstance(limit, SlidingLog):
        assert in_one <= limit.limit


# --- 2: a refusal changes nothing ---


@given(every_kind, stories, st.lists(st.booleans(), min_size=30, max_size=30))
def test_refusals_change_nothing(limit, story, bothered):
    """Invariant 2: with looks, refusals and costs of 0 in between, every later answer is the same."""
    calm, clock = started(limit)
    busy, other = started(limit)
    for (gap_us, cost), bother in zip(story, bothered, strict=False):
        clock.advance(Fraction(gap_us, US))
        other.advance(Fraction(gap_us, US))
        if bother:
            for _ in range(3):
                assert not busy.hit("key", 100)
                busy.peek("key", cost)
                busy.hit("key", 0)
                busy.explain("key")
        assert figures(hit(calm, cost)) == figures(hit(busy, cost))


# --- 3: the announced wait is exact ---


@given(every_kind, stories, costs, st.lists(steps_back_us, max_size=2))
def test_the_announced_wait_is_exact(limit, story, cost, back_us):
    """Invariant 3: retry_after is enough, a microsecond less is not; also behind a step back."""
    limiter, clock = started(limit)
    for gap_us, spent in story:
        clock.advance(Fraction(gap_us, US))
        hit(limiter, spent)
    for step_us in back_us:
        clock.advance(Fraction(step_us, US))
        limiter.hit("key", 100)
    told_us = limiter.peek("key", cost).retry_after_us

    if cost > limit.capacity:
        assert told_us is None
        return
    assert told_us is not None
    if told_us:
        clock.advance(Fraction(told_us - 1, US))
        assert not limiter.peek("key", cost)
        clock.advance(Fraction(1, US))
    assert limiter.hit("key", cost)


@given(every_kind, stories, steps_back_us)
def test_reset_after_is_exact(limit, story, step_us: int):
    """After exactly reset_after the key answers as one never seen, a microsecond earlier not yet."""
    limiter, clock = started(limit)
    for gap_us, spent in story:
        clock.advance(Fraction(gap_us, US))
        hit(limiter, spent)
    clock.advance(Fraction(step_us, US))
    limiter.hit("key", 100)
    told_us = limiter.peek("key").reset_after_us
    assert told_us is not None
    if told_us:
        clock.advance(Fraction(told_us - 1, US))
        assert limiter.peek("key").reset_after_us == 1
        clock.advance(Fraction(1, US))

    assert limiter.peek("key").reset_after_us == 0
    assert figures(limiter.peek("key")) == figures(limiter.peek("never seen"))
    assert figures(limiter.hit("key")) == figures(limiter.hit("never seen"))


# --- 5: three machines, one law ---


@given(
    capacities,
    st.sampled_from(RATES),
    st.lists(
        st.tuples(st.one_of(gaps_us, steps_back_us), st.sampled_from([0, 1, 1, 2, 0.5, 7])), max_size=40
    ),
)
def test_water_and_tokens_are_the_capacity(capacity, rate: str, story):
    """Invariant 5: budget, witness and line give one verdict, and water + tokens = capacity, always."""
    clocks = [ManualClock(1_000_000) for _ in MACHINES]
    limiters = [
        Limiter(machine(capacity, rate), clock=clock) for machine, clock in zip(MACHINES, clocks, strict=True)
    ]
    for gap_us, cost in story:
        for clock in clocks:
            clock.advance(Fraction(gap_us, US))
        decisions = [limiter.hit("key", cost) for limiter in limiters]
        water = [limiter.explain("key")["limit"].level for limiter in limiters]

        assert len({(d.allowed, d.balance, d.retry_after_us, d.reset_after_us) for d in decisions}) == 1
        assert {level + (d.balance or 0) for level, d in zip(water, decisions, strict=True)} == {
            limit_of(capacity)
        }


def limit_of(capacity: float) -> Fraction:
    return Fraction(str(capacity))


# --- 6: time ---


@given(levels, st.lists(st.tuples(gaps_us, st.integers(0, 60 * US), costs), max_size=40))
def test_a_trembling_clock_grants_nothing(limit, story):
    """Invariant 6: however often a clock goes back by up to 60 s and forth, no instant is earned twice."""
    limiter, clock = started(limit)
    begun_us = newest_us = clock.now_us()
    passed = Fraction(0)
    for gap_us, lag_us, cost in story:
        for reads_us in (newest_us + gap_us, newest_us + gap_us - lag_us):
            clock.set(Fraction(reads_us, US))
            passed += cost if hit(limiter, cost) else 0
        newest_us += gap_us

        assert passed <= Fraction(limit.capacity) + limit.rate.per_microsecond * (newest_us - begun_us)


@given(every_kind, st.lists(st.tuples(st.one_of(gaps_us, steps_back_us), costs), max_size=30))
def test_no_key_is_locked_for_long(limit, story):
    """Invariant 6: whatever the clock did, nobody waits longer than 60 s + the limit's own time."""
    limiter, clock = started(limit)
    own_us = limit.quota_window_us * (2 if isinstance(limit, SlidingWindow) else 1)
    for step_us, cost in story:
        clock.advance(Fraction(step_us, US))
        decision = hit(limiter, cost)
        if cost <= limit.capacity:
            assert decision.retry_after_us is not None
            assert decision.retry_after_us <= 60 * US + own_us
        assert decision.reset_after_us is not None
        assert decision.reset_after_us <= 60 * US + (2 if isinstance(limit, SlidingWindow) else 1) * own_us


@given(every_kind, stories)
def test_a_standing_clock_grants_no_more_than_the_capacity(limit, story):
    """Invariant 6: while the clock stands, at most what was left at its first instant passes."""
    limiter, clock = started(limit)
    for gap_us, cost in story:
        clock.advance(Fraction(gap_us, US))
        hit(limiter, cost)
    left = limiter.peek("key").balance or Fraction(0)
    passed = sum(bool(limiter.hit("key")) for _ in range(30))

    assert passed == left // 1


# --- 7: n at once equals n singles ---


@given(every_kind, stories, st.integers(1, 6))
def test_n_at_once_equals_n_singles(limit, story, count: int):
    """Invariant 7: where the first n - 1 pass, n singles end as n at once do."""
    at_once, clock = started(limit)
    singly, other = started(limit)
    for gap_us, cost in story:
        for limiter, its_clock in ((at_once, clock), (singly, other)):
            its_clock.advance(Fraction(gap_us, US))
            hit(limiter, cost)
    singles = [singly.hit("key") for _ in range(count)]
    if not all(singles[:-1]):
        return
    together = at_once.hit("key", count)

    assert together.allowed == singles[-1].allowed
    if together:
        assert together.balance == singles[-1].balance
        assert together.reset_after_us == singles[-1].reset_after_us
