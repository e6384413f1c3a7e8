"""Cost 0, costs and rates that are tiny, huge, fractional, or never."""

from __future__ import annotations

from conformance.stories.telling import (
    NEVER,
    Json,
    bucket,
    case,
    error,
    fixed,
    log,
    many,
    meter,
    no,
    peek,
    queue,
    refund,
    reset,
    sliding,
    us_text,
    yes,
)

ABOUT = "The edges of the numbers."
HOUR, DAY = 3600, 86_400
YEAR = 365 * DAY


def cases() -> list[Json]:
    return [*_zero(), *_fractions(), *_huge(), *_slow(), *_odd_rates(), *_never()]


def _zero() -> list[Json]:
    kinds = [
        ("token bucket", bucket(2, "0/s")),
        ("fixed window", fixed(2, "1h")),
        ("sliding log", log(2, "1h")),
        ("sliding window", sliding(2, "1h")),
        ("leaky meter", meter(2, "1/s")),
        ("leaky queue", queue(2, "1/s")),
    ]
    return [
        case(
            f"cost 0: {name}",
            "Admitted and free when 2, 1 and 0 are left, and on a fresh key, a hundred times.",
            ["C081"],
            limit,
            [
                many(0, 100, 100, cost=0, left=2, retry=0, reset=0),
                yes(0, left=1),
                many(0, 100, 100, cost=0, left=1),
                yes(0, left=0),
                many(0, 100, 100, cost=0, left=0),
                no(0, 1, left=0),
            ],
        )
        for name, limit in kinds
    ]


def _fractions() -> list[Json]:
    return [
        case(
            "ten tenths are one",
            "Ten pass and the eleventh does not: no drift.",
            ["C087"],
            bucket(1, "0/s"),
            [many(0, 11, 10, cost="0.1", retry=NEVER)],
        ),
        case(
            "four times 2.5 is ten",
            "And the fifth does not pass.",
            ["C087"],
            bucket(10, "0/s"),
            [many(0, 5, 4, cost="2.5", left=0)],
        ),
        case(
            "a thousandth is the smallest cost",
            "A thousand of them are one; finer is an error.",
            [],
            bucket(1, "1/s"),
            [
                many(0, 1001, 1000, cost="0.001", retry="0.001"),
                error(0, "0.0005"),
                error(0, "0.0011"),
                peek(0, balance=0),
            ],
        ),
        case(
            "a negative cost is an error",
            "Refunds are what gives back.",
            ["C082"],
            bucket(10, "1/s"),
            [yes(0, 3), error(0, -1), error(0, "-0.001"), peek(0, left=7)],
        ),
        case(
            "a fractional capacity",
            "2.5 tokens are two and a half; remaining shows two.",
            [],
            bucket("2.5", "1/s"),
            [
                peek(0, left=2, balance="2.5"),
                yes(0, 2, left=0, balance="0.5"),
                yes(0, "0.5", balance=0),
                no(0, "2.501", retry=NEVER),
                yes("2.5", "2.5"),
            ],
        ),
        case(
            "a capacity of a hundredth",
            "Only fractions of a token ever pass.",
            [],
            bucket("0.01", "1/s"),
            [no(0, 1, retry=NEVER, left=0), yes(0, "0.01"), no(0, "0.01", retry="0.01")],
        ),
        case(
            "capacity 0 is an error",
            "A limit must allow something; to block, there are other ways.",
            ["C085"],
            bucket(0, "1/s"),
            [],
            rejected=True,
        ),
        case(
            "a negative capacity is an error",
            "Said when the limit is made.",
            ["C085"],
            bucket(-1, "1/s"),
            [],
            rejected=True,
        ),
    ]


def _huge() -> list[Json]:
    take = 10_000_000
    return [
        case(
            "ten million at ten million a second",
            "Full again after 12 hours, 10 days and 10 years.",
            ["C090"],
            bucket(take, f"{take}/s"),
            [
                [
                    [yes(at, take, left=0), no(at, 1, retry="0.000001"), yes(at + idle, left=take - 1)]
                    for at, idle in ((0, 12 * HOUR), (DAY, 10 * DAY), (30 * DAY, 10 * YEAR))
                ]
            ],
        ),
        case(
            "a million at a million a second",
            "Used up, then idle for 7 and for 300 days: at once.",
            ["C091"],
            bucket(1_000_000, "1000000/s"),
            [
                yes(0, 1_000_000),
                yes(7 * DAY, 1, left=999_999),
                yes(8 * DAY, 1_000_000, left=0),
                yes(308 * DAY, 1, left=999_999),
            ],
        ),
        case(
            "a microsecond of ten million a second is ten tokens",
            "Short times earn exactly.",
            [],
            bucket(take, f"{take}/s"),
            [
                yes(0, take),
                no(0, 11, retry="0.000002"),
                no("0.000001", 11, left=10),
                yes("0.000001", 10, left=0),
                peek("0.000003", left=20),
            ],
        ),
        case(
            "ten years late in a full bucket of 1,700 a month",
            "Far instants and slow rates together.",
            ["C090"],
            bucket(1700, "1/30day"),
            [
                many(0, 1701, 1700, retry=30 * DAY, reset=1700 * 30 * DAY),
                peek(10 * YEAR, left=121),
                yes(140 * YEAR, 1700, left=0),
            ],
        ),
        case(
            "far from the epoch",
            "Instants of the present in microseconds.",
            [],
            bucket(2, "1/s"),
            [
                many("2026-11-30T18:00:00Z", 3, 2, retry=1),
                no("2026-11-30T18:00:00.999999Z", retry="0.000001"),
                yes("2026-11-30T18:00:01Z"),
            ],
        ),
        case(
            "before the epoch",
            "Instants may be negative.",
            [],
            bucket(2, "1/s"),
            [many(-5, 3, 2, retry=1), many(-3, 3, 2, retry=1), many(0, 3, 2)],
        ),
    ]


def _slow() -> list[Json]:
    periods = [("1/10s", 10), ("1/day", DAY), ("1/30day", 30 * DAY), ("10/3day", 3 * DAY // 10)]
    return [
        case(
            f"capacity 1 at {rate}",
            "Refused a microsecond before the next is due, admitted at the moment.",
            ["C096"],
            bucket(1, rate),
            [
                yes(0, reset=due),
                no(0, retry=due),
                no(us_text(due * 1_000_000 - 1), retry="0.000001"),
                yes(due),
                no(due, retry=due),
            ],
        )
        for rate, due in periods
    ] + [
        case(
            "capacity 1,700 at 1/30day",
            "After a month exactly one more.",
            ["C096"],
            bucket(1700, "1/30day"),
            [
                yes(0, 1700, left=0),
                no(us_text(30 * DAY * 1_000_000 - 1), retry="0.000001"),
                yes(30 * DAY, left=0),
                no(30 * DAY, retry=30 * DAY),
            ],
        ),
    ]


def _odd_rates() -> list[Json]:
    return [
        case(
            "7 a second",
            "A seventh of a second is no whole number of microseconds: the wait is rounded up, the "
            "level is not.",
            [],
            bucket(1, "7/s"),
            [yes(0), no(0, retry="0.142858"), no("0.142857", retry="0.000001"), yes("0.142858")],
        ),
        case(
            "7 a second for a second",
            "Seven places of a seventh are one second exactly.",
            [],
            bucket(7, "7/s"),
            [
                yes(0, 7, reset=1),
                no("0.142857", 1),
                yes("0.142858", 1),
                no("0.285714", 1, retry="0.000001"),
                yes("0.285715", 1),
                yes(1, 5, left=0, reset=1),
                no(1, 7, retry=1),
                yes(2, 7),
            ],
        ),
        case(
            "a third a second",
            "In tokens that no decimal can write.",
            [],
            bucket(2, "1/3s"),
            [
                yes(0, 2),
                peek(1, balance="1/3"),
                peek(2, balance="2/3"),
                no(2, 1, retry=1),
                yes(3, 1, balance=0),
            ],
        ),
        case(
            "166.666 a second",
            "1,000,000 / 166.666 us is 6000.024 us.",
            ["C030"],
            bucket(1, "166.666/s"),
            [yes(0), no(0, retry="0.006001"), no("0.006", retry="0.000001"), yes("0.006001")],
        ),
        case(
            "80,000 a second",
            "12.5 us each: two are 25 us.",
            ["C037"],
            bucket(2, "80000/s"),
            [
                yes(0, 2),
                no(0, retry="0.000013"),
                no("0.000012", retry="0.000001"),
                yes("0.000013", balance="0.04"),
                no("0.000024", retry="0.000001"),
                yes("0.000025", balance=0),
            ],
        ),
        case(
            "200,000 a second",
            "5 us each; short intervals do not round to zero.",
            ["C036"],
            bucket(1, "200000/s"),
            [yes(0), [no(us_text(i)) for i in range(1, 5)], yes("0.000005"), no("0.000009"), yes("0.00001")],
        ),
        case(
            "a million and one in a second",
            "Faster than the clock ticks: one each microsecond, and the rest is lost at a capacity of 1.",
            [],
            bucket(1, "1000001/s"),
            [yes(0), no(0, retry="0.000001"), yes("0.000001"), no("0.000001"), yes("0.000002")],
        ),
        case(
            "0.4 with 0.12",
            "Decimals of every size.",
            [],
            bucket("1.2", "0.07/s"),
            [
                yes(0, "1.2"),
                no(0, "0.001", retry="0.014286"),
                no("0.014285", "0.001"),
                yes("0.014286", "0.001"),
                no(10, "0.7", retry="0.014286"),
            ],
        ),
    ]


def _never() -> list[Json]:
    return [
        case(
            "rate 0 is a budget",
            "One passes, 999 never do.",
            ["C086"],
            bucket(1, "0/s"),
            [many(0, 1000, 1, retry=NEVER, reset=NEVER), no(10 * YEAR, retry=NEVER), reset(), yes(10 * YEAR)],
        ),
        case(
            "rate 0, refilled by giving back",
            "Only a refund or a reset refills it.",
            ["C086"],
            bucket(2, "0/s"),
            [
                yes(0, 2, reset=NEVER),
                no(DAY, 1, retry=NEVER),
                refund(DAY, 0, 1, returned=1),
                yes(DAY, 1, left=0),
            ],
        ),
        case(
            "a cost above the capacity is never",
            "Not with all the time, and it takes nothing.",
            ["C060", "C076"],
            bucket(5, "1000/s"),
            [no(0, "5.001", retry=NEVER, left=5), yes(0, 5), no(0, 5, retry="0.005"), no(0, 6, retry=NEVER)],
        ),
    ]
