"""A limit is changed while it is in use: five ways to carry the state over."""

from __future__ import annotations

from collections.abc import Callable

from conformance.stories.telling import (
    NEVER,
    Json,
    bucket,
    case,
    change,
    fixed,
    log,
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
    "Changed limits, five ways. The elapsed time is drained at the smaller rate, what is used is "
    "rounded up to thousandths, and then: strict"
    " max(L, C2 - max(0, C1 - L)), keep_level L, keep_tokens max(0, C2 - (C1 - L)), proportional L * "
    "C2 / C1, reset 0."
)
WAYS = ("strict", "keep_level", "keep_tokens", "proportional", "reset")


def cases() -> list[Json]:
    return [*_smaller_everywhere(), *_ways(), *_rates(), *_corners()]


def _smaller_everywhere() -> list[Json]:
    hour = 3600
    kinds: list[tuple[str, Callable[[int], Json], int]] = [
        ("token bucket", lambda n: bucket(n, "1/s"), 6),
        ("leaky meter", lambda n: meter(n, "1/s"), 6),
        ("leaky queue", lambda n: queue(n, "1/s"), 6),
        ("sliding log", lambda n: log(n, "1h"), hour),
        ("fixed window", lambda n: fixed(n, "1h"), hour),
        ("sliding window", lambda n: sliding(n, "1h"), hour + hour * 6 // 10),
    ]
    return [
        case(
            f"ten of twelve used, then five: {name}",
            "Nothing is left, and spends are refused until usage has fallen below five.",
            ["C067"],
            limit(12),
            [
                yes(0, 10, left=2),
                change(limit(5)),
                peek(0, left=0, balance=-5),
                no(0, 1, left=0, retry=first),
                no(us_text(first * 1_000_000 - 1), retry="0.000001"),
                yes(first, left=0 if name not in {"sliding log", "fixed window"} else 4),
            ],
        )
        for name, limit, first in kinds
    ]


def _ways() -> list[Json]:
    used_7_of_10 = {  # way: balance after growing to 20, after shrinking to 5
        "strict": (3, -2),
        "keep_level": (13, -2),
        "keep_tokens": (3, 3),
        "proportional": (6, "1.5"),
        "reset": (20, 5),
    }
    used_2_of_10 = {
        "strict": (8, 3),
        "keep_level": (18, 3),
        "keep_tokens": (8, 5),
        "proportional": (16, 4),
        "reset": (20, 5),
    }
    told = []
    for way in WAYS:
        for used, balances in ((7, used_7_of_10), (2, used_2_of_10)):
            grown, shrunk = balances[way]
            for new, balance in ((20, grown), (5, shrunk)):
                told.append(
                    case(
                        f"{way}: {used} of 10 used, then {new}",
                        "What is left after the change, at the instant of the change.",
                        ["C165"],
                        bucket(10, "1/s"),
                        [
                            yes(0, used),
                            change(bucket(new, "1/s")),
                            peek(0, balance=balance),
                            no(0, new + 1, retry=NEVER),
                            peek(0, balance=balance),
                        ],
                        carry=way,
                    )
                )
    return told


def _rates() -> list[Json]:
    return [
        case(
            "one a second becomes ten a second",
            "In force from the first call on; what had passed until then counts at the smaller rate.",
            ["C165"],
            bucket(10, "1/s"),
            [
                yes(0, 10),
                change(bucket(10, "10/s")),
                no(5, 6, retry="0.1", left=5),
                yes("5.1", 6, left=0),
                yes("5.2", left=0),
                no("5.2", retry="0.1"),
            ],
        ),
        case(
            "ten a second becomes one a second",
            "And back.",
            ["C165"],
            bucket(10, "10/s"),
            [
                yes(0, 10),
                change(bucket(10, "1/s")),
                no("0.5", 1, retry="0.5"),
                yes(1, 1, left=0),
                change(bucket(10, "10/s")),
                no("1.1", 1, retry="0.09"),
                yes("1.2", 1),
            ],
        ),
        case(
            "the change itself refills nothing",
            "Changed ten times there and back, at one instant.",
            ["C165"],
            bucket(10, "1/s"),
            [
                yes(0, 10),
                [
                    [change(bucket(20, "2/s")), no(0, 1, left=0), change(bucket(10, "1/s")), no(0, 1, left=0)]
                    for _ in range(10)
                ],
            ],
        ),
        case(
            "a look does not make the change take effect",
            "The next look still counts the whole time at the smaller rate.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 10),
                change(bucket(10, "5/s")),
                peek(1, balance=1),
                peek(2, balance=2),
                no(2, 5, balance=2),
                peek(3, balance=7),
            ],
        ),
        case(
            "a cost of 0 does not make the change take effect",
            "It writes nothing, so the next answer still counts the whole time at the smaller rate.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10), change(bucket(10, "5/s")), yes(1, 0, balance=1), yes(2, 0, balance=2), no(2, 5, balance=2)],
        ),
        case(
            "rounded up to thousandths",
            "A third of a token is 0.334 used.",
            [],
            bucket(1, "1/3s"),
            [yes(0), change(bucket(2, "1/3s")), peek(1, balance="0.333"), no(1, 1), peek(1, balance="0.333")],
        ),
        case(
            "to a rate of 0",
            "What is left is all there is.",
            [],
            bucket(10, "1/s"),
            [yes(0, 4), change(bucket(10, "0/s")), yes(2, 6, left=0), no(2, 1, retry=NEVER, reset=NEVER)],
        ),
        case(
            "from a rate of 0",
            "It refills from the first call after the change.",
            [],
            bucket(10, "0/s"),
            [yes(0, 10), change(bucket(10, "1/s")), no(100, 1, retry=1, reset=10), yes(101)],
        ),
    ]


def _corners() -> list[Json]:
    return [
        case(
            "a key never used has nothing to carry",
            "It is fresh under the new limit, in each way.",
            [],
            bucket(10, "1/s"),
            [change(bucket(20, "1/s")), peek(0, left=20, reset=0), yes(0, 20)],
        ),
        case(
            "a key that had drained has nothing to carry",
            "A store may have forgotten it, so it must be as fresh.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10), change(bucket(20, "0.1/s")), peek(10, left=20, reset=0), yes(10, 20, left=0)],
        ),
        case(
            "refunds of earlier decisions are void",
            "Later ones are not.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 6),
                change(bucket(20, "1/s")),
                yes(0, 1, left=3),
                refund(0, 0, 6, returned=0),
                refund(0, 2, 1, returned=1),
                peek(0, left=4),
            ],
        ),
        case(
            "a refund before the first touch is void too",
            "The change is in force from the moment it is made.",
            [],
            bucket(10, "1/s"),
            [yes(0, 6), change(bucket(20, "1/s")), refund(0, 0, 6, returned=0), peek(0, balance=4)],
        ),
        case(
            "settling what was reserved under the old limit",
            "The difference is charged to the key as it is under the new limit, which stays in force.",
            [],
            bucket(1000, "0/s"),
            [
                yes(0, 1),
                change(bucket(2, "1/s")),
                yes(0, "0.1"),
                settle(0, 0, "1.8", returned="-0.8"),
                peek(0, balance="0.1"),
                no(0, 1, retry="0.9"),
                yes("0.9", 1),
            ],
        ),
        case(
            "forgotten, and then changed",
            "A key that was reset has nothing to carry.",
            [],
            bucket(10, "1/day"),
            [yes(0, 10), reset(), change(bucket(20, "1/day")), yes(0, 20, left=0), no(0, 1)],
        ),
        case(
            "changed, and then forgotten",
            "In this order as well.",
            [],
            bucket(10, "1/day"),
            [yes(0, 10), change(bucket(20, "1/day")), reset(), yes(0, 20, left=0), no(0, 1)],
        ),
        case(
            "from bucket to queue",
            "The level is the same number; now it is waited for.",
            [],
            bucket(10, "1/s"),
            [yes(0, 4), change(queue(10, "1/s")), yes(0, 1, wait=4, left=5)],
        ),
        case(
            "changed twice before it is touched",
            "Only the limit that wrote the state and the one in force matter.",
            [],
            bucket(10, "1/s"),
            [
                yes(0, 7),
                change(bucket(100, "1/s")),
                change(bucket(20, "1/s")),
                peek(0, balance=3),
                yes(0, 3),
                no(0, 1, retry=1),
            ],
        ),
        case(
            "a bad limit changes nothing",
            "It is rejected when it is made.",
            [],
            bucket(10, "1/s"),
            [yes(0, 7), {"op": "change", "limit": bucket(0, "1/s"), "error": True}, peek(0, left=3)],
        ),
    ]
