"""What a flow needs from outside: a policy, somebody who decides, tickets, and perhaps a clock."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.policy import Policy
from tidegate.core.ticket import TicketDesk
from tidegate.errors import StoreError
from tidegate.flows.outage import Outages

T = TypeVar("T")


class Port(Protocol):
    """A store as a flow sees it. The contract is that of `stores/base.py`.

    A call that is not told `until_us`, an instant of `ticks_us`, ends within `deadline_us`.
    """

    @property
    def name(self) -> str:
        """What `Decision.source` says."""

    @property
    def splits(self) -> bool:
        """Whether the charges of a request may have to be decided in `parts`; if not, it is not asked."""

    @property
    def batches(self) -> bool:
        """Whether many requests are better decided by `decide_many`."""

    @property
    def deadline_us(self) -> int:
        """How long a decision may take; 0 where nothing outside the process is waited for."""

    def ticks_us(self) -> int:
        """The instant, on the clock by which deadlines are kept."""

    async def decide(
        self, charges: Sequence[Charge], now_us: int | None, *, take: bool, until_us: int | None = None
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None,
        *,
        take: bool = True,
        until_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests, each of one part; where one failed its error stands in its place."""

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None, *, until_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, in any parts; the units by which each level went down."""

    async def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once."""

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, which goes on to its end also if who waits for it is cancelled."""


def ends_us(port: Port, calls: int) -> Iterator[int | None]:
    """Until when each of so many calls, one after another, may take, so that all end within one deadline.

    Each may use its part of the time that is left: one that gets no answer leaves some for the others. None,
    for a single call, is the whole deadline. To be asked for just before each call.
    """
    if calls == 1:
        yield None
        return
    end_us = port.ticks_us() + port.deadline_us
    for left in range(calls, 0, -1):
        yield end_of_turn_us(port, end_us, left)


def end_of_turn_us(port: Port, end_us: int | None, calls: int) -> int | None:
    """Until when the next of so many calls may take, so that all end by `end_us`; None if that is None."""
    if end_us is None:
        return None
    begun_us = port.ticks_us()
    return begun_us + (end_us - begun_us) // calls


class Setting(NamedTuple):
    """One limiter's surroundings. Replaced as a whole when the policy changes.

    `now_us` is None where the store's own clock decides. `lock` guards what a decision remembers of its
    refunds, and is never held while a store is asked. `outages` is what happens where the port does not
    answer, and what is decided without it.
    """

    policy: Policy
    port: Port
    desk: TicketDesk
    now_us: Callable[[], int] | None
    lock: AbstractContextManager[object]
    outages: Outages

    def instant_us(self) -> int | None:
        """The instant to decide at; None for the store's own."""
        return None if self.now_us is None else self.now_us()
