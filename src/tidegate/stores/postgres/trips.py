"""Round trips: a connection is taken, something is sent, an answer or an error comes, the breaker is told.

What a decision is, is not known here. A round trip is one statement, ended by its deadline; nothing is sent
again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Sequence

from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.health import DECIDED, PROBED, Health
from tidegate.stores.postgres.address import Options
from tidegate.stores.postgres.attending import Attendant
from tidegate.stores.postgres.causes import Crowded, Lost, Refused, TimeUp, classified
from tidegate.stores.postgres.driver import Link, Row, Statement, lock_timeout_ms, timeouts_ms
from tidegate.stores.postgres.familiar import Familiar
from tidegate.stores.postgres.pool import Pool
from tidegate.stores.postgres.ports import Port
from tidegate.stores.postgres.schema import statements
from tidegate.stores.postgres.stuck import Stuck
from tidegate.stores.postgres.wire import Calendars, Call, Parameters, encode_decide

FORGETFUL = frozenset({"read_only", "authentication", "loading"})
"""After these the connections are not used again: another server may have the name by now."""


class Shared:
    """What the faces and loops of one store have in common."""

    def __init__(self, options: Options, health: Health, *, is_lent: bool) -> None:
        self.options = options
        self.health = health
        self.is_lent = is_lent
        self.attendant = Attendant(health)
        self.statements = statements(options.schema)
        self.calendars = Calendars()
        self.familiar = Familiar()
        self.stuck = Stuck()
        self.server_is_ahead_us = 0
        self.in_transactions = False  # whether the sessions have another isolation level than we need

    @property
    def lock_timeout_ms(self) -> int:
        """What each call says itself, where the session is not ours to be told."""
        told = self.is_lent or not self.options.prepare
        return lock_timeout_ms(-(-self.options.deadline_us // 1_000)) if told else 0


class Trips:
    """The way of one face or loop to the server."""

    def __init__(self, shared: Shared, port: Port, pool: Pool) -> None:
        self.shared = shared
        self.health = shared.health
        self.port = port
        self.pool = pool

    async def check(self, until_s: float) -> None:
        """Raise StoreUnavailable at once while the breaker is open; then the server is being probed.

        Where nobody has probed for a while this caller does, within the deadline, before he is refused.
        """
        health = self.health
        if health.is_open:
            if health.is_overdue(ticks_us()) and health.take_probe(ticks_us()):
                try:
                    await self.probe(until_s, until_s)
                finally:
                    health.probed()
            if health.is_open:
                self.shared.attendant.see_to_probe(self.port, self)
            health.check()

    def failed(self, error: StoreUnavailable, calls: int = 1) -> None:
        """Tell the breaker that so many callers got no usable answer."""
        was_open = self.health.is_open
        self.health.failed(error, ticks_us(), calls)
        if error.cause in FORGETFUL:
            self.pool.renew()
        elif self.health.is_open and not was_open:
            self.pool.doubt()

    def until_s(self, deadline_us: int | None) -> float:
        """When a call that begins now must have ended."""
        us = self.shared.options.deadline_us if deadline_us is None else deadline_us
        return self.port.now_s() + us / 1_000_000

    def judged(self, error: Exception, calls: int) -> StoreError:
        """What an error means. The breaker is told of an outage, and that there was an answer otherwise."""
        problem = classified(error, self.shared.options.schema)
        if isinstance(problem, StoreUnavailable):
            self.failed(problem, calls)
        else:
            self.health.answered(ticks_us(), DECIDED)
        return problem

    async def exchanged(
        self, statement: Statement, parameters: Sequence[bytes | None], until_s: float
    ) -> list[Row]:
        """The rows of one statement."""
        port, in_transaction = self.port, self.shared.in_transactions
        return await self._by_link(
            lambda link: link.ask(port, statement, parameters, until_s, in_transaction=in_transaction),
            until_s,
        )

    async def _by_link(self, work: Callable[[Link], Awaitable[list[Row]]], until_s: float) -> list[Row]:
        """What comes of work with a link, which is not used on if that is anything but an answer."""
        pool, begin_s = self.pool, self.port.now_s()
        link = await pool.take(until_s)
        taken_s = self.port.now_s()
        try:
            if link.allowed_ms and (until_s - taken_s) * 1_000 > link.allowed_ms + 1:
                await link.allow(self.port, until_s)
            rows = await work(link)
        except Refused:
            await pool.give(link)
            raise
        except TimeUp:
            await pool.give_late(link)
            if until_s - taken_s < _told_within_s(link, until_s - begin_s) <= until_s - begin_s:
                raise Crowded("too little time was left when a connection was free") from None
            raise
        except BaseException:
            link.drop()
            await pool.give(link)
            raise
        await pool.give(link)
        return rows

    async def sweep(self, rows_most: int, until_s: float) -> int:
        """Delete rows of keys that are fresh, at most so many; how many there were. Raises StoreError."""
        ((gone,),) = await self.function("sweep", (rows_most.to_bytes(4, "big"),), until_s)
        return int.from_bytes(gone or b"", "big")

    async def rows(
        self, statement: Statement, parameters: Sequence[bytes | None], until_s: float
    ) -> list[Row]:
        """The rows of what is no decision: the breaker is neither asked nor told. Raises StoreError."""
        try:
            return await self.exchanged(statement, parameters, until_s)
        except (Refused, Lost, TimeUp) as error:
            raise classified(error, self.shared.options.schema) from error

    async def function(self, name: str, parameters: Sequence[bytes | None], until_s: float) -> list[Row]:
        """The rows that a function of the schema returns. Raises StoreError."""
        return await self.rows(self.shared.statements[name], parameters, until_s)

    async def nothing(self, until_s: float) -> None:
        """Have nothing decided, as a measure of a call. Raises StoreError."""
        await self.function("decide", _nothing(self.shared.calendars), until_s)

    async def run(self, script: bytes, until_s: float) -> list[Row]:
        """The rows, as text, of the last statement of a script. Raises StoreError."""
        try:
            return await self._by_link(lambda link: link.run(self.port, script, until_s), until_s)
        except (Refused, Lost, TimeUp) as error:
            raise classified(error, self.shared.options.schema) from error

    async def probe(self, until_s: float, answered_until_s: float = math.inf) -> None:
        """Ask for a decision about nothing, and tell the breaker if it was answered as soon as one must be.

        To get a connection may take longer, until then. All ends by `answered_until_s`.
        """
        shared, port = self.shared, self.port
        parameters = _nothing(shared.calendars)
        try:
            await self._by_link(
                lambda link: link.ask(
                    port,
                    shared.statements["decide"],
                    parameters,
                    min(self.until_s(None), answered_until_s),
                ),
                until_s,
            )
        except (Refused, Lost, TimeUp, StoreError) as error:
            if isinstance(classified(error, shared.options.schema), StoreUnavailable):
                return
        self.health.answered(ticks_us(), PROBED)


def _told_within_s(link: Link, whole_s: float) -> float:
    """How soon a server tells by itself that a call takes too long; half of all where it does not."""
    return timeouts_ms(link.allowed_ms)["statement_timeout"] / 1_000 if link.allowed_ms else whole_s / 2


def _nothing(calendars: Calendars) -> Parameters:
    """A call that decides nothing: it fails where decisions would."""
    return encode_decide([], Call(look_first=True), calendars, 0)


def ticks_us() -> int:
    """The instant on the clock that the breaker is told by."""
    return time.monotonic_ns() // 1_000
