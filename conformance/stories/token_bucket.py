"""The budget: tokens = capacity - level."""

from __future__ import annotations

from fractions import Fraction

from conformance.stories.telling import *  # noqa: F403  (the words of the story)

ABOUT = "The token bucket. Leaky meter and queue give the same verdicts with the same numbers."


PASS = {0, 1, 2, 4, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40, 44, 47}
"""Tenths of a second at which one token is there: the first three, then each third of a second, rounded up."""


def cases() -> list[Json]:
    return [
        case(
            "twenty reads, then five a second",
            "A fresh bucket of 20 serves twenty at once; from empty, 0.4 s earns exactly two and 2 s exactly ten.",
            ["issue: TokenBucket(20, 5/s)"],
            bucket(20, "5/s"),
            [
                [yes(0, left=19 - i, retry=0, wait=0) for i in range(20)],
                no(0, left=0, balance=0, retry="0.2", reset=4),
                yes("0.4", left=1),
                yes("0.4", left=0),
                no("0.4", left=0, retry="0.2"),
                many("2.4", 11, 10, left=0),
            ],
        ),
        case(
            "an export of cost 5 spends as five reads",
            "One cost of n is the same as n costs of one at the same instant.",
            ["issue: TokenBucket(20, 5/s)"],
            bucket(20, "5/s"),
            [
                yes(0, 5, left=15),
                [yes(0, left=14 - i) for i in range(5)],
                yes(0, 5, left=5),
                yes(0, 5, left=0),
                no(0, 5, left=0, retry=1),
                no("0.999999", 5, retry="0.000001"),
                yes(1, 5, left=0),
            ],
        ),
        case(
            "twelve at once, ten idle seconds, then four: 46 left",
            "What a pause earns stops at the capacity.",
            ["issue: TokenBucket(50, 5/s)"],
            bucket(50, "5/s"),
            [many(0, 12, 12, left=38), peek(10, left=50, reset=0), many(10, 4, 4, left=46)],
        ),
        case(
            "fifty at once, then exactly five a second: at most 55 in one second",
            "The bound capacity + rate * time is reached and not passed, in the first second.",
            ["issue: TokenBucket(50, 5/s)"],
            bucket(50, "5/s"),
            [
                many(0, 60, 50, left=0, retry="0.2"),
                [[no(us_text(i * 200_000 - 1)), yes(us_text(i * 200_000))] for i in range(1, 6)],
                no(1, left=0, retry="0.2"),
            ],
        ),
        case(
            "350 in a minute and 18,050 in an hour",
            "The bound in longer stretches, asked once a second by far more than there is.",
            ["issue: TokenBucket(50, 5/s)"],
            bucket(50, "5/s"),
            [
                many(0, 51, 50),
                [many(i, 6, 5, left=0) for i in range(1, 61)],
                many(65, 26, 25),
                [many(65 + 5 * i, 26, 25, left=0) for i in range(1, 4)],
                [many(80 + 10 * i, 51, 50, left=0) for i in range(1, 353)],
            ],
        ),
        case(
            "0.3 s earns 1.5 tokens",
            "Fractions of a token are kept: with 0.4 left, the next whole one is 0.12 s away.",
            ["issue: TokenBucket(50, 5/s)"],
            bucket(50, "5/s"),
            [
                yes(0, 50, left=0, reset=10),
                peek("0.3", left=1, balance="1.5"),
                yes("0.3", "1.1", left=0, balance="0.4"),
                no("0.3", retry="0.12"),
                no("0.419999", retry="0.000001"),
                yes("0.42", left=0, balance=0),
            ],
        ),
        case(
            "a search costs 5, a menu 1",
            "Costs of several sizes share one budget.",
            ["issue: TokenBucket(50, 5/s)"],
            bucket(50, "5/s"),
            [[yes(0, 5) for _ in range(9)], yes(0, 1, left=4), no(0, 5, left=4, retry="0.2"), yes(0, 1, left=3)],
        ),
        case(
            "frequent calls lose no fractions",
            "One call a second on a bucket that earns a third of a token a second.",
            ["C013"],
            bucket(10, "1/3s"),
            [
                [yes(t, left=left) for t, left in enumerate([9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2, 1, 1, 0])],
                no(14, left=0, retry=1),
                yes(15, left=0),
            ],
        ),
        case(
            "refusals do not delay the refill",
            "Asked ten times a second, a bucket of one at one a second admits on the second, each second.",
            ["C014"],
            bucket(1, "1/s"),
            [hit(us_text(i * 100_000), 1, i % 10 == 0) for i in range(21)],
        ),
        case(
            "a refused spend consumes nothing",
            "Smaller costs pass after a larger one was refused.",
            ["C016"],
            bucket(10, "1/h"),
            [yes(0, 8, left=2), no(0, 5, left=2), yes(0, left=1), yes(0, left=0), no(0, left=0)],
        ),
        case(
            "idle time before the first use earns nothing beyond full",
            "A key that was never used is full, whenever it is first used.",
            ["C026"],
            bucket(3, "6/s"),
            [yes(5), yes("5.01"), yes("5.02"), no("5.03", left=0)],
        ),
        case(
            "a pause as long as the refill gives the whole burst again",
            "Five at once pass, and five again after two seconds.",
            ["C029"],
            bucket(5, "5/s"),
            [many(0, 6, 5), many(2, 6, 5)],
        ),
        case(
            "seventeen of fifty in 4.9 s",
            "State must not be forgotten before the bucket is full: 3 + 3 * 4.9 = 17.7.",
            ["C044"],
            bucket(3, "3/s"),
            [[hit(us_text(i * 100_000), 1, i in PASS) for i in range(50)], peek(us_text(4_900_000), balance="0.7")],
        ),
        case(
            "the life of the state starts again with each spend",
            "Ten at 0 and five at 5 leave nothing over at 10 after five more.",
            ["C045"],
            bucket(10, "1/s"),
            [yes(0, 10), yes(5, 5, left=0), yes(10, 5, left=0), no(10, 1, retry=1)],
        ),
        case(
            "371 of 50 at each tenth of a second",
            "Eleven at first and ten at each later step: a tenth of a second at 100/s is exactly ten.",
            ["C049"],
            bucket(11, "100/s"),
            [many(0, 50, 11), [many(us_text(i * 100_000), 50, 10) for i in range(1, 37)]],
        ),
        case(
            "the exact wait is rounded up in the header only",
            "A lone client that waits as long as it was told is let in; a microsecond earlier it is not.",
            ["C053"],
            bucket(1, "0.4/s"),
            [yes(0), no("0.3", retry="2.2"), no("2.499999", retry="0.000001"), yes("2.5")],
        ),
        case(
            "whole seconds stay whole",
            "Waits of 2, 1 and 1.999 s at half a token a second.",
            ["C054"],
            bucket(1, "0.5/s"),
            [yes(0), no(0, retry=2), no("0.001", retry="1.999"), no(1, retry=1), yes(2)],
        ),
        case(
            "headers of 1, 2, 7, 3 and 2 seconds",
            "Exact waits of 1.0, 2.0, 7.0, 2.001 and 1.999 s, one after another.",
            ["C054"],
            bucket(4, "0.5/s"),
            [
                yes(0, 4),
                no(0, "0.5", retry=1),
                no(0, 1, retry=2),
                no(0, "3.5", retry=7),
                no("0.001", 1, retry="1.999"),
                no("0.999", "1.5", retry="2.001"),
            ],
        ),
        case("0.8 s after a fifth", "The wait counts what has drained since.", ["C057"], bucket(1, "1/s"),
             [yes(0), no("0.2", retry="0.8"), yes(1)]),
        case(
            "time to full and time to retry have one unit",
            "Two tokens a minute: full in 30 s after one, in 60 s after two, retry after 30 s.",
            ["C059"],
            bucket(2, "2/60s"),
            [yes(0, reset=30, retry=0), yes(0, reset=60, retry=0), no(0, retry=30, reset=60), yes(30, retry=0)],
        ),
        case(
            "never is not not-now",
            "What fits later has a wait; what is larger than the capacity has none.",
            ["C060"],
            bucket(5, "1/s"),
            [yes(0, 1), no(0, 5, retry=1), yes(1, 5), no(1, 6, retry=NEVER)],
        ),
        case(
            "the first result is complete",
            "Cost 3 of 10: remaining 7 and time to full, like every other result.",
            ["C065"],
            bucket(10, "1/s"),
            [yes(0, 3, left=7, balance=7, wait=0, retry=0, reset=3)],
        ),
        case("never above the capacity", "A long pause fills and does not overflow.", ["C066"], bucket(10, "1/s"),
             [yes(0, 3, left=7), peek(100, left=10, balance=10, reset=0)]),
        case(
            "a look changes nothing",
            "It counts the time that passed; a second look at the same instant sees the same.",
            ["C068"],
            bucket(5, "1/s"),
            [yes(0, 5), peek(3, left=3), peek(3, left=3), yes(3, 3, left=0)],
        ),
        case(
            "a look may ask for a cost",
            "It answers what a hit would be answered, and takes nothing.",
            [],
            bucket(5, "1/s"),
            [
                yes(0, 4, left=1),
                peek(0, 1, True, left=1, retry=0),
                peek(0, 3, False, left=1, retry=2),
                peek(0, 6, False, left=1, retry=NEVER),
                yes(0, 1, left=0),
            ],
        ),
        case(
            "a cost above the capacity takes nothing",
            "Refused as never; what fits passes right after.",
            ["C076"],
            bucket(300, "1/s"),
            [no(0, 301, left=300, retry=NEVER), yes(0, left=299)],
        ),
        case(
            "capacity is the burst and rate the flow: 1 at 6 a minute",
            "One at once, and one a minute later: the burst is one, whatever the rate.",
            ["C097"],
            bucket(1, "6/min"),
            [many(0, 6, 1, retry=10), many(60, 6, 1)],
        ),
        case(
            "capacity is the burst and rate the flow: 6 at 6 a minute",
            "Six at once, and six a minute later.",
            ["C097"],
            bucket(6, "6/min"),
            [many(0, 6, 6), many(60, 6, 6)],
        ),
        case("a hundred at once from a bucket of a hundred", "The bucket lets all fifty go at once where a queue spreads them.",
             ["C098"], bucket(100, "100/60s"), [many(0, 50, 50, left=50, wait=0)]),
        case(
            "forget the key",
            "After a reset the key is as one never used; what was taken before cannot be given back.",
            [],
            bucket(10, "1/s"),
            [yes(0, 10, left=0), reset(), peek(1, left=10, reset=0), yes(1, 4, left=6), refund(2, 0, 10, returned=0),
             peek(2, left=7)],
        ),
        case(
            "within: never more than 90,000 in any minute",
            "Capacity + rate * period is at most the number: 3,000 at once and 1,450 a second, 90,000 in 60 s.",
            ["issue: TokenBucket.within"],
            bucket(3000, "1450/s"),
            [
                many(0, 3, 3, cost=1000),
                no(0, 1, retry="0.00069"),
                [many(t, 30, 29, cost=50) for t in range(1, 61)],
                no(60, 1),
            ],
        ),
    ]


def us_text(microseconds: int) -> str:
    """Microseconds as seconds, for steps that are computed."""
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06d}"
