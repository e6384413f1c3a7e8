# Forked processes: the child works, whatever another thread held at the fork, and is told once that it has a
# budget of its own.

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.limiter.faces import SlowLimiter
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket
from tidegate.drive import run_blocking
from tidegate.stores.memory import MemoryStore

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    # Python 3.12 warns of every fork beside threads; here that is the case under test.
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_child(work: Callable[[], object]) -> int:
    """Fork, do the work in the child, and give back the child's exit status: 0 if it went well.

    A child that hangs is ended by its own alarm, and its status then is not 0.
    """
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(10)
        try:
            work()
        except BaseException:  # noqa: BLE001  # the child must end here, whatever happens
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def told(work: Callable[[], object]) -> list[str]:
    """The warnings that the work gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("kind", [Limiter, SlowLimiter])
def test_a_child_has_a_budget_of_its_own_and_is_told_once(kind):
    """C125: a child keeps a copy of the state, spends on its own, and is warned at its first use and never
    again.
    """
    limiter = kind(TokenBucket(4, "0/s"))
    limiter.hit("k")

    def work():
        first = told(lambda: limiter.hit("k"))
        assert len(first) == 1
        assert "N processes admit up to N times as much" in first[0]
        assert told(lambda: [limiter.hit("k") for _ in range(9)] + [limiter.peek("k")]) == []
        assert limiter.peek("k").remaining == 0

    assert in_child(work) == 0
    assert limiter.peek("k").remaining == 3
    assert told(lambda: limiter.hit("k")) == []


def test_a_limiter_made_in_the_child_warns_of_nothing():
    """C125: whoever makes the limiter in each process does so on purpose, and hears nothing."""

    def work():
        limiter = Limiter(TokenBucket(4, "0/s"))
        assert told(lambda: [limiter.hit("k") for _ in range(5)]) == []

    assert in_child(work) == 0


def test_a_warning_that_is_an_error_leaves_a_limiter_that_works():
    """Where warnings are errors the child's first use raises, and the second works."""
    limiter = Limiter(TokenBucket(4, "0/s"))

    def work():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="forked"):
            limiter.hit("k")
        assert limiter.hit("k").remaining == 3

    assert in_child(work) == 0


def test_grandchildren_are_told_too():
    """A child of a child is another process again."""
    limiter = Limiter(TokenBucket(4, "0/s"))

    def work():
        assert len(told(lambda: limiter.hit("k"))) == 1
        assert in_child(lambda: [told(lambda: limiter.hit("k"))[0]]) == 0

    assert in_child(work) == 0


def test_several_limiters_in_a_child():
    """Each store warns for itself, once, however many limiters share it."""
    shared, own = MemoryStore(), Limiter(TokenBucket(4, "0/s"))
    one = Limiter(TokenBucket(4, "0/s"), store=shared)
    other = AsyncLimiter(TokenBucket(4, "0/s"), store=shared)

    def work():
        assert len(told(lambda: one.hit("k"))) == 1
        assert told(lambda: run_blocking(other.hit("k"))) == []
        assert len(told(lambda: own.hit("k"))) == 1

    assert in_child(work) == 0


def test_four_processes_admit_at_most_four_times():
    """C125: 4 forked processes, limit 4, 40 requests spread over them: up to 16 in memory, 4 in each."""
    limiter = Limiter(TokenBucket(4, "1/h"))

    def work():
        warnings.simplefilter("ignore")
        os._exit(sum(bool(limiter.hit("k")) for _ in range(10)))

    assert [in_child(work) for _ in range(4)] == [4] * 4


@pytest.mark.parametrize("held", ["store", "tickets", "refunds"])
def test_a_lock_that_another_thread_held_at_the_fork(held):
    """C126: whichever lock another thread holds at the fork, the child's hits, hints, refunds and resets go
    through.
    """
    limiter: Any = Limiter(
        Policy([Rule("a", TokenBucket(4, "1/h"), by=("key",)), Rule("b", TokenBucket(9, "1/h"))])
    )
    limiter.hit("k", 4)
    lock = {
        "store": limiter.store.lock,
        "tickets": limiter._locks[0],
        "refunds": limiter._locks[1],
    }[held]
    has_it, may_go = threading.Event(), threading.Event()

    def hold():
        with lock:
            has_it.set()
            may_go.wait(20)

    def work():
        warnings.simplefilter("ignore")
        assert limiter.hit("k").retry_hint > 0
        reservation = limiter.reserve("j", 3)
        assert reservation.settle(1) > 1
        limiter.reset("k")
        assert limiter.hit("k")

    holder = threading.Thread(target=hold)
    holder.start()
    has_it.wait(20)
    try:
        assert in_child(work) == 0
    finally:
        may_go.set()
        holder.join()
    assert limiter.peek("j").outcomes[0].balance == 4


def test_forks_while_threads_decide():
    """C126: forks at random moments while threads hit, refund and reset: every child works, none hangs."""
    limiter: Any = Limiter(
        Policy([Rule("a", TokenBucket(40, "1/s"), by=("key",)), Rule("b", TokenBucket(90, "9/s"))])
    )
    done = threading.Event()

    def busy():
        while not done.is_set():
            limiter.refund(limiter.hit("k", 3))
            assert limiter.hit("k").retry_hint is not None
            limiter.reset("k")

    def work():
        warnings.simplefilter("ignore")
        for key in ("k", "j"):
            d = limiter.hit(key)
            assert d.retry_hint is not None
            limiter.refund(d)
            limiter.reset(key)
        assert limiter.hit("fresh").outcomes[0].allowed

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert [in_child(work) for _ in range(25)] == [0] * 25
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _spend(limiter, queue):
    warnings.simplefilter("ignore")
    queue.put(sum(bool(limiter.hit("k")) for _ in range(10)))


def test_multiprocessing_by_fork():
    """C126: multiprocessing's forked workers inherit the limiter and work."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    limiter = Limiter(TokenBucket(4, "1/h"))
    limiter.hit("k")
    workers = [context.Process(target=_spend, args=(limiter, queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert [worker.exitcode for worker in workers] == [0] * 3
    assert [queue.get() for _ in range(3)] == [3] * 3
    queue.close()
