"""One count for each window: of one length from the epoch on, or a calendar unit in a zone."""

from __future__ import annotations

from conformance.stories import calendar_units
from conformance.stories.telling import (
    NEVER,
    Json,
    case,
    fixed,
    many,
    no,
    peek,
    us_text,
    yes,
)

ABOUT = (
    "Fixed windows and calendar windows: days of 23 and 25 hours, missing and doubled midnights, leap "
    "days, year ends."
)
HOUR, DAY = 3600, 86_400


def cases() -> list[Json]:
    return [*_of_one_length(), *calendar_units.cases()]


def _of_one_length() -> list[Json]:
    return [
        case(
            "retry-after is the end of the window",
            "In the last five seconds it is small and never 0; at the end the spend is admitted.",
            ["C055"],
            fixed(2, "60s"),
            [
                many(0, 2, 2),
                [
                    no(us_text(55_000_000 + i * 100_000), retry=us_text(5_000_000 - i * 100_000))
                    for i in range(50)
                ],
                no("59.999999", retry="0.000001"),
                yes(60, left=1),
            ],
        ),
        case(
            "the full hour is refused",
            "The count lives until its window ends.",
            ["C043"],
            fixed(100, "1h"),
            [many(0, 100, 100), [no(60 * i, retry=HOUR - 60 * i) for i in range(1, 59)], yes(HOUR, left=99)],
        ),
        case(
            "up to twice the limit across a boundary",
            "Five at the end of a window and five at the start of the next.",
            [],
            fixed(5, "10s"),
            [many("9.999999", 6, 5, retry="0.000001"), many(10, 6, 5, retry=10)],
        ),
        case(
            "reset is at most the window away",
            "After the first spend, and as the window ends.",
            ["C063"],
            fixed(10, "60s"),
            [
                yes("2026-11-30T18:00:00Z", reset=60),
                yes("2026-11-30T18:00:59.5Z", reset="0.5"),
                peek("2026-11-30T18:01:00Z", left=10, reset=0),
            ],
        ),
        case(
            "a refused spend consumes nothing",
            "Smaller costs pass after a larger one was refused.",
            ["C016"],
            fixed(10, "1h"),
            [yes(0, 8, left=2), no(0, 5, left=2), yes(0, left=1), yes(0, left=0), no(0, left=0)],
        ),
        case(
            "the first result is complete",
            "Cost 3 of 10: remaining 7, and when the window ends.",
            ["C065"],
            fixed(10, "60s"),
            [yes(10, 3, left=7, retry=0, reset=50)],
        ),
        case(
            "six a minute is six in each minute",
            "Six at once, and six a minute later.",
            ["C097"],
            fixed(6, "60s"),
            [many(0, 6, 6), many(60, 6, 6)],
        ),
        case(
            "a cost above the limit never passes",
            "However long one waits.",
            ["C075"],
            fixed(10, "60s"),
            [no(0, 11, left=10, retry=NEVER), yes(0, 5), no(0, 11, left=5, retry=NEVER), no(0, 6, retry=60)],
        ),
        case(
            "fractions are counted",
            "Four times 2.5 is ten.",
            ["C087"],
            fixed(10, "60s"),
            [[yes(0, "2.5") for _ in range(4)], no(0, "2.5"), no(0, "0.001", left=0)],
        ),
        case(
            "ten tenths are one",
            "Tenths do not drift.",
            ["C087"],
            fixed(1, "60s"),
            [many(0, 11, 10, cost="0.1")],
        ),
        case(
            "a day in UTC, whatever the process",
            "Two and two: it ends at midnight UTC.",
            ["C191"],
            fixed(2, "86400s"),
            [
                many("2026-11-30T23:30:00Z", 4, 2, retry=1800),
                many("2026-12-01T00:30:00Z", 4, 2, retry=23.5 * HOUR),
            ],
        ),
        case(
            "five hours are five hours",
            "Windows of 18,000 s count from the epoch, across the change of a clock too.",
            ["C192"],
            fixed(5, "18000s"),
            [
                many("2026-03-28T23:00:00Z", 6, 5, retry=2 * HOUR),
                many("2026-03-29T01:00:00Z", 6, 5, retry=5 * HOUR),
                no("2026-03-29T05:59:59.999999Z"),
                yes("2026-03-29T06:00:00Z"),
            ],
        ),
        case(
            "thirty days",
            "A long window works: five, and no more for 2,592,000 s.",
            ["C094"],
            fixed(5, "2592000s"),
            [
                many(0, 6, 5, retry=2_592_000),
                [no(i, retry=2_592_000 - i) for i in range(1, 61)],
                no("2591999.999999"),
                yes(2_592_000),
            ],
        ),
        case(
            "a window of 1e9 s",
            "Thirty-one years are a window like any other.",
            ["C094"],
            fixed(5, "1000000000s"),
            [many(0, 6, 5, retry=10**9), no(999_999_999, retry=1), many(10**9, 6, 5)],
        ),
        case(
            "a limit of 0 is an error",
            "A limit must allow something.",
            ["C085"],
            fixed(0, "60s"),
            [],
            rejected=True,
        ),
        case(
            "long pauses begin a window",
            "Nothing is carried over windows that were empty.",
            [],
            fixed(2, "10s"),
            [many(5, 3, 2), many(1_000_005, 3, 2, retry=5)],
        ),
        case(
            "windows before 1970",
            "Instants before the epoch are in windows too.",
            [],
            fixed(2, "10s"),
            [many(-1, 3, 2, retry=1), many(0, 3, 2, retry=10)],
        ),
    ]
