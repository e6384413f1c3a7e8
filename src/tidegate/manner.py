"""How a limiter goes about it: its tier, what it does in an outage, its deadline, its workers."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tidegate.core.outage import WORKERS_MOST, OnOutage
from tidegate.errors import PolicyError, RateError
from tidegate.units import US_PER_S, Duration, duration_text, duration_us, quoted

DEADLINE_US_LEAST = 1_000
DEADLINE_US_MOST = 60 * US_PER_S


class Manner(NamedTuple):
    """The arguments of a limiter as they were given, all of them valid."""

    tier: str
    on_outage: Literal["closed", "open"]
    deadline: Duration | None
    workers: int

    @property
    def deadline_us(self) -> int | None:
        """The deadline of a decision; None: the store's own."""
        return None if self.deadline is None else duration_us(self.deadline, "deadline")


def checked_manner(tier: str, on_outage: OnOutage, deadline: Duration | None, workers: int) -> Manner:
    """The arguments, if they can be used. Raises PolicyError, or RateError for a deadline."""
    if tier in {"leased", "synced"}:
        raise PolicyError(f"tier is {tier!r}, which this version does not have yet; use tier='direct'")
    if tier != "direct":
        raise PolicyError(f"tier is {quoted(tier)}; write 'direct'")
    if on_outage == "reserve":
        raise PolicyError(
            "on_outage of a limiter is 'reserve', but a reserve belongs to a rule; write "
            "Rule(..., on_outage='reserve', reserve={'share': '20%', 'nodes': 8, 'index': 0})"
        )
    if on_outage not in ("closed", "open"):
        raise PolicyError(f"on_outage is {quoted(on_outage)}; write 'closed' or 'open'")
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= WORKERS_MOST:
        raise PolicyError(
            f"workers is {quoted(workers)}; write how many processes share this node's reserve, "
            f"1 to {WORKERS_MOST}"
        )
    manner = Manner(tier, on_outage, deadline, workers)
    deadline_us = manner.deadline_us
    if deadline_us is not None and not DEADLINE_US_LEAST <= deadline_us <= DEADLINE_US_MOST:
        raise RateError(
            f"deadline is {quoted(deadline)}; write {duration_text(DEADLINE_US_LEAST)} to "
            f"{duration_text(DEADLINE_US_MOST)}"
        )
    return manner
