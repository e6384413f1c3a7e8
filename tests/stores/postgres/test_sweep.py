# Fresh rows go, a bounded number at a time, and nothing that still counts.

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg
import pytest

from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.faces import Face, charge
from tidegate import FixedWindow, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.limits import Limit
from tidegate.stores.postgres import attending

Opened = Callable[..., Face]
US = 1_000_000
MINUTE_US = 60 * US


@pytest.fixture
def sweep(postgres: Postgres, made: Database) -> Callable[[int, int], int]:
    """Sweep so many rows at a told instant; how many went."""
    return lambda rows, now_us: postgres.sql(
        "SELECT tidegate.sweep_at(%s, %s)", rows, now_us, url=made.unix_url
    )[0][0]


def rows(postgres: Postgres, made: Database, table: str = "state") -> int:
    return int(postgres.sql(f"SELECT count(*) FROM tidegate.{table}", url=made.unix_url)[0][0])


def let_it_work(store: Face) -> None:
    """Give what is done beside the callers a moment."""
    if store.runner is None:
        time.sleep(0.02)
    else:
        store.runner.run(asyncio.sleep(0.02))


KINDS: list[tuple[Limit, int]] = [
    (TokenBucket(10, "1/min"), 4 * 60),
    (FixedWindow(10, "1h"), 3_600),
    (SlidingWindow(10, "1h"), 7_200),
    (SlidingLog(10, "1h"), 3_600),
]


@pytest.mark.parametrize(("limit", "fresh_after_s"), KINDS, ids=lambda value: getattr(value, "algorithm", ""))
def test_a_row_goes_a_minute_after_its_key_is_fresh(
    opened: Opened,
    postgres: Postgres,
    made: Database,
    sweep: Callable[[int, int], int],
    limit: Limit,
    fresh_after_s: int,
):
    """Not before, and at most two minutes later; the entries of a log go with it."""
    store = opened(made.url)
    (outcome,) = store.decide([charge(limit=limit, cost=4)])
    reset_us = outcome.now_us + (outcome.reset_after_us or 0)

    assert reset_us <= outcome.now_us + fresh_after_s * US
    assert sweep(10, reset_us + MINUTE_US) == 0
    assert store.left(limit=limit) == 6
    assert sweep(10, reset_us + 3 * MINUTE_US) == 1
    assert rows(postgres, made) == rows(postgres, made, "entries") == 0


def test_what_no_time_refills_stays(opened: Opened, made: Database, sweep: Callable[[int, int], int]):
    """A budget of rate 0 is kept for ever, until it is reset."""
    store = opened(made.url)
    store.takes()
    later_us = 4_000_000_000 * US

    assert sweep(10, later_us) == 0
    assert store.left() == 9


def test_a_told_instant_is_no_reason_to_forget(opened: Opened, made: Database):
    """A clock that runs in the past, or slowly: what counts by it is kept for an hour of real time."""
    store = opened(made.url)
    limit = TokenBucket(10, "1/s")
    store.decide([charge(limit=limit, cost=10)], 1_000 * US)

    assert store.said("sweep") == 0
    assert not store.decide([charge(limit=limit)], 1_000 * US)[0].allowed


def test_a_sweep_is_bounded(
    opened: Opened, postgres: Postgres, made: Database, sweep: Callable[[int, int], int]
):
    """At most so many rows go in one call, and as many entries of logs; the rest goes next time."""
    store = opened(made.url)
    store.decide_many([[charge(f"{number}", limit=TokenBucket(10, "1/s"))] for number in range(25)])
    for turn in range(12):
        store.decide([charge("log", rule="log", limit=SlidingLog(100, "1s"))], 10**15 + turn)
    later_us = 4_000_000_000 * US
    swept = [sweep(10, later_us) for _ in range(6)]

    assert sum(swept) == 26
    assert max(swept) <= 10
    assert swept[-1] == 0
    assert rows(postgres, made, "entries") == 0


def test_a_log_in_use_keeps_few_entries(opened: Opened, postgres: Postgres, made: Database):
    """What counts no more goes as new entries come, and the total stays right."""
    store = opened(made.url)
    limit = SlidingLog(5, "1s")
    admitted = [
        store.decide([charge(limit=limit)], 10**15 + turn * 300_000)[0].remaining for turn in range(60)
    ]

    assert admitted == [4, 3, 2] + [1] * 57
    assert rows(postgres, made, "entries") <= 5


def test_a_sweep_waits_for_nobody(opened: Opened, made: Database, sweep: Callable[[int, int], int]):
    """A row that somebody holds is left for later."""
    store = opened(made.url)
    store.decide_many([[charge(f"{number}", limit=TokenBucket(10, "1/s"))] for number in range(3)])
    with psycopg.connect(made.unix_url) as holder:
        holder.execute("SELECT 1 FROM tidegate.state WHERE key = 't1' FOR UPDATE")

        assert sweep(10, 4_000_000_000 * US) == 2
    assert sweep(10, 4_000_000_000 * US) == 1


def test_a_swept_key_is_fresh(opened: Opened, made: Database, sweep: Callable[[int, int], int]):
    """It is made again at its next use, also by a caller who believes that it is there."""
    store = opened(made.url)
    limit = TokenBucket(10, "1/s")
    store.takes(limit=limit)
    sweep(10, 4_000_000_000 * US)

    assert store.left(limit=limit) == 10
    assert store.takes(limit=limit)
    assert store.store.health.stats().unavailable == {}


def test_a_place_that_was_never_charged_goes(
    opened: Opened, postgres: Postgres, made: Database, sweep: Callable[[int, int], int]
):
    """A row that only held a place is swept like any other."""
    postgres.sql(
        "INSERT INTO tidegate.state (rule, key, sweep_at_us) VALUES ('r', 't', 1)", url=made.unix_url
    )
    assert sweep(10, US) == 1


@pytest.mark.real_time
def test_decisions_see_to_it(
    opened: Opened, postgres: Postgres, made: Database, monkeypatch: pytest.MonkeyPatch
):
    """Whoever decides has fresh rows deleted now and then, beside the callers."""
    monkeypatch.setattr(attending, "SWEEP_EVERY_S", 0.05)
    monkeypatch.setattr(attending, "SWEEP_SELDOM_S", 0.1)
    monkeypatch.setattr(attending, "ROWS_MOST", 10)
    postgres.sql(
        "INSERT INTO tidegate.state (rule, key, sweep_at_us) "
        "SELECT 'r', i::text::bytea, 1 FROM generate_series(1, 35) i",
        url=made.unix_url,
    )
    store = opened(made.url)

    def only_ours() -> bool:
        store.takes(cost=0)
        let_it_work(store)
        return rows(postgres, made) == 0

    wait_for("all are gone", only_ours)


@pytest.mark.real_time
def test_a_role_that_may_not_sweep(
    opened: Opened,
    postgres: Postgres,
    made: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    """Decisions go on, and it is told once."""
    monkeypatch.setattr(attending, "SWEEP_EVERY_S", 0.01)
    monkeypatch.setattr(attending, "SWEEP_SELDOM_S", 0.02)
    postgres.sql("ALTER FUNCTION tidegate.sweep(int) RENAME TO swept", url=made.unix_url)
    try:
        store = opened(made.url)

        def told() -> bool:
            store.takes(cost=0)
            let_it_work(store)
            return bool(caplog.records)

        wait_for("it is told", told)
        for _ in range(10):
            told()

        assert ["cannot be swept" in record.getMessage() for record in caplog.records] == [True]
    finally:
        postgres.sql("ALTER FUNCTION tidegate.swept(int) RENAME TO sweep", url=made.unix_url)
