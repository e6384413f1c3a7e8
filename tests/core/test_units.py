"""Rates, durations and amounts: what can be written, what it means, and what is said of the rest."""

from __future__ import annotations

import copy
import decimal
import pickle
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.errors import CostError, LimitError, RateError
from tidegate.units import (
    Rate,
    decimal_text,
    div_ceil,
    duration_text,
    duration_us,
    exact,
    header_seconds,
    instant_us,
    milli,
    seconds,
)

S = 1_000_000


@pytest.mark.parametrize(
    ("written", "tokens", "per_us"),
    [
        ("1/2 seconds", 1, 2 * S),
        ("1 per 2 second", 1, 2 * S),
        ("5/30s", 5, 30 * S),
        ("5 / 30 s", 5, 30 * S),
        ("5/30seconds", 5, 30 * S),
        ("100 per 15 minutes", 100, 900 * S),
        ("5/s", 5, S),
        ("300/min", 300, 60 * S),
        ("300 per 5 min", 300, 300 * S),
        (" 2.5 / h ", Fraction(5, 2), 3_600 * S),
        ("10 per 3 days", 10, 3 * 86_400 * S),
        ("10 per week", 10, 7 * 86_400 * S),
        ("1/30day", 1, 30 * 86_400 * S),
        ("7/250ms", 7, 250_000),
        ("1/100us", 1, 100),
        ("1/1.5h", 1, 5_400 * S),
        ("0/s", 0, S),
        ("166.666/s", Fraction(166_666, 1000), S),
        ("5 PER Minute".replace("PER", "per"), 5, 60 * S),
    ],
)
def test_a_rate_is_read(written: str, tokens: Fraction | int, per_us: int):
    """C158: every documented form is one exact rate, and printing it reads back to an equal one."""
    rate = Rate.parse(written)

    assert (rate.tokens, rate.per_us) == (tokens, per_us)
    assert rate.per_second == Fraction(tokens) * S / per_us
    assert Rate.parse(str(rate)) == rate


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("10/horu", "'horu' is unknown"),
        ("10 per fortnight", "'fortnight' is unknown"),
        ("10/", "the period is missing"),
        ("10 per", "the period is missing"),
        ("/minute", "the number of tokens is missing"),
        ("per minute", "the number of tokens is missing"),
        ("ten/minute", 'write "5/s"'),
        ("10/minute/second", "more than one rate"),
        ("10/minute;4/second", "more than one rate"),
        ("10,5/minute", "decimals with a point"),
        ("1,000/minute", "thousands without a separator"),
        ("-1/minute", "must not be negative"),
        ("1e3/minute", "without an exponent"),
        ("", "it is empty"),
        (" ", "it is empty"),
        ("2000", "a rate needs a period"),
        ("2000.", 'write "5/s"'),
        ("5/0s", "positive number of whole microseconds"),
        ("5/0.1us", "positive number of whole microseconds"),
        ("5/-1s", 'write "5/s"'),
        ("5/1.2.3s", 'write "5/s"'),
        ("1000/month", "30 days"),
        ("1 per year", '"year"'),
        ("3/mo", '"month"'),
        ("3/2 yr", '"year"'),
        ("5//s", "more than one rate"),
        ("nan/s", 'write "5/s"'),
        ("٣/s", 'write "5/s"'),
        ("5/s" + " " * 100, 'write "5/s"'),
        ("9" * 100 + "/s", 'write "5/s"'),
    ],
)
def test_a_text_that_is_no_rate(written: str, says: str):
    """C157, C161, C196: the text is quoted and what is wrong is said, when the rate is made."""
    with pytest.raises(RateError) as caught:
        Rate.parse(written)

    assert says in str(caught.value)
    assert repr(written)[:40] in str(caught.value)


@pytest.mark.parametrize("given_", [5, 0.5, Decimal(5), Fraction(1, 2), 10**40])
def test_a_bare_number_is_no_rate(given_: object):
    """C158: a number without a period is an error that says how to add one."""
    with pytest.raises(RateError, match="needs a period"):
        Rate.parse(given_)  # type: ignore[arg-type]  # what the test is about


@pytest.mark.parametrize(
    "given_", [None, ["1/second"], ("1/second",), [Rate(1)], True, b"5/s", {"5/s"}, object()]
)
def test_one_rate_is_not_several(given_: object):
    """C160: a list of rates, None, bytes, a truth value: each is an error that shows a rate."""
    with pytest.raises(RateError, match='for instance "5/s"'):
        Rate.parse(given_)  # type: ignore[arg-type]  # what the test is about


def test_a_parsed_rate_is_taken_as_it_is():
    """C160: where a text is taken, a rate is too."""
    rate = Rate(5)

    assert Rate.parse(rate) is rate


def test_rates_are_equal_if_the_work_per_time_is():
    """60/min is 1/s: equal, of one hash, and still printed as each was written."""
    a, b = Rate(60, "1min"), Rate.parse("1/s")

    assert a == b
    assert hash(a) == hash(b)
    assert (str(a), str(b)) == ("60/min", "1/s")
    assert a != Rate(61, "1min")
    assert a != "60/min"


def test_a_third_per_second():
    """What no decimal writes is kept exactly, as one per three seconds."""
    assert str(Rate(Fraction(1, 3))) == "1/3s"
    assert Rate(Fraction(1, 3)) == Rate(1, "3s")


@pytest.mark.parametrize(
    "tokens", [-1, -0.5, float("nan"), float("inf"), True, "5", None, Decimal("NaN"), Decimal("sNaN")]
)
def test_a_rate_of_no_number(tokens: object):
    """Negative, infinite, not a number: refused when the rate is made."""
    with pytest.raises(LimitError):
        Rate(tokens)  # type: ignore[arg-type]  # what the test is about


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda rate: pickle.loads(pickle.dumps(rate))])
def test_a_rate_is_a_value(copied):
    """Copies are equal, and none can be changed."""
    rate = copied(Rate(300, "5min"))

    assert rate == Rate(1)
    assert str(rate) == "300/5min"
    assert eval(repr(rate)) == rate
    with pytest.raises(AttributeError, match="make a new one"):
        rate.tokens = 5


tokens = st.one_of(
    st.integers(0, 10**12),
    st.fractions(0, 10**6, max_denominator=10**6),
    st.decimals(0, 10**9, places=6),
    st.floats(0, 1e9, allow_nan=False),
)


@given(tokens, st.integers(1, 10**15))
def test_a_printed_rate_reads_back(amount, per_us: int):
    """C158: whatever the numbers, str and repr read back to an equal rate."""
    try:
        rate = Rate(amount, timedelta(microseconds=per_us))
    except RateError:  # too many digits: the test above
        assume(False)

    assert Rate.parse(str(rate)) == rate
    assert eval(repr(rate)) == rate
    assert rate.per_microsecond == exact(amount) / per_us


@pytest.mark.parametrize("amount", [10**70, Fraction(1, 10**70), Fraction(10**40 + 1, 10**40)])
def test_a_rate_that_cannot_be_written(amount: int | Fraction):
    """What exists can be printed and read back, so a number with too many digits is refused."""
    with pytest.raises(RateError, match="too many digits"):
        Rate(amount)


@pytest.mark.parametrize(
    ("written", "us"),
    [
        ("50ms", 50_000),
        ("10min", 600 * S),
        ("1 h", 3_600 * S),
        ("2 days", 172_800 * S),
        ("1.5s", 1_500_000),
        ("3us", 3),
        ("3µs", 3),
        ("3\u03bcs", 3),
        ("1 week", 604_800 * S),
        ("0.001 ms", 1),
        (timedelta(days=1, microseconds=1), 86_400 * S + 1),
        (5, 5 * S),
        (0.1, 100_000),
        (Decimal("0.000001"), 1),
        (Fraction(1, 4), 250_000),
    ],
)
def test_a_duration_is_read(written, us: int):
    """Texts with a unit, timedeltas, and numbers of seconds, to the microsecond."""
    assert duration_us(written) == us


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("10", "a number and a unit"),
        ("min", "a number and a unit"),
        ("-5s", "a number and a unit"),
        ("", "a number and a unit"),
        ("5 parsecs", "'parsecs' is unknown"),
        ("1 month", "30 days"),
        ("0s", "longer than zero"),
        (0, "longer than zero"),
        (-1, "longer than zero"),
        (timedelta(seconds=-1), "longer than zero"),
        ("0.5us", "whole number of microseconds"),
        (1e-7, "whole number of microseconds"),
        (float("nan"), "as seconds"),
        (float("inf"), "as seconds"),
        (True, "as seconds"),
        (None, "as seconds"),
        ([1], "as seconds"),
        ("1" * 70 + "s", "a number and a unit"),
    ],
)
def test_a_thing_that_is_no_duration(written, says: str):
    """Each is an error that names what was being read, the value, and the way out."""
    with pytest.raises(RateError) as caught:
        duration_us(written, "window")

    assert says in str(caught.value)
    assert str(caught.value).startswith("window is ")


@given(st.integers(1, 10**17))
def test_a_printed_duration_reads_back(us: int):
    """A length of time in its largest whole unit is the same length."""
    assert duration_us(duration_text(us)) == us


@pytest.mark.parametrize(
    ("cost", "thousandths"),
    [
        (1, 1000),
        (0, 0),
        (0.1, 100),
        (2.5, 2500),
        (0.3, 300),
        (Decimal("0.001"), 1),
        (Fraction(7, 8), 875),
        (10**30, 10**33),
        (1e-3, 1),
    ],
)
def test_a_cost_is_whole_thousandths(cost, thousandths: int):
    """C087: floats count as their shortest decimal says, so ten tenths are one."""
    assert milli(cost) == thousandths


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (-1, "must not be negative. To give back, use refund()"),
        (-0.001, "must not be negative"),
        (Decimal(-5), "must not be negative"),
        (0.0001, "round it to three decimals"),
        (Fraction(1, 3), "round it to three decimals"),
        (0.1 + 0.2, "round it to three decimals"),
        (float("nan"), "must be finite"),
        (float("inf"), "must be finite"),
        (float("-inf"), "must be finite"),
        (Decimal("Infinity"), "must be finite"),
        (Decimal("NaN"), "must be finite"),
        (True, "write a number"),
        (None, "write a number"),
        ("1", "write a number"),
        (1j, "write a number"),
        ([1], "write a number"),
    ],
)
def test_a_thing_that_is_no_cost(cost, says: str):
    """C082, C087: never cut to 0, never raised to 1, never negative: an error that says what to do."""
    with pytest.raises(CostError) as caught:
        milli(cost)

    assert says in str(caught.value)


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**12))
def test_div_ceil_rounds_up(numerator: int, denominator: int):
    """The smallest whole number that is not below the quotient."""
    quotient = div_ceil(numerator, denominator)

    assert quotient - 1 < Fraction(numerator, denominator) <= quotient


@pytest.mark.parametrize(
    ("us", "whole"),
    [(0, 0), (1, 1), (S, 1), (2 * S, 2), (7 * S, 7), (2_001_000, 3), (1_999_000, 2), (2_200_000, 3)],
)
def test_header_seconds_round_up(us: int, whole: int):
    """C053, C054: up, but whole seconds are left alone, and 0 only for 0."""
    assert header_seconds(us) == whole


def test_instants_are_whole_microseconds():
    """C032: seconds on a clock become whole microseconds exactly; finer ones are an error."""
    stamps = [1_234_567 + Fraction(us, S) for us in (999, 1_000, 99_999, 100_000)]

    assert [instant_us(stamp) - instant_us(stamps[0]) for stamp in stamps] == [0, 1, 99_000, 99_001]
    assert seconds(1_234_567_000_999) == 1234567.000999
    with pytest.raises(LimitError, match="whole microseconds"):
        instant_us(1e-7)


@given(st.one_of(st.integers(-(10**14), 10**14), st.decimals(-(10**9), 10**9, places=9)), st.integers(1, 30))
def test_a_number_is_printed_whatever_the_decimal_context(value, precision: int):
    """What is printed is the number itself, even where a caller's thread works with few digits."""
    number = Fraction(value)
    with decimal.localcontext() as context:
        context.prec = precision
        context.traps[decimal.Inexact] = True
        written = decimal_text(number)

    assert Fraction(written) == number
    assert "e" not in written.lower()


@pytest.mark.parametrize("text", ["1e10000000", "1e-10000000", "-1e999999"])
def test_numbers_beyond_counting_are_refused_at_once(text):
    """A decimal with a huge exponent is an error, and takes no time to be one."""
    with pytest.raises(LimitError, match="more digits"):
        exact(Decimal(text))
