# In any interval nodes admit no more than the limit, through outages and restarts; and mutants that do.

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tests.limiter.nodes import Play, excess
from tests.oracle.bound import worst_excess
from tidegate.core import outage
from tidegate.core.compose import current
from tidegate.flows import outage as outages
from tidegate.flows import shares, take

SEEDS = range(12)


@pytest.mark.parametrize("layered", [False, True], ids=["one rule", "layered"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_interval_holds_more_than_the_limit(seed, layered):
    """Reserves, outages, restarts, refunds, requests in parts: capacity + rate * d in any interval."""
    assert Play(seed, layered=layered).run(600) <= 0


def test_the_bound_is_reached():
    """The runs above come close to the bound, so that they would show an excess."""
    assert max(Play(seed, layered=False).run(600) for seed in SEEDS) > -2


def _not_subtracted(monkeypatch):
    def split(limit, reserve, workers=1):
        return outage.split(limit, reserve, workers)._replace(store=limit)

    monkeypatch.setattr(outages, "split", split)


def _restart_full(monkeypatch):
    def state(self, row, charge, now_us):
        return current(charge, self._rows.get(row), now_us)

    monkeypatch.setattr(shares.Shares, "_state", state)


def _restart_full_by_the_clock(monkeypatch):
    began = shares.Shares._beginning_us
    monkeypatch.setattr(
        shares.Shares,
        "_beginning_us",
        lambda self, *given: began(self, *given) - 10**8,
    )


def _share_of_another(monkeypatch):
    whole = outage.Split

    def split(limit, reserve, workers=1):
        store, node, _ = outage.split(limit, reserve, workers)
        bigger = type(limit)(node.capacity * 2, node.rate)
        return whole(store, bigger, bigger)

    monkeypatch.setattr(outages, "split", split)


def _give_back_whole(monkeypatch):
    bounded = take._whole
    monkeypatch.setattr(take, "_whole", lambda outcome: bounded(outcome)._replace(full=True))


def _give_back_twice(monkeypatch):
    once = take._Request.uncharge

    def twice(self):
        charged = once(self)
        return charged + charged

    monkeypatch.setattr(take._Request, "uncharge", twice)


@pytest.mark.parametrize(
    ("mutate", "layered"),
    [
        (_not_subtracted, False),
        (_restart_full, False),
        (_restart_full_by_the_clock, False),
        (_share_of_another, False),
        (_give_back_whole, True),
        (_give_back_twice, True),
    ],
)
def test_a_mutant_is_caught(monkeypatch, mutate, layered):
    """A share that is not subtracted, a restart with a full one, and giving back too much break the bound."""
    mutate(monkeypatch)
    worst = (Play(seed, layered=layered).run(600) for seed in range(60))
    assert any(excess > 0 for excess in worst)


def test_what_is_played_is_played():
    """The runs see decisions by own shares, by the store and by outage rules, admitted and refused."""
    play = Play(1, layered=True)
    play.run(600)
    assert play.answers == {
        *(("reserve", True), ("remote", True), ("remote", False)),
        ("outage", False),
    }


def test_the_excess_in_one_pass_is_that_of_all_intervals():
    """The linear measure that judges the runs says what the brute force over all intervals says."""
    chance = random.Random(7)
    for _ in range(200):
        admissions = [
            (chance.randrange(2_000_000), Fraction(chance.randrange(1, 9)), Fraction(0)) for _ in range(12)
        ]
        given = Fraction(chance.randrange(1, 20)), Fraction(chance.randrange(9), 1_000_000)
        assert excess(admissions, *given) == worst_excess(admissions, *given)
