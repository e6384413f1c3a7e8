"""Where the state of a policy lives, in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Home:
    """Where the state of a policy lives, in words."""

    atomic: str
    clock: str
    where: str
    """What holds for the store as a whole, as sentences."""
    on_outage: str | None
    """What rules do that do not say while the store is away; None: it cannot be away."""


def embedded(max_keys: int = 1_000_000, when_full: str = "refuse") -> Home:
    """The store in this process: `tidegate.stores.memory`."""
    full = "a new key is refused" if when_full == "refuse" else "the key nearest to full is forgotten"
    return Home(
        atomic="in this process, under one lock, all rules of a request together",
        clock="the process's monotonic clock; no caller's clock counts",
        where=(
            f"State lives in this process, at most {max_keys:,} keys over all rules; beyond that {full}. "
            "Several processes do not share it: N of them admit up to N times as much."
        ),
        on_outage=None,
    )


def on_network(name: str, on_outage: str = "closed", deadline: str | None = None) -> Home:
    """A store on the network, by the name that it has in decisions."""
    called = {"redis": "Redis or Valkey", "postgres": "PostgreSQL"}.get(name, name)
    ends = "" if deadline is None else f" A decision ends within {deadline}, whatever the network does."
    return Home(
        atomic=(
            f"in {called}, in one step, all rules of a request together; on a cluster, where keys may live "
            "on several servers, one after another, and given back if a later one refuses"
        ),
        clock="the server's clock; no host's clock counts",
        where=f"State lives in {called}, and everybody who asks it shares one budget.{ends}",
        on_outage=on_outage,
    )
