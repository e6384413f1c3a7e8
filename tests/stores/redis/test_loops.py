# One store on any number of event loops, one after another and at once.

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.servers.network import Network
from tests.servers.redis_groups import wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import charge
from tidegate import TokenBucket
from tidegate.errors import StoreUnavailable
from tidegate.stores.redis.store import RedisStore

Own = Callable[..., RedisLike]


def connections(server: RedisLike) -> int:
    """How many clients the server has, but for the one that asks."""
    return int(server.info("clients")["connected_clients"]) - 1


class TestLoops:
    """C120, C121: one store, any number of event loops."""

    def test_one_loop_after_another(self, own_redis: Own):
        """Each ends in order and leaves no connection behind, though nobody has closed the store."""
        server = own_redis()
        store = RedisStore(server.url, deadline="10s")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            left = [asyncio.run(_remaining(store)) for _ in range(3)]
            gc.collect()

        assert left == [9, 8, 7]
        wait_for("the connections are gone", lambda: connections(server) == 0)
        store.close()

    def test_a_loop_that_was_left_behind(self, valkey: RedisLike):
        """Closed without an end in order: the next loop works, and the old one is let go of."""
        store = RedisStore(valkey.url, deadline="10s")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(store.awaited.decide([charge()]))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

        assert asyncio.run(_remaining(store)) == 8
        assert len(store.awaited._ways) == 0
        store.close()

    def test_several_at_once_beside_threads(self, valkey: RedisLike):
        """Three loops and two threads on one key: exactly the capacity passes."""
        limit = TokenBucket(100, "0/s")
        store = RedisStore(valkey.url, deadline="10s")

        async def many() -> int:
            answers = await asyncio.gather(*(store.awaited.decide([charge(limit=limit)]) for _ in range(60)))
            return sum(outcome.allowed for (outcome,) in answers)

        def several() -> int:
            return sum(store.decide([charge(limit=limit)])[0].allowed for _ in range(60))

        with ThreadPoolExecutor(5) as workers:
            counts = [workers.submit(asyncio.run, many()) for _ in range(3)]
            counts += [workers.submit(several) for _ in range(2)]

            assert sum(count.result() for count in counts) == 100
        store.close()

    def test_callers_of_one_moment_are_one_round_trip(self, valkey: RedisLike):
        """A hundred tasks, one script call."""
        store = RedisStore(valkey.url, deadline="10s")

        async def main() -> int:
            await store.awaited.decide([charge()])
            before = _scripts_run(valkey)
            await asyncio.gather(*(store.awaited.decide([charge(f"key {n}")]) for n in range(100)))
            asked = _scripts_run(valkey) - before
            await store.awaited.close()
            return asked

        assert asyncio.run(main()) == 1

    def test_each_caller_has_an_error_of_his_own(self, own_redis: Own):
        """Fifty who failed together: an error that all raised would grow with every one of them."""
        server = own_redis(maxmemory_policy="noeviction")
        store = RedisStore(server.url, deadline="10s")

        async def main() -> list[Any]:
            await store.awaited.decide([charge()])
            server.set("maxmemory", 1)
            answers = await asyncio.gather(
                *(store.awaited.decide([charge(f"key {n}")]) for n in range(50)), return_exceptions=True
            )
            await store.awaited.close()
            return answers

        errors = asyncio.run(main())

        assert {error.cause for error in errors} == {"out_of_memory"}
        assert len(set(map(id, errors))) == 50

    def test_a_storm_of_cancellations(self, valkey: RedisLike):
        """Callers who leave at any moment: all others get their own answers, and nothing is counted twice."""
        store = RedisStore(valkey.url, deadline="10s")

        async def main() -> tuple[list[Any], int]:
            tasks = [
                asyncio.create_task(store.awaited.decide([charge(f"key {number}", cost=number % 9 + 1)]))
                for number in range(900)
            ]
            for number in range(0, 900, 3):
                asyncio.get_running_loop().call_later(0.0001 * (number % 100), tasks[number].cancel)
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            used = 0
            for number in range(900):
                (outcome,) = await store.awaited.decide([charge(f"key {number}")], take=False)
                used += outcome.remaining not in {10, 10 - number % 9 - 1}
            await store.awaited.close()
            return answers, used

        answers, wrong = asyncio.run(main())

        assert wrong == 0
        assert all(
            isinstance(answer, asyncio.CancelledError)
            if isinstance(answer, BaseException)
            else answer[0].charge.key == f"key {number}" and answer[0].remaining == 9 - number % 9
            for number, answer in enumerate(answers)
        )
        assert sum(isinstance(answer, list) for answer in answers) >= 600

    def test_a_loop_that_was_busy(self, own_redis: Own):
        """The loop was held up for longer than the deadline; the answer that has come meanwhile counts."""
        server = own_redis()
        store = RedisStore(server.url, deadline="10s")

        async def main() -> list[int]:
            left = [await _one(store)]
            for _ in range(5):
                asked = asyncio.ensure_future(_one(store, deadline_us=30_000))
                before = _scripts_run(server)
                for _ in range(3):
                    await asyncio.sleep(0)  # it is on its way
                while _scripts_run(server) == before:  # holding up the loop is what is tested
                    pass
                time.sleep(0.06)  # noqa: ASYNC251 - as above
                left.append(await asked)
            await store.awaited.close()
            return left

        assert asyncio.run(main()) == [9, 8, 7, 6, 5, 4]
        assert store.health.stats().unavailable == {}

    def test_a_slow_batch_is_no_hindrance_to_later_callers(
        self, valkey: RedisLike, network: Callable[[int], Network]
    ):
        """One reply is lost; callers who come after it are answered by other connections."""
        way = network(valkey.port)
        store = RedisStore(way.through(valkey.url), deadline="10s")

        async def main() -> str:
            await store.awaited.decide([charge()])
            way.hold()
            lost = asyncio.ensure_future(_cause(store))
            await asyncio.sleep(0.02)
            way.drop()
            way.heal()
            await store.awaited.decide([charge("later")])
            cause = await lost
            await store.awaited.close()
            return cause

        assert asyncio.run(main()) == "connection"

    def test_nothing_stays_after_an_outage(self, own_redis: Own):
        """No task and no timer is left once the store is closed, in the middle of an outage, too."""
        server = own_redis()
        store = RedisStore(server.url, deadline="20ms")

        async def main() -> int:
            await store.awaited.decide([charge()], deadline_us=20_000_000)
            server.freeze()
            for _ in range(6):
                await _cause(store)
            await asyncio.sleep(0.05)
            await store.awaited.close()
            await asyncio.sleep(0.01)
            return len(asyncio.all_tasks())

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert asyncio.run(main()) == 1
            gc.collect()
        wait_for(
            "the threads have ended", lambda: not any("tidegate" in t.name for t in threading.enumerate())
        )


async def _one(store: RedisStore, **options: Any) -> int:
    return (await store.awaited.decide([charge()], **options))[0].remaining


async def _cause(store: RedisStore) -> str:
    try:
        await store.awaited.decide([charge()])
    except StoreUnavailable as error:
        return error.cause
    return ""


async def _remaining(store: RedisStore) -> int:
    return await _one(store)


def _scripts_run(server: RedisLike) -> int:
    return int(server.info("commandstats")["cmdstat_evalsha"].split(",")[0].partition("=")[2])
