"""One request against 1, 4, 16 and 48 rules, over four attributes."""

from __future__ import annotations

from benchmarks.contenders import FLOOR, Load, floor
from benchmarks.rounds import Work, measure, show
from tidegate import Limiter, Policy, Rule, TokenBucket

ATTRIBUTES = ("address", "tenant", "user", "route")
REQUEST = {"address": "203.0.113.7", "tenant": "acme", "user": "ann", "route": "POST /exports"}
SIZES = (1, 4, 16, 48)


def _asking(size: int, capacity: int, times: int, cost: int = 1) -> Work:
    rules = [
        Rule(f"rule {number}", TokenBucket(capacity, "1000/s"), by=(ATTRIBUTES[number % 4],))
        for number in range(size)
    ]
    hit = Limiter(Policy(rules)).hit
    hit(REQUEST)

    def work() -> int:
        for _ in range(times):
            hit(REQUEST, cost)
        return times

    return work


def _by_hand(size: int, times: int) -> Work:
    """The hand-written bucket asked once for each rule: neither all-or-nothing nor named, but a floor."""
    buckets = [floor(Load(1000, 1, 1_000_000)) for _ in range(size)]
    keys = [REQUEST[ATTRIBUTES[number % 4]] for number in range(size)]

    def work() -> int:
        for _ in range(times):
            for bucket, key in zip(buckets, keys, strict=True):
                bucket(key)
        return times

    return work


def run(rounds: int, scale: int) -> None:
    """Measure and print; the floor asks a hand-written bucket once for each rule."""
    for size in SIZES:
        times = max(20, 4_000 // size // scale)
        chosen = {
            FLOOR: _by_hand(size, times),
            "tidegate, allowed": _asking(size, 1_000_000, times),
            "tidegate, refused": _asking(size, 10, times, cost=11),
        }
        measured = measure(chosen, FLOOR, rounds)
        show(f"One request against {size} rules", measured, unit="request")
        print(f"  that is {measured[1].ns / size:.0f} ns a rule where it is allowed")
