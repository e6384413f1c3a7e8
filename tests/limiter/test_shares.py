# The shares that a process owns: their room, their threads, and who comes in between.

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import pytest

from tidegate import TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.outcome import Charge
from tidegate.flows.shares import Share, Shares

LIMIT = TokenBucket(10, "1/s")


@pytest.fixture
def shares(clock):
    made = Shares(clock.now_us, threading.RLock(), rows_most=4)
    made.begin("r", 0)
    clock.advance(10)
    return made


def ask(shares, key="k", cost=1, node=0, limit=LIMIT, take=True):
    (outcome,) = shares.ask([Share(node, Charge("r", key, limit, cost * 1_000, share=True))], take=take)
    return outcome


def test_no_more_keys_are_held_than_there_is_room(shares):
    """Beyond the bound a new key has no share; those that are held go on."""
    assert [bool(ask(shares, key).charged) for key in "abcd"] == [True] * 4
    assert (ask(shares, "e"), len(shares)) == (None, 4)
    assert ask(shares, "a").charged
    assert ask(shares, "e", take=False).allowed


def test_what_is_fresh_makes_room(shares, clock):
    """Keys that have become fresh are forgotten, which changes nothing that they would answer."""
    for key in "abcd":
        ask(shares, key)
    clock.advance(1)
    assert ask(shares, "e", 10).charged
    assert (len(shares) <= 3, ask(shares, "a", 10).charged) == (True, True)


def test_a_key_that_is_not_held_spent_nothing_since_the_start(clock):
    """Before a share has had time to fill, every key that was never asked has what came in since."""
    shares = Shares(clock.now_us, threading.RLock())
    shares.begin("r", 0)
    clock.advance(Fraction(5, 2))
    assert [ask(shares, key, 3, take=False).allowed for key in "ab"] == [False, False]
    assert [ask(shares, key, 2).charged for key in "ab"] == [True, True]
    assert ask(shares, "a", take=False).balance == Fraction(1, 2)


def test_nodes_do_not_share(shares, clock):
    """The shares of two nodes are two, and each begins when it is first owned."""
    assert ask(shares, "k", 10).charged
    assert not ask(shares, "k", node=1).allowed
    clock.advance(1)
    assert ask(shares, "k", node=1).charged


def test_beginning_again_takes_nothing_away(shares):
    """A share that is owned already stays as full as it is."""
    shares.begin("r", 0)
    assert ask(shares, "k", 10).charged


def test_a_changed_share_is_carried_over(shares, clock):
    """What was left stays left, at most; a larger share has to fill, at its own rate from then on."""
    assert ask(shares, cost=4).charged
    smaller = TokenBucket(5, "1/s")
    assert ask(shares, cost=0, limit=smaller).balance == 1
    larger = TokenBucket(20, "2/s")
    assert ask(shares, cost=20, limit=larger).balance == 6
    clock.advance(1)
    assert ask(shares, cost=20, limit=larger).balance == 8


def test_a_debt_is_kept_above_the_bound(shares):
    """What is owed on top is written down even where there is no room for a new key."""
    receipts = [ask(shares, key) for key in "abcd"]
    q = 1_000 * LIMIT.law.grain
    owed = Adjustment(Charge("r", "e", LIMIT, 1_000, share=True), receipts[0].receipt, 12 * q, debt=10_000)
    assert shares.adjust(0, owed) == -12 * q
    assert (ask(shares, "e").balance, len(shares)) == (-2, 5)


def test_a_restart_holds_nothing(shares, clock):
    """After a restart every share is empty, held or not, and fills again."""
    ask(shares, "a")
    shares.restart()
    assert (ask(shares, "a").allowed, ask(shares, "b").allowed, len(shares)) == (False, False, 0)
    clock.advance(1)
    assert ask(shares, "a").charged


def test_who_comes_in_between_has_no_share(clock):
    """A signal handler that asks while its own thread is deciding is left to the store."""
    made = Shares(clock.now_us, threading.RLock())
    made.begin("r", 0)
    clock.advance(10)
    said: list[Any] = ["asked"]

    def now_us():
        if len(said) == 1:
            said.append("in between")
            said.append(ask(made))
        return clock.now_us()

    made.now_us = now_us
    assert ask(made, cost=10).charged
    assert said == ["asked", "in between", None]


def test_a_share_that_begins_anew_in_between_is_empty(clock):
    """A signal handler that changes the division while its own thread is deciding is not passed over."""
    made = Shares(clock.now_us, threading.RLock())
    made.begin("r", 0, "old")
    clock.advance(10)

    def now_us():
        made.now_us = clock.now_us
        made.begin("r", 0, "new")
        return clock.now_us()

    made.now_us = now_us
    ask(made, cost=10)
    assert not ask(made, "other").allowed
    clock.advance(10)
    assert ask(made, "other", 10).charged


@pytest.mark.real_time
def test_threads_spend_a_share_once(clock):
    """However many threads ask together, exactly what is there passes."""
    shares = Shares(clock.now_us, threading.RLock())
    limit = TokenBucket(500, "1/s")
    shares.begin("r", 0)
    clock.advance(500)
    with ThreadPoolExecutor(8) as pool:
        taken = pool.map(lambda _: sum(ask(shares, limit=limit).charged for _ in range(200)), range(8))
    assert sum(taken) == 500
