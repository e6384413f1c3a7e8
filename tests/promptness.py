# How a test speaks of time on a machine that may be slow, or busy with others: it never fails for that alone.
#
# A promise ("by the deadline", "again within a second") is judged by the best of up to ten rounds, for a
# fault is in every one of them and a busy moment is not. A machine that is busy all the time is allowed for
# too: a thread beside measures how late it lets threads go on, and that is no fault of what is timed. The
# first round that keeps the promise is the last, so a quiet machine plays one.
# Only the time is tried again. What a round asserts about answers must hold in every round that is played.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

ROUNDS_MOST = 10
GRACE_S = 0.01
"""What the documentation adds to a deadline."""


class Lateness:
    """How late the machine lets a thread go on, while this context lasts."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lateness", daemon=True)

    def _watch(self) -> None:
        while not self._ended.is_set():
            begin_s = time.perf_counter()
            time.sleep(0.001)
            self.worst_s = max(self.worst_s, time.perf_counter() - begin_s - 0.001)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def best_s(once: Callable[[], float], *, within_s: float, rounds: int = ROUNDS_MOST) -> float:
    """The time that the best round took, less the machine's lateness in it; a round in time is the last.

    `once` plays a round and says what it took, in seconds. It can be played again after itself.
    """
    best = float("inf")
    for _ in range(rounds):
        with Lateness() as late:
            took_s = once()
        best = min(best, took_s - late.worst_s)
        if best < within_s:
            break
    return best


def percentile(took_s: Sequence[float], percent: int) -> float:
    """The time within which so many of a hundred ended."""
    return sorted(took_s)[len(took_s) * percent // 100]


class Stopwatch:
    """How long its context lasted, and how much of it this thread did not spend working."""

    def __init__(self) -> None:
        self.took_s = self.waited_s = 0.0

    def __enter__(self) -> Self:
        self._began_s, self._busy_s = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.took_s = time.perf_counter() - self._began_s
        self.waited_s = self.took_s - (time.thread_time() - self._busy_s)
