# A store on the network that is not one: servers that are memory stores, which can be away, late or wrong.
#
# `Servers` are shared by any number of `Remote` stores, one for each process that a test plays. A server that
# is late has done what it was asked when the caller gives up.

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from tests.limiter.faces import awaited
from tidegate import AsyncLimiter, Limiter
from tidegate.core.outcome import Charge
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.reservation import AsyncReservation
from tidegate.stores.health import Health
from tidegate.stores.memory import MemoryStore
from tidegate.testing import ManualClock

State = Literal["up", "down", "late", "wrong"]


class Servers:
    """Memory stores by number; a key lives on the server that `server_of` names."""

    def __init__(self, clock: ManualClock, count: int = 1) -> None:
        self.clock = clock
        self.stores = [MemoryStore(clock=clock) for _ in range(count)]
        self.states: list[State] = ["up"] * count
        self.asked: list[tuple[str, int, list[str]]] = []
        """What was asked: the verb ("look" for a decision that takes nothing), the server, and the rules."""
        self.trips: list[tuple[str, int]] = []
        """What travelled together: the verb, and how many requests or adjustments there were."""
        self.on_trip: Any = None
        """Called before each of them."""
        self.on_call: Any = None
        """Called with the verb and the server before each call, for tests that meddle."""

    def all(self, state: State) -> None:
        """Put all of them into one state."""
        self.states = [state] * len(self.states)

    def server_of(self, charge: Charge) -> int:
        """Where a charge lives: a rule "on 2" on the third server, others on the first."""
        word = charge.rule.rpartition(" ")[2]
        return int(word) if word.isdigit() else 0

    def parts(self, charges: Sequence[Charge]) -> list[list[int]]:
        """The positions of the charges, by server, in the order in which they first appear."""
        found: dict[int, list[int]] = {}
        for at, charge in enumerate(charges):
            found.setdefault(self.server_of(charge), []).append(at)
        return list(found.values())

    def trip(self, verb: str, count: int) -> None:
        """Note that so many travel together."""
        self.trips.append((verb, count))
        if self.on_trip is not None:
            self.on_trip()

    def call(self, verb: str, charges: Sequence[Charge], work: Any) -> Any:
        """The result of `work(store)` on the server of these charges, or what it is like to ask in vain."""
        servers = {self.server_of(charge) for charge in charges}
        if len(servers) > 1:
            raise StoreError("these keys live on several servers")
        (server,) = servers or {0}
        self.asked.append((verb, server, [charge.rule for charge in charges]))
        if self.on_call is not None:
            self.on_call(verb, server)
        state = self.states[server]
        if state == "wrong":
            raise StoreError("WRONGTYPE: the key holds something else")
        if state == "down":
            raise StoreUnavailable("refused", "connection")
        result = work(self.stores[server])
        if state == "late":
            raise StoreUnavailable("no answer in time", "deadline")
        return result


class Awaited:
    """The awaited face."""

    name = "remote"
    splits = True
    deadline_us = 50_000

    def __init__(self, servers: Servers, health: Health) -> None:
        self.servers, self.health = servers, health
        self.identity: Any = ("awaited", id(self))
        self.closed = False
        self.deadlines_us: list[int | None] = []

    async def decide(self, charges, now_us=None, *, take=True, deadline_us=None):
        self.deadlines_us.append(deadline_us)
        await asyncio.sleep(0)
        verb = "decide" if take else "look"
        return self.servers.call(verb, charges, lambda store: store.decide(charges, now_us, take=take))

    async def decide_many(self, requests, now_us=None, *, take=True, deadline_us=None):
        self.deadlines_us.append(deadline_us)
        await asyncio.sleep(0)
        return _many(self.servers, requests, now_us, take)

    async def adjust(self, adjustments, now_us=None, *, deadline_us=None):
        self.deadlines_us.append(deadline_us)
        await asyncio.sleep(0)
        return _adjust(self.servers, adjustments, now_us)

    async def forget(self, keys, *, deadline_us=None):
        _forget(self.servers, keys)

    def parts(self, charges):
        return self.servers.parts(charges)

    async def close(self):
        self.closed = True


class Remote:
    """The blocking face; each has an address of its own, as if each were in another process."""

    name = "remote"
    splits = True
    deadline_us = 50_000
    made = 0

    def __init__(self, servers: Servers, where: str | None = None) -> None:
        Remote.made += 1
        self.servers = servers
        self.health = Health("remote")
        self.identity = ("remote", where or Remote.made)
        self.awaited = Awaited(servers, self.health)
        self.awaited.identity = self.identity
        self.closed = False
        self.deadlines_us: list[int | None] = []

    def decide(self, charges, now_us=None, *, take=True, deadline_us=None):
        self.deadlines_us.append(deadline_us)
        verb = "decide" if take else "look"
        return self.servers.call(verb, charges, lambda store: store.decide(charges, now_us, take=take))

    def decide_many(self, requests, now_us=None, *, take=True, deadline_us=None):
        self.deadlines_us.append(deadline_us)
        return _many(self.servers, requests, now_us, take)

    def adjust(self, adjustments, now_us=None, *, deadline_us=None):
        self.deadlines_us.append(deadline_us)
        return _adjust(self.servers, adjustments, now_us)

    def forget(self, keys, *, deadline_us=None):
        _forget(self.servers, keys)

    def parts(self, charges):
        return self.servers.parts(charges)

    def close(self):
        self.closed = True


def _many(servers: Servers, requests: Any, now_us: int | None, take: bool) -> list[Any]:
    verb = "many" if take else "look at many"
    servers.trip(verb, len(requests))
    answers: list[Any] = []
    for charges in requests:
        try:
            answers.append(
                servers.call(verb, charges, lambda store, own=charges: store.decide(own, now_us, take=take))
            )
        except StoreError as error:
            answers.append(error)
    return answers


def _adjust(servers: Servers, adjustments: Any, now_us: int | None) -> Any:
    charges = [adjustment.charge for adjustment in adjustments]
    servers.trip("adjust", len(adjustments))
    answers: dict[int, int] = {}
    failed: list[StoreError] = []
    for part in servers.parts(charges):
        own = [adjustments[at] for at in part]
        try:
            units = servers.call(
                "adjust", [charges[at] for at in part], lambda store, own=own: store.adjust(own, now_us)
            )
        except StoreError as error:
            failed.append(error)
        else:
            answers.update(zip(part, units, strict=True))
    if failed:
        raise failed[0]
    return [answers[at] for at in range(len(adjustments))]


def _forget(servers: Servers, keys: Any) -> None:
    if "down" in servers.states:
        raise StoreUnavailable("refused", "connection")
    for store in servers.stores:
        store.forget(keys)


class InALoop:
    """An AsyncLimiter over a store that really suspends, each call in an event loop of its own."""

    PLAIN = frozenset({"policy", "store", "replace_policy", "close", "limit"})

    def __init__(self, *given: Any, **named: Any) -> None:
        self.limiter = AsyncLimiter(*given, **named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.limiter, name)
        return found if name in self.PLAIN else lambda *given, **named: _here(found(*given, **named))


class ReservationInALoop:
    """Its reservations, likewise."""

    def __init__(self, reservation: Any) -> None:
        self.decision = reservation.decision
        self._reservation = reservation

    def settle(self, actual: Any) -> Any:
        return awaited(self._reservation.settle(actual))

    def cancel(self) -> Any:
        return awaited(self._reservation.cancel())


def _here(work: Any) -> Any:
    result = awaited(work)
    return ReservationInALoop(result) if isinstance(result, AsyncReservation) else result


REMOTE_FACES: dict[str, Any] = {"Limiter": Limiter, "AsyncLimiter": InALoop}
