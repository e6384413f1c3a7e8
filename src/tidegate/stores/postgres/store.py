"""The store in PostgreSQL, in its two faces: one that blocks, and one that is awaited.

    PostgresStore("postgresql://owner@host/app").init()       once, by whoever may create a schema
    Limiter(..., store=PostgresStore("postgresql://app@host/app"))

Every decision is one function call, one statement and one round trip, exact at READ COMMITTED, on the
server's clock. The blocking face asks for each caller by himself; the awaited one puts callers who ask at the
same moment into one call (`lane.py`), for each event loop by itself.

Tables are UNLOGGED unless `init(logged=True)` makes them: a crash of the server, or a switch to a standby,
then forgets everything. So each key may pass once its capacity more, and strict rules begin empty.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import Any, cast

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.health import Health
from tidegate.stores.postgres import driver
from tidegate.stores.postgres.address import Address, Options, options_of, read_target
from tidegate.stores.postgres.asking import Asking
from tidegate.stores.postgres.making import Made, make
from tidegate.stores.postgres.pool import LentPool, OwnPool, Pool
from tidegate.stores.postgres.ports import Port, ThreadPort
from tidegate.stores.postgres.sides import LoopSide
from tidegate.stores.postgres.trips import Shared, Trips
from tidegate.stores.postgres.wire import Ask
from tidegate.units import Duration


class _Core:
    """What both faces share: where the server is, how it is asked, and whether it answers."""

    def __init__(self, target: object, options: Options) -> None:
        self.url = target if isinstance(target, str) else None
        self.kind_of_pool = "" if self.url is not None else driver.kind_of_pool(target)
        self._target: Any = target
        where, identity = "postgres by the pool given", cast(Hashable, id(target))
        if self.url is not None:
            self._target, options = read_target(self.url, options)
            where, identity = self._target.where, self._target.identity
        elif self.kind_of_pool:
            shown = driver.address_of_pool(target)  # one that does not show it is known by itself
            identity = identity if shown is None else Address(shown).identity
        else:
            raise StoreError(
                "a PostgreSQL store is made of a URL, or of a pool of psycopg_pool; "
                f"this is a {type(target).__name__}"
            )
        self.options = options
        self.identity: Hashable = ("postgres", identity, options.schema)
        self.shared = Shared(options, Health(where), is_lent=bool(self.kind_of_pool))
        self.is_closed = False

    def asking(self, port: Port, *, awaited: bool) -> Asking:
        """Who asks for one face or loop. Raises StoreError if the pool given serves the other face."""
        pool: Pool
        if self.url is not None:
            pool = OwnPool(self._target, self.options, port)
        elif (self.kind_of_pool == "awaited") == awaited:
            pool = LentPool(self._target, port, awaited=awaited)
        else:
            raise StoreError(
                f"the pool given serves the {self.kind_of_pool} face of the store; for the other one give "
                f"{'an AsyncConnectionPool' if awaited else 'a ConnectionPool'}, or a URL for both"
            )
        return Asking(Trips(self.shared, port, pool))

    def asking_of_loop(self, port: Port) -> Asking:
        return self.asking(port, awaited=True)

    def check_open(self) -> None:
        if self.is_closed:
            raise StoreError("this store is closed; make another one")

    def close(self) -> None:
        self.is_closed = self.shared.attendant.is_closed = True


class PostgresStore:
    """State in PostgreSQL 13 or newer. This is the face that blocks, for any number of threads.

    Args:
        target: a URL (postgresql://...) or libpq's "host=... dbname=...", or a pool of psycopg_pool, which
            lends connections that are idle and is never closed here. An async pool serves the awaited face, a
            sync pool this one, a URL both.
        schema: where the tables and functions are; `init` makes it.
        deadline: the longest that a call may take, connecting included.
        may_forget: whether strict rules may stand on tables that are UNLOGGED, or commits that do not wait.
        prepare: False behind a pooler that gives every transaction another session (pgbouncer).
        max_connections: how many connections threads may have, and so each event loop.
    """

    name = "postgres"
    splits = False

    def __init__(
        self,
        target: Any,
        *,
        schema: str = "tidegate",
        deadline: Duration = "50ms",
        may_forget: bool = False,
        prepare: bool = True,
        max_connections: int = 16,
    ) -> None:
        self._core = _Core(
            target,
            options_of(
                schema=schema,
                deadline=deadline,
                may_forget=may_forget,
                prepare=prepare,
                max_connections=max_connections,
            ),
        )
        self._asking = None
        if self._core.kind_of_pool != "awaited":
            self._asking = self._core.asking(ThreadPort(), awaited=False)
        self._awaited = AwaitedPostgresStore(self._core)

    @property
    def identity(self) -> Hashable:
        """What it has in common with all stores on the same schema of the same database."""
        return self._core.identity

    @property
    def deadline_us(self) -> int:
        """How long a call may take that names no deadline."""
        return self._core.options.deadline_us

    @property
    def health(self) -> Health:
        """Whether the server answers, and how often it did not."""
        return self._core.shared.health

    @property
    def options(self) -> Options:
        """How it asks."""
        return self._core.options

    @property
    def awaited(self) -> AwaitedPostgresStore:
        """The face for event loops."""
        return self._awaited

    def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing, or raise StoreUnavailable within the deadline (None: the store's own)."""
        asking = self.asking()
        return run_blocking(asking.one(charges, now_us, take, asking.trips.until_s(deadline_us)))

    def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests, all within one deadline; a failed one has its error in its place."""
        asking = self.asking()
        asks = [Ask(charges, take) for charges in requests]
        return _of_many(run_blocking(asking.decide_many(asks, now_us, deadline_us)))

    def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable: what was to come back then stays counted."""
        asking = self.asking()
        return run_blocking(asking.adjust(adjustments, now_us, asking.trips.until_s(deadline_us)))

    def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        asking = self.asking()
        run_blocking(asking.forget(keys, asking.trips.until_s(deadline_us)))

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together: all."""
        return _parts(charges)

    def init(self, *, logged: bool = False) -> Made:
        """Make the schema, or bring an older one up to date; nothing changes where it is up to date.

        To be called by a role that may create it. Raises StoreError for a newer version than is known here.
        """
        return run_blocking(make(self.asking().trips, self._core.options.schema, logged=logged))

    def sweep(self, rows_most: int = 1_000, *, deadline_us: int = 5_000_000) -> int:
        """Delete rows of keys that have been fresh for a minute, at most so many; how many there were.

        Decisions see to it that this is done, so nobody has to call it.
        """
        asking = self.asking()
        return run_blocking(asking.trips.sweep(rows_most, asking.trips.until_s(deadline_us)))

    def close(self) -> None:
        """Close all connections, those of event loops too; the pool that was given stays open."""
        self._core.close()
        if self._asking is not None:
            self._asking.trips.pool.close()
        self._awaited._close_sides()

    def asking(self) -> Asking:
        """Who asks the server for this face. Raises StoreError if the store is closed."""
        self._core.check_open()
        return self._asking or self._core.asking(ThreadPort(), awaited=False)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._core.url is None:
            raise StoreError(
                "a store on a pool cannot be pickled or copied; make it of a URL, which can be made again"
            )
        return _made_again, (self._core.url, self._core.options)

    def __repr__(self) -> str:
        return f"<PostgresStore: {self.health.where}>"


class AwaitedPostgresStore:
    """The awaited face of a `PostgresStore`: the same verbs, for any number of event loops."""

    name = "postgres"
    splits = False

    def __init__(self, core: _Core) -> None:
        self._core = core
        self._sides: dict[asyncio.AbstractEventLoop, LoopSide] = {}
        self._lock = threading.RLock()
        _faces.add(self)

    @property
    def identity(self) -> Hashable:
        """What it has in common with all stores on the same schema of the same database."""
        return self._core.identity

    @property
    def deadline_us(self) -> int:
        """How long a call may take that names no deadline."""
        return self._core.options.deadline_us

    @property
    def health(self) -> Health:
        """Whether the server answers, and how often it did not."""
        return self._core.shared.health

    async def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing; what waits at the same moment travels together."""
        side = await self._side()
        return await side.ask(Ask(charges, take), now_us, side.asking.trips.until_s(deadline_us))

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests, all within one deadline; a failed one has its error in its place."""
        asks = [Ask(charges, take) for charges in requests]
        return _of_many(await (await self._side()).asking.decide_many(asks, now_us, deadline_us))

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable."""
        asking = (await self._side()).asking
        return await asking.adjust(adjustments, now_us, asking.trips.until_s(deadline_us))

    async def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""
        asking = (await self._side()).asking
        await asking.forget(keys, asking.trips.until_s(deadline_us))

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together: all."""
        return _parts(charges)

    async def init(self, *, logged: bool = False) -> Made:
        """Make the schema, or bring an older one up to date, as `PostgresStore.init`."""
        return await make((await self._side()).asking.trips, self._core.options.schema, logged=logged)

    async def sweep(self, rows_most: int = 1_000, *, deadline_us: int = 5_000_000) -> int:
        """Delete rows of keys that have been fresh for a minute, as `PostgresStore.sweep`."""
        asking = (await self._side()).asking
        return await asking.trips.sweep(rows_most, asking.trips.until_s(deadline_us))

    async def close(self) -> None:
        """Close all connections of this loop and of others; the pool that was given stays open."""
        self._core.close()
        self._close_sides()
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        return f"<AwaitedPostgresStore: {self.health.where}>"

    async def _side(self) -> LoopSide:
        self._core.check_open()
        loop = asyncio.get_running_loop()
        side = self._sides.get(loop)
        if side is None:
            side = LoopSide(self._core.asking_of_loop, self._core.options, loop, self._sides)
            with self._lock:
                for gone in [other for other in self._sides if other.is_closed()]:
                    del self._sides[gone]
                self._sides[loop] = side
            await side.begin()
        return side

    def _close_sides(self) -> None:
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        with self._lock:
            sides = list(self._sides.items())
        for loop, side in sides:
            if loop is here:
                side.close()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(side.close)

    def _after_fork(self) -> None:
        # The child must not touch its parent's loops: they share what tells them of their sockets.
        _inherited.append(self._sides)
        self._sides = {}
        self._lock = threading.RLock()


def from_url(url: str) -> PostgresStore:
    """The store that the URL names, with its options: `postgresql://app@host/app?deadline=20ms&schema=limits`."""
    return PostgresStore(url)


def _parts(charges: Sequence[Charge]) -> list[list[int]]:
    return [list(range(len(charges)))] if charges else []


def _of_many(answers: Sequence[Any]) -> list[list[Outcome] | StoreError]:
    """Answers in which every error is a StoreError."""
    return [
        StoreError(str(answer))
        if isinstance(answer, Exception) and not isinstance(answer, StoreError)
        else answer
        for answer in answers
    ]


def _made_again(url: str, options: Options) -> PostgresStore:
    """A store of another process, or another one in this; what its URL does not say, its options do."""
    given = options._asdict()
    deadline_us = given.pop("deadline_us")
    return PostgresStore(url, deadline=timedelta(microseconds=deadline_us), **given)


_faces: weakref.WeakSet[AwaitedPostgresStore] = weakref.WeakSet()
_inherited: list[object] = []


def _leave_loops() -> None:
    """In a forked child: the loops are its parent's."""
    for face in list(_faces):
        face._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_loops)
