"""Clocks that stand still, go back a little or a lot, and leap."""

from __future__ import annotations

from conformance.stories.telling import (
    NEVER,
    Json,
    bucket,
    case,
    fixed,
    log,
    many,
    meter,
    no,
    peek,
    queue,
    refund,
    sliding,
    yes,
)

ABOUT = "Time going back, standing still or leaping neither grants credit nor locks a key."
YEAR = 31_536_000


def cases() -> list[Json]:
    return [*_of_levels(), *_of_windows()]


def _of_levels() -> list[Json]:
    return [
        case(
            "a refusal does not move the newest instant",
            "It changes nothing, so the clock may come back to before it, and no time has passed.",
            [],
            bucket(10, "1/s"),
            [yes(100, 10), no(105, 10, balance=5, retry=5), no(95, balance=0, retry=6), peek(101, balance=1)],
        ),
        case(
            "a fresh key has no newest instant",
            "All was given back, so a store may have forgotten the key: a clock behind tells no lag.",
            [],
            bucket(10, "1/s"),
            [yes(100, 4), refund(100, 0, 4, returned=4), yes(95, 1, left=9, reset=1), peek(96, left=10)],
        ),
        case(
            "a clock that jumps between 89 and 100",
            "All refused; the hint is the step back plus what is missing, never more than 12 s.",
            ["C023"],
            bucket(10, "1/s"),
            [
                many(100, 10, 10),
                [[no(89, left=0, retry=12, reset=21), no(100, left=0, retry=1, reset=10)] for _ in range(4)],
                no("100.999999", retry="0.000001"),
                yes(101),
            ],
        ),
        case(
            "a late time counts as the newest time seen",
            "1090 at the end and not 1190: the look back at 9 earns nothing twice.",
            ["C024"],
            bucket(100_000, "100/s"),
            [
                yes(0, 100_000, left=0),
                yes(10, 10, left=990),
                peek(9, left=990),
                yes(9, 0, left=990),
                peek(11, left=1090),
            ],
        ),
        case(
            "a clock that stands still",
            "Nothing is earned while no time passes.",
            [],
            bucket(3, "1000/s"),
            [many(7, 1000, 3, retry="0.001"), no(7), yes("7.001")],
        ),
        case(
            "a second back freezes the drain",
            "The key earns again when the clock is where it was.",
            [],
            bucket(2, "1/s"),
            [many(10, 2, 2), no(9, retry=2, reset=3), no(10, retry=1), no("9.5", retry="1.5"), yes(11)],
        ),
        case(
            "an admission at an earlier time counts at the newest",
            "The level is kept at the newest instant seen.",
            [],
            bucket(5, "1/s"),
            [
                yes(10, 2, left=3, reset=2),
                yes(5, 2, left=1, reset=9),
                peek(10, left=1),
                peek(11, left=2),
                no(8, 2, retry=3),
            ],
        ),
        case(
            "sixty seconds back is still a freeze",
            "One step of exactly 60 s: no time passes for a minute.",
            [],
            bucket(2, "1/s"),
            [many(100, 2, 2), no(40, retry=61, reset=62), no(99, retry=2), no(100, retry=1), yes(101)],
        ),
        case(
            "more than sixty seconds back moves the key",
            "Nothing is granted and nothing forgiven, and the key earns from now on.",
            [],
            bucket(2, "1/s"),
            [
                many(100, 2, 2),
                no("39.999999", left=0, retry=1, reset=2),
                no("40.999998", retry="0.000001"),
                yes("40.999999", left=0),
                peek("41.999999", left=1),
            ],
        ),
        case(
            "a year back locks nobody",
            "The hint is as if the clock had never moved.",
            [],
            bucket(10, "1/s"),
            [
                many(YEAR, 10, 10),
                no(0, retry=1, reset=10),
                yes(1, left=0),
                no(1, 2, retry=2),
                peek(11, left=10),
            ],
        ),
        case(
            "a look at a clock far back moves nothing",
            "Only a hit writes; the look answers what the hit would.",
            [],
            bucket(2, "1/s"),
            [
                many(1000, 2, 2),
                peek(0, 1, False, retry=1),
                peek(100, 1, False, retry=1),
                no(1000, retry=1),
                yes(1001),
            ],
        ),
        case(
            "an admission far back",
            "What was used is kept, and the cost is added to it.",
            [],
            bucket(10, "1/s"),
            [yes(1000, 4, left=6), yes(0, 3, left=3, reset=7), peek(7, left=10, reset=0)],
        ),
        case(
            "back and forward again",
            "A leap forward after a step back earns what has passed since, and not above the capacity.",
            [],
            bucket(10, "1/s"),
            [many(1000, 10, 10), no(0), yes(3, 3, left=0), yes(1000, 10, left=0), no(1000, retry=1)],
        ),
        case(
            "seconds and microseconds are one whole number",
            "Readings of 999 us, 1000 us, 99999 us and 100000 us of a second are 1, 98999 and 1 us apart.",
            ["C032"],
            bucket(1000, "1000000/s"),
            [
                yes("1234567.000999", 1000),
                yes("1234567.001", 1, left=0),
                yes("1234567.001", "0", left=0),
                yes("1234567.099999", 1000, left=0),
                no("1234567.1", 2, left=1, retry="0.000001"),
            ],
        ),
        case(
            "a leap of ten years",
            "The bucket is full, and not fuller.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10), yes(10 * YEAR, 10, left=0, reset=10), no(10 * YEAR, retry=1)],
        ),
        case(
            "without a rate a step back changes nothing",
            "There is nothing to freeze.",
            [],
            bucket(2, "0/s"),
            [
                many(100, 3, 2, retry=NEVER),
                no(50, retry=NEVER, reset=NEVER),
                no(0, retry=NEVER, reset=NEVER),
                no(10**6, retry=NEVER),
            ],
        ),
        case(
            "a meter far back",
            "The same for the water.",
            [],
            meter(2, "1/s"),
            [many(100, 2, 2), no(90, retry=11), no(0, retry=1), yes(1)],
        ),
        case(
            "a line whose clock is two seconds back",
            "Who must wait waits the step too; who need not wait does not.",
            [],
            queue(5, "1/s"),
            [yes(10, wait=0), yes(8, wait=3), yes(8, wait=4), yes(20, wait=0)],
        ),
        case(
            "a line that is allowed to run ahead, two seconds back",
            "A wait of 0 stays 0.",
            [],
            queue(5, "1/s", delay_after=2),
            [yes(10, wait=0), yes(8, wait=0), yes(8, wait=0), yes(8, wait=3), yes(8, wait=4), no(8, retry=3)],
        ),
        case(
            "a line far back",
            "The line starts to drain from now.",
            [],
            queue(3, "1/s"),
            [many(100, 3, 3), no(0, retry=1), yes(1, wait=2)],
        ),
    ]


def _of_windows() -> list[Json]:
    return [
        case(
            "a log whose clock goes back",
            "What was spent is still counted, until the clock is past it.",
            [],
            log(2, "10s"),
            [
                yes(100),
                yes(95),
                no(95, retry=15, reset=15),
                no(100, retry=10),
                no("109.999999"),
                many(110, 3, 2),
            ],
        ),
        case(
            "a log far back",
            "All that counted counts from now on.",
            [],
            log(3, "10s"),
            [
                yes(95),
                yes(100),
                yes(0, left=0, reset=10),
                no(5, retry=5),
                no("9.999999", 3, retry="0.000001"),
                yes(10, 3),
            ],
        ),
        case(
            "a refusal far back moves the log too",
            "The key is free one window after the refusal.",
            [],
            log(2, "10s"),
            [many(1000, 2, 2), no(0, retry=10), no(5, retry=5), many(10, 3, 2)],
        ),
        case(
            "a window whose clock goes back over its start",
            "The newer window is the one that counts.",
            [],
            fixed(2, "10s"),
            [
                many(10, 3, 2, retry=10),
                no("9.999999", retry="10.000001", reset="10.000001"),
                no(0, retry=20),
                many(20, 3, 2),
            ],
        ),
        case(
            "an admission in the window before counts in the newer one",
            "A late time counts as the newest time seen.",
            [],
            fixed(3, "10s"),
            [yes(12, left=2), yes(9, left=1, reset=11), yes(15, left=0), no(15, retry=5)],
        ),
        case(
            "a window far back",
            "The count is kept in the window that is now.",
            [],
            fixed(2, "10s"),
            [many(1000, 2, 2), no(5, retry=5), many(10, 3, 2)],
        ),
        case(
            "a calendar day far back",
            "The count is kept in the day that is now.",
            [],
            fixed(2, "day", "Europe/Berlin"),
            [
                many("2026-06-10T12:00:00Z", 2, 2),
                no("2026-06-01T12:00:00Z", retry=36_000),
                yes("2026-06-01T22:00:00Z"),
            ],
        ),
        case(
            "two counters, ten seconds back",
            "Nothing weighs less while the clock is behind.",
            [],
            sliding(10, "10s"),
            [
                yes(5, 10),
                no(11, 2, retry=1),
                yes(11, 1, left=0),
                no(8, 1, retry=4),
                no(11, 1, retry=1),
                yes(12, 1),
            ],
        ),
        case(
            "two counters far back",
            "What is used is kept as the count of the window that is now.",
            [],
            sliding(10, "10s"),
            [
                yes(995, 10),
                yes(1005, 5, left=0),
                no(2, 1, retry=9),
                no("10.999999", 1, retry="0.000001"),
                yes(11, 1),
            ],
        ),
        case(
            "a clock that stands still in a log",
            "Many at one instant, none more.",
            [],
            log(3, "10s"),
            [many(5, 100, 3, retry=10)],
        ),
    ]
