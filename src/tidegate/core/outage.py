"""What a rule does while a store on the network gives no answer, and how a limit is split for it.

    closed    refuse
    open      admit without counting, or within a limit of each process's own (`outage_limit`)
    reserve   each node owns a share of the limit and spends it always, so that nothing switches in an outage

A reserve is taken out of the limit in advance: with capacity B and rate r, each of N nodes owns a bucket
(B_i, r_i) and the store permanently holds (B - N B_i, r - N r_i). The sum is the limit, so in every
interval of length d at most B + r d passes, whether the store answers or not (docs/decisions/0013).

The numbers are exact: capacities are whole thousandths, rates fractions that fit the integers. Where a
share has to be rounded it is rounded down, and the store holds what the shares do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias, get_args

from tidegate.core.limits import LeakyBucket, Limit, TokenBucket
from tidegate.errors import LimitError, PolicyError
from tidegate.units import MILLI, US_PER_S, Number, Rate, decimal_text, exact, quoted

OnOutage: TypeAlias = Literal["closed", "open", "reserve"]

ON_OUTAGE: tuple[OnOutage, ...] = get_args(OnOutage)
NODES_MOST = 10_000
WORKERS_MOST = 10_000

_PERCENT = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,9})?)\s*%\s*", re.ASCII)
_ROUNDER = tuple(digit * 10**power for power in range(9, -1, -1) for digit in (5, 2, 1))


@dataclass(frozen=True)
class Reserve:
    """The part of a limit that nodes own for themselves. Immutable.

    Args:
        share: the part of the limit that all nodes own together, "20%" or 0.2; less than the whole.
        nodes: among how many nodes it is divided: a fixed number of places, whether all run or not.
        index: which of them this node is, from 0 on; None for a node that owns none. No two nodes that
            run at a time may have the same.

    Raises:
        PolicyError: a number is wrong.
    """

    share: Number | str
    nodes: int
    index: int | None = None

    def __post_init__(self) -> None:
        share = _share(self.share)
        _check_whole(self.nodes, "nodes", 1, NODES_MOST)
        if self.index is not None:
            _check_whole(self.index, "index", 0, self.nodes - 1)
        object.__setattr__(self, "share", share)

    @classmethod
    def of(cls, given: object) -> Reserve:
        """The reserve itself, or the one that {"share": "20%", "nodes": 8, "index": 0} says."""
        if isinstance(given, Reserve):
            return given
        if not isinstance(given, Mapping):
            raise PolicyError(f'reserve is {quoted(given)}; write {{"share": "20%", "nodes": 8, "index": 0}}')
        unknown = [name for name in given if name not in {"share", "nodes", "index"}]
        missing = [name for name in ("share", "nodes") if name not in given]
        if unknown or missing:
            wrong = f"has no {missing[0]}" if missing else f"has {quoted(unknown[0])}"
            raise PolicyError(f"reserve {wrong}; it takes share, nodes, and the index of this node")
        return cls(given["share"], given["nodes"], given.get("index"))

    @property
    def part(self) -> Fraction:
        """What one node owns of the whole."""
        return Fraction(self.share) / self.nodes

    def __str__(self) -> str:
        return f"{decimal_text(Fraction(self.share) * 100)}% over {self.nodes} nodes"


class Split(NamedTuple):
    """A limit with a reserve taken out: what the store holds, what a node owns, and one process of it."""

    store: Limit
    node: Limit
    process: Limit


def split(limit: Limit, reserve: Reserve, workers: int = 1) -> Split:
    """The limit in its parts: the store's, each node's, and each of `workers` processes' on a node.

    What the store holds depends on the share and the nodes alone, so nodes may have different workers.
    Raises PolicyError for a limit that cannot be split, or a share that is nothing.
    """
    if type(limit) not in {TokenBucket, LeakyBucket}:
        raise PolicyError(
            f"on_outage is 'reserve', and a {type(limit).__name__} cannot be split; "
            "use a TokenBucket or a LeakyBucket, or on_outage 'closed'"
        )
    assert limit.rate is not None
    if limit.rate.tokens == 0:
        raise PolicyError(
            "on_outage is 'reserve' for a rate of 0; shares begin empty and would never fill. Use 'closed'"
        )
    whole = limit.law.capacity
    of_node = int(whole * reserve.part)
    of_process = of_node // workers
    if of_process == 0:
        raise PolicyError(f"the reserve of {reserve}{_over(workers)} leaves nothing to each; {_WAYS_OUT}")
    of_store = whole - reserve.nodes * of_node
    for part in _rounded(reserve.part):
        node = _part(limit, of_node, part)
        store = _part(limit, of_store, 1 - reserve.nodes * part)
        if node is None or store is None:
            continue
        process = next(
            filter(None, (_part(limit, of_process, own) for own in _rounded(part / workers))), None
        )
        if process is not None:
            return Split(store, node, process)
    raise PolicyError(
        f"{limit!r} cannot be split into {reserve}{_over(workers)} within the exact integers; "
        "choose a share and nodes in rounder numbers, or a smaller capacity"
    )


def check_share(limit: Limit, reserve: Reserve, largest_cost: int, workers: int = 1) -> None:
    """Raise PolicyError where a request of `largest_cost` thousandths could never pass by a share."""
    own = split(limit, reserve, workers).process.law.capacity
    if own < largest_cost:
        raise PolicyError(
            f"the reserve of {reserve}{_over(workers)} is {_tokens(own)} of {_tokens(limit.law.capacity)} "
            f"tokens each, less than the largest cost {_tokens(largest_cost)}, which could never pass in an "
            f"outage; {_WAYS_OUT}, or use on_outage 'closed'"
        )


_WAYS_OUT = "raise the share or the capacity, or count fewer nodes or workers"


def _share(given: Number | str) -> Fraction:
    if isinstance(given, str):
        match = _PERCENT.fullmatch(given)
        share = Fraction(match[1]) / 100 if match is not None else None
    else:
        try:
            share = exact(given, "share")
        except LimitError:
            share = None
    if share is None or not 0 < share < 1:
        raise PolicyError(
            f"the share of a reserve is {quoted(given)}; write a part of the limit, such as '20%' or 0.2"
        )
    return share


def _check_whole(value: object, what: str, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise PolicyError(
            f"{what} of a reserve is {quoted(value)}; write a whole number from {least} to {most}"
        )


def _rounded(part: Fraction) -> Iterator[Fraction]:
    """The part itself, then the largest rounder ones below it."""
    yield part
    for denominator in _ROUNDER:
        rounder = Fraction(int(part * denominator), denominator)
        if rounder:
            yield rounder


def _part(limit: Limit, capacity: int, of_rate: Fraction) -> Limit | None:
    """A limit of the same kind with so many thousandths and a part of the rate; None if it does not fit."""
    assert limit.rate is not None
    try:
        rate = Rate(limit.rate.tokens * of_rate, Fraction(limit.rate.per_us, US_PER_S))
        part = type(limit)(Fraction(capacity, MILLI), rate)  # type: ignore[call-arg]  # a bucket, as asked above
        return part.part_of(limit)
    except LimitError:
        return None


def _over(workers: int) -> str:
    return f" of {workers} workers" if workers > 1 else ""


def _tokens(thousandths: int) -> str:
    return decimal_text(Fraction(thousandths, MILLI))
