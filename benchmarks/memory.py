"""Bytes that one key takes, measured on a million of them, each contender in a fresh process.

The key texts are made first, so they do not count unless a library copies them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable

from benchmarks.contenders import CONTENDERS, Load
from benchmarks.machine import pin, resident_bytes

LOAD = Load(1, 100_000, 10)
LONGEST_S = 120


def run(keys: int, only: Iterable[str]) -> None:
    """Measure and print every contender that is installed."""
    print(f"\nMemory, {keys} keys touched once, a fresh process each")
    if resident_bytes() is None:
        print("  skipped: this system does not say how much memory a process holds")
        return
    width = max(len(contender.name) for contender in CONTENDERS)
    for contender in CONTENDERS:
        if contender.name == "tidegate, slow twin" or (
            only and not any(part in contender.name for part in only)
        ):
            continue
        told = _in_a_process(contender.name, keys)
        print(f"  {contender.name:{width}} {told}")


def _in_a_process(name: str, keys: int) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", name, str(keys)],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done in {LONGEST_S} s"
    if done.returncode:
        return f"skipped: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'it failed'}"
    told = json.loads(done.stdout)
    return f"{told['bytes']:6.0f} bytes a key, first touch {told['first_us']:6.2f} us"


def _child(name: str, keys: int) -> None:
    import time

    pin()
    decide = next(contender.make for contender in CONTENDERS if contender.name == name)(LOAD)
    names = [f"user:{number}" for number in range(keys)]
    decide("warm")
    before, start_ns = resident_bytes() or 0, time.process_time_ns()
    for key in names:
        decide(key)
    taken_ns = time.process_time_ns() - start_ns
    after = resident_bytes() or 0
    print(json.dumps({"bytes": (after - before) / keys, "first_us": taken_ns / keys / 1_000}), flush=True)
    os._exit(0)  # a million objects need not be taken apart one by one


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]))
