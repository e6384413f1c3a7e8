# A master that is replaced: by sentinels, by hand, or by its own restart, in the middle of a run.

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.promptness import Lateness
from tests.servers.redis_groups import SentinelGroup, in_sync, wait_for
from tests.servers.redis_like import RedisLike
from tests.stores.redis.clients import LIBRARIES, close, master_client
from tests.stores.redis.faces import FACES, Face, charge
from tidegate import TokenBucket
from tidegate.errors import StoreError, StoreUnavailable

Own = Callable[..., RedisLike]

pytestmark = pytest.mark.real_time


def url(group: SentinelGroup) -> str:
    """The master by its sentinels."""
    hosts = ",".join(f"{host}:{port}" for host, port in group.addresses)
    return f"redis+sentinel://{hosts}/{group.name}/0"


class TestSentinels:
    """The master is whoever the sentinels say, and says so itself."""

    def test_a_failover_in_the_middle_of_a_run(self, own_sentinels: Callable[..., SentinelGroup]):
        """By URL and each library's client, both faces: typed errors, and soon the new master is asked."""
        group = own_sentinels()
        made = [
            master_client(library, face, group.addresses, group.name)
            for library in LIBRARIES
            for face in FACES
        ]
        with ExitStack() as stack:
            stores = [stack.enter_context(Face(face, url(group), deadline="2s")) for face in FACES]
            stores += [
                stack.enter_context(Face(face, one, deadline="2s"))
                for one, face in zip(made, FACES * 2, strict=True)
            ]
            used = [store.decide([charge(f"key {n}", 4)])[0].remaining for n, store in enumerate(stores)]
            wait_for("the replica has it", lambda: group.replica.command("DBSIZE") == len(stores))
            runs = [_Run(store) for store in stores]
            group.master.kill()
            wait_for("there is a new master", lambda: group.master_port() == group.replica.port)
            elected_s = time.monotonic()
            with Lateness() as late:
                wait_for(
                    "all are served", lambda: all(run.is_served_since(elected_s) for run in runs), within_s=10
                )
                took_s = time.monotonic() - elected_s
            for run in runs:
                run.end()
            left = [store.decide([charge(f"key {n}")])[0].remaining for n, store in enumerate(stores)]

        assert used == [6] * len(stores)
        assert left == [5] * len(stores)
        assert took_s - late.worst_s < 2
        assert {cause for run in runs for cause in run.causes} <= {"connection", "deadline", "breaker"}
        for one in made:
            close(one)

    def test_a_first_sentinel_that_is_down(self, own_sentinels: Callable[..., SentinelGroup]):
        """The next one is asked; a name that none knows is an outage that says so."""
        group = own_sentinels()
        group.sentinels[0].kill()
        with ExitStack() as stack:
            stores = [stack.enter_context(Face(face, url(group), deadline="10s")) for face in FACES]
            unknown = [
                stack.enter_context(Face(face, url(group).replace(group.name, "nobody"), deadline="10s"))
                for face in FACES
            ]

            assert all(store.takes() for store in stores)
            for store in unknown:
                with pytest.raises(StoreUnavailable, match="nobody"):
                    store.takes()

    def test_a_replica_client(self, own_sentinels: Callable[..., SentinelGroup]):
        """`slave_for` gives a client that reads: limits are written, so it is refused at once."""
        from redis.sentinel import Sentinel

        made = Sentinel([("127.0.0.1", 1)]).slave_for("tidegate")

        with pytest.raises(StoreError, match="master_for"):
            Face("blocking", made)


class TestPromotion:
    """A replica is promoted by hand, and its name goes to it."""

    def test_what_it_had_not_heard_of(self, own_redis: Own, network: Any):
        """At most what was charged since it was cut off is forgotten; nothing before that."""
        master = own_redis()
        replica = own_redis(replicaof=("127.0.0.1", master.port))
        way = network(master.port)
        limit = TokenBucket(1_000, "0/s")
        with ExitStack() as stack:
            stores = [
                stack.enter_context(Face(face, way.through(master.url), deadline="2s")) for face in FACES
            ]
            wait_for("the replica is in sync", lambda: in_sync(replica))
            for store in stores:
                store.decide([charge(cost=100, limit=limit)])
            name = "tidegate:{acme}:rule"
            wait_for("it has heard", lambda: replica.command("GET", name) == master.command("GET", name))
            master.freeze()
            way.lead_to(replica.port)
            replica.command("REPLICAOF", "NO", "ONE")
            way.drop()
            for store in stores:
                wait_for("it is served", lambda: store.cause(cost=0) is None)  # noqa: B023 - at once

            assert stores[0].decide([charge(cost=0, limit=limit)])[0].remaining == 800


def test_restarts_under_load(own_redis: Own):
    """Threads and a loop ask without a pause while the server is stopped, killed and started again."""
    server = own_redis()
    with ExitStack() as stack:
        runs = [
            _Run(stack.enter_context(Face(face, server.url, deadline="100ms"))) for face in (*FACES, *FACES)
        ]
        took_s = []
        for end in (server.stop, server.kill, server.stop):
            end()
            time.sleep(0.1)
            server.start()
            back_s = time.monotonic()
            wait_for("all are served", lambda: all(run.is_served_since(back_s) for run in runs))  # noqa: B023 - at once
            took_s.append(time.monotonic() - back_s)
        for run in runs:
            run.end()

    assert min(took_s) < 1  # a busy machine may be late once, and not three times
    assert {cause for run in runs for cause in run.causes} <= {"connection", "deadline", "breaker"}


class _Run:
    """A thread that asks without a pause, and remembers what it was told."""

    def __init__(self, store: Face) -> None:
        self._store = store
        self.causes: set[str] = set()
        self._served_at_s = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask_on)
        self._thread.start()

    def is_served_since(self, at_s: float) -> bool:
        """Whether a call that began later was answered."""
        assert self._thread.is_alive(), "an exception of another kind has ended the run"
        return self._served_at_s > at_s

    def end(self) -> None:
        """Stop asking."""
        self._ends.set()
        self._thread.join()

    def _ask_on(self) -> None:
        while not self._ends.is_set():
            begin_s = time.monotonic()
            cause = self._store.cause("anybody", cost=0)
            if cause is None:
                self._served_at_s = begin_s
            else:
                self.causes.add(cause)
            time.sleep(0.002)
