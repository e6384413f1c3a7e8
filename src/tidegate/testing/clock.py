"""A clock that moves only when it is told to, so that no test has to wait for time to pass."""

from __future__ import annotations

from tidegate.units import Number, instant_us, seconds


class ManualClock:
    """A clock that stands still until it is moved; seconds, exact to the microsecond.

    `clock.advance(0.4)` moves it on, `clock.set(100)` puts it anywhere, also back. Give it to a limiter:
    `Limiter(limit, clock=clock)`. Floats are read by their shortest decimal, so 0.1 is a tenth.
    """

    def __init__(self, start: Number = 0) -> None:
        self._now_us = instant_us(start)

    def now_us(self) -> int:
        """The instant, in whole microseconds."""
        return self._now_us

    @property
    def now(self) -> float:
        """The instant, in seconds."""
        return seconds(self._now_us)

    def advance(self, by: Number) -> None:
        """Move by so many seconds; negative ones move back."""
        self._now_us += instant_us(by, "step")

    def set(self, to: Number) -> None:
        """Move to an instant in seconds."""
        self._now_us = instant_us(to)

    def __repr__(self) -> str:
        return f"ManualClock({self.now!r})"
