"""What a flow needs from outside: a policy, somebody who decides, tickets, and perhaps a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.policy import Policy
from tidegate.core.ticket import TicketDesk


class Port(Protocol):
    """A store as a flow sees it. The contract is that of `stores/base.py`."""

    @property
    def name(self) -> str:
        """What `Decision.source` says."""

    async def decide(self, charges: Sequence[Charge], now_us: int | None, *, take: bool) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""

    async def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None) -> list[int]:
        """Give back or charge on top; the units by which each level went down."""

    async def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""


class Setting(NamedTuple):
    """One limiter's surroundings. Replaced as a whole when the policy changes.

    `now_us` is None where the store's own clock decides. `lock` guards what a decision remembers of its
    refunds, and is never held while a store is asked.
    """

    policy: Policy
    port: Port
    desk: TicketDesk
    now_us: Callable[[], int] | None
    lock: AbstractContextManager[object]

    def instant_us(self) -> int | None:
        """The instant to decide at; None for the store's own."""
        return None if self.now_us is None else self.now_us()
