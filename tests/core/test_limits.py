"""The limits that people write: checked once, values ever after, and always within the exact integers."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tidegate
from tests.core.stories import MACHINES
from tests.oracle.bound import worst_excess
from tidegate import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limiter,
    LimitError,
    Rate,
    RateError,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.fitting import PATIENCE_US_LEAST
from tidegate.core.law import EXACT
from tidegate.core.level import Level, Line
from tidegate.core.limits import LOG_LIMIT_MOST, Limit
from tidegate.core.windows import Sliding
from tidegate.testing import ManualClock


def wrongly(make: Any) -> Any:
    """The same, for what a type checker would not let through."""
    return make


LIMITS: list[Limit] = [
    TokenBucket(20, "5/s"),
    TokenBucket(0.5, "1/min"),
    TokenBucket(Fraction(1, 8), Rate(Fraction(1, 3))),
    TokenBucket(1, "0/s"),
    LeakyBucket(20, "5/s"),
    LeakyQueue(20, "5/s"),
    LeakyQueue(20, "5/s", "interval", delay_after=2.5),
    SlidingLog(5, "10min"),
    FixedWindow(5, "10min"),
    FixedWindow(2.5, "1 day"),
    FixedWindow(1000, "month", "Europe/Berlin"),
    FixedWindow(1000, "week"),
    SlidingWindow(5, "10min"),
    SlidingWindow(0.001, timedelta(microseconds=7)),
]


@pytest.mark.parametrize(
    "bad", [0, -0.0, -1, -0.5, 0.0005, Fraction(1, 3), float("nan"), float("inf"), True, object, "20", [20]]
)
@pytest.mark.parametrize(
    "make",
    [
        lambda number: TokenBucket(number, "5/s"),
        lambda number: LeakyBucket(number, "5/s"),
        lambda number: LeakyQueue(number, "5/s"),
        lambda number: SlidingLog(number, "1min"),
        lambda number: FixedWindow(number, "1min"),
        lambda number: SlidingWindow(number, "1min"),
        lambda number: TokenBucket.within(number, "1min"),
        lambda number: TokenBucket.within(100, "1min", burst=number),
    ],
)
def test_a_capacity_that_is_none(make, bad):
    """C085: zero, negative, too fine, infinite, not a number: an error that shows the value."""
    with pytest.raises(LimitError) as caught:
        make(bad)

    named = "0" if bad == 0 else str(bad)[:5]
    assert named in str(caught.value) or repr(bad)[:5] in str(caught.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TokenBucket(0, "5/s"), "mode='deny'.*mode='bypass'"),
        (lambda: TokenBucket(-3, "5/s"), "capacity is -3; it must be positive"),
        (lambda: TokenBucket(0.0001, "5/s"), "round it to three decimals"),
        (lambda: wrongly(TokenBucket)(20, 5), "needs a period"),
        (lambda: TokenBucket(20, "5"), 'for instance "5/s"'),
        (lambda: wrongly(TokenBucket)(20, ["5/s", "10/min"]), "write one rate"),
        (lambda: wrongly(TokenBucket)(20, None), "write one rate"),
        (lambda: TokenBucket(20, "-5/s"), "must not be negative"),
        (lambda: TokenBucket(10**16, "5/s"), "does not fit the exact integers; nearest is a capacity of"),
        (lambda: TokenBucket(10**5000, "5/s"), "does not fit the exact integers"),
        (lambda: TokenBucket(1738, "1/30day"), "nearest is a capacity of 1737 at this rate"),
        (lambda: LeakyQueue(20, "0/s"), "hold its work for ever"),
        (lambda: wrongly(LeakyQueue)(20, "5/s", "soon"), "first_release is 'soon'; write .immediate. or"),
        (lambda: LeakyQueue(20, "5/s", delay_after=-1), "delay_after is -1; write tokens of work, 0 or more"),
        (lambda: wrongly(LeakyQueue)(20, "5/s", delay_after="x"), "delay_after is 'x'"),
        (lambda: LeakyQueue(20, "5/s", delay_after=0.0001), "in thousandths"),
        (lambda: wrongly(SlidingLog)(2.5, "1min"), "counts whole tokens"),
        (lambda: SlidingLog(LOG_LIMIT_MOST + 1, "1min"), "at most 100000.*SlidingWindow"),
        (lambda: SlidingLog(5, "1 month"), "30 days"),
        (lambda: SlidingLog(5, 0), "longer than zero"),
        (lambda: SlidingLog(5, "0.5us"), "whole number of microseconds"),
        (lambda: SlidingLog(5, "101 years"), "has no fixed length"),
        (lambda: SlidingLog(5, "40000 days"), "the longest is a hundred years"),
        (lambda: FixedWindow(5, "10 parsecs"), "'parsecs' is unknown"),
        (lambda: FixedWindow(5, "2 months"), "30 days"),
        (lambda: FixedWindow(5, "1min", "Europe/Berlin"), "as long everywhere"),
        (lambda: FixedWindow(5, "day", "Berlin/Europe"), "no such time zone"),
        (lambda: SlidingWindow(10**15, "1h"), "exact integers hold at most"),
        (lambda: FixedWindow(10**13, "1h"), "the exact integers hold at most 4503599627370"),
        (lambda: FixedWindow(10**5000, "month"), "the exact integers hold at most 4503599627370"),
        (lambda: SlidingWindow(10, "999983us"), "|"),
        (lambda: TokenBucket.within(1, "1min"), "must be below the limit"),
        (lambda: TokenBucket.within(10, "1min", burst=10), "burst is 10 of 10"),
        (lambda: TokenBucket.within(10, "1min", burst=11), "burst is 11 of 10"),
        (lambda: TokenBucket.within(10, "1 month"), "30 days"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_bad_limit(make, says: str):
    """Each error names the value and the way out, when the limit is made and never later."""
    if says == "|":
        assert make().law.tick_us == 1
        return
    with pytest.raises(LimitError, match=says) as caught:
        make()
    assert len(str(caught.value)) < 300


def test_a_bad_rate_is_a_bad_limit():
    """C157: the error of a rate is one of a limit, and a ValueError too."""
    with pytest.raises(RateError) as caught:
        TokenBucket(20, "5/fortnight")

    assert isinstance(caught.value, LimitError)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, tidegate.TidegateError)


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda limit: eval(repr(limit), vars(tidegate)),
        *[
            lambda limit, p=p: pickle.loads(pickle.dumps(limit, p))
            for p in range(pickle.HIGHEST_PROTOCOL + 1)
        ],
    ],
)
def test_a_limit_is_a_value(limit: Limit, copied):
    """C129: copies, pickles of every protocol and the printed form are equal, of one law and one hash."""
    other = copied(limit)

    assert other == limit
    assert hash(other) == hash(limit)
    assert repr(other) == repr(limit)
    assert other.law == limit.law
    assert (other.quota, other.quota_window_us, other.rate, other.algorithm) == (
        limit.quota,
        limit.quota_window_us,
        limit.rate,
        limit.algorithm,
    )


def test_limits_are_equal_by_class_and_numbers():
    """However the numbers were written; and no two of those above are equal."""
    assert TokenBucket(20, "5/s") == TokenBucket(Decimal("20.0"), Rate(300, "1min"))
    assert SlidingLog(5, "10min") == SlidingLog(5.0, 600)  # type: ignore[arg-type]  # a whole float is a whole number
    assert FixedWindow(5, "day") != FixedWindow(5, "1 day")
    assert len(set(LIMITS)) == len(LIMITS)
    assert TokenBucket(20, "5/s") != LeakyBucket(20, "5/s")
    assert TokenBucket(20, "5/s") != 20


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_a_limit_cannot_be_changed(limit: Limit):
    """Neither set nor deleted: a limit that exists stays what was checked."""
    with pytest.raises(AttributeError, match="make a new one"):
        limit.capacity = 5
    with pytest.raises(AttributeError, match="cannot be changed"):
        del limit.capacity


def test_what_a_limit_tells():
    """Quota is whole tokens at once; its window the time to refill, or the length; windows have no rate."""
    assert [(limit.quota, limit.quota_window_us) for limit in LIMITS] == [
        (20, 4_000_000),
        (0, 30_000_000),
        (0, 375_000),
        (1, None),
        (20, 4_000_000),
        (20, 4_000_000),
        (20, 4_000_000),
        (5, 600_000_000),
        (5, 600_000_000),
        (2, 86_400_000_000),
        (1000, 30 * 86_400_000_000),
        (1000, 7 * 86_400_000_000),
        (5, 600_000_000),
        (0, 7),
    ]
    assert [limit.rate is None for limit in LIMITS] == [False] * 7 + [True] * 7


numbers = st.one_of(
    st.integers(1, 10**9),
    st.integers(1, 10**6).map(lambda thousandths: Fraction(thousandths, 1000)),
)
some_rates = st.builds(
    Rate,
    st.one_of(st.integers(0, 10**7), st.fractions(0, 1000, max_denominator=1000)),
    st.sampled_from(["1s", "1min", "7ms", "13us", "1h", "1 day", "30 days", "1 week"]),
)


@given(st.sampled_from(MACHINES), numbers, some_rates, numbers)
def test_levels_fit_the_integers(machine, capacity, rate: Rate, free):
    """What is accepted keeps every intermediate below 2**53; what is not is refused with numbers that fit."""
    extra = {"delay_after": free} if machine is LeakyQueue else {}
    try:
        law = machine(capacity, rate, **extra).law
    except LimitError as error:
        assume(rate.tokens or machine is not LeakyQueue)
        for part in str(error).partition("nearest is ")[2].split(" or "):
            if part.startswith("a capacity of"):
                assert machine(int(part.split()[3]), rate)
            elif part:
                assert machine(capacity, part.split()[1])
        return
    assert isinstance(law, Level)
    assert law.p * law.q >= 0
    assert Fraction(law.p, law.q) == rate.per_microsecond
    assert Fraction(law.room, law.q) == capacity
    assert law.q % 1000 == 0
    assert 2 * law.room + law.p * PATIENCE_US_LEAST < EXACT
    assert 2 * law.room + law.p * law.patience_us_most < EXACT
    if isinstance(law, Line):
        assert 0 <= law.free <= law.room


@given(numbers, st.integers(1, 10**15))
def test_two_counters_fit_the_integers(limit, window_us: int):
    """The weighed count, and twice it in debt, stay below 2**53; the ticks make up the window exactly."""
    try:
        law = SlidingWindow(limit, timedelta(microseconds=window_us)).law
    except LimitError as error:
        assume("exact integers" not in str(error) and "hundred years" not in str(error))
        raise
    assert isinstance(law, Sliding)
    assert law.tick_us * law.parts == window_us
    assert 2 * law.capacity * law.parts < EXACT


def test_the_largest_at_one_in_thirty_days():
    """About 1,700 tokens at one per 30 days, and no more."""
    assert TokenBucket(1700, "1/30day").quota == 1700
    with pytest.raises(LimitError, match="nearest is"):
        TokenBucket(2000, "1/30day")


def test_a_line_that_waits_for_nothing():
    """More free than there is room for is as good as no wait at all, and needs no larger integers."""
    limiter = Limiter(LeakyQueue(5, "1/s", delay_after=10**30), clock=ManualClock())

    assert [limiter.hit("key").wait for _ in range(5)] == [0] * 5


@given(
    st.integers(2, 90_000),
    st.sampled_from(["1s", "1min", "1h"]),
    st.one_of(st.none(), st.integers(1, 1000)),
)
def test_within_keeps_the_whole(limit: int, per: str, burst: int | None):
    """Capacity + rate * period is the limit, exactly; the burst is a tenth of it by default."""
    assume(burst is None or burst < limit)
    try:
        bucket = TokenBucket.within(limit, per, burst)
    except LimitError as error:
        assume("exact integers" not in str(error))
        raise

    assert bucket.rate is not None
    assert bucket.capacity + bucket.rate.per_second * {"1s": 1, "1min": 60, "1h": 3600}[per] == limit
    assert bucket.capacity == (burst or max(1, limit // 10))


def test_within_holds_in_any_period():
    """TokenBucket.within(90, per="1min"): asked at full speed, no minute lets more than 90 pass."""
    clock = ManualClock()
    limiter = Limiter(TokenBucket.within(90, per="1min"), clock=clock)
    passed = []
    for second in range(240):
        clock.set(second)
        passed += [(second * 10**6, Fraction(1), Fraction(0)) for _ in range(60) if limiter.hit("key")]
    minutes = [
        sum(second * 10**6 <= at < (second + 60) * 10**6 for at, _, _ in passed) for second in range(180)
    ]

    assert max(minutes) <= 90
    assert worst_excess(passed, Fraction(9), Fraction(81, 60 * 10**6)) <= 0


def test_within_is_a_limit_of_its_class():
    """It makes what it is called on, with an explicit burst too."""
    assert LeakyBucket.within(90_000, per="1min", burst=1000) == LeakyBucket(1000, "89000/min")
    assert TokenBucket.within(90_000, per="1min") == TokenBucket(9000, "81000/min")
