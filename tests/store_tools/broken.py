# Stores that are wrong on purpose, each in one way, to see that the tools find it.

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreUnavailable
from tidegate.stores.memory import MemoryStore
from tidegate.testing import DistantStore


class Forgiving(MemoryStore):
    """Forgets what a request took where that was a single token."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide, and lose some of it."""
        lost = take and all(charge.cost == 1_000 for charge in charges)
        return super().decide(charges, now_us, take=take and not lost)


class Generous(MemoryStore):
    """Admits every tenth request that it should refuse."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals = 0

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide, and now and then look away."""
        outcomes = super().decide(charges, now_us, take=take)
        if all(outcome.allowed for outcome in outcomes):
            return outcomes
        self._refusals += 1
        return [outcome._replace(allowed=not self._refusals % 10) for outcome in outcomes]


class Late(DistantStore):
    """Charges the first so many calls, and loses its answers to them."""

    def __init__(self, losing: int) -> None:
        super().__init__()
        self._losing = count(losing, -1)
        self.decide_twice = False
        """Whether what is lost was charged twice, as no store may do."""

    def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide, and say nothing of it at first."""
        outcomes = super().decide(charges, now_us, take=take)
        if next(self._losing) > 0:
            if self.decide_twice:
                super().decide(charges, now_us, take=take)
            raise StoreUnavailable("no answer came in time", "deadline")
        return outcomes


class Away(DistantStore):
    """Gives no answer, ever."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True


class OneByOne(MemoryStore):
    """Charges each rule for itself, so that a refusal by one has already charged the others."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide in parts."""
        return [super(OneByOne, self).decide([charge], now_us, take=take)[0] for charge in charges]


class Rewarding(MemoryStore):
    """Takes a clock that goes back for one that has gone on."""

    def __init__(self) -> None:
        super().__init__()
        self._last_us: int | None = None

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide at an instant that never goes back."""
        assert now_us is not None
        last_us = now_us if self._last_us is None else self._last_us
        now_us = last_us + abs(now_us - last_us)
        self._last_us = now_us
        return super().decide(charges, now_us, take=take)


class Tight(MemoryStore):
    """Refuses the last token: `<` where the law says `<=`."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide, with a thousandth more."""
        dearer = [charge._replace(cost=charge.cost + 1) for charge in charges]
        asked = super().decide(dearer, now_us, take=False)
        if all(outcome.allowed for outcome in asked if outcome.mode == "enforce"):
            return super().decide(charges, now_us, take=take)
        return [outcome._replace(charge=charge) for outcome, charge in zip(asked, charges, strict=True)]
