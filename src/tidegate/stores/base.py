"""What a store is.

A store keeps the state of keys and decides. Its contract is one verb:

    decide(charges, now_us=None, take=True) -> outcomes

Given the charges of one request (rule, key, limit, cost), it decides all-or-nothing and atomically and
returns an outcome for each, in order, equal to what `core.compose.decide` says of the same states:

- Atomic: no other call sees or changes any of the keys between the reading and the writing. Exactly
  the capacity passes, however many threads, processes or hosts ask together, the first use of a key
  included.
- All-or-nothing: the enforced charges are taken together or not at all. `take=False` asks only.
- Its clock is its own, one for all callers. `now_us` puts another instant in its place, for tests and
  simulation. An instant before the last one is normal (`core/law.py`).
- An absent key equals a fresh one. Only fresh keys may be forgotten; a store that has no room for a
  new key says so in its documentation, and in `Outcome.delay_us`.
- Rules and keys are apart by their names, whatever bytes they hold: (rule, key) is injective.
- A state whose limit has changed is carried over at its first touch (`core/carry.py`).

Two further verbs serve what was decided before: `adjust` gives back or charges on top, each entry for
itself and by the rule of `core.compose.adjust`; `forget` makes keys fresh. A store raises StoreError for
what it cannot answer, and never guesses.

A store on the network has two faces with the same verbs, one that blocks and one that is awaited, and
every call to it ends by a deadline. Where no usable answer came in time it raises StoreUnavailable, and
what then happens is decided above it, by each rule's outage rule. It never repeats a charge: what may
have been carried out is not asked again. A mistake (a key of another type, a broken script) is a plain
StoreError, and never taken for an outage.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError
from tidegate.stores.health import Health


class Store(Protocol):
    """A store whose calls do not wait for anything outside the process, or block while they do."""

    @property
    def name(self) -> str:
        """What `Decision.source` says."""

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide all-or-nothing; an outcome for each charge, in order."""

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """Give back or charge on top; the units by which each level went down, negative if it went up."""

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these (rule, key) fresh."""

    def close(self) -> None:
        """Let go of whatever the store itself has opened."""


class RemoteStore(Store, Protocol):
    """The blocking face of a store on the network."""

    health: Health

    @property
    def identity(self) -> Hashable:
        """What it has in common with all stores that hold the same state, and with no others."""

    @property
    def deadline_us(self) -> int:
        """How long a call may take that names no deadline."""

    @property
    def splits(self) -> bool:
        """Whether the charges of a request may have to be decided in several `parts`."""

    @property
    def awaited(self) -> AwaitedStore:
        """The other face of the same store."""

    def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing, or raise StoreUnavailable within the deadline (None: the store's own)."""

    def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests in few round trips; where one failed its error stands in its place.

        Each is of one part; all of them together have the one deadline. What could not be asked before it
        has StoreUnavailable in its place.
        """

    def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable: what was to come back then stays counted.

        They may be of any parts. A part without an answer is no hindrance to the others, but raises.
        """

    def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once.

        More than one part only on a cluster, where the keys of a request may live on several servers.
        `decide` takes charges of one part, and raises StoreError for more.
        """


class AwaitedStore(Protocol):
    """The awaited face of a store on the network: the same verbs with the same meaning."""

    health: Health

    @property
    def identity(self) -> Hashable:
        """That of the other face."""

    @property
    def name(self) -> str:
        """What `Decision.source` says."""

    @property
    def deadline_us(self) -> int:
        """How long a call may take that names no deadline."""

    @property
    def splits(self) -> bool:
        """Whether the charges of a request may have to be decided in several `parts`."""

    async def decide(
        self,
        charges: Sequence[Charge],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[Outcome]:
        """Decide all-or-nothing; what waits at the same moment travels together."""

    async def decide_many(
        self,
        requests: Sequence[Sequence[Charge]],
        now_us: int | None = None,
        *,
        take: bool = True,
        deadline_us: int | None = None,
    ) -> list[list[Outcome] | StoreError]:
        """Decide independent requests, all within one deadline; a failed one has its error in its place."""

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None = None, *, deadline_us: int | None = None
    ) -> list[int]:
        """Give back or charge on top, or raise StoreUnavailable."""

    async def forget(self, keys: Sequence[tuple[str, Key]], *, deadline_us: int | None = None) -> None:
        """Make these (rule, key) fresh, or raise StoreUnavailable."""

    def parts(self, charges: Sequence[Charge]) -> Sequence[Sequence[int]]:
        """The positions of the charges that can be decided together, each position once."""

    async def close(self) -> None:
        """Let go of whatever the store itself has opened."""
