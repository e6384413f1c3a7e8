# Another reserve for the same limit: the way in three steps keeps the bound, and what one step costs.

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tests.limiter.nodes import excess
from tests.limiter.remote import Remote, Servers, State
from tests.oracle.bound import Admission
from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.testing import ManualClock

NODES = 3
WHOLE = TokenBucket(60, "2/s")
FULL_S = Fraction(WHOLE.capacity) / (WHOLE.rate.per_microsecond * 1_000_000)
SHARES = (None, "20%", "50%", "80%")


def rule(share: str | None, index: int | None) -> Rule:
    """The limit with so much in reserve, of which the node of this index owns its part."""
    if share is None:
        return Rule("r", WHOLE, by=("key",))
    reserve = {"share": share, "nodes": NODES, "index": index}
    return Rule("r", WHOLE, by=("key",), on_outage="reserve", reserve=reserve)


class Fleet:
    """The nodes of a service under floods, and what they admitted. `seed` decides everything."""

    def __init__(self, seed: int, share: str | None) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_000)
        self.servers = Servers(self.clock)
        self.admitted: list[Admission] = []
        self.limiters = [self._started(share, node) for node in range(NODES)]

    def roll_out(self, share: str | None, *, owned: bool) -> None:
        """Give each node in turn these numbers, by a restart or a reload, while traffic goes on."""
        self._flood("down")
        for node in self.chance.sample(range(NODES), NODES):
            index = node if owned else None
            if self.chance.random() < 0.5:
                self.limiters[node] = self._started(share, index)
            else:
                self.limiters[node].replace_policy(Policy([rule(share, index)]))
            if self.chance.random() < 0.5:
                self.traffic(Fraction(1, 2))
        self._flood(self.chance.choice(["up", "down"]))

    def traffic(self, duration_s: Fraction) -> None:
        """Let requests come for so long: floods and quiet times, with and without the store."""
        end_us = self.clock.now_us() + int(duration_s * 1_000_000)
        while self.clock.now_us() <= end_us:
            if self.chance.random() < 0.5:
                self._flood(self.chance.choice(["up", "down"]))
            self.clock.advance(Fraction(self.chance.randrange(1, 1_500), 1_000))

    def _flood(self, state: State) -> None:
        self.servers.all(state)
        for limiter in self.limiters * self.chance.choice([1, 30]):
            if limiter.hit("k"):
                self.admitted.append((self.clock.now_us(), Fraction(1), Fraction(0)))

    def worst(self) -> Fraction:
        """The most by which the limit was exceeded in any interval, in tokens."""
        return excess(self.admitted, Fraction(WHOLE.capacity), WHOLE.rate.per_microsecond)

    def _started(self, share: str | None, index: int | None) -> Limiter:
        return Limiter(rule(share, index), store=Remote(self.servers), clock=self.clock)


def change(seed: int, *, wait_s: Fraction = FULL_S) -> Fraction:
    """One run in which the reserve changes three times, in the three steps; the worst excess."""
    chance = random.Random(seed)
    share = chance.choice(SHARES)
    fleet = Fleet(seed, share)
    fleet.traffic(FULL_S * chance.randrange(3))
    for _ in range(3):
        then = chance.choice(SHARES)
        fleet.clock.advance(FULL_S * chance.randrange(2))  # quiet, so that there is something to spend
        fleet.roll_out(share, owned=False)
        fleet.traffic(wait_s)
        fleet.roll_out(then, owned=False)
        fleet.roll_out(then, owned=True)
        share = then
        fleet.traffic(FULL_S * chance.randrange(2))
    return fleet.worst()


@pytest.mark.parametrize("seed", range(40))
def test_a_change_in_three_steps_keeps_the_bound(seed):
    """No index anywhere; B/r later the new numbers; then the index: B + r d holds through all of it."""
    assert change(seed) <= 0


def test_the_wait_is_needed():
    """Without it the same traffic shows an excess."""
    assert any(change(seed, wait_s=Fraction(0)) > 0 for seed in range(60))


@pytest.mark.parametrize(
    ("before", "after", "passes"), [("80%", "20%", 48 + 48), ("80%", None, 48 + 60), ("20%", "80%", 12 + 12)]
)
def test_what_a_change_in_one_step_lets_pass(clock, before, after, passes):
    """As much more as the shares got smaller by, once; where they grew, no more than the limit of 60."""
    servers = Servers(clock)
    nodes = [Limiter(rule(before, node), store=Remote(servers), clock=clock) for node in range(NODES)]
    clock.advance(FULL_S)
    servers.all("down")
    passed = sum(sum(bool(node.hit("k")) for _ in range(100)) for node in nodes)
    servers.all("up")
    nodes = [Limiter(rule(after, node), store=Remote(servers), clock=clock) for node in range(NODES)]

    assert passed + sum(sum(bool(node.hit("k")) for _ in range(100)) for node in nodes) == passes


@pytest.mark.parametrize("between", [None, "50%"], ids=["without a reserve", "with another reserve"])
def test_a_share_that_comes_back_begins_empty(clock, between):
    """While it was away or another, what it owned was the store's to spend: it has to fill again."""
    servers = Servers(clock)
    limiter = Limiter(rule("20%", 0), store=Remote(servers), clock=clock)
    clock.advance(FULL_S)
    limiter.replace_policy(Policy([rule(between, 0)]))
    clock.advance(FULL_S)
    limiter.replace_policy(Policy([rule("20%", 0)]))
    servers.all("down")

    assert not limiter.hit("k")
    clock.advance(FULL_S)
    assert limiter.hit("k").source == "reserve"
