"""`python -m benchmarks [--quick] [--only NAME ...] [PART ...]`: measure on one processor, and print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import deciding, memory, middleware, rules
from benchmarks.contenders import DISTRIBUTIONS
from benchmarks.machine import description, pin

PARTS = ("deciding", "rules", "middleware", "memory")
ON_SERVERS = ("redis", "cluster", "postgres", "redis-memory", "postgres-memory")
"""Parts that start a server; they are measured only where they are named."""

DOUBTS = """
Read with care: one machine, one process, one thread; ratios are medians over rounds in which every
contender ran back to back on the same processor, and a spread far from 1 means that somebody disturbed them.
What the contenders answer differs: the floor and most libraries say yes or no, tidegate's decision carries
what is left, when to come back and why. Windows are not buckets. See benchmarks/README.md.
"""


def main(arguments: list[str]) -> int:
    """Run the parts that were asked for, by default all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"some of {', '.join(PARTS)} (by default these), {', '.join(ON_SERVERS)}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few and short rounds: a look, not a measurement"
    )
    parser.add_argument("--rounds", type=int, help="how many rounds, by default 15, with --quick 3")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="contenders whose name contains one of these"
    )
    given = parser.parse_args(arguments)
    for part in given.parts:
        if part not in PARTS + ON_SERVERS:
            parser.error(f"no part is called {part!r}; there are {', '.join(PARTS + ON_SERVERS)}")
    rounds, scale = given.rounds or (3 if given.quick else 15), 10 if given.quick else 1
    cpu = pin()
    print(description(DISTRIBUTIONS))
    print(f"pinned to processor {cpu}" if cpu is not None else "not pinned: this system cannot")
    print(DOUBTS.strip())
    wanted = given.parts or PARTS
    if "deciding" in wanted:
        deciding.run(rounds, scale, given.only)
    if "rules" in wanted:
        rules.run(rounds, scale)
    if "middleware" in wanted:
        middleware.run(rounds, scale)
    if "memory" in wanted:
        memory.run(1_000_000 // (scale * 2 if given.quick else 1), given.only)
    _on_servers(wanted, rounds, scale)
    return 0


def _on_servers(wanted: Sequence[str], rounds: int, scale: int) -> None:
    """What needs a server, imported only then."""
    if "redis" in wanted:
        from benchmarks import on_redis

        on_redis.run(rounds, scale)
    if "cluster" in wanted:
        from benchmarks import on_cluster

        on_cluster.run(max(2, 20 // scale))
    if "postgres" in wanted:
        from benchmarks import on_postgres

        on_postgres.run(rounds, scale)
    if "redis-memory" in wanted or "postgres-memory" in wanted:
        from benchmarks import on_servers_memory

        count = 1_000_000 // scale
        if "redis-memory" in wanted:
            on_servers_memory.on_valkey(count)
        if "postgres-memory" in wanted:
            on_servers_memory.on_postgres(count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
