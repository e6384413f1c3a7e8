# What interrupts a decision in its own thread: signal handlers and finalizers that ask, and exceptions that
# come from outside. Never a hang, never too much admitted, and afterwards a limiter that works.
# A machine gives as many signals as it can in a time; a busy one gives fewer, and then those have to do.

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.limiter.faces import SlowLimiter
from tidegate import Limiter, Policy, Rule, SlidingLog, StoreError, TokenBucket
from tidegate.own import Own, own
from tidegate.stores.memory import MemoryStore
from tidegate.testing import DistantStore, ManualClock

pytestmark = pytest.mark.real_time

needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")


def hand_is_right(store):
    """Every key that is held can be reached by the hand, and no key twice."""
    for table in store._tables.values():
        reached = list(table.hand)
        assert len(reached) == len(set(reached))
        assert set(table.cells) <= set(reached)
    return True


KNOCK = """
import os, sys, time
while os.getppid() == int(sys.argv[1]):
    os.kill(int(sys.argv[1]), int(sys.argv[2]))
    time.sleep(float(sys.argv[3]))
"""


KNOCKED_S = 15.0


@contextmanager
def interrupting(handler):
    """Within it another process sends a signal every 200 microseconds or so, and the handler runs.

    Yields a function that says whether to go on: while there were fewer than wanted, and there is time.
    """
    until_s = time.monotonic() + KNOCKED_S

    def goes_on(count, wanted):
        return count < wanted and (time.monotonic() < until_s or count < wanted // 50)

    before = signal.signal(signal.SIGUSR1, handler)
    knocker = subprocess.Popen(
        [sys.executable, "-c", KNOCK, str(os.getpid()), str(int(signal.SIGUSR1)), "0.0002"]
    )
    try:
        yield goes_on
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        knocker.kill()
        knocker.wait()
        signal.signal(signal.SIGUSR1, before)


def raise_within_tidegate(number, frame):
    """A handler that raises, as that of Ctrl-C does, but only where the project's own code was running."""
    if frame.f_globals.get("__name__", "").startswith("tidegate"):
        raise Stop


class Stop(Exception):
    """What interrupts."""


# A flow that is interrupted before its first step is a coroutine that nobody awaited; Python says so, and
# no more.
before_the_first_step = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning",
    "ignore:Exception ignored in. <coroutine:pytest.PytestUnraisableExceptionWarning",
)

KINDS = [
    lambda size: Limiter(TokenBucket(size, "0/s")),
    lambda size: SlowLimiter(TokenBucket(size, "0/s")),
    lambda size: Limiter(
        Policy([Rule("a", TokenBucket(size, "0/s"), by=("key",)), Rule("b", SlidingLog(size, "30 days"))])
    ),
]


@needs_signals
@pytest.mark.parametrize("make", KINDS, ids=["compiled", "slow", "two rules"])
def test_signal_handlers_that_ask(make):
    """Handlers that call hit while hit runs, thousands of times: each gets a decision or StoreError; nothing
    hangs, and exactly the capacity passes.
    """
    limiter = make(9000)
    results: list[
        bool | None
    ] = []  # appended to in one step, for a handler may be interrupted by the next one

    def handler(number, frame):
        try:
            results.append(bool(limiter.hit("k")))
        except StoreError:
            results.append(None)

    inside = 0
    with interrupting(handler) as goes_on:
        while goes_on(len(results), 3000):
            inside += bool(limiter.hit("k"))
            limiter.peek("k")
    assert limiter.peek("k").balance == 9000 - results.count(True) - inside
    while limiter.hit("k"):
        inside += 1
    assert results.count(True) + inside == 9000
    assert results.count(None) < len(results)


@needs_signals
def test_signal_handlers_that_give_back_and_read_hints():
    """Handlers that reserve, cancel, reset and take tickets while the main thread does so: no hang, and all
    comes back.
    """
    limiter, calls = Limiter(TokenBucket(10, "0/s")), 0
    refused = Limiter(TokenBucket(1, "1/h"))
    refused.hit("k")

    def work():
        reservation = limiter.reserve("k", 2)
        assert (refused.hit("k").retry_hint or 0) > 3000
        assert reservation.cancel() in (0, 2)

    def handler(number, frame):
        nonlocal calls
        calls += 1
        try:
            work()
        except StoreError:
            limiter_busy.append(1)

    limiter_busy: list[int] = []
    with interrupting(handler) as goes_on:
        while goes_on(calls, 1500):
            work()
    # A handler that was turned away in the middle may have left its reservation; all others are back.
    assert (limiter.peek("k").balance or 0) >= 10 - 2 * len(limiter_busy)


@needs_signals
@before_the_first_step
@pytest.mark.parametrize("make", KINDS, ids=["compiled", "slow", "two rules"])
def test_exceptions_in_the_middle(make):
    """Ctrl-C in the middle of a call, hundreds of times: what was admitted stays counted, and the limiter
    works on.
    """
    limiter, stopped, admitted = make(100_000), 0, 0

    with interrupting(raise_within_tidegate) as goes_on:
        step = 0
        while goes_on(stopped, 1500):
            try:
                step += 1
                key = f"k{step % 97}"
                d = limiter.hit(key)
                admitted += bool(d)
                if step % 5 == 0:
                    limiter.refund(d)
                if step % 7 == 0:
                    limiter.reset(key)
            except Stop:
                stopped += 1
    assert not limiter.store.lock.locked()
    assert limiter.store.held.by is None
    assert hand_is_right(limiter.store)
    for number in range(97):
        before = limiter.peek(f"k{number}").outcomes[0].balance
        assert limiter.hit(f"k{number}").outcomes[0].balance == before - 1


@needs_signals
@before_the_first_step
@pytest.mark.parametrize("when_full", ["refuse", "forget"])
def test_exceptions_while_room_is_made(when_full):
    """Interrupted again and again at the bound, with ever new keys: the bound holds and no key is lost to
    the hand.
    """
    store = MemoryStore(60, when_full)
    rules = [Rule("a", TokenBucket(5, "9/s"), by=("key",)), Rule("b", TokenBucket(5, "1/s"), by=("other",))]
    limiter, stopped, step = Limiter(Policy(rules), store=store), 0, 0

    with interrupting(raise_within_tidegate) as goes_on:
        while goes_on(stopped, 1500):
            try:
                step += 1
                limiter.hit({"key": str(step % 1000), "other": str(step % 77)})
            except Stop:
                stopped += 1
    assert store.stats().keys <= 61
    assert all(set(table.cells) <= set(table.hand) for table in store._tables.values())
    assert sum(len(table.hand) for table in store._tables.values()) <= 60 + 1500
    assert limiter.peek({"key": "x", "other": "y"}) is not None


def test_who_is_interrupted_while_a_key_enters(monkeypatch):
    """The next one who brings the key in finds it nowhere, and the hand knows it once."""
    store = MemoryStore()
    limiter = Limiter(TokenBucket(5, "0/s"), store=store)

    def interrupted(*_):
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr("tidegate.stores.table.LevelCell.put", interrupted)
        with pytest.raises(Stop):
            limiter.hit("k")

    assert [len(table.hand) for table in store._tables.values()] == [0]
    assert limiter.hit("k").remaining == 4
    assert hand_is_right(store)


class Asking:
    """A thing in a cycle whose finalizer asks a limiter, whenever the collector comes by."""

    def __init__(self, ask):
        self.ask, self.me = ask, self

    def __del__(self):
        self.ask()


@pytest.mark.parametrize("make", KINDS, ids=["compiled", "slow", "two rules"])
def test_finalizers_that_ask(make):
    """Finalizers that the collector runs in the middle of a hit: decided or turned away; nothing
    hangs, and exactly the capacity passes.
    """
    limiter = make(2000)
    results: list[bool | None] = []

    def ask():
        try:
            results.append(bool(limiter.hit("k")))
        except StoreError:
            results.append(None)

    threshold = gc.get_threshold()
    gc.set_threshold(3, 1, 1)
    try:
        inside = 0
        for _ in range(800):
            Asking(ask)
            inside += bool(limiter.hit("k"))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert len(results) == 800
    assert limiter.peek("k").balance == 2000 - inside - results.count(True)


def test_finalizers_that_give_back():
    """A reservation that is cancelled by a finalizer, wherever the collector finds it: no hang, and what came
    back came back once.
    """
    limiter = Limiter(TokenBucket(4000, "0/s"))
    back: list[Any] = []

    class Held:
        def __init__(self):
            self.reservation, self.me = limiter.reserve("k", 3), self

        def __del__(self):
            try:
                back.append(self.reservation.cancel())
            except StoreError:
                back.append(0)

    threshold = gc.get_threshold()
    gc.set_threshold(3, 1, 1)
    try:
        for _ in range(300):
            Held()
            limiter.refund(limiter.hit("k", 2))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert len(back) == 300
    assert limiter.peek("k").balance == 4000 - 900 + sum(back)


def test_a_handler_in_the_middle_of_the_slow_path_is_turned_away():
    """Whoever asks from within a decision of its own thread gets a StoreError that says so, and not a
    deadlock.
    """
    asked = []

    class Nosy:
        def now_us(self):
            asked.append(1)
            if len(asked) == 2:
                limiter.hit("k")
            return 0

    limiter = SlowLimiter(TokenBucket(3, "1/s"), clock=Nosy())
    limiter.hit("k")
    with pytest.raises(StoreError, match="signal handler or finalizer"):
        limiter.hit("k")
    assert limiter.hit("k").remaining == 1


def test_a_thread_that_waits_is_not_turned_away():
    """Another thread that asks meanwhile waits for its turn."""
    may_go, is_in = threading.Event(), threading.Event()

    class Slow:
        def now_us(self):
            if threading.current_thread() is not threading.main_thread():
                is_in.set()
                may_go.wait(20)
            return 0

    limiter = Limiter(TokenBucket(3, "1/s"), clock=Slow())
    limiter.hit("k")
    other = threading.Thread(target=limiter.peek, args=("k",))
    other.start()
    is_in.wait(20)
    releasing = threading.Timer(0.05, may_go.set)
    releasing.start()
    assert limiter.hit("k").remaining == 1
    other.join()
    releasing.join()


@needs_signals
def test_signal_handlers_that_make_limiters():
    """Handlers that make a limiter over the same store while one is being made: no hang, and one share."""
    clock, made = ManualClock(), []
    now: Any = None
    calls = depth = 0

    def share(store):
        limiter = Limiter(rule, store=store, clock=clock)
        with suppress(StoreError):  # who comes in while the bound is asked is turned away, as ever
            limiter.hit("k")
        return limiter._own, limiter._own.bounds()

    def handler(number, frame):
        nonlocal calls, depth
        if now is not None and depth < 3:  # it may take longer than the next knock, without end
            depth += 1
            made.append((now, share(now)))
            depth -= 1
            calls += 1

    rule = Rule("r", TokenBucket(5, "0/s"), by=("key",), on_outage="open", outage_limit=TokenBucket(5, "0/s"))
    with interrupting(handler) as goes_on:
        while goes_on(calls, 1_000):
            store = DistantStore(clock=clock)
            store.is_away, now = True, store
            found = share(store)
            made.append((store, found))
    parts: dict[int, set[Any]] = {}
    for store, kept in made:
        parts.setdefault(id(store), set()).add(kept)
    assert {len(kept) for kept in parts.values()} == {1}


def test_who_comes_in_while_what_is_owned_is_made(monkeypatch):
    """At the worst moment: the same is found, and nothing hangs."""
    store, found, depth = DistantStore(), [], 0

    class Interrupted(Own):
        def __init__(self, clock=None):
            nonlocal depth
            super().__init__(clock)
            depth += 1
            if depth == 1:
                found.append(own(store, None))

    monkeypatch.setattr("tidegate.own.Own", Interrupted)
    asking = threading.Thread(target=lambda: found.append(own(store, None)), daemon=True)
    asking.start()
    asking.join(30)
    assert not asking.is_alive()
    assert found[0] is found[1]
