"""Callers who would wait: admitted at once for later, or refused at once."""

from __future__ import annotations

from conformance.stories.telling import (
    NEVER,
    Json,
    bucket,
    case,
    meter,
    no,
    peek,
    queue,
    refund,
    yes,
)

ABOUT = (
    "Hits with patience: what fits within that wait is admitted now, and told how long to wait. An "
    "engine without waiting verbs leaves this table out."
)


def cases() -> list[Json]:
    long = {"patience": 1000}
    return [
        case(
            "idle credit is given once",
            "After a long pause the first goes at once, the others one second apart, each asking "
            "when the one before went.",
            ["C027"],
            bucket(1, "1/s"),
            [yes(0), yes(30, wait=0, **long), [yes(30 + i, wait=1, **long) for i in range(24)], no(54)],
        ),
        case(
            "idle credit of two",
            "With capacity two, the first two go at once.",
            ["C027"],
            bucket(2, "1/s"),
            [
                yes(0),
                yes(30, wait=0, **long),
                yes(30, wait=0, **long),
                yes(30, wait=1, **long),
                yes(31, wait=1, **long),
                no(32),
            ],
        ),
        case(
            "eight callers, twelve seconds of patience",
            "Three at once, three later, two refused at once.",
            ["C008"],
            bucket(3, "0.3/s"),
            [
                [yes(0, wait=0, patience=12) for _ in range(3)],
                yes(0, wait="3.333334", patience=12),
                yes(0, wait="6.666667", patience=12),
                yes(0, wait=10, patience=12),
                no(0, patience=12),
                no(0, patience=12),
            ],
        ),
        case(
            "the large one first",
            "Ten asked for at 0 is served at 10, the small ones after it in order; who does not wait "
            "is refused.",
            ["C103"],
            bucket(10, "1/s"),
            [
                yes(0, 10),
                yes(0, 10, wait=10, **long),
                yes("0.5", wait="10.5", **long),
                yes("1.5", wait="10.5", **long),
                yes("2.5", wait="10.5", **long),
                no(5, 1),
            ],
        ),
        case(
            "a meter that is called one after another",
            "The fourth at 0.1 s and the fifth at 0.2 s.",
            ["C109"],
            meter(3, "10/s"),
            [
                [yes(0, wait=0, **long) for _ in range(3)],
                yes(0, wait="0.1", **long),
                yes("0.1", wait="0.1", **long),
            ],
        ),
        case(
            "a cancelled reservation in the middle",
            "15 at 0, 10 due at 0.5, 1 due at 0.6; the second is cancelled at 0.3.",
            ["C117"],
            bucket(20, "10/s"),
            [
                yes(0, 15, wait=0, **long),
                yes("0.1", 10, wait="0.4", **long),
                yes("0.2", 1, wait="0.4", balance=-4, **long),
                refund("0.3", 1, 10, returned=10),
                peek("0.3", balance=7),
                refund("0.3", 1, 10, returned=0),
            ],
        ),
        case(
            "more than the capacity is never",
            "No patience helps; what is as large as the capacity can be waited for.",
            ["C074"],
            bucket(5, "1/s"),
            [no(0, 6, retry=NEVER, **long), no(0, 6, retry=NEVER), yes(0, 1), yes(0, 5, wait=1, **long)],
        ),
        case(
            "patience that is just enough",
            "One microsecond less is not.",
            [],
            bucket(1, "7/s"),
            [yes(0), no(0, patience="0.142857"), yes(0, wait="0.142858", patience="0.142858"), no(0)],
        ),
        case(
            "a budget without a rate",
            "Waiting is in vain, and is refused at once.",
            ["C086"],
            bucket(1, "0/s"),
            [yes(0), no(0, retry=NEVER, **long)],
        ),
        case(
            "a line is finite",
            "Patience adds no room to it.",
            [],
            queue(3, "1/s"),
            [yes(0, wait=0, **long), yes(0, wait=1, **long), yes(0, wait=2, **long), no(0, **long)],
        ),
        case(
            "a line longer than the patience",
            "Refused at once, and the place stays free for who has more.",
            ["C113"],
            queue(6, "1/s"),
            [
                yes(0, wait=0, patience=2),
                yes(0, wait=1, patience=2),
                yes(0, wait=2, patience=2),
                no(0, patience=2),
                yes(0, wait=3, patience=3),
                no(0, patience=3),
                yes(0, wait=4),
            ],
        ),
        case(
            "a line of intervals and patience",
            "One's own interval is part of the wait.",
            [],
            queue(6, "1/s", "interval"),
            [
                no(0, patience="0.999999"),
                yes(0, wait=1, patience=1),
                no(0, patience=1),
                yes(0, wait=2, patience=2),
            ],
        ),
    ]
