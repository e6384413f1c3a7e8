"""Invariant 4: every path on every store gives the oracle's answer, decision by decision.

Two machines, for one reason: a store may forget a key that has become fresh, and what a clock that then goes
back finds is another's answer, equally right. So one machine has many keys and a clock that only goes on,
and the other has one key in each rule, which nothing makes a store forget, and a clock that does as it likes.

On a cluster a request of several rules is decided in parts, and what is given back in between counts as given
back; so there only single limits are held to the oracle.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.contract.players import PATHS, STORES, Side, ways
from tests.contract.shared import SHARED
from tests.core.engine import limit_of
from tests.oracle.layered import Layered
from tidegate import Decision, Policy, Rule
from tidegate.testing import ManualClock

US = 10**6
whole = st.sampled_from([0, 1, 1, 1, 2, 3, 5, 20])
amounts = st.one_of(
    whole, st.sampled_from([Fraction(1, 1000), Fraction(1, 2), Fraction(5, 2), Fraction(7, 10)])
)
capacities = st.sampled_from(["1", "2", "3", "5", "10", "0.5", "2.5"])
rates = st.sampled_from(["1/s", "5/s", "1/3s", "7/min", "166.666/s", "3/250ms", "10/day", "1000/7us"])
windows = st.sampled_from(["1s", "10s", "3us", "7min", "100s"])
calendars = st.sampled_from([("day", "Europe/Berlin"), ("week", "UTC"), ("month", "America/Havana")])


levels = st.fixed_dictionaries(
    {
        "algorithm": st.sampled_from(["token_bucket", "leaky_bucket"]),
        "capacity": capacities,
        "rate": st.one_of(rates, st.just("0/s")),
    }
)
queues = st.fixed_dictionaries(
    {
        "algorithm": st.just("leaky_queue"),
        "capacity": capacities,
        "rate": rates,
        "first_release": st.sampled_from(["immediate", "interval"]),
        "delay_after": st.sampled_from(["0", "1", "2.5"]),
    }
)
logs = st.fixed_dictionaries(
    {"algorithm": st.just("sliding_log"), "limit": st.sampled_from(["1", "3", "5"]), "window": windows}
)
counters = st.fixed_dictionaries(
    {
        "algorithm": st.sampled_from(["sliding_window", "fixed_window"]),
        "limit": capacities,
        "window": windows,
    }
)
days = st.builds(
    lambda limit, calendar: {
        "algorithm": "fixed_window",
        "limit": limit,
        "window": calendar[0],
        "zone": calendar[1],
    },
    capacities,
    calendars,
)
limits = st.one_of(levels, queues, counters, days, logs)


class Agreement(RuleBasedStateMachine):
    """The oracle and every side, asked the same at the same instants."""

    keys_most = 3

    @initialize(
        specs=st.lists(limits, min_size=1, max_size=3),
        whole_costs=st.booleans(),
        prices=st.sampled_from(["of the call", "function", "constant"]),
        constants=st.lists(amounts, min_size=3, max_size=3),
        carry=st.sampled_from(["strict", "keep_level", "keep_tokens", "proportional", "reset"]),
        give_back=st.sampled_from(["bounded", "full"]),
        max_debt=st.sampled_from([None, "0", "3"]),
        start_s=st.sampled_from([0, 1_000, 1_700_000_000]),
    )
    def begin(self, specs, whole_costs, prices, constants, carry, give_back, max_debt, start_s):
        self.specs = specs
        self.whole_costs = whole_costs or any(spec["algorithm"] == "sliding_log" for spec in specs)
        self.prices = prices
        self.own_prices = prices != "of the call"
        self.constants = constants
        self.options: dict[str, Any] = {"carry": carry, "give_back": give_back}
        self.options["max_debt"] = None if max_debt is None else Fraction(max_debt)
        self.clock = ManualClock(start_s)
        self.oracle = Layered(self._named(), **self.options)
        self.sides = [Side(path, self._policy(), self.clock) for path in PATHS]
        self.sides += [Side("compiled", self._policy(), self.clock, store) for store in STORES]
        places = [place for place in SHARED if place != "cluster" or len(specs) == 1]
        self.sides += [Side(path, self._policy(), self.clock, place) for place, path in ways(places)]
        self.decided: list[tuple[list[str], Any, list[Decision]]] = []

    def teardown(self):
        for side in getattr(self, "sides", ()):
            side.close()

    def _named(self) -> list[tuple[str, dict[str, str]]]:
        return [(f"rule {place}", spec) for place, spec in enumerate(self.specs)]

    def _policy(self) -> Policy:
        return Policy([self._rule(place) for place in range(len(self.specs))])

    def _rule(self, place: int) -> Rule:
        def price(attributes):
            return attributes["costs"][place]

        cost: Any = {"of the call": None, "function": price, "constant": self._constant(place)}[self.prices]
        limit = limit_of(self.specs[place])
        return Rule(f"rule {place}", limit, by=(f"key {place}",), cost=cost, **self.options)

    def _constant(self, place: int) -> Any:
        """The price that stands in a rule: at most what its limit can ever admit, or it would be an error."""
        spec = self.specs[place]
        most = Fraction(spec["capacity"] if "capacity" in spec else spec["limit"])
        return self._counted(min(most, Fraction(self.constants[place])))

    def _request(self, keys: list[int], costs: list[Any]) -> tuple[list[str], list[Any], dict[str, Any]]:
        count = len(self.specs)
        named = [f"k{keys[place] % self.keys_most}" for place in range(count)]
        taken = {
            "of the call": [costs[0]] * count,
            "function": costs[:count],
            "constant": [self._constant(place) for place in range(count)],
        }[self.prices]
        taken = [self._counted(cost) for cost in taken]
        return named, taken, {f"key {p}": key for p, key in enumerate(named)} | {"costs": taken}

    def _now_us(self) -> int:
        return self.clock.now_us()

    @rule(
        keys=st.lists(st.integers(0, 2), min_size=3, max_size=3),
        costs=st.lists(amounts, min_size=3, max_size=3),
    )
    def hit(self, keys, costs):
        named, taken, attributes = self._request(keys, costs)
        expected = self.oracle.hit(self._now_us(), taken, named)
        decisions = [side.hit(attributes, taken[0]) for side in self.sides]
        for decision in decisions:
            self._compare(decision, expected)
        self.decided.append((named, expected, decisions))

    @rule(
        keys=st.lists(st.integers(0, 2), min_size=3, max_size=3),
        costs=st.lists(amounts, min_size=3, max_size=3),
    )
    def peek(self, keys, costs):
        named, taken, attributes = self._request(keys, costs)
        expected = self.oracle.peek(self._now_us(), taken, named)
        for side in self.sides:
            self._compare(side.peek(attributes, taken[0]), expected, looked=True)

    def _compare(self, decision: Decision, expected: Any, *, looked: bool = False) -> None:
        fields = ("allowed", "remaining", "balance", "retry_after_us", "reset_after_us")
        if len(self.specs) > 1:
            assert decision.rule == expected.rule
        for field in fields:
            assert getattr(decision, field) == getattr(expected, field), field
        assert decision.wait_us == (0 if looked else expected.wait_us)
        for ours, theirs in zip(decision.outcomes, expected.outcomes, strict=True):
            assert [getattr(ours, field) for field in fields] == [getattr(theirs, field) for field in fields]

    @precondition(lambda self: self.decided)
    @rule(which=st.integers(0, 10**6), part=st.one_of(st.none(), amounts))
    def refund(self, which, part):
        named, expected, decisions = self.decided[which % len(self.decided)]
        part = (
            None if part is None or self.own_prices else self._counted(part)
        )  # parts are of the call's cost
        returned = [
            self.oracle.model(place, named[place]).refund(self._now_us(), outcome, part)
            for place, outcome in enumerate(expected.outcomes)
        ]
        for side, decision in zip(self.sides, decisions, strict=True):
            before = dict(decision.returned)
            side.refund(decision, part)
            for outcome, amount in zip(decision.outcomes, returned, strict=True):
                units = decision.returned.get(outcome.rule, 0) - before.get(outcome.rule, 0)
                assert Fraction(units, outcome.limit.law.grain * 1000) == amount

    @precondition(lambda self: self.decided and not self.own_prices)
    @rule(which=st.integers(0, 10**6), actual=amounts)
    def settle(self, which, actual):
        named, expected, decisions = self.decided[which % len(self.decided)]
        actual = self._counted(actual)
        took = [outcome for outcome in expected.outcomes if outcome.receipt is not None]
        returned = [
            self.oracle.model(place, named[place]).settle(self._now_us(), outcome, actual)
            for place, outcome in enumerate(expected.outcomes)
        ]
        for side, decision in zip(self.sides, decisions, strict=True):
            answer = side.settle(decision, actual)
            if took and actual > took[0].receipt.cost:
                assert answer == min(returned)

    def _counted(self, cost: Any) -> Any:
        """The cost, or the whole part of it where a log may have to count it."""
        return int(cost) if self.whole_costs else cost

    @rule(place=st.integers(0, 2), key=st.integers(0, 2))
    def reset(self, place, key):
        place, name = place % len(self.specs), f"k{key % self.keys_most}"
        self.oracle.model(place, name).reset()
        for side in self.sides:
            side.reset({f"key {place}": name})
        self.clock.advance(Fraction(1, US))  # two lives of a forgotten key are told apart by their instants

    @precondition(lambda self: hasattr(self, "specs"))
    @rule(place=st.integers(0, 2), spec=limits)
    def change(self, place, spec):
        if spec["algorithm"] == "sliding_log" and not self.whole_costs:
            return
        place %= len(self.specs)
        self.specs = [*self.specs[:place], spec, *self.specs[place + 1 :]]
        self.oracle.limits = self._named()
        for (where, _), model in self.oracle.models.items():
            if where == place:
                model.change(spec)
        for side in self.sides:
            side.replace_policy(self._policy())

    @rule(by_us=st.sampled_from([0, 1, 999, 200_000, US, 3 * US, 10 * US, 100 * US, 86_400 * US]))
    def wait(self, by_us):
        self.clock.advance(Fraction(by_us, US))

    @precondition(lambda self: self.decided)
    @rule(which=st.integers(0, 10**6), early_us=st.sampled_from([0, 1]))
    def wait_as_told(self, which, early_us):
        hint_us = self.decided[which % len(self.decided)][1].retry_after_us
        if hint_us is not None:
            self.clock.advance(Fraction(max(0, hint_us - early_us), US))


class AgreementInAnyTime(Agreement):
    """One key in each rule, and a clock that goes where it likes."""

    keys_most = 1

    @precondition(lambda self: hasattr(self, "clock"))
    @rule(by_us=st.sampled_from([1, US, 10 * US, 60 * US, 60 * US + 1, 100 * US, 3_600 * US]))
    def step_back(self, by_us):
        self.clock.advance(Fraction(-by_us, US))


TestManyKeys = Agreement.TestCase
TestAnyTime = AgreementInAnyTime.TestCase
short = settings(stateful_step_count=30)
TestManyKeys.settings = settings(short, max_examples=settings().max_examples)
TestAnyTime.settings = TestManyKeys.settings
