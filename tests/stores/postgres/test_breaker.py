# The breaker between callers and the server: it answers in the caller's own step, and not on old evidence.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.servers.network import Network
from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tidegate.errors import StoreUnavailable
from tidegate.stores import health
from tidegate.stores.postgres import attending
from tidegate.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.real_time

Between = Callable[[int], Network]


@pytest.fixture(autouse=True)
def probed_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probing ends soon where nobody asks."""
    monkeypatch.setattr(attending, "PROBED_WITHOUT_DEMAND_S", 0.05)


def test_the_first_call_after_an_idle_while_is_decided(
    postgres: Postgres, database: Database, network: Between
):
    """The server came back while nobody asked: the next caller has his answer, and not an outage."""
    way = network(postgres.port)
    with Face("blocking", way.through(database.url)) as store:
        store.store.init()
        store.takes()
        way.refuse()
        way.drop()
        wait_for("the breaker is open", lambda: store.cause() == "breaker")
        time.sleep(attending.PROBED_WITHOUT_DEMAND_S + 0.1)
        way.heal()
        time.sleep(health.OVERDUE_US / 1e6)

        assert store.cause() is None


def test_of_many_awaited_callers_one_waits_for_the_probe(
    postgres: Postgres, database: Database, network: Between
):
    """The others are answered in their own step, as all are while somebody probes."""
    way = network(postgres.port)
    store = PostgresStore(way.through(database.url), deadline="100ms")

    async def cause() -> str | None:
        try:
            await store.awaited.decide([charge()])
        except StoreUnavailable as error:
            return error.cause
        return None

    async def asked_at_once() -> tuple[int, list[str | None]]:
        asked = [asyncio.create_task(cause()) for _ in range(20)]
        await asyncio.sleep(0)
        waiting = sum(not one.done() for one in asked)
        return waiting, await asyncio.wait_for(asyncio.gather(*asked), 5)

    async def ask() -> list[tuple[int, list[str | None]]]:
        await store.awaited.init()
        way.swallow()
        for _ in range(100):
            if await cause() == "breaker":
                break
        told = [await asked_at_once()]
        await asyncio.sleep(attending.PROBE_WITHIN_S + health.OVERDUE_US / 1e6 + 0.2)
        told.append(await asked_at_once())
        await store.awaited.close()
        return told

    assert asyncio.run(ask()) == [(0, ["breaker"] * 20), (1, ["breaker"] * 20)]
