"""Exact counting: what was spent at t stops counting at t + window."""

from __future__ import annotations

from conformance.stories.telling import (
    NEVER,
    Json,
    case,
    error,
    fixed,
    hit,
    log,
    many,
    no,
    peek,
    us_text,
    yes,
)

ABOUT = "The sliding log: never more than the limit in any stretch of the window's length."


def cases() -> list[Json]:
    return [
        case(
            "five one-time codes in any ten minutes",
            "Five at the end of one stretch of ten minutes leave none at the start of the next.",
            ["issue: SlidingLog(5, 10min)"],
            log(5, "10min"),
            [
                [yes(590 + i, left=4 - i) for i in range(5)],
                no(600, retry=590, left=0),
                no("1189.999999", retry="0.000001"),
                yes(1190, left=0),
                no(1190, retry=1),
                yes(1191, left=0),
            ],
        ),
        case(
            "the same arrivals in a fixed window",
            "Nine pass within eleven seconds across the boundary, up to twice the limit.",
            ["issue: SlidingLog(5, 10min)"],
            fixed(5, "10min"),
            [
                [yes(590 + i, left=4 - i) for i in range(5)],
                [yes(600 + i, left=4 - i) for i in range(5)],
                no(605, retry=595),
            ],
        ),
        case(
            "retry-after is when the oldest stops counting",
            "Two in a minute: at 20 the wait is 40 s, at 59 it is 1 s, at 60 the first has gone.",
            ["C056"],
            log(2, "60s"),
            [yes(0), yes(10), no(20, retry=40), no(59, retry=1), yes(60), no(60, retry=10)],
        ),
        case(
            "ten at one instant are ten",
            "Equal instants are separate entries.",
            ["C007"],
            log(3, "10s"),
            [many(0, 10, 3, retry=10), many("9.999999", 10, 0), many(10, 10, 3)],
        ),
        case(
            "ten within ten microseconds",
            "Each counts until its own microsecond.",
            ["C007"],
            log(3, "10s"),
            [
                [yes(us_text(i)) for i in range(3)],
                [no(us_text(i)) for i in range(3, 10)],
                yes(10),
                no(10, retry="0.000001"),
                yes("10.000001"),
                yes("10.000002"),
                no("10.000003", retry="9.999997"),
            ],
        ),
        case(
            "a refused spend consumes nothing",
            "Smaller costs pass after a larger one was refused.",
            ["C016"],
            log(10, "1h"),
            [yes(0, 8, left=2), no(0, 5, left=2, retry=3600), yes(0, left=1), yes(0, left=0), no(0, left=0)],
        ),
        case(
            "a tenth of a second apart, three a second",
            "Fifteen of fifty: three in each second and no more.",
            ["C044"],
            log(3, "1s"),
            [hit(us_text(i * 100_000), 1, i % 10 < 3) for i in range(50)],
        ),
        case(
            "the first result is complete",
            "Cost 3 of 10: remaining 7, and when it will all be back.",
            ["C065"],
            log(10, "60s"),
            [yes(0, 3, left=7, retry=0, reset=60)],
        ),
        case(
            "costs of several sizes expire one after another",
            "A cost of 6 needs both the 3 of 0 s and the 3 of 10 s gone; a cost of 2 only the first.",
            [],
            log(8, "60s"),
            [
                yes(0, 3),
                yes(10, 3),
                yes(20, 2, left=0),
                no(30, 2, retry=30),
                no(30, 6, retry=40),
                no(30, 8, retry=50),
                yes(70, 6, left=0, reset=60),
            ],
        ),
        case(
            "a cost above the limit never passes",
            "On an empty key and with 5 used; usage is unchanged.",
            ["C075"],
            log(10, "60s"),
            [no(0, 11, left=10, retry=NEVER), yes(0, 5), no(0, 11, left=5, retry=NEVER), yes(0, 5, left=0)],
        ),
        case(
            "charging 15 of 10, and 6 of 10",
            "What is above the limit is refused each time; the second 6 sees the first.",
            ["C079"],
            log(10, "60s"),
            [
                [no(0, 15, retry=NEVER) for _ in range(3)],
                yes(0, 6, left=4),
                no(0, 6, retry=60),
                no(1, 6, retry=59),
            ],
        ),
        case(
            "a fraction is an error",
            "A log counts whole tokens; it neither cuts to 0 nor raises to 1.",
            ["C087"],
            log(10, "60s"),
            [error(0, "0.5"), error(0, "2.5"), peek(0, left=10), yes(0, 10)],
        ),
        case(
            "five hours are five hours",
            "Across the change of a clock, local time plays no part.",
            ["C192"],
            log(5, "18000s"),
            [
                many("2026-03-28T23:00:00Z", 6, 5, retry=18000),
                no("2026-03-29T03:59:59.999999Z"),
                yes("2026-03-29T04:00:00Z"),
            ],
        ),
        case(
            "a log of 0 is an error",
            "A limit must allow something.",
            ["C085"],
            log(0, "60s"),
            [],
            rejected=True,
        ),
        case(
            "a log of 100,001 is an error",
            "A log keeps each spend, so the limit is bounded.",
            ["C095"],
            log(100_001, "60s"),
            [],
            rejected=True,
        ),
        case(
            "a log of 70,000",
            "Long logs answer like short ones.",
            ["C095"],
            log(70_000, "1day"),
            [
                yes(0, 35_000),
                yes(1, 35_000, left=0),
                no(2, retry=86_398),
                no(2, 35_001, retry=86_399),
                yes(86_400, 35_000, left=0),
            ],
        ),
    ]
