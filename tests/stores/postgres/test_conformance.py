# The store gives the answers of the tables and of the reference, bit for bit, however it is asked.

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from random import Random
from typing import Any

import pytest

from tests.servers.postgres import Database
from tests.stores.postgres.faces import Face
from tidegate import FixedWindow, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.carry import WAYS
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.limits import Limit
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError
from tidegate.stores.postgres.familiar import Familiar
from tidegate.stores.postgres.store import PostgresStore
from tidegate.testing import run_traces, run_vectors
from tidegate.testing.reference import ReferenceStore


class Awaited:
    """A store for the players of tables and traces that is asked by its awaited face."""

    name = "postgres"

    def __init__(self, url: str) -> None:
        self._face = Face("awaited", url)

    def decide(self, charges: list[Charge], now_us: int | None = None, *, take: bool = True) -> list[Outcome]:
        return self._face.decide(charges, now_us, take=take)

    def adjust(self, adjustments: list[Adjustment], now_us: int | None = None) -> list[int]:
        return self._face.adjust(adjustments, now_us)

    def forget(self, keys: list[tuple[str, Key]]) -> None:
        self._face.forget(keys)

    def close(self) -> None:
        self._face.close()


def test_the_tables(made: Database):
    """All cases of the conformance tables."""
    report = run_vectors(lambda: PostgresStore(made.unix_url, deadline="5s"))

    assert report, report
    assert report.total >= 374


@pytest.mark.parametrize("guess", ["look first", "lock first", "as usual"])
def test_random_traces(made: Database, guess: str, monkeypatch: pytest.MonkeyPatch):
    """Decisions, looks, refunds, debts, resets, changed limits and clocks that step equal the reference's.

    Whether a call looks before it locks is a guess, and no guess changes an answer.
    """
    if guess != "as usual":
        monkeypatch.setattr(Familiar, "knows", lambda *_: guess == "lock first")
    report = run_traces(lambda: PostgresStore(made.unix_url, deadline="5s"), seed=3, traces=60)

    assert report, report


def test_requests_that_travel_together(made: Database):
    """Many requests of one call, over few keys and all limits, are decided as the reference decides them."""
    chance = Random(5)
    reference = ReferenceStore()
    limits: list[Limit] = []
    now_us = 1_700_000_000 * 10**6
    with closing(PostgresStore(made.unix_url, deadline="5s")) as store:
        for turn in range(60):
            if turn % 5 == 0:
                limits = chance.sample(LIMITS, 3)
            now_us += chance.choice((0, 1, 999, 10**6, 30 * 10**6, -(10**6), -50 * 10**6, -100 * 10**6))
            asks = [drawn(chance, limits) for _ in range(chance.randrange(2, 40))]
            expected = [reference.decide(charges, now_us) for charges in asks]

            assert told(store.decide_many(asks, now_us)) == told(expected), f"turn {turn}"


LIMITS: list[Limit] = [
    TokenBucket(20, "5/s"),
    TokenBucket(3, "0/s"),
    LeakyQueue(10, "2/s", "interval"),
    LeakyQueue(10, "2/s", delay_after=3),
    FixedWindow(10, "10s"),
    FixedWindow(10, "day", "Europe/Berlin"),
    SlidingWindow(10, "10s"),
    SlidingLog(10, "10s"),
    SlidingLog(30, "1min"),
]


def drawn(chance: Random, limits: list[Limit]) -> list[Charge]:
    """A request over some of three rules, each with one of two keys."""
    rules = chance.sample(range(3), chance.randrange(1, 4))
    return [
        Charge(
            f"rule {rule}",
            chance.choice(("x", "y")),
            limits[rule],
            1_000 * chance.choice((0, 1, 1, 1, 2, 5, 40)),
            chance.choice(("enforce", "enforce", "enforce", "shadow")),
            WAYS[rule],
            patience_us=chance.choice((None, None, 0, 300_000, 5_000_000)),
        )
        for rule in rules
    ]


def told(answers: Sequence[list[Outcome] | StoreError]) -> list[Any]:
    """All that a caller can read of the outcomes."""
    return [
        [
            (o.allowed, o.charged, o.balance, o.wait_us, o.retry_after_us, o.reset_after_us, o.state.at_us)
            for o in answer
        ]
        if not isinstance(answer, StoreError)
        else answer
        for answer in answers
    ]


def test_random_traces_by_the_awaited_face(made: Database):
    """The awaited face gives the same answers."""
    report = run_traces(lambda: Awaited(made.unix_url), seed=4, traces=30)  # type: ignore[arg-type, return-value]  # as a store

    assert report, report
