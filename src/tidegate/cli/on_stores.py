"""The commands for authors and operators of stores: conformance and hammer."""

from __future__ import annotations

import re
import shlex
from argparse import Namespace
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from tidegate.cli.terminal import say, say_json, width
from tidegate.errors import CostError, StoreError
from tidegate.stores.opening import open_store
from tidegate.testing.conformance import run_vectors, table_names
from tidegate.testing.hammer import Hammered
from tidegate.testing.hammer import hammer as run_hammer
from tidegate.testing.report import Difference, Report
from tidegate.testing.traces import run_traces
from tidegate.words.typeset import labelled, listed

_MISSED = "{} had no answer in time: charged or not, and neither admitted nor refused"
_NOTHING_RUN = Report(0, 0, ())


def conformance(arguments: Namespace) -> int:
    """Play tables and traces on a store; 1 if it answered differently anywhere."""
    selects = arguments.tables is not None or arguments.case is not None
    if arguments.tables is not None and arguments.tables not in table_names():
        raise StoreError(f"there are no tables {arguments.tables!r}; there is {listed(table_names())}")

    def factory() -> Any:
        return open_store(_unhurried(arguments.store))

    vectors = traces = _NOTHING_RUN
    if arguments.trace is None:
        vectors = run_vectors(factory, tables=arguments.tables, case=arguments.case)
        if not vectors.total:
            raise StoreError(f"no case is called {arguments.case!r}; the names stand in conformance/*.json")
    if not selects:
        traces = run_traces(factory, seed=arguments.seed, traces=arguments.traces, only=arguments.trace)
    count = vectors.differing + traces.differing
    found = [*vectors.differences, *traces.differences]
    if arguments.json:
        say_json(_conformance_told(arguments, vectors, traces))
        return 1 if count else 0
    lines = [f"{name:<16}{agreed:>5}/{total}" for name, agreed, total in vectors.of_each]
    for number, difference in enumerate(found, 1):
        lines += [
            "",
            f"difference {number}: {difference}",
            f"  repeat   {_replay(arguments.store, difference)}",
        ]
    if len(found) < count:
        lines += ["", f"and {count - len(found):,} more"]
    lines += [""] if found else []
    played = f"vectors {vectors.agreed}/{vectors.total}, traces {traces.agreed}/{traces.total}"
    lines.append(f"{played}, differences {count}")
    say("\n".join(lines))
    return 1 if count else 0


def _unhurried(url: str) -> str:
    """The address with a long deadline, unless it says one: what counts is the answer."""
    scheme, _, rest = url.partition("://")
    if scheme == "memory" or not rest or re.search(r"[?&]deadline=", url):
        return url
    return f"{url}{'&' if '?' in url else '?'}deadline=5s"


def hammer(arguments: Namespace) -> int:
    """Ask for one key from many threads and processes; 1 if what came through was out of bounds."""
    if arguments.cost > arguments.capacity:
        raise CostError(
            f"cost {arguments.cost} is above the capacity {arguments.capacity}: nothing could pass; lower it"
        )
    in_process = urlsplit(arguments.store).scheme == "memory"
    result = run_hammer(
        arguments.store,
        processes=arguments.processes or (1 if in_process else 4),
        threads=arguments.threads or (8 if in_process else 1),
        seconds=arguments.seconds,
        capacity=arguments.capacity,
        rate=str(arguments.rate),
        cost=arguments.cost,
    )
    if arguments.json:
        say_json(result.as_json())
    else:
        say("\n".join(_hammered_lines(result)))
    return 0 if result.ok else 1


def _hammered_lines(result: Hammered) -> list[str]:
    who = f"{_counted(result.processes, 'process', 'es')} with {_counted(result.threads, 'thread')}"
    each = " each" if result.processes > 1 else ""
    alone = ""
    if result.store == "memory":
        alone = ". State in memory:// lives in one process: these threads share it, other processes would not"
    spread = f"(2 + {result.missed:,} missed)" if result.missed else "2"
    lower = f"capacity + rate x T - {spread} x cost, T from the first refusal to the last"
    if not result.saturated:
        lower = "no bound: demand did not saturate the limit; ask with more threads, or lower the rate"
    missed = f", with {_counted(result.missed, 'call')} missed" if result.missed else ""
    upper = "capacity + rate x T, T from before the first call to after the last"
    pace = f"{result.calls / (result.seconds or 1):,.0f} a second"
    rows = [
        ("store", f"{result.store}, asked by {who}{each} for {result.seconds:.2f} s{alone}"),
        ("limit", f"capacity {result.capacity:,.10g}, rate {result.rate}"),
        (
            "calls",
            f"{result.calls:,} of cost {result.cost:,.10g} on one key ({pace}), {result.refused:,} refused",
        ),
        *([("missed", _MISSED.format(_counted(result.missed, "call")))] if result.missed else []),
        ("admitted", f"{result.admitted:,.3f}"),
        ("lower", f"{result.lower:,.3f} ({lower})"),
        ("upper", f"{result.upper:,.3f} ({upper})"),
        *(("error", error) for error in result.errors),
        ("ok", f"yes: lower <= admitted <= upper{missed}" if result.ok else f"NO{missed}"),
    ]
    return labelled(rows, width())


def _counted(count: int, word: str, plural: str = "s") -> str:
    return f"{count:,} {word}{'' if count == 1 else plural}"


def _replay(store: str, difference: Difference) -> str:
    shown = "URL" if urlsplit(store).password else store  # a password does not belong on a screen
    return shlex.join(["tidegate", "conformance", "--store", shown, *difference.replay])


def _conformance_told(arguments: Namespace, vectors: Report, traces: Report) -> dict[str, Any]:
    return {
        "seed": arguments.seed,
        "vectors": {"agreed": vectors.agreed, "total": vectors.total},
        "traces": {"agreed": traces.agreed, "total": traces.total},
        "differences": vectors.differing + traces.differing,
        "shown": [
            asdict(difference) | {"repeat": _replay(arguments.store, difference)}
            for difference in (*vectors.differences, *traces.differences)
        ],
    }
