"""rate=10r/s burst=20 in nginx's words: capacity is burst + 1."""

from __future__ import annotations

from conformance.stories.telling import (
    Json,
    bucket,
    case,
    many,
    no,
    queue,
    us_text,
    yes,
)

ABOUT = "nginx limit_req with rate=10r/s: burst=20, burst=20 nodelay, burst=20 delay=8, and no burst."


def cases() -> list[Json]:
    tenths = [us_text(i * 100_000) for i in range(40)]
    return [
        case(
            "burst=20: 22 at once",
            "One at once, twenty delayed by 0.1 to 2.0 s, the twenty-second refused.",
            ["issue: nginx", "C101"],
            queue(21, "10/s"),
            [[yes(0, wait=tenths[i]) for i in range(21)], no(0, retry="0.1")],
        ),
        case(
            "burst=20: a second burst after half a second",
            "Five have left, so five places are free, and the line is as long as before.",
            ["issue: nginx"],
            queue(21, "10/s"),
            [many(0, 22, 21), [yes("0.5", wait=tenths[16 + i]) for i in range(5)], no("0.5", retry="0.1")],
        ),
        case(
            "burst=20 nodelay: 22 at once",
            "Twenty-one pass without delay, the twenty-second is refused; a tenth of a second earns one.",
            ["issue: nginx"],
            bucket(21, "10/s"),
            [
                [yes(0, wait=0) for _ in range(21)],
                no(0, retry="0.1"),
                yes("0.1", wait=0),
                no("0.1", retry="0.1"),
                many("1.1", 11, 10),
            ],
        ),
        case(
            "burst=20 delay=8: 22 at once",
            "Nine pass without delay (one and eight of the burst), twelve are delayed by 0.1 to 1.2 "
            "s, one is refused.",
            ["issue: nginx"],
            queue(21, "10/s", delay_after=8),
            [
                [yes(0, wait=0) for _ in range(9)],
                [yes(0, wait=tenths[i]) for i in range(1, 13)],
                no(0, retry="0.1"),
            ],
        ),
        case(
            "burst=20 delay=8: at the rate after the burst",
            "One a tenth of a second keeps the line full: each waits 1.2 s.",
            ["issue: nginx"],
            queue(21, "10/s", delay_after=8),
            [many(0, 22, 21), [yes(tenths[i], wait="1.2") for i in range(1, 6)], yes(2, wait=0, left=14)],
        ),
        case(
            "no burst",
            "Without burst= the capacity is one: one a tenth of a second.",
            ["issue: nginx"],
            bucket(1, "10/s"),
            [yes(0), no("0.05", retry="0.05"), no("0.099999", retry="0.000001"), yes("0.1")],
        ),
    ]
