"""A comparison as people read it: one table for each kind of traffic, and which algorithm is for whom.

A chart stands at the end of each line where there is room: how much work begins, over time. Its bars of
one table share one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.simulate.compare import Comparison, Passage, Scene
from tidegate.words.figures import most_leaving_in
from tidegate.words.typeset import GAP, number, paragraph, span, table

BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = ".:-=+*#@"
_CHART_LEAST = 12
_CHART_MOST = 60


def text(comparison: Comparison, *, width: int = 80, plain: bool = False) -> str:
    """The comparison for a terminal of that width; `plain` keeps to ASCII."""
    window = span(comparison.window_us)
    opening = (
        f"Capacity {comparison.capacity:,}, rate {comparison.rate}, windows of {window}: in the long run "
        'every algorithm lets the same through. Requests cost 1. "worst 1 s" is the most work that began '
        f'in any one second, "{_worst(comparison)}" in any {window}.'
    )
    lines = paragraph(opening, width)
    for scene in comparison.scenes:
        lines += ["", *_scene_lines(scene, comparison, width, _PLAIN_BARS if plain else BARS)]
    lines += ["", *_keeping_lines(comparison, width)]
    lines += ["", *paragraph(_spread_words(comparison), width)]
    lines += ["", *_choice_lines(comparison, width)]
    return "\n".join(lines) + "\n"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values, for programs."""
    names = [type(limit).__name__ for limit in comparison.limits]
    servers = comparison.servers
    return {
        "capacity": comparison.capacity,
        "rate": str(comparison.rate),
        "window_us": comparison.window_us,
        "limits": {name: repr(limit) for name, limit in zip(names, comparison.limits, strict=True)},
        "bytes_per_key": dict(zip(names, comparison.bytes_per_key, strict=True)),
        "traffic": [
            {
                "name": scene.traffic.name,
                "sent": len(scene.traffic.arrivals_us),
                "watched_us": scene.traffic.watched_us,
                "algorithms": {passage.algorithm: _numbers(passage) for passage in scene.passages},
            }
            for scene in comparison.scenes
        ],
        "servers": {
            "servers": servers.servers,
            "sent": servers.sent,
            "admitted_with_a_memory_each": servers.apart,
            "admitted_with_one_store": servers.together,
        },
        "choose": [{"for": what, "use": name, "because": why} for what, name, why in _choices(comparison)],
    }


def _worst(comparison: Comparison) -> str:
    window = span(comparison.window_us)
    return f"worst {window}" if len(window) <= 6 else "worst window"


def _numbers(passage: Passage) -> dict[str, int]:
    return {
        "admitted": passage.admitted,
        "refused": passage.sent - passage.admitted,
        "worst_second": passage.worst_second,
        "worst_window": passage.worst_window,
        "longest_wait_us": passage.longest_wait_us,
    }


def _scene_lines(scene: Scene, comparison: Comparison, width: int, bars: str) -> list[str]:
    sent = len(scene.traffic.arrivals_us)
    heads = ["", "admitted", "worst 1 s", _worst(comparison), "longest wait"]
    rows = [
        [
            passage.algorithm,
            f"{passage.admitted:,}",
            f"{passage.worst_second:,}",
            f"{passage.worst_window:,}",
            span(passage.longest_wait_us) if passage.longest_wait_us else "-",
        ]
        for passage in scene.passages
    ]
    lines = table(heads, rows, width, indent="  ")
    across = max(len(line) for line in lines)
    room = min(_CHART_MOST, width - across - len(GAP))
    if room >= _CHART_LEAST and len(lines) == len(rows) + 1:
        charts = _charts(scene, room, bars)
        head = f"work begins, 0 to {span(scene.traffic.watched_us)}"
        beside = [head if len(head) <= room else "work begins", *charts]
        lines = [f"{line:<{across}}{GAP}{chart}".rstrip() for line, chart in zip(lines, beside, strict=True)]
    story = f"{scene.traffic.story} {sent:,} requests over {span(scene.traffic.watched_us)}."
    if scene.traffic.name == "app launch":
        story = scene.traffic.story
    return [*paragraph(story, width), "", *lines]


def _charts(scene: Scene, room: int, bars: str) -> list[str]:
    """A bar for each stretch of time, as high as much work begins in it; nothing begins in a blank."""
    counts = []
    for passage in scene.passages:
        bins = [0] * room
        for at_us in passage.departures_us:
            if at_us < scene.traffic.watched_us:
                bins[at_us * room // scene.traffic.watched_us] += 1
        counts.append(bins)
    highest = max(max(bins) for bins in counts) or 1
    return ["".join(_bar(count, highest, bars) for count in bins) for bins in counts]


def _bar(count: int, highest: int, bars: str) -> str:
    return bars[(count * len(bars) - 1) // highest] if count else " "


def _keeping_lines(comparison: Comparison, width: int) -> list[str]:
    rows = []
    for place, limit in enumerate(comparison.limits):
        seen = max(scene.passages[place].worst_window for scene in comparison.scenes)
        possible = most_leaving_in(limit, comparison.window_us)
        weight = f"{comparison.bytes_per_key[place]:,}"
        rows.append([type(limit).__name__, f"{seen:,}", number(possible), weight])
    heads = ["", f"{_worst(comparison)} seen", "possible", "bytes a key"]
    note = (
        "What begins at worst, here and whatever the arrivals, and what a key weighs: the bytes that the "
        "embedded store allocates for one more that has spent everything, its name not counted. "
        f"A log keeps an entry for each spend, here {comparison.capacity:,}."
    )
    return [*paragraph(note, width), "", *table(heads, rows, width, indent="  ")]


def _spread_words(comparison: Comparison) -> str:
    shown = comparison.servers
    servers = f"{shown.servers:,} servers" if shown.servers != 1 else "one server"
    return (
        f"The script again, its {shown.sent:,} requests spread over {servers} by chance. A TokenBucket in "
        f"the memory of each: {shown.apart:,} admitted together. One store for all: {shown.together:,}, of "
        f"at most {number(shown.bound)} that the limit promises for {span(shown.watched_us)}."
    )


def _choice_lines(comparison: Comparison, width: int) -> list[str]:
    rows = _choices(comparison)
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = ["Which one?", ""]
    for what, name, why in rows:
        head = f"  {what:<{first}}{GAP}{name:<{second}}{GAP}"
        lines += paragraph(why, width, indent=head, hanging=" " * len(head))
    return lines


def _choices(comparison: Comparison) -> Sequence[tuple[str, str, str]]:
    capacity, window = f"{comparison.capacity:,}", span(comparison.window_us)
    longest_us = max(passage.longest_wait_us for scene in comparison.scenes for passage in scene.passages)
    return (
        ("elastic backend", "TokenBucket", "bursts are served at once, overload is not"),
        ("fixed capacity", "LeakyQueue", f"work leaves evenly, and waits at most {span(longest_us)} here"),
        ("background work", "LeakyQueue", "nothing is lost by waiting"),
        ("one-time codes", "SlidingLog", f"{capacity} in any {window} means any; an entry for each spend"),
        ("quota of a contract", "FixedWindow", "by the day or month; twice the limit across a boundary"),
        ("how full is it?", "LeakyBucket", "the bucket's verdicts, told as a level"),
    )
