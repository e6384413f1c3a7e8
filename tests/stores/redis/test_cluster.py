# A cluster: every key is asked where it lives, and a node that is down takes down its own part only.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.promptness import GRACE_S, Stopwatch, best_s
from tests.servers.redis_groups import Cluster, wait_for
from tests.stores.redis.clients import LIBRARIES, close, cluster_client
from tests.stores.redis.faces import FACES, Face, charge
from tests.stores.redis.moving import begin_to_move, move, name, url
from tidegate import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.core.compose import Adjustment
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.redis.lines import LoopLine, ThreadLine

Opened = Callable[..., Face]

KINDS = [
    TokenBucket(10, "0/s"),
    LeakyBucket(10, "1/h"),
    LeakyQueue(10, "1/h"),
    SlidingLog(10, "1h"),
    FixedWindow(10, "day", "Europe/Berlin"),
    SlidingWindow(10, "1h"),
]


@pytest.fixture(scope="module")
def rough_cluster() -> Iterator[Cluster]:
    """A cluster whose slots move and whose nodes fail, and are back after each test."""
    with Cluster(cluster_require_full_coverage="no") as cluster:
        yield cluster


@pytest.fixture
def rough(rough_cluster: Cluster) -> Iterator[Cluster]:
    """The rough cluster: whole and empty."""
    rough_cluster.flush()
    yield rough_cluster
    for node in rough_cluster.nodes:
        node.thaw()
        if not node.is_running:
            node.start()
    rough_cluster.wait_until_ok()


def keys_of(cluster: Cluster, master: Any, count: int = 1) -> list[str]:
    """Keys that live on that master."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        if cluster.master_of(name(f"key {number}")) is master:
            found.append(f"key {number}")
        number += 1
    return found


@pytest.mark.parametrize("limit", KINDS, ids=lambda limit: type(limit).__name__)
def test_every_verb_on_many_keys(opened: Opened, redis_cluster: Cluster, limit: Any):
    """C133: take, look, give back, forget, in requests of two rules, on 200 keys all over the slots."""
    store = opened(url(redis_cluster), deadline="2s")
    keys = [f"tenant {number}" for number in range(200)]
    requests = [[charge(key, 3, limit=limit), charge(key, rule="second")] for key in keys]
    answers = store.decide_many(requests)
    back = [Adjustment(answer[0].charge, answer[0].receipt, -2_000 * limit.law.grain) for answer in answers]
    returned = store.adjust(back)
    looked = [store.decide(request, take=False)[0].remaining for request in requests[:20]]
    store.forget([("rule", key) for key in keys[:10]])

    assert [[outcome.remaining for outcome in answer] for answer in answers] == [[7, 9]] * 200
    assert returned == [2_000 * limit.law.grain] * 200
    assert looked == [9] * 20
    assert [store.decide(request, take=False)[0].remaining for request in requests[:20]] == [10] * 10 + [
        9
    ] * 10
    assert all(node.command("DBSIZE") > 50 for node in redis_cluster.masters)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_users_cluster_client(opened: Opened, face: str, redis_cluster: Cluster, library: str):
    """Its nodes and its arguments are taken over; it is left alone."""
    made = cluster_client(library, face, redis_cluster.nodes[1].port)
    store = opened(made, deadline="2s")

    assert all(store.takes(f"key {number}") for number in range(60))
    if face == "blocking":
        assert made.ping()
    close(made)


def test_parts_by_slot(opened: Opened, redis_cluster: Cluster):
    """Charges of one tenant are one part; another tenant's are another, and so are those that all share."""
    store = opened(url(redis_cluster)).store
    charges = [charge("acme"), charge("other"), charge("acme", rule="second")]

    assert [list(part) for part in store.parts(charges)] == [[0, 2], [1]]
    assert [list(part) for part in store.awaited.parts(charges)] == [[0, 2], [1]]


def test_many_requests_with_one_of_several_slots(opened: Opened, redis_cluster: Cluster):
    """It is a mistake in its place, and the others are decided."""
    store = opened(url(redis_cluster), deadline="2s")
    good, bad = store.decide_many([[charge("a")], [charge("a"), charge("b")]])

    assert good[0].allowed
    assert isinstance(bad, StoreError)
    assert not isinstance(bad, StoreUnavailable)


def test_a_first_node_that_is_down(opened: Opened, redis_cluster: Cluster):
    """The map is read from the next one that answers."""
    store = opened(f"redis+cluster://127.0.0.1:1,127.0.0.1:{redis_cluster.nodes[0].port}", deadline="2s")

    assert store.takes()


def test_nobody_there(opened: Opened):
    """All named nodes are down: an outage, and soon at once."""
    store = opened("redis+cluster://127.0.0.1:1,127.0.0.1:2")
    causes = [store.cause(f"key {number}") for number in range(6)]

    assert causes == ["connection"] * 3 + ["breaker"] * 3


class TestMoving:
    """Redirections are followed, for nothing has been carried out then."""

    def test_a_slot_that_has_moved(self, opened: Opened, rough: Cluster):
        """MOVED: the first call goes the long way, the next the short one; what was used stays used."""
        cluster = rough
        store = opened(url(cluster), deadline="2s")
        store.decide([charge("acme", 4)])
        source = cluster.master_of(name("acme"))
        target = next(node for node in cluster.masters if node is not source)
        move(cluster, "acme", source, target)
        remaining = [store.decide([charge("acme")])[0].remaining for _ in range(2)]
        redirected = _redirections(source)
        store.takes("acme")

        assert remaining == [5, 4]
        assert _redirections(source) == redirected

    def test_a_slot_that_is_moving(self, opened: Opened, rough: Cluster):
        """ASK: keys that are there already are asked there, the others where they were."""
        cluster = rough
        store = opened(url(cluster), deadline="2s")
        store.decide([charge("acme", 4)])
        source = cluster.master_of(name("acme"))
        target = next(node for node in cluster.masters if node is not source)
        slot = cluster.slot_of(name("acme"))
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.command("CLUSTER", "MYID"))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.command("CLUSTER", "MYID"))
        before = store.decide([charge("acme")])[0].remaining
        source.command("MIGRATE", "127.0.0.1", target.port, name("acme"), 0, 1_000)
        after = store.decide([charge("acme")])[0].remaining

        assert [before, after] == [5, 4]
        move(cluster, "acme", source, target)

    def test_requests_of_one_key_in_a_slot_that_is_moving(self, opened: Opened, rough: Cluster):
        """Stayed, moved, or new: though they went together each is decided where its key is, exactly."""
        cluster = rough
        store = opened(url(cluster))
        rules = ("stays", "moves", "new", "new too")
        store.decide_many([[charge("acme", 4, rule=rule)] for rule in rules[:2]])
        source, target = begin_to_move(cluster, "acme")
        source.command("MIGRATE", "127.0.0.1", target.port, name("acme", "moves"), 0, 5_000)
        remaining = []
        for _ in range(2):
            answers = store.decide_many([[charge("acme", rule=rule)] for rule in rules])
            remaining.append([outcome.remaining for (outcome,) in answers])
        kept = [node.command("DBSIZE") for node in (source, target)]
        move(cluster, "acme", source, target)
        answers = store.decide_many([[charge("acme", rule=rule)] for rule in rules], take=False)

        assert remaining == [[5, 5, 9, 9], [4, 4, 8, 8]]
        assert kept == [1, 3]
        assert [outcome.remaining for (outcome,) in answers] == [4, 4, 8, 8]
        assert store.store.health.stats().outages == 0

    def test_a_request_of_several_keys_in_a_slot_that_is_moving(self, opened: Opened, rough: Cluster):
        """TRYAGAIN: put off twice, then it is busy. Nothing was charged, and later all is decided."""
        cluster = rough
        store = opened(url(cluster))
        both = [charge("acme", rule="old"), charge("acme", rule="new")]
        store.decide(both[:1])
        source, target = begin_to_move(cluster, "acme")
        before = _errors(source, "TRYAGAIN")
        with pytest.raises(StoreUnavailable) as raised:
            store.decide(both)
        put_off = _errors(source, "TRYAGAIN") - before
        move(cluster, "acme", source, target)

        assert raised.value.cause == "busy"
        assert put_off in {3, 4}  # whoever asks alone tries the short way first
        assert [outcome.remaining for outcome in store.decide(both)] == [8, 9]

    def test_keys_that_come_together_while_it_is_put_off(
        self, opened: Opened, rough: Cluster, monkeypatch: pytest.MonkeyPatch
    ):
        """The slot has moved meanwhile: the request is decided, and charged once."""
        cluster = rough
        store = opened(url(cluster))
        both = [charge("acme", rule="old"), charge("acme", rule="new")]
        store.decide(both[:1])
        source, target = begin_to_move(cluster, "acme")

        async def moved_meanwhile(line: Any, for_s: float) -> None:
            move(cluster, "acme", source, target)

        for line in (ThreadLine, LoopLine):
            monkeypatch.setattr(line, "pause", moved_meanwhile)

        assert [outcome.remaining for outcome in store.decide(both)] == [8, 9]

    def test_asked_on_while_slotsmove(self, rough: Cluster):
        """Threads ask without a pause; nothing is lost, and only the moving part has outages, if any."""
        cluster = rough
        limit = TokenBucket(100_000, "0/s")
        keys = [f"key {number}" for number in range(12)]
        counts = dict.fromkeys(keys, 0)
        unsure = dict.fromkeys(keys, 0)
        ends = threading.Event()

        def ask_on(key: str) -> None:
            while not ends.is_set():
                try:
                    counts[key] += store.takes(key, limit=limit)
                except StoreUnavailable as error:
                    unsure[key] += error.cause not in {"cluster_down", "breaker"}

        with Face("blocking", url(cluster), deadline="2s") as store:
            threads = [threading.Thread(target=ask_on, args=[key]) for key in keys]
            for thread in threads:
                thread.start()
            for key in keys[:4]:
                source = cluster.master_of(name(key))
                target = next(node for node in cluster.masters if node is not source)
                move(cluster, key, source, target)
            time.sleep(0.1)
            ends.set()
            for thread in threads:
                thread.join()
            used = {
                key: 100_000 - store.decide([charge(key, limit=limit)], take=False)[0].remaining
                for key in keys
            }

        assert unsure == dict.fromkeys(keys, 0)
        assert used == counts


class TestNodeDown:
    """C146: one master is down; the keys of the others are decided and counted."""

    def test_its_part_only(self, opened: Opened, rough: Cluster):
        """The dead part is an outage, soon at once; no live call is refused; nothing is counted twice."""
        cluster = rough
        store = opened(url(cluster))
        dead_node = cluster.masters[1]
        dead = keys_of(cluster, dead_node)[0]
        live = keys_of(cluster, cluster.masters[0])[0]
        limit = TokenBucket(100, "0/s")
        store.decide_many([[charge(dead, limit=limit)], [charge(live, limit=limit)]])
        dead_node.kill()
        causes = [(store.cause(dead, limit=limit), store.cause(live, limit=limit)) for _ in range(30)]
        live_answer, dead_answer = store.decide_many(
            [[charge(live, limit=limit)], [charge(dead, limit=limit)]]
        )

        assert {cause for _, cause in causes} == {None}
        assert [cause for cause, _ in causes[:4]] == ["connection"] * 3 + ["breaker"]
        assert {cause for cause, _ in causes} <= {"connection", "breaker"}
        assert live_answer[0].remaining == 100 - 32
        assert isinstance(dead_answer, StoreUnavailable)
        assert store.store.health.stats().open

        dead_node.start()
        wait_for("its part is served again", lambda: store.cause(dead, limit=limit) is None)

    def test_many_do_not_wait_for_it(self, opened: Opened, rough: Cluster):
        """Of many together, those of a frozen master end by the deadline, and the others are decided."""
        cluster = rough
        store = opened(url(cluster), deadline="200ms")
        keys = [keys_of(cluster, master)[0] for master in cluster.masters]

        def reached() -> bool:
            answers = store.decide_many([[charge(key, 0)] for key in keys])
            return not any(isinstance(answer, StoreUnavailable) for answer in answers)

        def frozen() -> float:
            wait_for("all parts are reached", reached)
            cluster.masters[0].freeze()
            with Stopwatch() as watch:
                silent, *others = store.decide_many([[charge(key, 0)] for key in keys])
            cluster.masters[0].thaw()
            assert silent.cause == "deadline"
            if any(isinstance(answer, StoreUnavailable) for answer in others):
                return float("inf")
            return watch.took_s

        assert best_s(frozen, within_s=0.2 + GRACE_S) < 0.2 + GRACE_S

    def test_frozen(self, opened: Opened, rough: Cluster):
        """The same for one that does not answer; the live part is not even slower."""
        cluster = rough
        store = opened(url(cluster), deadline="300ms")
        dead = keys_of(cluster, cluster.masters[1])[0]
        live = keys_of(cluster, cluster.masters[0])[0]
        wait_for("both parts are reached", lambda: store.cause(dead) is store.cause(live) is None)
        cluster.masters[1].freeze()
        causes = [store.cause(dead) for _ in range(5)]

        def slowest_of_live() -> float:
            took_s = []
            for _ in range(20):
                with Stopwatch() as watch:
                    cause = store.cause(live, cost=0)
                took_s.append(float("inf") if cause else watch.took_s)
            return max(took_s)

        assert causes == ["deadline"] * 3 + ["breaker"] * 2
        assert best_s(slowest_of_live, within_s=0.05) < 0.05

    def test_its_replica_takes_over(self, own_cluster: Callable[..., Cluster]):
        """After the election its keys are served again, by themselves, on the state that the replica had."""
        cluster = own_cluster(replicas=1, cluster_require_full_coverage="no")
        key = keys_of(cluster, cluster.masters[0])[0]
        replica = cluster.replicas[0]
        with ExitStack() as stack:
            stores = [stack.enter_context(Face(face, url(cluster), deadline="200ms")) for face in FACES]
            for store in stores:
                store.decide([charge(key, 2)])
            wait_for("the replica has it", lambda: replica.command("DBSIZE") == 1)
            cluster.masters[0].kill()
            wait_for("it is elected", lambda: replica.info("replication")["role"] == "master")
            for store in stores:
                wait_for("it is asked", lambda: store.cause(key, cost=0) is None)  # noqa: B023 - at once

            assert [store.decide([charge(key)])[0].remaining for store in stores] == [5, 4]
            for store in stores:  # the dead node is off the map, and its failures are still counted
                stats = store.store.health.stats()
                assert not stats.open
                assert stats.outages >= 1
                assert sum(stats.unavailable.values()) >= 1


def _redirections(node: Any) -> int:
    return _errors(node, "MOVED")


def _errors(node: Any, code: str) -> int:
    """How often the node has answered so."""
    said = node.info("errorstats")
    return int(said.get(f"errorstat_{code}", "count=0").partition("=")[2])
