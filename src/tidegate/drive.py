"""Run a flow: whatever asks a store is written once, as a coroutine over a small port.

A port whose calls block never suspends its caller, so the blocking driver steps the coroutine once and
has its result. On asyncio the coroutine is simply awaited.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(flow: Coroutine[Any, Any, T]) -> T:
    """The result of a flow over a blocking port. Raises RuntimeError if the flow suspends."""
    try:
        flow.send(None)
    except StopIteration as finished:
        return finished.value  # type: ignore[no-any-return]  # what the flow returned
    flow.close()
    raise RuntimeError("a flow over a blocking port suspended; its port must not wait for an event loop")
