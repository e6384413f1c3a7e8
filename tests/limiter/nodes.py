# Several nodes over one store, with outages and restarts at random, and what they admitted in any interval.
#
# Traffic has phases (quiet, steady, flood), since plain random traffic breaks nothing. While the store is
# asked for a part of a request, time passes and others come: that is when giving back has to be careful.

from __future__ import annotations

import random
from collections import defaultdict
from fractions import Fraction

from tests.limiter.remote import Remote, Servers
from tests.oracle.bound import Admission
from tidegate import Limiter, Policy, Rule, TokenBucket
from tidegate.core.decision import Decision
from tidegate.testing import ManualClock

NODES = 4
WHOLE = TokenBucket(40, "8/s")
OTHER = TokenBucket(12, "4/s")


def policy(node: int | None, *, layered: bool) -> Policy:
    """The rule with a reserve, on one server; layered, two more that it has to agree with on another."""
    reserve = {"share": "40%", "nodes": NODES, "index": node}
    first = Rule("org", WHOLE, by=("org",), on_outage="reserve", reserve=reserve)
    if not layered:
        return Policy([first])
    match = {"kind": "heavy"}
    others = [
        Rule("heavy on 1", OTHER, match=match),
        Rule("noted on 1", WHOLE, mode="shadow", match=match),
        Rule("plain on 2", OTHER, by=("org",), match=match),
    ]
    return Policy([first, *others])


class Play:
    """One run. `seed` decides everything."""

    def __init__(self, seed: int, *, layered: bool) -> None:
        self.chance = random.Random(seed)
        self.layered = layered
        self.clock = ManualClock(1_000)
        self.servers = Servers(self.clock, 3 if layered else 1)
        self.servers.on_call = self._meanwhile
        self.admitted: dict[tuple[str, str], list[Decision]] = defaultdict(list)
        self.nodes = [self._started(node) for node in range(NODES)]
        self.without_index = self._started(None)
        self.depth = 0
        self.answers: set[tuple[str, bool]] = set()
        """Who decided, and whether it was admitted."""

    def run(self, steps: int) -> Fraction:
        """Play; the most by which any limit was exceeded in any interval, in tokens."""
        chance = self.chance
        while steps > 0:
            phase = chance.choice(["quiet", "steady", "flood", "flood"])
            if chance.random() < 0.3:
                self.servers.all(chance.choice(["up", "down", "late"]))
            elif self.layered:
                self.servers.states = [chance.choice(["up", "up", "up", "down", "late"]) for _ in range(3)]
            if phase == "quiet":
                self.clock.advance(Fraction(chance.randrange(1, 6_000), 1_000))
                continue
            for _ in range(chance.randrange(5, 60)):
                steps -= 1
                if phase == "steady":
                    self.clock.advance(Fraction(chance.randrange(1, 200), 1_000))
                self._request()
                if chance.random() < 0.02:
                    node = chance.randrange(NODES)
                    self.nodes[node] = self._started(node)
        return self._worst()

    def _started(self, node: int | None) -> Limiter:
        rules = policy(node, layered=self.layered)
        limiter = Limiter(rules, store=Remote(self.servers), clock=self.clock)
        limiter._uses_store_clock = True  # each server tells its own instants, as servers do
        limiter.replace_policy(rules)
        return limiter

    def _request(self) -> None:
        chance = self.chance
        limiter = self.without_index if chance.random() < 0.1 else chance.choice(self.nodes)
        attributes = {"org": chance.choice("ab"), "kind": chance.choice(["heavy", "light"])}
        if chance.random() < 0.1:
            decisions = list(limiter.hit_many([attributes] * 2, chance.randrange(1, 4)))
        else:
            decisions = [limiter.hit(attributes, chance.choice([1, 1, 2, 3, 6]))]
        for decision in decisions:
            self.answers.add((decision.source, bool(decision)))
            if decision:
                for outcome in decision.outcomes:
                    if outcome.mode == "enforce" and not outcome.outage:
                        self.admitted[outcome.rule, str(outcome.charge.key)].append(decision)
                if chance.random() < 0.2:
                    limiter.refund(decision)

    def _meanwhile(self, verb: str, server: int) -> None:
        if self.depth < 2 and self.layered and self.chance.random() < 0.1:
            self.depth += 1
            states, self.servers.states = self.servers.states, ["up"] * 3
            self.clock.advance(Fraction(self.chance.randrange(0, 1_500), 1_000))
            for _ in range(self.chance.randrange(8)):
                self._request()
            self.servers.states = states
            self.depth -= 1

    def _worst(self) -> Fraction:
        worst = -WHOLE.capacity * Fraction(1)
        for (rule, _), decisions in self.admitted.items():
            whole = WHOLE if rule == "org" else OTHER
            admissions = [_admission(decision, rule) for decision in decisions]
            worst = max(worst, excess(admissions, Fraction(whole.capacity), whole.rate.per_microsecond))
        return worst


def excess(admissions: list[Admission], capacity: Fraction, rate_per_us: Fraction) -> Fraction:
    """What `tests.oracle.bound.worst_excess` says, in one pass: the largest sum that ends at each instant."""
    held, last_us, worst = Fraction(0), 0, -capacity
    for at_us, cost, refunded in sorted(admissions):
        held = max(Fraction(0), held - rate_per_us * (at_us - last_us)) + cost - refunded
        last_us, worst = at_us, max(worst, held - capacity)
    return worst


def _admission(decision: Decision, rule: str) -> Admission:
    outcome = next(outcome for outcome in decision.outcomes if outcome.rule == rule)
    returned = Fraction(decision.returned.get(rule, 0), outcome.limit.law.grain * 1_000)
    return outcome.now_us, outcome.cost, returned
