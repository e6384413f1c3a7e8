"""Two counters: the window before, weighed by how much of it still overlaps, and this one."""

from __future__ import annotations

from conformance.stories.telling import NEVER, Json, case, many, no, peek, sliding, yes

ABOUT = (
    "The sliding window. used = ceil(before * (N - k) / N) + count in thousandths, in tick k of the "
    "N ticks of a window; a tick is the"
    " smallest of 1, 2, 5, 10, ... us that divides the window with limit * 1000 * N < 2^52."
)


def cases() -> list[Json]:
    return [
        case(
            "half of the window before still counts",
            "Ten in the first window: in the middle of the next one, five are left.",
            [],
            sliding(10, "10s"),
            [
                many(5, 11, 10, retry=6),
                no(10, left=0, retry=1),
                no("10.999999", retry="0.000001"),
                yes(11, left=0),
                many(15, 10, 4),
                peek(15, balance=0, reset=15),
                peek(20, left=5),
            ],
        ),
        case(
            "weights fall in the smallest tick",
            "One microsecond frees a thousandth or nothing; what is used is rounded up.",
            [],
            sliding(10, "10s"),
            [
                yes(0, 10),
                peek(10, balance=0),
                peek("10.000001", balance=0),
                peek("10.001", balance="0.001"),
                no("10.0009", "0.001", retry="0.0001"),
                yes("10.001", "0.001", balance=0),
            ],
        ),
        case(
            "a refused spend consumes nothing",
            "Smaller costs pass after a larger one was refused.",
            ["C016"],
            sliding(10, "1h"),
            [yes(0, 8, left=2), no(0, 5, left=2, retry=4950), yes(0, left=1), yes(0, left=0), no(0, left=0)],
        ),
        case(
            "the first result is complete",
            "Cost 3 of 10: remaining 7; it is all back at the end of the next window.",
            ["C065"],
            sliding(10, "60s"),
            [yes(10, 3, left=7, retry=0, reset=110)],
        ),
        case(
            "the wait may end in this window or in the next",
            "What was counted in this window frees only in the next.",
            [],
            sliding(10, "10s"),
            [
                yes(0, 10),
                yes(15, 5, left=0),
                no(15, 1, retry=1),
                no(15, 6, retry=7),
                no(15, 10, retry=15),
                no(15, 11, retry=NEVER),
            ],
        ),
        case(
            "a whole window later nothing counts",
            "After an empty window the key is as fresh.",
            [],
            sliding(10, "10s"),
            [
                yes(0, 10, reset=20),
                peek("19.999999", left=9, reset="0.000001"),
                peek(20, left=10, reset=0),
                many(25, 11, 10),
            ],
        ),
        case(
            "it stays an estimate",
            "The window before counts as if spread evenly: three seconds on, 7 of 10 count though "
            "all came at its end.",
            [],
            sliding(10, "10s"),
            [many("9.999999", 10, 10), many(13, 4, 3), many("19.999999", 8, 6)],
        ),
        case(
            "a coarser tick for large limits",
            "A million a day: ticks of 20 ms, so that no product passes 2^52.",
            [],
            sliding(1_000_000, "1day"),
            [
                yes(0, 1_000_000),
                no(86_400, retry="0.1"),
                no("86400.099999", retry="0.000001"),
                peek("86400.1", balance="1.157"),
                peek("86400.119999", balance="1.157"),
                peek("86400.12", balance="1.388"),
            ],
        ),
        case(
            "fractions are counted",
            "Ten tenths are one.",
            ["C087"],
            sliding(1, "60s"),
            [many(0, 11, 10, cost="0.1")],
        ),
        case(
            "a cost above the limit never passes",
            "However long one waits.",
            ["C075"],
            sliding(10, "60s"),
            [no(0, 11, left=10, retry=NEVER), yes(0, 5), no(0, 11, left=5, retry=NEVER)],
        ),
        case(
            "an uneven window",
            "Seven seconds are cut into microseconds as ten are.",
            [],
            sliding(7, "7s"),
            [yes(0, 7), no(7, retry=1), yes(8), no("8.5", retry="0.5"), yes(9)],
        ),
        case(
            "a limit of 0 is an error",
            "A limit must allow something.",
            ["C085"],
            sliding(0, "60s"),
            [],
            rejected=True,
        ),
    ]
