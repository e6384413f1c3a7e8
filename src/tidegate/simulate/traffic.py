"""Kinds of traffic, as the instants at which requests of cost 1 arrive.

Sizes follow the limit that the traffic is shown to; nothing here knows an algorithm. Arrivals are whole
microseconds from the start, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.units import US_PER_S

LAUNCH_REQUESTS = 12
SCRIPT_WINDOWS = 15
BURST_WINDOWS = 6
SCRIPT_REQUESTS_MOST = 6_000


@dataclass(frozen=True)
class Traffic:
    """What arrives, and for how long it is watched."""

    name: str
    story: str
    arrivals_us: tuple[int, ...]
    watched_us: int


def app_launch(window_us: int) -> Traffic:
    """Twelve requests within a second, then quiet: what an app sends when it starts."""
    arrivals = tuple(number * US_PER_S // LAUNCH_REQUESTS for number in range(LAUNCH_REQUESTS))
    return Traffic(
        "app launch",
        f"An app starts: {LAUNCH_REQUESTS} requests within a second, then quiet.",
        arrivals,
        US_PER_S + window_us,
    )


def script(capacity: int, window_us: int) -> Traffic:
    """A script at full speed, up to ten times what the limit sustains, for fifteen windows."""
    times = max(2, min(10, SCRIPT_REQUESTS_MOST // (SCRIPT_WINDOWS * capacity)))
    count = SCRIPT_WINDOWS * capacity * times
    watched_us = SCRIPT_WINDOWS * window_us
    return Traffic(
        "script",
        f"A script at full speed: {times} times what the limit sustains, without a pause.",
        tuple(number * watched_us // count for number in range(count)),
        watched_us,
    )


def bursts(capacity: int, window_us: int) -> Traffic:
    """A whole capacity just before every second boundary of a window, and a whole one just after."""
    before_us = min(1_000, window_us // 10)
    edges = range(2 * window_us, BURST_WINDOWS * window_us + 1, 2 * window_us)
    arrivals = [instant for edge in edges for instant in [edge - before_us] * capacity + [edge] * capacity]
    return Traffic(
        "bursts",
        f"Bursts at the window's boundaries: {capacity:,} just before one, {capacity:,} just after.",
        tuple(arrivals),
        (BURST_WINDOWS + 1) * window_us,
    )
