# The store gives the answers of the tables and of the reference, bit for bit, however it is asked.

from __future__ import annotations

import pytest

from tests.servers.postgres import Database
from tests.stores.postgres.faces import Face
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.stores.postgres.familiar import Familiar
from tidegate.stores.postgres.store import PostgresStore
from tidegate.testing import run_traces, run_vectors


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


def test_random_traces_by_the_awaited_face(made: Database):
    """The awaited face gives the same answers."""
    report = run_traces(lambda: Awaited(made.unix_url), seed=4, traces=30)  # type: ignore[arg-type, return-value]  # as a store

    assert report, report
