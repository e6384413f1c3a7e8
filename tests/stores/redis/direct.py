"""Random charges on a store and on the reference, state by state: what one keeps, the other must keep too.

Where `tidegate.testing.traces` plays a policy as its users would, this asks the store itself, and for
trouble: another limit on the same key at any time, numbers at the edge of the exact integers, patience,
debts, receipts of every age, clocks that jump, many requests in one call. Nothing is forgotten in between,
so the states must be equal to the last number; of a log, which travels in short, every figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.stores.redis.plain import PlainStore
from tidegate import FixedWindow, LeakyBucket, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.carry import WAYS, is_change
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.law import EXACT
from tidegate.core.limits import Limit
from tidegate.core.log import Log, LogState
from tidegate.core.outcome import Charge, Outcome
from tidegate.stores.redis.state import parse_state
from tidegate.testing.reference import ReferenceStore
from tidegate.units import MILLI, US_PER_S

START_US = 1_700_000_000 * US_PER_S
TAKES_MS = 20_000
"""No step takes longer, however busy the machine."""

KEYS: tuple[str | bytes, ...] = ("x", "y", b"s1:xs1:z")

USUAL: tuple[Limit, ...] = (
    TokenBucket(10, "5/s"),
    TokenBucket(20, "5/s"),
    LeakyBucket(10, "5/s"),
    TokenBucket(3, "0/s"),
    TokenBucket(10, "7/min"),
    TokenBucket(2.5, "1 per 3s"),
    LeakyQueue(10, "5/s"),
    LeakyQueue(6, "5/s", "interval"),
    LeakyQueue(8, "2/s", delay_after=3),
    FixedWindow(10, "10s"),
    FixedWindow(5, "1min"),
    FixedWindow(7, "day", "Europe/Berlin"),
    FixedWindow(7, "month", "Asia/Kolkata"),
    SlidingWindow(10, "10s"),
    SlidingWindow(4, "1500ms"),
    SlidingLog(10, "10s"),
    SlidingLog(5, "1min"),
    SlidingLog(30, "10s"),
)
EDGES: tuple[Limit, ...] = (
    TokenBucket(1_600, "1 per 30 days"),
    TokenBucket(1_733, "1 per 30 days"),
    TokenBucket(4_000_000_000_000, "1000/s"),
    TokenBucket(0.001, "1 per 365 days"),
    TokenBucket(4_503_599_627_370.495, "0/s"),
    TokenBucket(100, "1000000/s"),
    TokenBucket(1_000, "123457 per 30 days"),
    FixedWindow(4_503_599_627_370, "1h"),
    FixedWindow(0.001, "1us"),
    SlidingWindow(4_000_000_000_000, "1s"),
    SlidingWindow(0.001, "36500 days"),
    SlidingLog(100_000, "36500 days"),
    SlidingLog(1, "1us"),
)


class StrictReference(ReferenceStore):
    """The reference with an epoch: what a strict charge does not find may have been lost before that.

    Such a key counts as used up at the epoch, and has drained since; one that was reset counts as fresh.
    """

    def __init__(self) -> None:
        super().__init__()
        self.epoch_us: int | None = None
        self._reset: set[tuple[str, Key]] = set()

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide with what may have been lost, and keep only what a store must."""
        lost = self._put_lost(charges, now_us or 0)
        outcomes = super().decide(charges, now_us, take=take)
        if lost and take and any(charge.cost for charge in lost):
            self.epoch_us = now_us if self.epoch_us is None else self.epoch_us
        self._take_lost_away(lost)
        return outcomes

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """The same for what is owed."""
        changes = []
        for adjustment in adjustments:
            owing = [adjustment.charge] if adjustment.units > 0 else []
            lost = self._put_lost(owing, now_us or 0)
            if lost:
                self.epoch_us = now_us if self.epoch_us is None else self.epoch_us
            changes += super().adjust([adjustment], now_us)
            self._take_lost_away(lost)
        return changes

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """A key that is not there is fresh from now on, where an epoch says that it may have been lost."""
        super().forget(keys)
        if self.epoch_us is not None:
            self._reset.update(place for place in keys if place not in self._states)

    def _put_lost(self, charges: Sequence[Charge], now_us: int) -> dict[Charge, Any]:
        epoch_us = now_us if self.epoch_us is None else self.epoch_us
        lost = {}
        for charge in charges:
            place = (charge.rule, charge.key)
            if charge.strict and place not in self._states and place not in self._reset:
                law = charge.limit.law
                lost[charge] = self._states[place] = law.holding(law.capacity, epoch_us, epoch_us)
        return lost

    def _take_lost_away(self, lost: dict[Charge, Any]) -> None:
        for charge, state in lost.items():
            place = (charge.rule, charge.key)
            if self._states[place] is state:
                del self._states[place]


class Pair:
    """A store and the reference, asked the same."""

    def __init__(
        self,
        store: PlainStore,
        random: Random,
        limits: Sequence[Limit],
        *,
        strict: bool = False,
        calm: bool = False,
    ) -> None:
        self.store = store
        self.strict = strict
        self.calm = calm
        self.reference = StrictReference() if strict else ReferenceStore()
        self.random = random
        self.limits = limits
        start_us = START_US if strict or random.random() < 0.8 else 0
        self.now_us = start_us + random.randrange(60 * US_PER_S)
        self.current = {key: random.choice(limits) for key in KEYS}
        self.charged: list[Outcome] = []
        self.told: list[str] = []

    def step(self) -> None:
        """Do one thing on both, and compare."""
        self.now_us = self._next_instant()
        kind = self.random.random()
        if kind < 0.62:
            self._decide(take=True)
        elif kind < 0.7:
            self._decide(take=False)
        elif kind < 0.97 and self.charged:
            self._adjust()
        elif kind >= 0.97:
            places = [("rule", self.random.choice(KEYS))] * self.random.choice((1, 2))
            self.told.append(f"{self.now_us} forget {places}")
            self.reference.forget(places)
            self.store.forget(places)

    def _decide(self, *, take: bool) -> None:
        requests = [self._request() for _ in range(self.random.choice((1, 1, 1, 2, 5)))]
        self.told.append(f"{self.now_us} take={take} {requests}")
        before = self._states()
        answers = self.store.decide_many(requests, self.now_us, take=take)
        for request, answer in zip(requests, answers, strict=True):
            expected = self.reference.decide(request, self.now_us, take=take)
            assert isinstance(answer, list), self._told((answer, request))
            assert list(map(seen, answer)) == list(map(seen, expected)), self._told(request)
            self.charged += [outcome for outcome in expected if outcome.charged]
        self._compare_stored(before)

    def _adjust(self) -> None:
        entries = [self._entry() for _ in range(self.random.choice((1, 1, 3)))]
        self.told.append(f"{self.now_us} adjust {entries}")
        before = self._states()
        answered = self.store.adjust(entries, self.now_us)
        assert answered == self.reference.adjust(entries, self.now_us), self._told(entries)
        self._compare_stored(before)

    def _request(self) -> list[Charge]:
        count = self.random.choice((1, 1, 1, 2, 3))
        return [self._charge(key) for key in self.random.sample(KEYS, count)]

    def _charge(self, key: str | bytes) -> Charge:
        random = self.random
        if random.random() < 0.1 and not self.calm:
            self.current[key] = random.choice(self.limits)
        limit = self.current[key]
        return Charge(
            "rule",
            key,
            limit,
            self._cost(limit),
            mode=random.choice(("enforce", "enforce", "enforce", "shadow")),
            carry=random.choice(WAYS),
            patience_us=random.choice((None, None, None, 0, 1, 400_000, 3_000_000, 10**12, 10**18)),
            strict=self.strict and random.random() < 0.8,
        )

    def _cost(self, limit: Limit) -> int:
        capacity = limit.law.capacity
        costs = [0, MILLI, MILLI, MILLI, 2 * MILLI, capacity, capacity - 1, capacity + 1, 10**20, 1, 333]
        cost = self.random.choice(costs)
        return cost - cost % MILLI if isinstance(limit, SlidingLog) else cost

    def _entry(self) -> Adjustment:
        random = self.random
        earlier = random.choice(self.charged[-12:])
        charge = earlier.charge
        if random.random() < 0.3:
            charge = charge._replace(limit=self.current[charge.key])
        grain = charge.limit.law.grain
        capacity = charge.limit.law.capacity
        if random.random() < 0.3:
            most = (EXACT - 1) // (2 * grain) - capacity
            debt = random.choice((0, 1, 2 * MILLI, capacity, max(0, most)))
            units = grain * self._cost(charge.limit)
            return Adjustment(charge, earlier.receipt, max(1, units), 0, False, debt)
        cost = earlier.charge.cost * earlier.limit.law.grain
        units = random.choice((cost, 1, cost // 2, grain * MILLI))
        own = random.choice((0, 0, 0, units, cost // 3))
        return Adjustment(charge, earlier.receipt, -max(1, units), own, random.random() < 0.3)

    def _next_instant(self) -> int:
        random = self.random
        kind = random.random()
        if kind < 0.4:
            return self.now_us
        if kind < 0.75 or self.calm:
            return self.now_us + random.choice(
                (1, random.randrange(US_PER_S), random.randrange(4 * US_PER_S))
            )
        if kind < 0.8:
            return self.now_us + max(0, self._until_fresh_us() + random.choice((-1, 0, 0, 1)))
        if kind < 0.86:
            return self.now_us + random.randrange(40 * 60 * US_PER_S)
        if kind < 0.88:
            return self.now_us + random.randrange(40 * 86_400 * US_PER_S)
        if kind < 0.95:
            return self.now_us - random.choice((1, 59_999_999, 60_000_000, random.randrange(US_PER_S)))
        return self.now_us - random.choice((60_000_001, 3_600 * US_PER_S, 90 * 86_400 * US_PER_S))

    def _until_fresh_us(self) -> int:
        """How long until one of the keys is fresh."""
        states = list(self._states().values())
        if not states:
            return 1
        state = self.random.choice(states)
        us = state.law.reset_after_us(state.law.advance(state, self.now_us), self.now_us)
        return int(us) if us is not None and us < 10**13 else 1

    def _states(self) -> dict[Any, Any]:
        return dict(self.reference._states)

    def _compare_stored(self, before: dict[Any, Any]) -> None:
        """What was written can be read back to the last number, and expires an hour after it is fresh."""
        for place, state in self._states().items():
            was, (_, key) = before.get(place), place
            if state is was or (was and was.law.is_fresh(was) and state.law.is_fresh(state)):
                continue  # what was fresh and stays so need not be written
            name = self.store.names.key("rule", key)
            value, left_ms = self.store.redis.get(name), self.store.redis.pttl(name)
            stored = parse_state(value)
            assert stored is not None, self._told(value)
            assert same(stored.state, state), self._told((value, state))
            fresh_in_us = state.law.reset_after_us(state, self.now_us)
            if fresh_in_us is None:
                assert left_ms == -1, self._told(state)
            else:
                most_ms = -(-fresh_in_us // 1_000) + 3_600_000
                assert most_ms - TAKES_MS <= left_ms <= most_ms, self._told((left_ms, most_ms, state))

    def _told(self, asked: object) -> str:
        return "\n".join([*self.told[-8:], f"differs at {asked}"])


def same(state: Any, other: Any) -> bool:
    """Whether two states are equal: of logs the rows that count, totals from 0; laws by their numbers."""

    def told(state: Any) -> Any:
        if not isinstance(state, LogState):
            return state._replace(law=None)
        base = state.totals[state.start - 1] if state.start else 0
        totals = [total - base for total in state.totals[state.start : state.end]]
        instants = state.instants[state.start : state.end]
        return instants, totals, state.at_us, state.busy_since_us

    return not is_change(state.law, other.law) and bool(told(state) == told(other))


def seen(outcome: Outcome) -> tuple[Any, ...]:
    """All that can be seen of an outcome: its state to the last number, or what a log's state says."""
    said = (outcome.allowed, outcome.charged, outcome.now_us, outcome.charge)
    if not isinstance(outcome.limit.law, Log):
        return (*said, outcome.state)
    state, law = outcome.state, outcome.limit.law
    return (
        *said,
        (law.used(state), state.at_us, state.busy_since_us, law.is_fresh(state), outcome.receipt),
        (outcome.retry_after_us, outcome.reset_after_us, outcome.wait_us),
    )
