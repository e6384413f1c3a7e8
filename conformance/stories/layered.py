"""Several limits on one request: all or nothing."""

from __future__ import annotations

from typing import Any

from conformance.stories.telling import (
    NEVER,
    Json,
    bucket,
    case,
    fixed,
    hit,
    log,
    no,
    peek,
    queue,
    refund_all,
    sliding,
    us,
    us_text,
    yes,
)

ABOUT = (
    "Several limits on one request: all of them admit it or nothing changes in any, and the binding one "
    "is named."
)


def cases() -> list[Json]:
    return [
        case(
            "a refusal by the key leaves the owner as it was",
            "Ten on key A: one passes. Key B of the same owner finds nine.",
            ["C020"],
            [("owner", bucket(10, "0/s")), ("key", bucket(1, "0/s"))],
            [
                hits(0, "A", True, rule="key", left=0),
                [hits(0, "A", False, rule="key", left=0, retry=NEVER) for _ in range(9)],
                peek(0, [1, 1], True, keys=["owner", "B"], rule="key", left=1),
                hits(0, "B", True),
                peek(0, [1, 1], keys=["owner", "C"]),
                outcome(peek(0, [0, 0], keys=["owner", "A"]), [8, 0]),
            ],
        ),
        case(
            "a refusal by the key leaves the owner as it was, ten milliseconds apart",
            "Also when the clock moved meanwhile.",
            ["C020"],
            [("owner", bucket(10, "0/s")), ("key", bucket(1, "0/s"))],
            [
                [hits(us_text(i * 10_000), "A", i == 0) for i in range(10)],
                hits("0.1", "B", True),
                outcome(peek("0.11", [0, 0], keys=["owner", "A"]), [8, 0]),
            ],
        ),
        case(
            "the one that frees last is named",
            "A is a minute's log with 56 left, C an hour with 0 left and 3000 s to go.",
            ["C069"],
            [("A", log(60, "60s")), ("B", bucket(100, "10/s")), ("C", fixed(20, "1h"))],
            [
                yes(552, [4, 0, 0]),
                yes(552, [0, 0, 20]),
                outcome(
                    no(600, [1, 1, 1], rule="C", left=0, reset=3000, retry=3000),
                    [56, 100, 0],
                    resets=[12, 0, 3000],
                    retries=[0, 0, 3000],
                ),
            ],
        ),
        case(
            "several refuse: the one that frees last",
            "Minute and hour are both used up; the hour is longer.",
            ["C069"],
            [("minute", log(3, "60s")), ("hour", log(3, "1h"))],
            [
                [yes(i, [1, 1]) for i in range(3)],
                outcome(
                    no(3, [1, 1], rule="hour", left=0, retry=3597, reset=3599), [0, 0], retries=[57, 3597]
                ),
                no(60, [1, 1], rule="hour", retry=3540),
                yes(3600, [1, 1], rule="hour", left=0),
            ],
        ),
        case(
            "never is last of all",
            "A cost that can never pass names its limit, whatever the others say.",
            [],
            [("slow", bucket(1, "1/day")), ("small", bucket(5, "1/s"))],
            [
                yes(0, [1, 1]),
                no(0, [1, 6], rule="small", retry=NEVER, left=4),
                no(0, [1, 1], rule="slow", retry=86_400),
                peek(0, [0, 0], rule="slow", left=0),
            ],
        ),
        case(
            "of two nevers the first",
            "Ties go to the order of the policy.",
            [],
            [("first", bucket(2, "1/s")), ("second", bucket(3, "1/s"))],
            [
                no(0, [4, 4], rule="first", retry=NEVER),
                no(0, [1, 4], rule="second", retry=NEVER),
                yes(0, [2, 3]),
            ],
        ),
        case(
            "of equals the first",
            "Two limits alike: the first is named, refused or admitted.",
            [],
            [("first", bucket(2, "1/s")), ("second", bucket(2, "1/s"))],
            [
                yes(0, [1, 1], rule="first", left=1),
                yes(0, [1, 1], rule="first", left=0),
                no(0, [1, 1], rule="first", retry=1),
            ],
        ),
        case(
            "an admission shows the fewest requests left",
            "10 left at cost 5 are two requests; 3 left at cost 1 are three.",
            [],
            [("bytes", bucket(15, "1/s")), ("calls", bucket(4, "1/s"))],
            [
                yes(0, [5, 1], rule="bytes", left=10),
                yes(0, [1, 1], rule="calls", left=2),
                yes(0, [5, 1], rule="bytes", left=4),
                no(0, [5, 1], rule="bytes", retry=1, left=4),
            ],
        ),
        case(
            "all or nothing, with costs",
            "The small limit refuses, and the large one is not charged.",
            [],
            [("large", bucket(100, "1/s")), ("small", bucket(3, "1/s"))],
            [
                yes(0, [10, 3]),
                [outcome(no(0, [10, 1], rule="small", retry=1), [90, 0]) for _ in range(5)],
                outcome(yes(1, [10, 1]), [81, 0]),
            ],
        ),
        case(
            "a thousand refusals change no later answer",
            "Asked a thousand times too often, the answer is as if never asked.",
            ["issue: 48 rules"],
            [
                ("a", bucket(10, "1/s")),
                ("b", log(5, "60s")),
                ("c", fixed(8, "60s")),
                ("d", sliding(7, "60s")),
                ("e", queue(6, "1/s")),
            ],
            [
                [yes(0, [1] * 5) for _ in range(5)],
                no(0, [1] * 5, rule="b", retry=60) | {"times": 1000, "admitted": 0},
                outcome(peek(1, [1] * 5), [6, 0, 3, 2, 2], resets=[4, 59, 59, 119, 4]),
                yes(60, [1] * 5),
            ],
        ),
        case(
            "retry-after over several is exact",
            "At the latest single one all pass; a microsecond earlier they do not.",
            [],
            [("bucket", bucket(5, "7/s")), ("window", fixed(4, "10s")), ("log", log(6, "13s"))],
            [
                yes(3, [5, 2, 3]),
                no(3, [3, 2, 4], rule="log", retry=13),
                no(3, [5, 3, 1], rule="window", retry=7),
                no("9.999999", [5, 3, 1], retry="0.000001"),
                yes(10, [5, 3, 1]),
                no(10, [1, 1, 3], rule="log", retry=6),
                no("15.999999", [1, 1, 3], rule="log", retry="0.000001"),
                yes(16, [1, 1, 3]),
            ],
        ),
        case(
            "a queue beside a bucket",
            "The wait of the queue is the wait of the request.",
            [],
            [("line", queue(5, "1/s")), ("budget", bucket(3, "1/s"))],
            [
                yes(0, [1, 1], wait=0),
                yes(0, [1, 1], wait=1),
                yes(0, [1, 1], wait=2),
                no(0, [1, 1], rule="budget", wait=0, retry=1),
            ],
        ),
        case(
            "two queues",
            "The longest wait counts.",
            [],
            [("slow", queue(5, "1/s")), ("wide", queue(50, "10/s"))],
            [
                yes(0, [1, 10], wait=0),
                yes(0, [1, 1], wait=1),
                yes(0, [1, 20], wait=2),
                yes(0, [1, 1], wait="3.1"),
                peek("3.2", [0, 0]),
            ],
        ),
        case(
            "a limit that costs nothing",
            "It decides with the others, is charged nothing, and is not the one shown.",
            [],
            [("tokens", bucket(1, "1/s")), ("calls", bucket(10, "1/s"))],
            [
                yes(0, [1, 1], rule="tokens", left=0),
                yes(0, [0, 1], rule="calls", left=8),
                no(0, [1, 1], rule="tokens"),
            ],
        ),
        case(
            "given back to all",
            "What the request took, from each by its own rule.",
            [],
            [("bucket", bucket(10, "1/s")), ("window", fixed(10, "60s")), ("log", log(10, "60s"))],
            [
                yes(0, [5, 5, 5]),
                refund_all(2, 0, [3, 5, 5]),
                outcome(peek(2, [0, 0, 0]), [10, 10, 10]),
                refund_all(2, 0, [0, 0, 0]),
            ],
        ),
        case(
            "48 rules",
            "Address, tenant, user and route, each with limits of twelve lengths, decide together.",
            ["issue: 48 rules"],
            _forty_eight(),
            [
                [yes(0, [1] * 48, rule="address-1", left=3 - i) for i in range(4)],
                no(0, [1] * 48, rule="address-1", retry=1, left=0),
                yes(1, [1] * 48, rule="address-1", left=0),
                no(1, [1] * 48, rule="address-1", retry=1),
            ],
        ),
    ]


def hits(at: Any, key: str, allowed: bool, **expected: Any) -> Json:
    """One token from the owner and one from this key of it."""
    return hit(at, [1, 1], allowed, keys=["owner", key], **expected)


def outcome(
    step: Json, left: list[int], *, resets: list[Any] | None = None, retries: list[Any] | None = None
) -> Json:
    """Say also what each limit has left, and when each is whole again or admits."""
    step = dict(step)
    step["each"] = [
        {"remaining": left[i]}
        | ({"reset_after_us": us(resets[i])} if resets else {})
        | ({"retry_after_us": us(retries[i])} if retries else {})
        for i in range(len(left))
    ]
    return step


def _forty_eight() -> list[tuple[str, Json]]:
    rules = []
    for size, who in enumerate(("address", "tenant", "user", "route"), start=1):
        for n in range(1, 13):
            capacity = 4 * size * n
            limit = [
                bucket(capacity, f"{n}/s"),
                log(capacity * 4, "60s"),
                fixed(capacity * 5, "60s"),
                sliding(capacity * 6, "60s"),
            ][(n - 1) % 4]
            rules.append((f"{who}-{n}", limit))
    return rules
