"""Part of the refunds: reservations that settle for less or more, and debts."""

from __future__ import annotations

from conformance.stories.telling import (
    NEVER,
    Json,
    bucket,
    case,
    change,
    no,
    peek,
    refund,
    settle,
    yes,
)


def cases() -> list[Json]:
    return [
        case(
            "reserve 30, settle at 12; reserve 30, settle at 50; reserve 30, settle at 60",
            "The third overdraws; then all are refused until it is paid back.",
            ["C089"],
            bucket(100, "0/s"),
            [
                yes(0, 30),
                settle(0, 0, 12, returned=18),
                peek(0, left=88),
                yes(0, 30, left=58),
                settle(0, 3, 50, returned=-20),
                peek(0, left=38),
                yes(0, 30, left=8),
                settle(0, 6, 60, returned=-30),
                peek(0, balance=-22, left=0),
                no(0, 1, retry=NEVER, left=0),
                refund(0, 3, 30, returned=30),
                peek(0, balance=8),
            ],
        ),
        case(
            "a debt is paid back by time",
            "Balance -20; half a second later five may be taken, and no sixth.",
            ["C080"],
            bucket(50, "50/s"),
            [
                yes(0, 50),
                settle(0, 0, 70, returned=-20),
                peek(0, left=0, balance=-20),
                no(0, 1, retry="0.42"),
                peek(0, balance=-20),
                peek("0.5", balance=5),
                yes("0.5", 5, left=0),
                no("0.5", 1, retry="0.02"),
            ],
        ),
        case(
            "cost 0 in debt",
            "Refused while in debt, admitted when it is paid.",
            ["C081"],
            bucket(10, "1/s"),
            [
                yes(0, 10),
                settle(0, 0, 12, returned=-2),
                no(0, 0, retry=2, balance=-2),
                no("1.999999", 0, retry="0.000001"),
                yes(2, 0, balance=0),
            ],
        ),
        case(
            "debt ends at max_debt",
            "By default the capacity: 30 asked, 10 charged.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10), settle(0, 0, 40, returned=-10), peek(0, balance=-10), no(0, 1, retry=11)],
        ),
        case(
            "no debt where none is allowed",
            "A strict cap charges up to the capacity and no further.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), settle(0, 0, 20, returned=-5), peek(0, balance=0), yes(1, 1, left=0)],
            max_debt="0",
        ),
        case(
            "a debt that is there already is not lowered",
            "The limit shrank; settling for more adds nothing and takes nothing away.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 10),
                change(bucket(2, "1/s")),
                no(0, 1),
                settle(0, 0, 20, returned=0),
                peek(0, balance=-8),
            ],
            max_debt="5",
        ),
        case(
            "settled at the cost",
            "Nothing moves.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), settle(3, 0, 5, returned=0), peek(3, balance=8)],
        ),
        case(
            "settled for less, late",
            "The difference, less what has drained.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10), settle(6, 0, 2, returned=4), peek(6, left=10, reset=0)],
        ),
        case(
            "settled for more, late",
            "The difference is charged when it is known.",
            [],
            bucket(10, "1/s"),
            [yes(0, 2), settle(60, 0, 5, returned=-3), peek(60, balance=7, reset=3)],
        ),
        case(
            "settled at nothing",
            "The work did not happen.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), settle(0, 0, 0, returned=5), peek(0, left=10)],
        ),
    ]
