# The faces of the limiter under test: the blocking and the awaited one, each with and without its compiled
# path.
#
# A face has Limiter's methods, whatever stands behind it, so that one test body runs on all of them.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidegate import AsyncLimiter, Limiter
from tidegate.drive import run_blocking

T = TypeVar("T")


class SlowLimiter(Limiter):
    """Limiter without its compiled path."""

    def _compile(self, policy):
        return None


class SlowAsyncLimiter(AsyncLimiter):
    """AsyncLimiter without its compiled path."""

    def _compile(self, policy):
        return None


def awaited(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in an event loop of its own."""
    with asyncio.Runner() as runner:
        return runner.run(work)


class Awaited:
    """An AsyncLimiter whose methods are awaited here; over an embedded store no call needs an event loop."""

    def __init__(self, kind: type[AsyncLimiter], *given: Any, **named: Any) -> None:
        self.limiter = kind(*given, **named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.limiter, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *given, **named: _awaited_thing(run_blocking(found(*given, **named)))


class AwaitedReservation:
    """An AsyncReservation whose methods are awaited here."""

    def __init__(self, reservation: Any) -> None:
        self.reservation = reservation
        self.decision = reservation.decision

    def __bool__(self) -> bool:
        return bool(self.reservation)

    def settle(self, actual: Any) -> Any:
        return run_blocking(self.reservation.settle(actual))

    def cancel(self) -> Any:
        return run_blocking(self.reservation.cancel())


def _awaited_thing(result: Any) -> Any:
    return AwaitedReservation(result) if type(result).__name__ == "AsyncReservation" else result


FACES: dict[str, Callable[..., Any]] = {
    "Limiter": Limiter,
    "Limiter, slow": SlowLimiter,
    "AsyncLimiter": lambda *given, **named: Awaited(AsyncLimiter, *given, **named),
    "AsyncLimiter, slow": lambda *given, **named: Awaited(SlowAsyncLimiter, *given, **named),
}
