# The function for one known level and the one for everything are twins: equal replies, equal rows, or none.

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import charge
from tidegate import LeakyBucket, LeakyQueue, SlidingLog, TokenBucket
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge
from tidegate.stores.postgres.laws import law_numbers
from tidegate.stores.postgres.places import place_of
from tidegate.stores.postgres.schema import statements
from tidegate.stores.postgres.wire import (
    Ask,
    Calendars,
    Call,
    encode_decide,
    encode_one,
    numbers_in,
)

US = 1_000_000
NOW_US = 1_700_000_000 * US
LIMITS: list[Limit] = [
    TokenBucket(10, "1/s"),
    TokenBucket(10, "3/s"),  # other numbers than the first in one place alone
    TokenBucket(11, "1/s"),
    TokenBucket(10, "0/s"),
    LeakyBucket(10, "1/7s"),
    LeakyQueue(10, "1/s"),
]
COLUMNS = "rule, key, sweep_at_us, kind, room, q, p, used, at_us, busy_since_us, given_back"
INSERT = f"INSERT INTO tidegate.state ({COLUMNS}) VALUES (%s, %s, 1, 'L', %s, %s, %s, %s, %s, %s, %s)"
SWEEP_AT_US, AT_US = 2, 12
"""Where these stand in a row."""


class Twins:
    """Asks both functions about the same row, in a transaction that leaves nothing."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._statements = statements("tidegate")

    def both(self, row: tuple[Any, ...], asked: Charge, now_us: int | None) -> list[tuple[Any, Any]]:
        """Reply and row afterwards, of each."""
        one = encode_one(asked, now_us)
        assert one is not None
        every = encode_decide([Ask([asked])], Call(now_us), Calendars(), 0)
        return [self._said("take_one", one, row), self._said("decide", every, row)]

    def _said(self, name: str, parameters: list[bytes | None], row: tuple[Any, ...]) -> tuple[Any, Any]:
        connection, statement = self._connection, self._statements[name]
        with connection.transaction(force_rollback=True):
            connection.execute(INSERT, (*place_of("rule", "acme"), *row))
            result = connection.pgconn.exec_params(
                statement.text, parameters, statement.types, [1] * len(parameters), 0
            )
            after = connection.execute("SELECT * FROM tidegate.state").fetchall()
        return result.get_value(0, 0), after


@pytest.fixture
def twins(made: Database) -> Iterator[Twins]:
    with psycopg.connect(made.unix_url) as connection:
        yield Twins(connection)


def test_they_agree(twins: Twins):
    """Levels of all kinds, full and in debt, drained and refunded, at instants before and after."""
    chance = Random(8)
    answered = 0
    for _ in range(400):
        wrote, limit = chance.choice(LIMITS), chance.choice(LIMITS[:5])
        if chance.random() < 0.7:
            wrote = limit
        _, room, q, p, *_ = law_numbers(wrote.law)
        level = chance.choice((0, 1, q, room // 2, room - q, room - 1, room, room + q, 2 * room))
        at_us = NOW_US - chance.choice((0, 0, 1, 999, US, 3 * US, 20 * US, -1, -US, -100 * US))
        since_us = at_us - chance.choice((1, 0, 5, -(10**7)))
        row = (room, q, p, level, at_us, since_us, chance.choice((0, 0, 5, q)))
        asked = charge(limit=limit, cost=chance.choice((1, 1, 2, 5, 10, 11)))
        one, every = twins.both(row, asked, NOW_US)

        if one[0] is None:
            assert one[1][0][SWEEP_AT_US] == 1, "nothing is written"
            assert wrote.law != limit.law or at_us > NOW_US
        else:
            answered += 1
            assert one == every, (row, asked)

    assert answered > 150


def test_they_agree_by_the_servers_clock(twins: Twins):
    """The rows may go at the same time, give or take a minute that passes in between."""
    for limit in LIMITS[:5]:
        _, room, q, p, *_ = law_numbers(limit.law)
        (_, one), (_, every) = twins.both((room, q, p, q, NOW_US, NOW_US, 0), charge(limit=limit), None)

        assert abs(one[0][SWEEP_AT_US] - every[0][SWEEP_AT_US]) <= 60 * US
        assert one[0][SWEEP_AT_US] - one[0][AT_US] > 60 * US


@pytest.mark.parametrize(
    "asked",
    [
        charge(limit=LeakyQueue(10, "1/s")),
        charge(limit=SlidingLog(10, "1s")),
        charge(mode="shadow"),
        charge(patience_us=0),
        charge(strict=True),
        charge(cost=0),
    ],
    ids=repr,
)
def test_what_is_left_to_the_other(asked: Charge):
    """A line, another algorithm, a shadow, patience, a strict rule, a look."""
    assert encode_one(asked, None) is None


@pytest.mark.real_time
def test_it_waits_for_the_row_and_decides_itself(postgres: Postgres, made: Database):
    """It locks what it reads: it decides by what another transaction has left, at an instant after that.

    Without the lock it would read what was there before, and then find that the row is another one by now (as
    PostgreSQL 18 sees) or overwrite it (as older ones do).
    """
    statement = statements("tidegate")["take_one"]
    parameters = encode_one(charge(limit=LIMITS[3], cost=2), None)
    assert parameters is not None
    _, room, q, p, *_ = law_numbers(LIMITS[3].law)
    with (
        psycopg.connect(made.unix_url) as holder,
        psycopg.connect(made.unix_url, autocommit=True) as asker,
        ThreadPoolExecutor(1) as workers,
    ):
        holder.execute(INSERT, (*place_of("rule", "acme"), room, q, p, q, NOW_US, NOW_US - 1, 0))
        holder.commit()
        holder.execute("UPDATE tidegate.state SET used = used + 3 * q")
        asked = workers.submit(
            asker.pgconn.exec_params, statement.text, parameters, statement.types, [1] * len(parameters), 1
        )
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        wait_for("it waits", lambda: postgres.sql(waiting, asker.info.backend_pid) == [(1,)])
        ((before_us,),) = postgres.sql("SELECT tidegate.clock_us()", url=made.unix_url)
        holder.commit()
        reply = asked.result().get_value(0, 0)

    assert reply is not None
    now_us, _, verdict, used, *_ = numbers_in(reply)
    assert (verdict, used) == (3, (1 + 3 + 2) * q)
    assert now_us >= before_us
