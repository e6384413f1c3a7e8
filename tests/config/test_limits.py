# What a limit in a file may say, and what is said about one that cannot be used.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.written import bucket, fits, loaded, said, with_limit
from tidegate import FixedWindow, LeakyBucket, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.core.limits import Limit

LIMITS = [
    ("{algorithm: token_bucket, capacity: 20, rate: 5/s}", TokenBucket(20, "5/s")),
    ("{algorithm: token_bucket, capacity: 2.5, rate: 0/s}", TokenBucket(2.5, "0/s")),
    ("{algorithm: leaky_bucket, capacity: 20, rate: 300 per 5 min}", LeakyBucket(20, "300 per 5 min")),
    ("{algorithm: leaky_queue, capacity: 20, rate: 5/s}", LeakyQueue(20, "5/s")),
    (
        "{algorithm: leaky_queue, capacity: 21, rate: 10/s, first_release: interval, delay_after: 8}",
        LeakyQueue(21, "10/s", "interval", 8),
    ),
    ("{algorithm: sliding_log, limit: 5, window: 10min}", SlidingLog(5, "10min")),
    ("{algorithm: fixed_window, limit: 100, window: 1 h}", FixedWindow(100, "1 h")),
    (
        "{algorithm: fixed_window, limit: 100, window: month, zone: Europe/Berlin}",
        FixedWindow(100, "month", "Europe/Berlin"),
    ),
    ("{algorithm: sliding_window, limit: 10.5, window: 30 days}", SlidingWindow(10.5, "30 days")),
]


@pytest.mark.parametrize(("written", "limit"), LIMITS)
def test_a_limit_is_what_its_table_says(tmp_path: Path, written: str, limit: Limit):
    """Each algorithm of the file makes the limit of the library with the same numbers."""
    (rule,) = loaded(tmp_path, with_limit(written)).policy

    assert rule.limit == limit


@pytest.mark.parametrize(
    ("rate", "same"),
    [
        ("1/2 seconds", "1/2s"),
        ("1 per 2 second", "1/2s"),
        ("5/30s", "5/30s"),
        ("5 / 30 s", "5/30s"),
        ("5/30seconds", "5/30s"),
        ("100 per 15 minutes", "100/15min"),
        ("10 per week", "10/7 days"),
        ("0.5/s", "1/2s"),
    ],
)
def test_rates_are_read_like_those_of_the_library(tmp_path: Path, rate: str, same: str):
    """C158, C196: the documented forms mean one rate, a week is seven days, a printed limit reads back."""
    (rule,) = loaded(tmp_path, bucket(rate=rate)).policy
    assert rule.limit == TokenBucket(20, same)

    (again,) = loaded(tmp_path, bucket(rate=str(rule.limit.rate))).policy
    assert again.limit == rule.limit


CAPACITIES = [
    (
        "0",
        (
            "capacity is 0; a limit must allow something. To block, give the rule mode: deny; "
            "to allow all, mode: bypass"
        ),
    ),
    (
        "0.0",
        (
            "capacity is 0.0; a limit must allow something. To block, give the rule mode: deny; to "
            "allow all, mode: bypass"
        ),
    ),
    ("-1", "capacity is -1; it must not be negative"),
    ("0.0001", "capacity is 0.0001; tokens are counted in thousandths…"),
    ("true", "capacity is true; write one number, for instance capacity: 20"),
    ('"20"', 'capacity is "20"; that is text; write the number without quotes: capacity: 20'),
    ("20/s", 'capacity is "20/s"; write the number alone (capacity: 20), without a period'),
    ("many", 'capacity is "many"; write one number, for instance capacity: 20'),
    ("[20]", "capacity is a list; write one number, for instance capacity: 20"),
    ("{}", "capacity is an empty table; write one number, for instance capacity: 20"),
    ("", "capacity is empty; write one number, for instance capacity: 20"),
    (
        "{env: CAPACITY}",
        (
            "capacity is {env: CAPACITY}; the environment is read for addresses and secrets only. "
            "Here write one number, for instance capacity: 20"
        ),
    ),
    (
        "99999999999999999999",
        "capacity 99999999999999999999 at 5/s does not fit…",
    ),
]


@pytest.mark.parametrize(("capacity", "message"), CAPACITIES)
def test_a_bad_capacity_says_what_to_write(tmp_path: Path, capacity: str, message: str):
    """C085: capacity 0 is an error that names both ways out, and so is whatever is no amount of tokens."""
    (line,) = said(tmp_path, bucket(capacity))

    assert fits(line, f"policy.yaml:4: rules.a.limit.capacity: {message}")


RATES = [
    ("5", "rate is 5; a rate needs a period; write for instance rate: 5/s or 5/min"),
    ("5.5", "rate is 5.5; a rate needs a period; write for instance rate: 5.5/s or 5.5/min"),
    ("2000", "rate is 2000; a rate needs a period; write for instance rate: 2000/s or 2000/min"),
    ('"2000"', "rate is '2000'; a rate needs a period…"),
    ("[5/s]", "rate is a list; write one rate, for instance rate: 5/s, or 300 per 5 min"),
    ("[5/s, 100/min]", "rate is a list; write one rate, for instance rate: 5/s, or 300 per 5 min"),
    ("", "rate is empty; write one rate, for instance rate: 5/s, or 300 per 5 min"),
    ("true", "rate is true; write one rate, for instance rate: 5/s, or 300 per 5 min"),
    (
        "1000/month",
        (
            'rate is "1000/month"; a month has no fixed length. Write days (1000/30 days), '
            "or count by the calendar: {algorithm: fixed_window, limit: ..., window: month}"
        ),
    ),
    (
        "1000 per year",
        (
            'rate is "1000 per year"; a year has no fixed length. Write days (1000 per 365 days), '
            "or count by the calendar: {algorithm: fixed_window, limit: ..., window: year}"
        ),
    ),
    ("10/horu", "rate is '10/horu'; the unit 'horu' is unknown…"),
    (
        "10 per fortnight",
        "rate is '10 per fortnight'; the unit 'fortnight' is unknown…",
    ),
    ("10/", "rate is '10/'; the period is missing…"),
    (
        "/minute",
        "rate is '/minute'; the number of tokens is missing…",
    ),
    ("ten/minute", "rate is 'ten/minute'…"),
    (
        "10/minute/second",
        "rate is '10/minute/second'; that is more than one rate…",
    ),
    (
        "10/minute;4/second",
        "rate is '10/minute;4/second'; that is more than one rate…",
    ),
    ('"10,5/minute"', "rate is '10,5/minute'…"),
    ("-1/minute", "rate is '-1/minute'; it must not be negative"),
    ("1e3/minute", "rate is '1e3/minute'…"),
    ('""', "rate is ''; it is empty…"),
    ('" "', "rate is ' '; it is empty…"),
    (
        "{env: RATE}",
        (
            "rate is {env: RATE}; the environment is read for addresses and secrets only. "
            "Here write one rate, for instance rate: 5/s, or 300 per 5 min"
        ),
    ),
]


@pytest.mark.parametrize(("rate", "message"), RATES)
def test_a_bad_rate_is_quoted_and_explained(tmp_path: Path, rate: str, message: str):
    """C097, C157, C158, C160, C161, C196: what is no single rate is an error that says what to write."""
    (line,) = said(tmp_path, bucket(rate=rate))

    assert fits(line, f"policy.yaml:4: rules.a.limit.rate: {message}")


WINDOWS = [
    ("window: 60", "window is 60; a length of time needs a unit; write for instance window: 60s or 60min"),
    ("window: [1h]", "window is a list; write one length of time, for instance window: 10min"),
    ("window: mounth", 'window is "mounth"; did you mean month?'),
    (
        "window: fortnight",
        'window is "fortnight"; write a length (10min) or second, minute, hour, day, week, month or year',
    ),
    (
        "window: 2 months",
        (
            'window is "2 months"; a month has no fixed length. Write days (60 days), '
            "or count by the calendar: {algorithm: fixed_window, limit: ..., window: month}"
        ),
    ),
    ("window: 0s", "window is '0s'; it must be longer than zero"),
]


@pytest.mark.parametrize(("window", "message"), WINDOWS)
def test_a_bad_window_says_what_to_write(tmp_path: Path, window: str, message: str):
    """A window needs a length with its unit or a calendar unit."""
    text = with_limit(f"{{algorithm: fixed_window, limit: 5, {window}}}")

    (line,) = said(tmp_path, text)

    assert fits(line, f"policy.yaml:4: rules.a.limit.window: {message}")


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ("limit: 2.5, window: 1h", "limit: limit is 2.5; a sliding log counts whole tokens"),
        (
            "limit: 5, window: month",
            (
                'window: window is "month"; a month has no fixed length. Write days (30 days), '
                "or count by the calendar: {algorithm: fixed_window, limit: ..., window: month}"
            ),
        ),
        ("limit: 5, window: day", 'window: window is "day"; write how many: window: 1 day'),
        (
            "limit: 1000/day, window: 1 day",
            'limit: limit is "1000/day"; write the number alone (limit: 1000), without a period',
        ),
    ],
)
def test_a_sliding_log_counts_whole_tokens_over_a_length(tmp_path: Path, numbers: str, problem: str):
    """C196: calendar units belong to fixed windows; a log has a whole limit and a length of time."""
    text = with_limit(f"{{algorithm: sliding_log, {numbers}}}")

    (line,) = said(tmp_path, text)

    assert fits(line, f"policy.yaml:4: rules.a.limit.{problem}")


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (
            "{algorithm: fixed_window, limit: 5, window: day, zone: Europe/Berln}",
            "zone: zone is 'Europe/Berln'; no such time zone is known here.",
        ),
        (
            "{algorithm: fixed_window, limit: 5, window: 1 h, zone: Europe/Berlin}",
            "zone: zone is 'Europe/Berlin' for a window of 1h; that is as long everywhere",
        ),
        (
            "{algorithm: leaky_queue, capacity: 5, rate: 0/s}",
            "rate: rate is 0; a line that does not drain would hold its work for ever",
        ),
        (
            "{algorithm: sliding_log, limit: 200000, window: 10min}",
            "limit: limit is 200000; a sliding log remembers every spend, so it is at most 100000.",
        ),
    ],
)
def test_numbers_that_do_not_fit_together_are_placed_at_their_key(tmp_path: Path, limit: str, problem: str):
    """What only the limit itself can see is reported at the key that it speaks of."""
    (line,) = said(tmp_path, with_limit(limit))

    assert fits(line, f"policy.yaml:4: rules.a.limit.{problem}…")


ONE_LIMIT = "{algorithm: token_bucket, capacity: 20, rate: 5/s}"


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ("10/s", f'.limit: limit is "10/s"; write a table, for instance {ONE_LIMIT}'),
        ("5", f".limit: limit is 5; write a table, for instance {ONE_LIMIT}"),
        (
            "[10/s]",
            (
                ".limit: limit is a list; a rule has one limit. Write one here, and one rule for each "
                "further limit"
            ),
        ),
        (
            f"[{ONE_LIMIT}]",
            (
                ".limit: limit is a list; a rule has one limit. Write one here, and one rule for each "
                "further limit"
            ),
        ),
        (
            "",
            f": limit is missing; write limit: {ONE_LIMIT}, or mode: deny to block, or mode: bypass…",
        ),
        ("{}", ".limit: algorithm is missing; write for instance algorithm: token_bucket"),
        (
            "{capacity: 20, rate: 5/s}",
            ".limit: algorithm is missing; write for instance algorithm: token_bucket",
        ),
        (
            "{algoritm: token_bucket, capacity: 20, rate: 5/s}",
            ".limit: unknown key 'algoritm'; did you mean 'algorithm'?",
        ),
        (
            "{algorithm: token_bukcet, capacity: 20}",
            '.limit.algorithm: algorithm is "token_bukcet"; did you mean token_bucket?',
        ),
        (
            "{algorithm: concurrency, limit: 5}",
            (
                '.limit.algorithm: algorithm is "concurrency"; write token_bucket, leaky_bucket, '
                "leaky_queue, sliding_log, fixed_window or sliding_window"
            ),
        ),
        (
            "{algorithm: token_bucket, rate: 5/s}",
            ".limit: capacity is missing; write for instance capacity: 20",
        ),
        (
            "{algorithm: token_bucket, capasity: 20, rate: 5/s}",
            ".limit: unknown key 'capasity'; did you mean 'capacity'?",
        ),
        (
            "{algorithm: token_bucket, capacity: 20, rate: 5/s, window: 1s}",
            (
                ".limit: unknown key 'window' in a token_bucket limit; it belongs to a sliding_log limit "
                "or a fixed_window limit"
            ),
        ),
        (
            "{algorithm: token_bucket, capacity: 20, rate: 5/s, zzz: 1}",
            ".limit: unknown key 'zzz'; the keys of a token_bucket limit are algorithm, capacity, rate",
        ),
    ],
)
def test_a_limit_of_the_wrong_shape_says_which_shape_is_right(tmp_path: Path, limit: str, problem: str):
    """C158, C160: one limit where one is wanted, as a table of its algorithm, with the capacity stated."""
    (line,) = said(tmp_path, with_limit(limit))

    assert fits(line, f"policy.yaml:{line[12]}: rules.a{problem}")
