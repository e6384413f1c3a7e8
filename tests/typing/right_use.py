# Code as a user writes it. mypy must accept every line in strict mode and infer what the assertions say.
# It is also run, so that what is promised to the type checker is true.

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import assert_type

from tidegate import (
    AsyncLimiter,
    Decision,
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limiter,
    Policy,
    Rate,
    RateLimited,
    Rule,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
    open_store,
)
from tidegate.reservation import Reservation
from tidegate.testing import DistantStore, ManualClock

policy = Policy(
    [
        Rule("org", TokenBucket(20, "5/s"), by=("org",), cost={"POST /exports": 5}),
        Rule("all", LeakyBucket(1000, Rate(500, per="1s"))),
        Rule("codes", SlidingLog(5, "10min"), by=("phone",), match={"route": "POST /codes"}),
        Rule("monthly", FixedWindow(10_000, "month", zone="Europe/Paris"), by=("org",), mode="shadow"),
        Rule("hourly", SlidingWindow(500, "1h"), by=("org",), overrides={"acme": SlidingWindow(900, "1h")}),
        Rule("crawlers", by=("agent",), match={"agent": "bad-bot"}, mode="deny"),
    ]
)
clock = ManualClock()
limiter = Limiter(policy, store=open_store("memory://?max_keys=1000"), clock=clock)
distant = DistantStore(clock=clock)
shared = Rule(
    "shared",
    TokenBucket(100, "50/s"),
    on_outage="reserve",
    reserve={"share": "20%", "nodes": 4, "index": 0},
)
with Limiter(shared, store=distant, on_outage="open", deadline="20ms", workers=2) as over_the_network:
    assert_type(over_the_network.hit({}), Decision)
AsyncLimiter(shared, store=distant.awaited, tier="direct")

decision = limiter.hit({"org": "acme", "route": "POST /exports"})
assert_type(decision, Decision)
assert_type(decision.allowed, bool)
assert_type(decision.remaining, int | None)
assert_type(decision.retry_after, float | None)
assert_type(decision.reset_after, float | None)
assert_type(decision.wait, float)
assert_type(decision.rule, str)
assert_type(decision.source, str)
assert_type(bool(decision), bool)
assert_type([outcome.rule for outcome in decision.outcomes], list[str])

assert_type(limiter.peek({"org": "acme"}), Decision)
assert_type(limiter.reset({"org": "acme"}), None)

reservation = limiter.reserve({"org": "acme"}, 3)
assert_type(reservation.decision, Decision)
assert_type(reservation.settle(2), Fraction)
with limiter.reserve({"org": "acme"}, 3) as held:
    assert_type(held, Reservation)


line = Limiter(LeakyQueue(capacity=2, rate="1/s"), clock=clock)
assert_type(line.hit("job").wait, float)

small = Limiter(TokenBucket(capacity=2, rate="1/s"), clock=clock)


@small.limit()
def price(item: str, count: int = 1) -> float:
    """A function of a user, decorated without a key."""
    return len(item) * count / 2


assert_type(price("tea", count=2), float)

try:
    price("tea")
    price("tea")
except RateLimited as refused:
    assert_type(refused.decision, Decision)


async def main() -> None:
    twin = AsyncLimiter(TokenBucket(1, "1/s"), clock=clock)
    assert_type(await twin.hit(b"key"), Decision)
    assert_type(await twin.hit(("org", 7), cost=0.5), Decision)
    async with await twin.reserve("other", 0.5) as later:
        assert_type(await later.cancel(), Fraction)

    @twin.limit()
    async def fetch(address: str) -> bytes:
        return address.encode()

    assert_type(await fetch("a"), bytes)


asyncio.run(main())
