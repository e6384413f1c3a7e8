"""The waiting line: the bucket's verdicts, and a wait for whom it admits."""

from __future__ import annotations

from conformance.stories import token_bucket
from conformance.stories.telling import (
    Json,
    case,
    no,
    peek,
    queue,
    retold,
    us_text,
    yes,
)

ABOUT = "The leaky queue: its waits, then every story of the token bucket again with the same verdicts."


def cases() -> list[Json]:
    return [
        case(
            "twenty at once leave at 0, 0.2, ... 3.8 s",
            "Each waits for the work ahead of it; the twenty-first finds no place.",
            ["issue: LeakyQueue(20, 5/s)"],
            queue(20, "5/s"),
            [[yes(0, wait=us_text(i * 200_000), left=19 - i) for i in range(20)], no(0, wait=0, retry="0.2")],
        ),
        case(
            "twenty at once with interval leave at 0.2 ... 4.0 s",
            "Each waits for its own work too.",
            ["issue: LeakyQueue(20, 5/s)"],
            queue(20, "5/s", "interval"),
            [
                [yes(0, wait=us_text(i * 200_000), left=20 - i) for i in range(1, 21)],
                no(0, wait=0, retry="0.2"),
            ],
        ),
        case(
            "a place is free when one has left",
            "At 0.2 s the first place is free, and the newcomer is the last in line again.",
            [],
            queue(20, "5/s"),
            [
                yes(0, 19),
                yes(0, wait="3.8"),
                no("0.199999", retry="0.000001"),
                yes("0.2", wait="3.8"),
                peek(2, left=9),
            ],
        ),
        case(
            "an empty line makes nobody wait",
            "Who comes slower than the rate leaves at once.",
            [],
            queue(5, "1/s"),
            [yes(0, wait=0), yes(1, wait=0), yes("1.5", wait="0.5"), yes("2.5", wait="0.5"), yes(10, wait=0)],
        ),
        case(
            "one a second with interval: the lone job waits its own second",
            "The first release comes one interval after the arrival, in an empty line too.",
            [],
            queue(5, "1/s", "interval"),
            [yes(0, wait=1), yes("0.5", wait="1.5"), yes(10, wait=1)],
        ),
        case(
            "larger jobs make longer gaps",
            "A job of cost 3 holds the next for three intervals; with interval it is held for its own three.",
            [],
            queue(10, "2/s"),
            [
                yes(0, 3, wait=0),
                yes(0, 1, wait="1.5"),
                yes(0, 4, wait=2),
                no(0, 3, retry="0.5"),
                yes(0, 2, wait=4),
            ],
        ),
        case(
            "larger jobs with interval",
            "The job's own cost counts in its wait.",
            [],
            queue(10, "2/s", "interval"),
            [
                yes(0, 3, wait="1.5"),
                yes(0, 1, wait=2),
                yes(0, 4, wait=4),
                no(0, 3, retry="0.5"),
                yes(0, 2, wait=5),
            ],
        ),
        case(
            "fifty at a hundred a minute: the last goes at 29.4 s",
            "A queue spreads what a bucket lets go at once.",
            ["C098"],
            queue(100, "100/60s"),
            [[yes(0, wait=us_text(i * 600_000)) for i in range(50)]],
        ),
        case(
            "one goes, five wait, four are refused",
            "One a second and at most five waiting is a capacity of six.",
            ["C113"],
            queue(6, "1/s"),
            [[yes(0, wait=i) for i in range(6)], [no(0, retry=1) for _ in range(4)]],
        ),
        case(
            "ten a second with twenty waiting",
            "One at once, twenty delayed by 0.1 to 2.0 s, one refused.",
            ["C101"],
            queue(21, "10/s"),
            [[yes(0, wait=us_text(i * 100_000)) for i in range(21)], no(0, retry="0.1")],
        ),
        case(
            "800,000 places at 80,000 a second",
            "The last leaves at 799,999 / 80,000 = 9.9999875 s, rounded up once; 12.5 us a place "
            "never accumulates.",
            ["C037"],
            queue(800_000, "80000/s"),
            [
                yes(0, wait=0),
                yes(0, wait="0.000013"),
                yes(0, wait="0.000025"),
                yes(0, 799_996, wait="0.000038"),
                yes(0, 1, wait="9.999988", left=0),
                no(0, 1, retry="0.000013"),
            ],
        ),
        case(
            "delay_after lets the first through without delay",
            "The first three units cost no wait; the verdicts are the same.",
            [],
            queue(6, "1/s", delay_after=3),
            [[yes(0, wait=wait) for wait in [0, 0, 0, 0, 1, 2]], no(0, retry=1)],
        ),
        case(
            "delay_after with interval",
            "Own work counts, so one fewer passes without delay.",
            [],
            queue(6, "1/s", "interval", delay_after=3),
            [[yes(0, wait=wait) for wait in [0, 0, 0, 1, 2, 3]], no(0, retry=1)],
        ),
        case(
            "a queue of capacity 0 is an error",
            "A limit must allow something.",
            ["C085"],
            queue(0, "1/s"),
            [],
            rejected=True,
        ),
        *retold(token_bucket.cases(), "leaky_queue"),
    ]
