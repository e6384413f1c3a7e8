"""Reservations: a cost taken in advance, to be settled once when the work is known.

The blocking and the asynchronous one are thin twins over the same flows, as the limiters are.
"""

from __future__ import annotations

from fractions import Fraction
from types import TracebackType
from typing import Protocol, Self

from tidegate.core.decision import Decision
from tidegate.drive import run_blocking
from tidegate.errors import RateLimited
from tidegate.flows.give_back import refund, settle
from tidegate.flows.port import Setting
from tidegate.units import Number, milli


class HasSetting(Protocol):
    """A limiter, of which a reservation needs the present setting: its policy may have been replaced."""

    @property
    def _setting(self) -> Setting: ...


class _ReservationBase:
    """A decision to be settled once: the first settle or cancel counts, later ones change nothing."""

    decision: Decision

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self._open = [True]  # taking the only entry is one step to every other thread, and needs no lock

    @property
    def settled(self) -> bool:
        """Whether it was settled or cancelled."""
        return not self._open

    @property
    def allowed(self) -> bool:
        """Whether the reservation was admitted."""
        return self.decision.allowed

    def __bool__(self) -> bool:
        return self.decision.allowed

    def _first(self) -> bool:
        """Whether this is the first to settle; only an admitted reservation has anything to settle."""
        try:
            self._open.pop()
        except IndexError:
            return False
        return self.decision.allowed

    def _first_for(self, actual: Number) -> bool:
        """The same for a cost; a wrong one raises CostError and leaves the reservation open."""
        milli(actual, "actual cost")
        return self._first()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.decision}{', settled' if self.settled else ''}>"


class Reservation(_ReservationBase):
    """Work of unknown cost, or that may not happen: `settle(actual)` or `cancel()`, whichever comes first.

    As a context manager it raises RateLimited before the body if it was refused, gives all back if the
    body raises, and keeps the estimate if the body ends without settling.
    """

    def __init__(self, limiter: HasSetting, decision: Decision) -> None:
        super().__init__(decision)
        self._limiter = limiter

    def settle(self, actual: Number) -> Fraction:
        """Replace the estimate by the actual cost; what came back, in tokens, negative if it cost more."""
        return (
            run_blocking(settle(self._limiter._setting, self.decision, actual))
            if self._first_for(actual)
            else Fraction(0)
        )

    def cancel(self) -> Fraction:
        """Give all back, as far as it has not drained; what came back, in tokens."""
        return run_blocking(refund(self._limiter._setting, self.decision)) if self._first() else Fraction(0)

    def __enter__(self) -> Self:
        if not self.decision.allowed:
            raise RateLimited(self.decision)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.cancel()


class AsyncReservation(_ReservationBase):
    """Work of unknown cost, or that may not happen: `settle(actual)` or `cancel()`, whichever comes first.

    As a context manager it raises RateLimited before the body if it was refused, gives all back if the
    body raises, and keeps the estimate if the body ends without settling.
    """

    def __init__(self, limiter: HasSetting, decision: Decision) -> None:
        super().__init__(decision)
        self._limiter = limiter

    async def settle(self, actual: Number) -> Fraction:
        """Replace the estimate by the actual cost; what came back, in tokens, negative if it cost more."""
        return (
            await settle(self._limiter._setting, self.decision, actual)
            if self._first_for(actual)
            else Fraction(0)
        )

    async def cancel(self) -> Fraction:
        """Give all back, as far as it has not drained; what came back, in tokens."""
        return await refund(self._limiter._setting, self.decision) if self._first() else Fraction(0)

    async def __aenter__(self) -> Self:
        if not self.decision.allowed:
            raise RateLimited(self.decision)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.cancel()
