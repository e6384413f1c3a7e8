# What every store on the network does when nobody answers: calls end by their deadline, the breaker opens,
# and afterwards all is as before. Each store's tests inherit this, and say which server may be frozen
# (`mortal`) and which one stands behind a network that fails (`healthy`).

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import pytest

from tests.promptness import GRACE_S, Stopwatch, best_s, percentile
from tests.servers.network import REPLIES, Network
from tests.servers.redis_groups import wait_for
from tidegate import TokenBucket
from tidegate.core.outcome import Charge
from tidegate.stores.health import FAILURES_TO_OPEN

DEADLINE_S = 0.05
PROMISED_S = DEADLINE_S + GRACE_S
TEN = TokenBucket(10, "0/s")


class Mortal(Protocol):
    """A server that may be frozen."""

    url: str

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Healthy(NamedTuple):
    """A server that always answers: its port, and the address of a store there."""

    port: int
    url: str


class Asked(Protocol):
    """One face of a store, as the tests of each store have it."""

    def cause(self, key: str = "acme", **more: Any) -> str | None: ...

    def reach(self) -> None: ...

    def decide(self, charges: Sequence[Charge], **options: Any) -> Any: ...

    def decide_many(self, requests: Sequence[Sequence[Charge]], **options: Any) -> list[Any]: ...


Opened = Callable[..., Any]  # of either store's own faces, which are as `Asked` says
Between = Callable[[int], Network]


def timed(store: Asked, key: str = "acme") -> tuple[str | None, float]:
    """The cause, and how long it took to be told."""
    with Stopwatch() as watch:
        cause = store.cause(key)
    return cause, watch.took_s


def opened_breaker(store: Asked) -> None:
    """Ask until nobody is sent to the server any more."""
    wait_for("the breaker opens", lambda: store.cause() == "breaker")


def one(key: str, cost: int = 1) -> Charge:
    """A charge under a limit of ten."""
    return Charge("rule", key, TEN, cost * 1_000)


class Silence:
    """The tests; `opened(url, deadline=...)` opens either face."""

    def test_a_frozen_server(self, opened: Opened, mortal: Mortal):
        """Calls end by the deadline, and not before it; three of them open the breaker."""
        store = opened(mortal.url, deadline=DEADLINE_S)

        def frozen() -> float:
            store.reach()
            mortal.freeze()
            waited = [timed(store) for _ in range(FAILURES_TO_OPEN)]
            then = store.cause()
            mortal.thaw()

            assert [cause for cause, _ in waited] == ["deadline"] * FAILURES_TO_OPEN
            assert min(took_s for _, took_s in waited) > DEADLINE_S - 0.01
            assert then == "breaker"
            return max(took_s for _, took_s in waited)

        assert best_s(frozen, within_s=PROMISED_S) < PROMISED_S

    def test_refused_while_the_breaker_is_open(self, opened: Opened, mortal: Mortal):
        """For as long as the server is frozen, and at once: 99 of 100 refusals cost below a millisecond."""
        store = opened(mortal.url, deadline=DEADLINE_S)
        store.reach()
        mortal.freeze()
        opened_breaker(store)

        def refused() -> float:
            busy_s, until_s = [], time.monotonic() + 0.5
            while time.monotonic() < until_s:
                begin_s = time.thread_time()  # of this thread alone: the machine may have others to serve
                assert store.cause() == "breaker"
                busy_s.append(time.thread_time() - begin_s)
            return percentile(busy_s, 99)

        assert best_s(refused, within_s=0.001) < 0.001

    def test_served_again_after_a_thaw(self, opened: Opened, mortal: Mortal):
        """Within a second, without anybody's doing."""
        store = opened(mortal.url, deadline=DEADLINE_S)
        store.reach()

        def recovered() -> float:
            mortal.freeze()
            opened_breaker(store)
            mortal.thaw()
            with Stopwatch() as watch:
                store.reach()
            return watch.took_s

        assert best_s(recovered, within_s=1) < 1

    @pytest.mark.parametrize("lost", [(), (REPLIES,)], ids=["all is lost", "replies are lost"])
    def test_a_network_that_swallows(
        self, opened: Opened, healthy: Healthy, network: Between, lost: tuple[str, ...]
    ):
        """C137: open connections, and then new ones too, get no answer; each call ends by its deadline."""
        way = network(healthy.port)
        store = opened(way.through(healthy.url), deadline=DEADLINE_S)

        def swallowed() -> float:
            way.heal()
            store.reach()
            way.swallow(*lost)
            took = []
            for _ in range(3):
                took += [timed(store) for _ in range(FAILURES_TO_OPEN + 20)]
                time.sleep(0.1)
            assert {cause for cause, _ in took} == {"deadline", "breaker"}
            return max(took_s for _, took_s in took)

        assert best_s(swallowed, within_s=PROMISED_S) < PROMISED_S

    def test_served_again_by_a_healed_network(self, opened: Opened, healthy: Healthy, network: Between):
        """C137: within a second, whatever connections are still being made in vain."""
        way = network(healthy.port)
        store = opened(way.through(healthy.url), deadline=DEADLINE_S)
        store.reach()

        def recovered() -> float:
            way.swallow()
            opened_breaker(store)
            way.heal()
            with Stopwatch() as watch:
                store.reach()
            return watch.took_s

        assert best_s(recovered, within_s=1) < 1

    def test_a_server_that_was_never_reached(self, opened: Opened, healthy: Healthy, network: Between):
        """C137: connecting counts as part of the call; what connects at last is there for the next."""
        way = network(healthy.port)

        def never_reached() -> float:
            way.swallow()
            store = opened(way.through(healthy.url), deadline=DEADLINE_S)
            took = [timed(store) for _ in range(10)]
            way.heal()
            store.reach()
            assert {cause for cause, _ in took} == {"deadline", "breaker"}
            return max(took_s for _, took_s in took)

        assert best_s(never_reached, within_s=PROMISED_S) < PROMISED_S

    def test_a_call_may_have_a_deadline_of_its_own(self, opened: Opened, mortal: Mortal):
        """Shorter than the store's."""
        store = opened(mortal.url, deadline="20s")

        def frozen() -> float:
            store.reach()
            mortal.freeze()
            with Stopwatch() as watch:
                (answer,) = store.decide_many([[one("acme")]], deadline_us=30_000)
            mortal.thaw()
            assert answer.cause == "deadline"
            return watch.took_s

        assert best_s(frozen, within_s=0.03 + GRACE_S) < 0.03 + GRACE_S

    def test_what_was_charged_without_an_answer_is_not_charged_again(
        self, opened: Opened, healthy: Healthy, network: Between
    ):
        """The reply is lost, the charge stays: nine are left, and not eight."""
        way = network(healthy.port)
        store = opened(way.through(healthy.url), deadline="100ms")
        store.reach()
        way.swallow(REPLIES)
        cause = store.cause("once")
        way.heal()
        store.reach()

        assert cause == "deadline"
        assert store.decide([one("once", 0)])[0].remaining == 9

    def test_many_calls_after_a_failure_end_with_it(self, opened: Opened, mortal: Mortal):
        """Of 4,000 requests, many calls long, the first call waits for its deadline and no other one does."""
        store = opened(mortal.url, deadline=DEADLINE_S)
        requests = [[one(f"key {number}")] for number in range(4_000)]

        def frozen() -> float:
            store.reach()
            mortal.freeze()
            with Stopwatch() as watch:
                answers = store.decide_many(requests)
            mortal.thaw()
            assert {answer.cause for answer in answers} == {"deadline"}
            return watch.waited_s  # to write down so many is work, and takes a slow machine long

        assert best_s(frozen, within_s=2 * DEADLINE_S) < 2 * DEADLINE_S
