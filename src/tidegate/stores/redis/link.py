"""A link to one server, or to whoever has its name: its connections, its breaker, its probe.

A round trip is `Line.run`: ask the breaker, take a connection, send, receive, and tell the breaker how it
went. Each face has a line of its own (`lines.py`).

While the breaker is open and somebody asks, probes go out beside the callers, by a thread or by the loop, on
a connection of their own; they end with the outage, with the store, or when nobody has asked for a while;
then whoever asks next waits for one. A probe is the script itself on no keys: it fails where decisions would
that write nothing, while data is loaded for instance.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from tidegate.drive import run_blocking
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import CHARGED, DECIDED, KEPT, PROBE_EVERY_US, PROBED, Health, proof_in
from tidegate.stores.redis.address import Host, Options
from tidegate.stores.redis.causes import FORGETFUL, classified
from tidegate.stores.redis.connections import AwaitedConnection, BlockingConnection, Command, Connection
from tidegate.stores.redis.opening import Opener
from tidegate.stores.redis.pool import Pool
from tidegate.stores.redis.trust import Trust

PROBE_WITHIN_S = 0.25
PROBED_WITHOUT_DEMAND_S = 10.0
RENEWED_EVERY_S = 0.1
"""A server that refuses everything is not met by a new connection for every refusal."""


class Line(Protocol):
    """A face's way to the servers."""

    def now_s(self) -> float:
        """The instant on the clock that deadlines are told by."""

    async def run(self, link: Link, commands: Sequence[Command], until_s: float, calls: int = 1) -> list[Any]:
        """The replies, errors among them, to commands sent together; `calls` are those who wait for them.

        Raises StoreUnavailable where no usable reply came in time, and at once while the breaker is open.
        """

    async def check(self, link: Link, until_s: float) -> None:
        """Raise StoreUnavailable at once while the breaker is open, and have the server probed then.

        If nobody has probed for a while, one caller waits until somebody has, within the deadline.
        """

    async def pause(self, for_s: float) -> None:
        """Let some time pass."""

    async def beside(
        self, what: object, work: Callable[[], Coroutine[Any, Any, None]], until_s: float | None
    ) -> None:
        """Have the work done beside the callers, once at a time for each `what`; wait for it, or not.

        It ends in any case: with the work, or with the deadline.
        """

    async def opened(self, opener: Opener, host: Host) -> Connection:
        """A new connection to this host, to be dropped by whoever asked for it."""


class Link:
    """One server as the faces see it. `host` is None where the opener knows whom to connect to."""

    def __init__(
        self, health: Health, opener: Opener, host: Host | None, options: Options, probe: Command
    ) -> None:
        self.health = health
        self.opener = opener
        self.host = host
        self.most = options.max_connections
        self.probe = probe
        self.pool = Pool(self._open, self.most)
        self.trust = Trust(health.where, options.replicas)
        self.age = 0  # connections made at an earlier age are not used again
        self.is_closed = False
        self.demanded_at_s = 0.0
        self._renewed_at_s = 0.0
        self._prober: threading.Thread | None = None

    def answered(self, answers: Iterable[object] = (), *, is_kept: bool = False) -> None:
        """A round trip went well, and brought these answers; of what was charged there are copies enough."""
        if not self.health.is_well:
            proof = proof_in(answers)
            self.health.answered(_now_us(), KEPT if is_kept and proof == CHARGED else proof)

    def failed(self, error: StoreUnavailable, calls: int = 1, wanted: int = DECIDED) -> None:
        """So many callers got no usable answer."""
        was_open = self.health.is_open
        self.health.failed(error, _now_us(), calls, wanted)
        if error.cause in FORGETFUL or (self.health.is_open and not was_open):
            self.renew()

    def renew(self) -> None:
        """Use none of the present connections again, for the name may lead elsewhere by now."""
        now_s = time.monotonic()
        if now_s - self._renewed_at_s >= RENEWED_EVERY_S:
            self._renewed_at_s = now_s
            self.age += 1
            self.trust.withdraw()
            self.pool.renew()

    async def open_awaited(self) -> AwaitedConnection:
        """A connection for the running loop."""
        made = await self.opener.open_awaited(self.host)
        await self._look_at(made)
        return made.unhurried()

    def _open(self) -> BlockingConnection:
        """A connection for a thread."""
        made = self.opener.open(self.host)
        run_blocking(self._look_at(made))
        return made

    async def _look_at(self, made: Connection) -> None:
        """See whether a server that is trusted still deserves it: it may have been started anew."""
        if self.trust.is_given:
            try:
                await self.trust.look(lambda commands: made.call(commands, time.monotonic() + PROBE_WITHIN_S))
            except BaseException:
                made.drop()
                raise

    def close(self) -> None:
        """Close the blocking face's connections; the loops close theirs."""
        self.is_closed = True
        self.pool.close()

    def leave(self) -> None:
        """The server has nothing for us any more: keep no connection to it beyond what is being asked now."""
        self.is_closed = True
        self.age += 1
        self.pool.renew()

    def wants_probe(self) -> bool:
        """Whether probing goes on; who asks it probes."""
        demanded = time.monotonic() - self.demanded_at_s < PROBED_WITHOUT_DEMAND_S
        return self.health.is_open and demanded and not self.is_closed

    def probe_by_thread(self, until_s: float) -> None:
        """Have the server probed beside the callers, until it answers or nobody asks any more.

        Where nobody has probed for a while this caller does, by his deadline, before anybody is refused.
        """
        self.demanded_at_s = time.monotonic()
        if self.health.is_overdue(_now_us()):
            self._probe_now(until_s)
            if not self.health.is_open:
                return
        prober = self._prober
        if prober is not None and prober.is_alive():
            return
        self._prober = threading.Thread(target=self._probe_on, name="tidegate-probing", daemon=True)
        try:
            self._prober.start()
        except RuntimeError:  # the interpreter ends: the next call, if there is one, tries again
            self._prober = None

    def _probe_on(self) -> None:
        while self.wants_probe():
            self._probe_now(math.inf)
            time.sleep(PROBE_EVERY_US / 2_000_000)

    def _probe_now(self, until_s: float) -> None:
        """Probe in this thread, if it is time for that and nobody else does."""
        if self.health.take_probe(_now_us()):
            try:
                self._probe_once(min(until_s, time.monotonic() + PROBE_WITHIN_S))
            finally:
                self.health.probed()

    def _probe_once(self, until_s: float) -> None:
        try:
            held = self.pool.take(until_s)
            try:
                replies = run_blocking(held[1].call([self.probe], until_s))
            except StoreError:
                self.pool.drop(held)
                self.pool.clear()  # a connection that is just being made may still be the one that helps
                return
            self.pool.give(held)
            self.judge_probe(replies[0])
        except StoreError:
            return

    def judge_probe(self, reply: Any) -> None:
        """The probe was answered: well, unless decisions would be refused for want of something."""
        error = classified(reply) if isinstance(reply, Exception) else None
        if isinstance(error, StoreUnavailable):
            self.renew()
        else:
            self.health.answered(_now_us(), PROBED)


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
