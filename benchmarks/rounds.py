"""How everything here is timed: all contenders back to back in every round, and medians of ratios.

Time is processor time of this process, so that others who want the same processor do not count. A machine
that is slow for a while is slow for all contenders of that round, so the ratio to the floor of the same
round is what repeats; nanoseconds are printed beside it for orientation only.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Work = Callable[[], int]
"""Does a stretch of work and returns how many decisions it made."""


class Measured(NamedTuple):
    """What one contender took: nanoseconds a decision and the ratio to the floor, medians over the rounds."""

    name: str
    ns: float
    ratio: float | None
    spread: float
    """The highest of the middle half of the ratios over the lowest: how far to trust the ratio."""


def timed(work: Work) -> float:
    """Nanoseconds of processor time that one decision took."""
    start_ns = time.process_time_ns()
    decisions = work()
    return (time.process_time_ns() - start_ns) / decisions


def measure(works: Mapping[str, Work], floor: str | None, rounds: int) -> list[Measured]:
    """Time every work in every round, after one round that does not count. In the order given."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for name, work in list(works.items()):
        try:
            timed(work)
        except Exception as error:
            print(f"  {name}: skipped, {type(error).__name__}: {error}", file=sys.stderr)
            del taken[name]
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for name, times in taken.items():
            times.append(timed(works[name]))
    gc.unfreeze()
    base = taken.get(floor) if floor is not None else None
    return [_measured(name, times, base) for name, times in taken.items()]


def _measured(name: str, times: list[float], base: list[float] | None) -> Measured:
    if base is None:
        return Measured(name, statistics.median(times), None, _spread(times))
    ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
    return Measured(name, statistics.median(times), statistics.median(ratios), _spread(ratios))


def _spread(values: list[float]) -> float:
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[-1 - quarter] / ordered[quarter]


def show(title: str, measured: list[Measured], unit: str = "decision") -> None:
    """Print a table: name, nanoseconds, ratio to the floor."""
    print(f"\n{title}")
    width = max((len(line.name) for line in measured), default=0)
    for line in measured:
        ratio = "" if line.ratio is None else f"   x {line.ratio:5.2f} of the floor"
        print(f"  {line.name:{width}} {line.ns:9.0f} ns a {unit}{ratio}   (spread x {line.spread:.2f})")
