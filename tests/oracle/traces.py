"""Random limits and random operations from a seed, in the form of the conformance tables.

    case = trace(seed)                        # {"limit": ..., "options": ..., "steps": [...]}
    answers = play.play(case)                 # what the oracle says to each step
    layered_trace(seed)                       # several limits, `costs` in place of `cost`

The numbers are nasty on purpose: rates that no decimal writes, instants that stand still, leap, and go
back a little, up to the step that freezes the drain, and beyond it. A trace is a plain JSON value, so a
failing one can be printed and kept as a case.
"""

from __future__ import annotations

import random
from fractions import Fraction
from math import lcm
from typing import Any

from tests.oracle.carry import WAYS
from tests.oracle.play import Case, Step, text
from tests.oracle.reading import UNIT_US, ceil, duration_us, number, rate_per_us

STEP_US = 60_000_000
LEVELS = ("token_bucket", "leaky_bucket", "leaky_queue")
WINDOWS = ("sliding_log", "fixed_window", "sliding_window")
ALGORITHMS = LEVELS + WINDOWS
RATES = (
    *("5/s", "7/s", "1/3s", "166.666/s", "80000/s", "200000/s", "10000000/s", "1/s", "0.4/s", "300/5min"),
    *(
        "1/30day",
        "10/3day",
        "1/day",
        "0/s",
        "1000001/s",
        "0.001/h",
        "2/60s",
        "13/7s",
        "0.07/s",
        "999/1000001us",
    ),
)
LENGTHS = (
    "1s",
    "10s",
    "60s",
    "7s",
    "1h",
    "18000s",
    "1day",
    "30day",
    "250ms",
    "13us",
    "999999us",
    "1000003us",
    "1us",
)
CALENDAR = ("minute", "hour", "day", "week", "month", "year")
ZONES = (
    *(
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "America/Havana",
        "Asia/Beirut",
        "Asia/Kathmandu",
    ),
    *("Pacific/Auckland", "Australia/Lord_Howe", "America/St_Johns"),
)
STARTS_US = (0, 1_000_000_000_000, 1_774_746_000_000_000, 1_793_498_400_000_000, 1_796_061_600_123_457)
MOST = 2**53


def trace(
    seed: int, *, algorithms: tuple[str, ...] = ALGORITHMS, steps: int = 60, changes: bool = True
) -> Case:
    """One key under one limit, with every operation. `changes`: the limit is changed now and then."""
    chance = random.Random(f"trace {seed}")
    limit = random_limit(chance, chance.choice(algorithms))
    options: dict[str, Any] = {"give_back": "full"} if chance.random() < 0.2 else {}
    if chance.random() < 0.3:
        options["max_debt"] = str(chance.choice([0, 1, 5, 100]))
    if changes and chance.random() < 0.5:
        options["carry"] = chance.choice(WAYS)
    told = _Steps(chance, limit)
    for _ in range(steps):
        told.step(changes=changes)
    return {"name": f"trace {seed}", "limit": limit, "options": options, "steps": told.steps}


def layered_trace(seed: int, *, algorithms: tuple[str, ...] = ALGORITHMS, steps: int = 40) -> Case:
    """One to five limits, decided together, on two keys each."""
    chance = random.Random(f"layered {seed}")
    limits = [random_limit(chance, chance.choice(algorithms)) for _ in range(chance.randint(1, 5))]
    clocks = [_Clock(chance, limit) for limit in limits]
    now_us, told = chance.choice(STARTS_US), list[Step]()
    for _ in range(steps):
        now_us = chance.choice(clocks).after(now_us)
        costs = [_cost(chance, limit) if chance.random() < 0.5 else "1" for limit in limits]
        keys = [chance.choice("ab") for _ in limits]
        told.append(
            {
                "op": chance.choice(["hit", "hit", "hit", "peek"]),
                "at_us": now_us,
                "costs": costs,
                "keys": keys,
            }
        )
    named = [{"name": f"limit {index}", "limit": limit} for index, limit in enumerate(limits)]
    return {"name": f"layered {seed}", "limits": named, "steps": told}


def random_limit(chance: random.Random, algorithm: str) -> dict[str, str]:
    """A limit that the exact numbers allow."""
    if algorithm in LEVELS:
        return _level(chance, algorithm)
    limit = {
        "algorithm": algorithm,
        "limit": str(chance.choice([1, 2, 3, 5, 10, 100, 1000])),
        "window": chance.choice(LENGTHS),
    }
    if algorithm == "sliding_window":
        limit["limit"] = str(chance.choice([1, 2, 5, 10, 1000, 1_000_000]))
    if algorithm == "fixed_window" and chance.random() < 0.5:
        limit["window"] = chance.choice(CALENDAR)
        if limit["window"] not in {"minute", "hour"}:
            limit["zone"] = chance.choice(ZONES)
    return limit


def _level(chance: random.Random, algorithm: str) -> dict[str, str]:
    rate = chance.choice(RATES)
    if chance.random() < 0.3:
        rate = f"{chance.randint(1, 1000)}/{chance.randint(1, 1000)}{chance.choice(['ms', 's', 'min', 'h'])}"
    if algorithm == "leaky_queue" and rate_per_us(rate) == 0:
        rate = "1/s"  # a line that never moves holds work for ever
    most = MOST // (8 * lcm(rate_per_us(rate).denominator, 1000))
    wanted: list[int | Fraction] = [
        1,
        2,
        3,
        5,
        10,
        20,
        100,
        1700,
        1_000_000,
        10_000_000,
        Fraction(5, 2),
        Fraction(1, 100),
    ]
    capacity = chance.choice([each for each in wanted if each <= most])
    limit = {"algorithm": algorithm, "capacity": text(Fraction(capacity)), "rate": rate}
    if algorithm == "leaky_queue":
        limit["first_release"] = chance.choice(["immediate", "interval"])
        limit["delay_after"] = str(chance.choice([0, 0, 1, 3]) if capacity >= 3 else 0)
    return limit


class _Clock:
    """Instants that matter to a limit: what it takes to earn a token, to fill, to end a window."""

    def __init__(self, chance: random.Random, limit: dict[str, str]) -> None:
        self.chance = chance
        if "rate" in limit:
            rate = rate_per_us(limit["rate"])
            self.token_us = min(ceil(1 / rate), 10**14) if rate else 1_000_000
            self.whole_us = min(ceil(number(limit["capacity"]) / rate), 10**14) if rate else 10_000_000
        else:
            unit = {"minute": "min", "hour": "h"}.get(limit["window"], limit["window"])
            months = {"month": 30 * UNIT_US["day"], "year": 365 * UNIT_US["day"]}
            self.whole_us = months.get(unit) or UNIT_US.get(unit) or duration_us(unit)
            self.token_us = max(1, self.whole_us // int(limit["limit"]))

    def after(self, now_us: int) -> int:
        chance = self.chance
        kind = chance.random()
        if kind < 0.35:
            return now_us
        if kind < 0.45:
            return now_us + chance.choice([1, 1, 2, self.token_us - 1, self.token_us, self.token_us + 1])
        if kind < 0.65:
            return now_us + chance.randint(0, 2 * self.token_us)
        if kind < 0.78:
            return now_us + chance.randint(0, self.whole_us)
        if kind < 0.84:
            return now_us + chance.choice(
                [self.whole_us - 1, self.whole_us, self.whole_us + 1, 3 * self.whole_us]
            )
        if kind < 0.88:
            return (now_us // self.whole_us + 1) * self.whole_us - chance.choice([0, 0, 1])
        back_us = chance.choice(
            [1, self.token_us, self.whole_us, 1_000_000, STEP_US, STEP_US + 1, 3_600_000_000]
        )
        if kind < 0.96:
            back_us = min(back_us, chance.randint(1, STEP_US))
        return max(now_us - back_us, 0)


class _Steps:
    """The steps of one key. A refund names a hit since the last reset: what was before it is forgotten."""

    def __init__(self, chance: random.Random, limit: dict[str, str]) -> None:
        self.chance = chance
        self.limit = limit
        self.clock = _Clock(chance, limit)
        self.now_us = chance.choice(STARTS_US)
        self.steps: list[Step] = []
        self.hits: list[int] = []
        self.settled: set[int] = set()

    def step(self, *, changes: bool) -> None:
        self.now_us = self.clock.after(self.now_us)
        kind = self.chance.random()
        if kind < 0.62 or not self.hits:
            self.hits.append(len(self.steps))
            self._tell("hit", cost=_cost(self.chance, self.limit))
        elif kind < 0.72:
            self._tell("peek", cost=_cost(self.chance, self.limit))
        elif kind < 0.84:
            self._tell("refund", step=self.chance.choice(self.hits[-6:]), cost=_cost(self.chance, self.limit))
        elif kind < 0.94:
            self._settle()
        elif kind < 0.96:
            self.steps.append({"op": "reset"})
            self.hits.clear()
        elif changes:
            self._change()

    def _tell(self, op: str, **fields: Any) -> None:
        self.steps.append({"op": op, "at_us": self.now_us, **fields})

    def _settle(self) -> None:
        open_hits = [each for each in self.hits[-6:] if each not in self.settled]
        if open_hits:
            chosen = self.chance.choice(open_hits)
            self.settled.add(chosen)
            self._tell("settle", step=chosen, cost=_cost(self.chance, self.limit))

    def _change(self) -> None:
        """Another limit of the same family; a window keeps its length and zone."""
        algorithm = self.limit["algorithm"]
        new = random_limit(self.chance, self.chance.choice(LEVELS) if algorithm in LEVELS else algorithm)
        if algorithm in WINDOWS:
            new |= {name: self.limit[name] for name in ("window", "zone") if name in self.limit}
            new = {name: new[name] for name in self.limit}
        self.limit, self.clock = new, _Clock(self.chance, new)
        self.steps.append({"op": "change", "limit": new})


def _cost(chance: random.Random, limit: dict[str, str]) -> str:
    """Whole tokens, parts, all there is, nothing, and now and then more than there can be."""
    capacity = number(limit.get("capacity") or limit["limit"])
    thousandths = int(capacity * 1000)
    kinds = [Fraction(1)] * 6 + [
        Fraction(0),
        capacity,
        capacity + 1,
        Fraction(chance.randint(1, 2 * max(1, int(capacity)))),
    ]
    kinds += [Fraction(chance.randint(1, max(1, int(capacity)))) for _ in range(3)]
    if limit["algorithm"] != "sliding_log":
        kinds += [Fraction(chance.randint(1, thousandths), 1000), Fraction(1, 10), Fraction(1, 1000)]
    return text(chance.choice(kinds))
