"""The witness: a meter whose water is the level. Water + tokens = capacity always."""

from __future__ import annotations

from conformance.stories import token_bucket
from conformance.stories.telling import Json, case, many, meter, no, peek, retold, yes

ABOUT = (
    "The leaky meter (GCRA is the same thing): its own stories, then every story of the token bucket again."
)


def cases() -> list[Json]:
    return [
        case(
            "a part of the interval drains its part of the level",
            "Ten at once fill it; every 6 s one has drained.",
            ["C012"],
            meter(10, "10/60s"),
            [
                many(0, 10, 10, left=0),
                yes(6, left=0),
                yes(12, left=0),
                yes(18, left=0),
                yes(24, left=0),
                no(24, retry=6),
            ],
        ),
        case(
            "ten a second with capacity 1",
            "Twenty-two at once: one passes.",
            ["C101"],
            meter(1, "10/s"),
            [many(0, 22, 1, retry="0.1")],
        ),
        case(
            "ten a second with capacity 21, refusing at once",
            "Twenty-two at once: twenty-one pass.",
            ["C101"],
            meter(21, "10/s"),
            [many(0, 22, 21, retry="0.1")],
        ),
        case(
            "the meter is full at its capacity, not past it",
            "A test of level < capacity would admit 1.5 on top of 9; level + cost <= capacity does not.",
            [],
            meter(10, "1/s"),
            [yes(0, 9, left=1), no(0, "1.5", retry="0.5"), yes(0, 1, left=0), no(0, "0.001", retry="0.001")],
        ),
        case(
            "water and tokens are complements",
            "The balance is capacity minus water: 20 - 17.5 after half a second.",
            ["issue: water + tokens = capacity"],
            meter(20, "5/s"),
            [yes(0, 20, balance=0), peek("0.5", balance="2.5", reset="3.5"), peek(4, balance=20, reset=0)],
        ),
        *retold(token_bucket.cases(), "leaky_bucket"),
    ]
