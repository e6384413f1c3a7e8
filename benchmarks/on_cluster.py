"""What two slots cost: requests over a tenant's limit and everybody's, at twice the load, on a cluster.

    python -m benchmarks cluster

The same callers ask a single server, where one script decides both limits, and a cluster, where the two
live in two slots, are taken one after the other and given back if the second refuses. A refusal is spurious
if one script would have admitted. What is admitted is compared with what the law allows in that time.
"""

from __future__ import annotations

import asyncio
import random
import time

from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike
from tidegate import AsyncLimiter, Policy, Rule, TokenBucket
from tidegate.stores.redis.store import RedisStore

TENANTS, TENANT_PER_S, ALL_PER_S = 10, 40, 200
POLICY = Policy(
    [
        Rule("tenant", TokenBucket(TENANT_PER_S, f"{TENANT_PER_S}/s"), by=("tenant",)),
        Rule("everyone", TokenBucket(ALL_PER_S, f"{ALL_PER_S}/s")),
    ]
)


def run(seconds: int) -> None:
    """Measure and print; the servers are started for it, and stopped."""
    with RedisLike("valkey-9") as server:
        print("\nTwo limits on one request, twice the load that they allow")
        _told("one server", *asyncio.run(_ask(server.url, seconds)))
    with Cluster() as cluster:
        address = cluster.url.replace("redis:", "redis+cluster:").removesuffix("/0")
        _told("a cluster", *asyncio.run(_ask(address, seconds)))


async def _ask(address: str, seconds: int) -> tuple[int, int, float]:
    """How many were asked and admitted in how many seconds, from the first ask to the last answer."""
    store = RedisStore(address, deadline="1s")
    limiter, chance = AsyncLimiter(POLICY, store=store), random.Random(7)
    began, asked, tasks = time.monotonic(), 0, []
    while (now := time.monotonic() - began) < seconds:
        due = int(now * 2 * ALL_PER_S) - asked
        for _ in range(due):
            tenant = f"tenant-{chance.randrange(TENANTS)}"
            tasks.append(asyncio.create_task(limiter.hit({"tenant": tenant})))
        asked += due
        await asyncio.sleep(0.002)
    admitted = sum([bool(await task) for task in tasks])
    took = time.monotonic() - began
    await store.awaited.close()
    return asked, admitted, took


def _told(where: str, asked: int, admitted: int, took: float) -> None:
    allowed = ALL_PER_S * (1 + took)
    print(
        f"  {where:12} {asked:,} asked, {admitted:,} admitted in {took:.2f} s: "
        f"{admitted / allowed:.4f} of capacity + rate x time"
    )
