# A network that fails in every way at random, and nothing is ever mixed up, counted twice, or late.

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.promptness import GRACE_S, best_s, percentile
from tests.servers.network import REPLIES, REQUESTS, Network
from tests.servers.redis_groups import wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import charge
from tidegate import TokenBucket
from tidegate.core.outcome import Outcome
from tidegate.errors import StoreUnavailable
from tidegate.stores.redis.store import RedisStore

pytestmark = pytest.mark.real_time

MANY = TokenBucket(1_000_000, "0/s")
LASTS_S = 3.0
DEADLINE_S = 0.04


class Caller:
    """Somebody with a key of his own, who knows what was charged for sure, and what perhaps."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.surely = self.perhaps = 0
        self.took_s: list[float] = []
        self.causes: set[str] = set()

    def told(self, answer: Outcome | StoreUnavailable, took_s: float) -> None:
        """Check an answer against all before it."""
        self.took_s.append(took_s)
        if isinstance(answer, StoreUnavailable):
            self.causes.add(answer.cause)
            self.perhaps += answer.cause != "breaker"
            return
        self.surely += 1
        used = 1_000_000 - answer.remaining
        assert answer.charge.key == self.name
        assert self.surely <= used <= self.surely + self.perhaps, (self.name, used, self.surely, self.perhaps)


def test_a_network_that_fails_at_random(valkey: RedisLike, network: Callable[[int], Network]):
    """Each answer is that to its own call, nothing is charged twice, and every call ends by its deadline."""
    way = network(valkey.port)

    def played() -> float:
        valkey.flush()
        return percentile(failing_at_random(valkey, way), 99)

    promised_s = DEADLINE_S + 3 * GRACE_S  # nearly fifty may have to be told at the same moment
    assert best_s(played, within_s=promised_s, rounds=5) < promised_s


def failing_at_random(valkey: RedisLike, way: Network) -> list[float]:
    """What each call of many callers took, while the network failed; every answer was checked."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    store = RedisStore(way.through(valkey.url), deadline=DEADLINE_S)
    ends = threading.Event()
    blocking = [Caller(f"thread {number}") for number in range(6)]
    awaited = [[Caller(f"loop {loop} {number}") for number in range(20)] for loop in range(2)]
    failures: list[BaseException] = []

    def in_thread(work: Callable[..., Any], *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - handed on to the test's own thread
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def ask_on(caller: Caller) -> None:
        while not ends.is_set():
            begin_s = time.monotonic()
            try:
                answer: Any = store.decide([charge(caller.name, limit=MANY)])[0]
            except StoreUnavailable as error:
                answer = error
            caller.told(answer, time.monotonic() - begin_s)
            time.sleep(0.0005)

    async def ask_on_awaited(caller: Caller) -> None:
        while not ends.is_set():
            begin_s = time.monotonic()
            try:
                answer: Any = (await store.awaited.decide([charge(caller.name, limit=MANY)]))[0]
            except StoreUnavailable as error:
                answer = error
            caller.told(answer, time.monotonic() - begin_s)
            await asyncio.sleep(0.0005)

    async def all_of(callers: list[Caller]) -> None:
        await asyncio.gather(*(ask_on_awaited(caller) for caller in callers))

    threads = [in_thread(ask_on, caller) for caller in blocking]
    threads += [in_thread(lambda group=group: asyncio.run(all_of(group))) for group in awaited]
    _fail_at_random(way, random.Random(seed))
    callers = [*blocking, *(caller for group in awaited for caller in group)]
    before = [caller.surely for caller in callers]
    wait_for(
        "all are served again",
        lambda: failures != [] or all(c.surely > n + 3 for c, n in zip(callers, before, strict=True)),
    )
    ends.set()
    for thread in threads:
        thread.join()
    used = {caller.name: 1_000_000 - left(store, caller.name) for caller in callers}
    store.close()

    assert failures == []
    assert all(caller.surely <= used[caller.name] <= caller.surely + caller.perhaps for caller in callers)
    assert {cause for caller in callers for cause in caller.causes} <= {"deadline", "connection", "breaker"}
    return [took_s for caller in callers for took_s in caller.took_s]


def left(store: RedisStore, key: str) -> int:
    """How many the server says are left, however long that takes."""
    outcomes = store.decide([charge(key, limit=MANY)], take=False, deadline_us=20_000_000)
    return outcomes[0].remaining


def _fail_at_random(way: Network, chance: random.Random) -> None:
    ways_to_fail: list[Callable[[], object]] = [
        way.swallow,
        lambda: way.swallow(REPLIES),
        lambda: way.swallow(REQUESTS),
        way.hold,
        way.drop,
        way.refuse,
        lambda: way.delay(chance.uniform(0, 0.08)),
        lambda: way.delay(request_s=chance.uniform(0, 0.08)),
        lambda: way.cut_after(chance.randrange(200), chance.choice([REPLIES, REQUESTS]), once=True),
    ]
    until_s = time.monotonic() + LASTS_S
    while time.monotonic() < until_s:
        chance.choice(ways_to_fail)()
        time.sleep(chance.uniform(0.005, 0.15))
        way.heal()
        time.sleep(chance.uniform(0.005, 0.15))
