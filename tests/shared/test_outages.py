# Whole limiters before a real server that is killed, frozen or restarted in the middle of a run.
#
# Every outage rule has a limiter with a store, a breaker and a thread of its own, as if each were a process,
# and the rule with a reserve has two, its nodes. All ask every few milliseconds, and are judged by what
# their rules promise: what they decide in every round, and how long it takes them by the best of a few.

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import pytest

from tests.promptness import GRACE_S, best_s, percentile
from tests.servers.postgres import Postgres
from tests.servers.redis_like import RedisLike
from tidegate import AsyncLimiter, Limiter, Rule, TokenBucket, open_store
from tidegate.core.decision import Decision

pytestmark = pytest.mark.real_time

Server = RedisLike | Postgres
Play = Callable[[str, str], dict[str, "Run"]]

DEADLINE_S = 0.05
PROMISED_S = DEADLINE_S + 2 * GRACE_S  # seven threads may be told at the same moment
EVERY_S = 0.008
BEFORE_S, AWAY_S, AFTER_S = 0.4, 1.0, 1.2

WIDE = TokenBucket(1_000_000, "1000000/s")
WHOLE = TokenBucket(40, "40/s")  # the store holds 32 at 32/s, each of two nodes 4 at 4/s
BOUND = TokenBucket(20, "10/s")


def rules() -> dict[str, Rule]:
    """One for each limiter, by its name; the two nodes have one rule together."""
    return {
        "closed": Rule("closed", WIDE, by=("key",)),
        "open": Rule("open", WIDE, by=("key",), on_outage="open"),
        "bounded": Rule("bounded", WIDE, by=("key",), on_outage="open", outage_limit=BOUND),
        **{f"node {index}": reserved(index) for index in (0, 1)},
    }


def reserved(index: int) -> Rule:
    reserve = {"share": "20%", "nodes": 2, "index": index}
    return Rule("reserved", WHOLE, by=("key",), on_outage="reserve", reserve=reserve)


class Asked(NamedTuple):
    """One decision: when it was asked and had ended, its processor time, and what was decided."""

    began_s: float
    ended_s: float
    busy_s: float
    decision: Decision

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


class Run(NamedTuple):
    """What one limiter was asked, and when the server was gone, was told to come back, and was back."""

    asked: Sequence[Asked]
    gone_s: float
    told_s: float
    back_s: float

    def away(self, after_s: float = 0) -> list[Asked]:
        """Those asked and answered while the server was surely away, after the first so many seconds."""
        return [
            one for one in self.asked if self.gone_s + after_s < one.began_s and one.ended_s < self.told_s
        ]

    def served_again_s(self) -> float:
        """How long after its return the server decided again."""
        found = (
            one.ended_s - self.back_s
            for one in self.asked
            if one.began_s > self.told_s and is_by_store(one.decision)
        )
        return next(found, float("inf"))


def is_by_store(decision: Decision) -> bool:
    return decision.source in {"redis", "postgres"}


class Before:
    """A limiter of either face before the server, asked until it is told to end."""

    def __init__(self, face: str, url: str, rule: Rule, is_ended: Callable[[], bool]) -> None:
        self.asked: list[Asked] = []
        self.error: BaseException | None = None
        self.is_warm = threading.Event()
        self._url, self._rule, self._is_ended = url, rule, is_ended
        target = self._blocking if face == "blocking" else lambda: asyncio.run(self._awaited())
        self.thread = threading.Thread(target=self._noting, args=(target,))

    def _store(self) -> Any:
        """A store that is another than any other, as if in a process of its own."""
        store: Any = open_store(self._url)
        core = store._core if hasattr(store, "_core") else store
        core.identity = ("of its own", id(self))
        return store

    def _noting(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - nothing may be raised: told at the end
            self.error = error
        self.is_warm.set()

    def _note(self, began_s: float, busy_s: float, decision: Decision) -> None:
        ended_s, busy_s = time.perf_counter(), time.thread_time() - busy_s
        self.asked.append(Asked(began_s, ended_s, busy_s, decision))
        if is_by_store(decision):
            self.is_warm.set()

    def _blocking(self) -> None:
        store = self._store()
        limiter = Limiter(self._rule, store=store)
        while not self._is_ended():
            began_s, busy_s = time.perf_counter(), time.thread_time()
            self._note(began_s, busy_s, limiter.hit("k"))
            time.sleep(EVERY_S)
        store.close()

    async def _awaited(self) -> None:
        store = self._store()
        limiter = AsyncLimiter(self._rule, store=store)
        while not self._is_ended():
            began_s, busy_s = time.perf_counter(), time.thread_time()
            self._note(began_s, busy_s, await limiter.hit("k"))
            await asyncio.sleep(EVERY_S)
        await store.awaited.close()


def played(server: Server, url: str, face: str, way: str) -> dict[str, Run]:
    """The run of each rule's limiter, while the server goes in this way, and comes back."""
    ended = threading.Event()
    befores = {name: Before(face, url, rule, ended.is_set) for name, rule in rules().items()}
    for before in befores.values():
        before.thread.start()
    for before in befores.values():
        assert before.is_warm.wait(30)
    time.sleep(BEFORE_S)
    {"kill": server.kill, "freeze": server.freeze, "stop": server.stop}[way]()
    gone_s = time.perf_counter()
    time.sleep(AWAY_S)
    told_s = time.perf_counter()
    if way == "freeze":
        server.thaw()
    else:
        server.start()
    back_s = time.perf_counter()
    time.sleep(AFTER_S)
    ended.set()
    for before in befores.values():
        before.thread.join(30)
    assert [before.error for before in befores.values()] == [None] * len(befores)
    return {name: Run(before.asked, gone_s, told_s, back_s) for name, before in befores.items()}


@pytest.fixture(
    params=[
        ("redis", "kill"),
        ("redis", "freeze"),
        ("redis", "stop"),
        ("postgres", "kill"),
        ("postgres", "freeze"),
    ],
    ids=" ".join,
)
def server_and_way(request: pytest.FixtureRequest) -> tuple[Server, str, str]:
    """A server of its own that forgets nothing when it is killed, its address, and how it will go."""
    kind, way = request.param
    if kind == "redis":
        options = {"appendonly": "yes", "appendfsync": "always"}
        server = cast(RedisLike, request.getfixturevalue("own_redis")(**options))
        return server, f"{server.url}?deadline=50ms", way
    made = cast(Postgres, request.getfixturevalue("own_postgres")())
    store: Any = open_store(made.url)
    store.init(logged=True)
    store.close()
    return made, f"{made.url}{'&' if '?' in made.url else '?'}deadline=50ms", way


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_every_outage_rule_when_a_server_goes(server_and_way: tuple[Server, str, str], face: str):
    """C137, C142: decisions by the rule within the deadline, and by the server again within a second."""
    server, url, way = server_and_way

    def once() -> float:
        runs = played(server, url, face, way)
        check_what_was_decided(runs)
        slow_s = max(percentile([one.took_s for one in run.asked], 99) for run in runs.values())
        return slow_s if all(is_quick(run) for run in runs.values()) else float("inf")

    assert best_s(once, within_s=PROMISED_S, rounds=5) < PROMISED_S


def is_quick(run: Run) -> bool:
    """Whether decisions cost next to nothing while the breaker was open, and the server was soon back."""
    late = run.away(after_s=0.4)  # the breaker is open: three calls of a deadline each have failed
    return (
        statistics.median(one.busy_s for one in late) < 0.001
        and statistics.median(one.took_s for one in late) < 0.005
        and run.served_again_s() < 1
    )


def check_what_was_decided(runs: dict[str, Run]) -> None:
    """Each limiter went by its rule while the server was away, and none admitted too much."""
    assert not any(is_by_store(one.decision) for run in runs.values() for one in run.away())
    assert not any(one.decision for one in runs["closed"].away())
    assert all(one.decision for one in runs["open"].away())
    assert is_spent_up_to(BOUND, runs["bounded"].away())
    nodes = [runs["node 0"], runs["node 1"]]
    for node in nodes:
        assert {one.decision.source for one in node.away() if one.decision} == {"reserve"}
        assert {one.decision.source for one in node.away() if not one.decision} == {"outage"}
    assert most_beyond(WHOLE, [one for node in nodes for one in node.asked]) <= 0


def is_spent_up_to(limit: TokenBucket, asked: Sequence[Asked]) -> bool:
    """Whether so many passed as the limit allows, at least its capacity, and then no more."""
    passed = sum(bool(one.decision) for one in asked)
    most = limit.capacity + float(limit.rate.per_second) * (asked[-1].ended_s - asked[0].began_s)
    return limit.capacity <= passed <= most and not all(one.decision for one in asked)


def most_beyond(limit: TokenBucket, asked: Sequence[Asked]) -> float:
    """The most by which capacity + rate x time was surely exceeded, in any interval; nothing, if negative.

    A decision falls between its beginning and its end, so an interval holds those that lie in it whole.
    """
    admitted = sorted((one for one in asked if one.decision), key=lambda one: one.ended_s)
    rate_per_s, worst = float(limit.rate.per_second), -float(limit.capacity)
    for began_s in [one.began_s for one in admitted]:
        count = 0
        for one in admitted:
            if one.began_s >= began_s:
                count += 1
                worst = max(worst, count - limit.capacity - rate_per_s * (one.ended_s - began_s))
    return worst
