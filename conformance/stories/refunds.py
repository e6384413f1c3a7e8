"""Giving back, and settling for less or more: a late refund must not buy a second burst."""

from __future__ import annotations

from conformance.stories import settled
from conformance.stories.telling import (
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
    settle,
    sliding,
    us_text,
    yes,
)

ABOUT = (
    "Refunds and settlements. For the level, `bounded`: returned = min(asked, what the decision "
    "still has, level,"
    " max(0, max(cost, level after it - given back by others since) - rate * elapsed - given back of "
    "itself)), and 0 unless the level has not been 0 since."
)


def cases() -> list[Json]:
    return [*_everywhere(), *_bounded(), *_full(), *settled.cases(), *_windows()]


def _everywhere() -> list[Json]:
    limits = [
        ("token bucket", bucket(10, "0/s")),
        ("leaky meter", meter(10, "1/h")),
        ("leaky queue", queue(10, "1/h")),
        ("sliding log", log(10, "1h")),
        ("fixed window", fixed(10, "1h")),
        ("sliding window", sliding(10, "1h")),
    ]
    return [
        case(
            f"more than was taken cannot be given back: {name}",
            "After the refunds usage is 0, not below: ten pass, one does not.",
            ["C082"],
            limit,
            [
                yes(0, 3, left=7),
                refund(0, 0, 5, returned=3),
                refund(0, 0, 5, returned=0),
                many(0, 11, 10),
                error(0, -5),
                peek(0, left=0),
            ],
        )
        for name, limit in limits
    ] + [
        case(
            f"a refused hit has nothing to give back: {name}",
            "It took nothing.",
            [],
            limit,
            [
                yes(0, 8),
                no(0, 5),
                refund(0, 1, 5, returned=0),
                peek(0, left=2),
                refund(0, 0, 8, returned=8),
                peek(0, left=10, reset=0),
            ],
        )
        for name, limit in limits
    ]


def _bounded() -> list[Json]:
    return [
        *[
            case(
                f"a reset voids what was taken before: {name}",
                "At the same instant too: what is used since then is another's.",
                [],
                limit,
                [yes(0, 5), reset(), yes(0, 4), refund(0, 0, 5, returned=0), peek(0, left=6)],
            )
            for name, limit in (("bucket", bucket(10, "1/s")), ("window", fixed(10, "1h")), ("log", log(10, "1h")))
        ],
        case(
            "what others gave back since is no longer ahead",
            "The level after the second was 10, of which the first returned 5: of its own 5, two have drained.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), yes(0, 5, left=0), refund(0, 0, 5, returned=5), yes(0, 5, left=0), refund(2, 1, 5, returned=3)],
        ),
        case(
            "at once, all of it",
            "Given back at the same instant it is as if never taken.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 4),
                yes(0, 6, left=0),
                refund(0, 0, 4, returned=4),
                peek(0, left=4),
                refund(0, 1, 6, returned=6),
                peek(0, left=10, reset=0),
            ],
        ),
        case(
            "what has drained is not given back",
            "Five taken, two seconds later three are still there.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), refund(2, 0, 5, returned=3), peek(2, left=10, reset=0), refund(2, 0, 5, returned=0)],
        ),
        case(
            "a late refund buys no second burst",
            "In full it would let 13 pass at one instant; so eight and two do.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), yes(3, 8, left=0), refund(3, 0, 5, returned=2), yes(3, 2, left=0), no(3, 1, retry=1)],
        ),
        case(
            "asked twice, it gives once",
            "What the decision has given back before is no longer there to give.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 5),
                yes(3, 8, left=0),
                refund(3, 0, 1, returned=1),
                refund(3, 0, 4, returned=1),
                refund(3, 0, 3, returned=0),
                peek(3, left=2),
            ],
        ),
        case(
            "in small parts it gives as in one",
            "One tenth of a second at a time, five times.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 5),
                yes(3, 8, left=0),
                [refund(us_text(3_000_000 + i * 100_000), 0, "0.1", returned="0.1") for i in range(5)],
                refund("3.5", 0, 5, returned=1),
                peek("3.5", balance=2),
            ],
        ),
        case(
            "work in front of it drains first",
            "Ten at 0, then five at 5: at 7 seven have drained, none of them its own.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10), yes(5, 5, left=0), refund(7, 1, 5, returned=5), peek(7, left=7)],
        ),
        case(
            "what others gave back since makes it drain sooner",
            "The first five are given back, so the second five are next to drain.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 5),
                yes(0, 5, left=0),
                refund(0, 0, 5, returned=5),
                refund(3, 1, 5, returned=2),
                peek(3, left=10, reset=0),
            ],
        ),
        case(
            "not after the key has been idle",
            "The level was 0 in between: what was taken has drained whole.",
            [],
            bucket(10, "1/s"),
            [yes(0, 2), yes(5, 8, left=2), refund(5, 0, 2, returned=0), peek(5, left=2)],
        ),
        case(
            "not to a key that is fresh",
            "There is nothing to give back to.",
            [],
            bucket(10, "1/s"),
            [yes(0, 2), refund(2, 0, 2, returned=0), peek(2, left=10, reset=0)],
        ),
        case(
            "in thirds",
            "What is returned need not be whole thousandths.",
            [],
            bucket(2, "1/3s"),
            [yes(0, 2), refund(1, 0, 2, returned="5/3"), peek(1, left=2, reset=0), yes(1, 2)],
        ),
        case(
            "as in a reservation that is cancelled",
            "15 at 0, 3 at 0.1: cancelling the first at 0.2 leaves what the second has used.",
            [],
            bucket(20, "10/s"),
            [
                yes(0, 15),
                yes("0.1", 3, balance=3),
                refund("0.2", 0, 15, returned=13),
                peek("0.2", balance=17),
            ],
        ),
        case(
            "not after the clock stepped far back",
            "The state was moved; earlier decisions are void, later ones are not.",
            [],
            bucket(10, "1/s"),
            [
                yes(1000, 4),
                yes(0, 3, left=3),
                refund(1, 0, 4, returned=0),
                peek(1, left=4),
                refund(1, 1, 3, returned=3),
                peek(1, left=7),
            ],
        ),
        case(
            "while the clock is a little behind",
            "No time has passed, so all of it is still there.",
            [],
            bucket(10, "1/s"),
            [yes(100, 6), refund(70, 0, 6, returned=6), peek(100, left=10, reset=0)],
        ),
        case(
            "the line as well",
            "A place given back is a place; who is behind keeps the wait it was told.",
            [],
            queue(10, "1/s"),
            [
                yes(0, 4, wait=0),
                yes(0, 4, wait=4),
                refund(1, 1, 4, returned=4),
                peek(1, left=7),
                yes(1, 4, wait=3),
            ],
        ),
    ]


def _full() -> list[Json]:
    return [
        case(
            "in full, by choice",
            "All that the level still holds: 13 pass at one instant, capacity plus what was returned.",
            [],
            bucket(10, "1/s"),
            [yes(0, 5), yes(3, 8, left=0), refund(3, 0, 5, returned=5), yes(3, 5, left=0), no(3, 1)],
            give_back="full",
        ),
        case(
            "in full, but not more than is there",
            "The level ends at 0; then the decision is from another time.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 5),
                refund(3, 0, 5, returned=2),
                peek(3, left=10),
                yes(3, 10),
                refund(3, 0, 5, returned=0),
            ],
            give_back="full",
        ),
    ]


def _windows() -> list[Json]:
    return [
        case(
            "a refund for a window that has ended does nothing",
            "Five at 0.9 are given back at 1.1: five of twenty pass at 1.2.",
            ["C047"],
            fixed(5, "1s"),
            [
                [yes("0.9") for _ in range(5)],
                [refund("1.1", i, 1, returned=0) for i in range(5)],
                peek("1.1", left=5, reset=0),
                many("1.2", 20, 5),
            ],
        ),
        case(
            "a refund in its window is whole",
            "However late in the window.",
            [],
            fixed(5, "10s"),
            [yes(0, 5), refund("9.9", 0, 2, returned=2), refund("9.9", 0, 5, returned=3), many("9.9", 6, 5)],
        ),
        *(
            case(
                f"not after the clock stepped far back: {name}",
                "What was counted is kept, and decisions from before can no longer give it back.",
                [],
                limit,
                [
                    yes(1000, 4),
                    yes(0, 3, left=3),
                    refund(1, 0, 4, returned=0),
                    peek(1, left=3),
                    refund(1, 1, 3, returned=3),
                    peek(1, left=6),
                ],
            )
            for name, limit in (
                ("fixed window", fixed(10, "1day")),
                ("sliding window", sliding(10, "1day")),
                ("sliding log", log(10, "1day")),
            )
        ),
        case(
            "a log gives back its own entry",
            "While it counts, all of it; then nothing.",
            [],
            log(5, "10s"),
            [
                yes(0, 2),
                yes(1, 3, left=0),
                refund(5, 0, 1, returned=1),
                refund(5, 0, 5, returned=1),
                peek(5, left=2),
                refund(11, 1, 3, returned=0),
                peek(11, left=5),
            ],
        ),
        case(
            "two counters give back where it was counted",
            "From this window, from the one before by its weight, and then no more.",
            [],
            sliding(10, "10s"),
            [
                yes(0, 8),
                yes(12, 2),
                refund(12, 1, 2, returned=2),
                peek(15, balance=6),
                refund(15, 0, 4, returned=4),
                peek(15, balance=8),
                refund(20, 0, 4, returned=0),
            ],
        ),
        case(
            "settling for more in a window",
            "The difference is charged in the window that is now, up to max_debt.",
            [],
            fixed(10, "10s"),
            [
                yes(0, 8),
                settle(1, 0, 15, returned=-7),
                peek(1, balance=-5),
                no(1, 1, retry=9),
                yes(10, 1, left=9),
            ],
        ),
        case(
            "settling for more in a log",
            "The difference is an entry of now.",
            [],
            log(10, "10s"),
            [
                yes(0, 8),
                settle(5, 0, 15, returned=-7),
                peek(5, balance=-5),
                no(5, 1, retry=5, balance=-5),
                yes(10, 3, left=0),
                no(10, 1, retry=5),
            ],
        ),
    ]
