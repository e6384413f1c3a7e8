# FastAPI under uvicorn with four workers and a real load: what they admit together, also in an outage.

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.promptness import Lateness
from tests.servers.ports import claim_port, release_port
from tests.servers.redis_like import RedisLike
from tests.shared.stores import at_ease

pytestmark = pytest.mark.real_time
WITHIN_S = 60.0


@contextmanager
def workers(store: str, on_outage: str, count: int = 4) -> Iterator[int]:
    """The application with so many worker processes; its port."""
    port = claim_port()
    environment = {**os.environ, "STORE": store, "ON_OUTAGE": on_outage}
    words = [
        *(sys.executable, "-m", "uvicorn", "tests.shared.workers_app:app", "--log-level", "warning"),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", str(count)),
    ]
    process = subprocess.Popen(words, env=environment)
    try:
        until_s = time.monotonic() + WITHIN_S
        while not _listens(port):
            assert process.poll() is None, "uvicorn has ended"
            assert time.monotonic() < until_s, "uvicorn does not listen"
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)
        release_port(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Load:
    """Threads that ask as fast as they are answered: statuses, who answered, and from when to when."""

    def __init__(self, port: int, threads: int = 8) -> None:
        self.statuses: Counter[int] = Counter()
        self.workers: set[bytes] = set()
        self.refusing_s = (0.0, 0.0)  # the end of the first and the beginning of the last request refused
        self.began = time.monotonic()
        self._port, self._stop, self._lock = port, threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            for _ in range(50):
                asked_s = time.monotonic()
                connection.request("GET", "/")
                answer = connection.getresponse()
                body = answer.read()
                with self._lock:
                    self.statuses[answer.status] += 1
                    if answer.status == 429:
                        first_s, last_s = self.refusing_s
                        self.refusing_s = (first_s or time.monotonic(), max(last_s, asked_s))
                    if answer.status == 200:
                        self.workers.add(body)
                if self._stop.is_set():
                    break
            connection.close()

    def seen(self) -> Counter[int]:
        """The statuses so far."""
        with self._lock:
            return Counter(self.statuses)

    def end(self) -> float:
        """Stop asking; the seconds from before the first request to after the last."""
        self._stop.set()
        for thread in self._threads:
            thread.join(20)
        return time.monotonic() - self.began


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so in this time."""
    until_s = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


def test_four_workers_admit_one_budget(valkey: RedisLike):
    """Four workers under load admit 20 + 5 T together, by all of them, and answer 429 to the rest."""
    with workers(at_ease(valkey.url), "closed") as port:
        load = Load(port)
        within(2.0, lambda: False)
        took_s = load.end()

    assert set(load.statuses) == {200, 429}
    first_s, last_s = load.refusing_s
    assert 20 + 5 * (last_s - first_s) - 1 <= load.statuses[200] <= 20 + 5 * took_s
    assert len(load.workers) > 1


@pytest.mark.parametrize(("on_outage", "meanwhile"), [("closed", 503), ("open", 200)])
def test_an_outage_goes_by_the_rule_and_ends(own_redis, on_outage: str, meanwhile: int):
    """Killed in the middle: refused with 503 or let through as the rule says; back within a second or so."""
    server = own_redis("valkey-9")
    with workers(server.url, on_outage) as port:
        load = Load(port, threads=4)
        assert within(30, lambda: load.seen()[429] > 20)
        server.kill()
        assert within(30, lambda: load.seen()[meanwhile] > load.statuses[429] or load.seen()[meanwhile] > 200)
        before = load.seen()
        assert within(30, lambda: load.seen()[meanwhile] > before[meanwhile] + 50)
        server.start()
        came_back, refused = time.monotonic(), load.seen()[429]
        with Lateness() as late:
            assert within(30, lambda: load.seen()[429] > refused + 20)
            took_s = time.monotonic() - came_back
        load.end()

    assert set(load.statuses) <= {200, 429, 503}
    # the probe's tenth of a second, a fresh burst of 20, and a busy machine
    assert took_s - late.worst_s < 3
