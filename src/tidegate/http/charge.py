"""Charging by the response: what a request cost is known only when it has been answered.

The cost is reserved before the application runs and settled afterwards, exactly once, however the
request ends. So there is no overshoot, however many run in parallel: what is not used comes back when
the answer is known, and until then it is taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from tidegate.errors import PolicyError
from tidegate.http.keys import check_range
from tidegate.units import Number

Used: TypeAlias = Number | None
ChargeHook: TypeAlias = Callable[[int, int, float], Used | Awaitable[Used]]
"""From (status, body bytes, elapsed seconds) to the cost really used; None keeps what was reserved."""

STATUS_OF_ERROR = 500
"""The status that is charged if the application fails before it answers."""

STATUS_OF_LEAVING = 499
"""The status that is charged if the caller leaves, or the request is cancelled, before an answer."""


def only_status(statuses: Collection[int] | int) -> Callable[[int, int, float], Used]:
    """A charge that keeps the reserved cost for answers with one of `statuses` and gives it back for others.

    For instance `charge=only_status({401})` counts failed logins alone. An application that raises counts
    as 500, a caller that leaves before the answer as 499.
    Raises PolicyError for what is no status.
    """
    chosen = frozenset((statuses,) if isinstance(statuses, int) else statuses)
    for status in chosen:
        check_range("a status of only_status()", status, 100, 599)
    if not chosen:
        raise PolicyError("only_status() names no status, so nothing would ever count")

    def charge(status: int, _body_bytes: int, _elapsed_s: float) -> Used:
        return None if status in chosen else 0

    return charge
