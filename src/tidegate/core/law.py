"""What every algorithm answers, so that several limits can be decided without knowing which they are.

A law is a limit turned into integers; a state is what it remembers of one key. Both are immutable
(a log's states share rows that only grow at the end, behind what each state sees), and a state names
the law that wrote it, so that it explains itself after the limit was changed.

The life of a request under a law:

    state = law.advance(state, now_us)          # the state as it is now; None means never used
    if law.fits(state, cost):                   # the verdict, changing nothing
        state = law.spend(state, cost)          # the state after an admission

Costs are whole thousandths of a token. Instants are whole microseconds of the store's clock; one
that lies before the last is normal: up to `STEP_US` it counts as no time passed, and beyond that the
state is moved back with what is used kept, so that no key is locked for long and none gains credit. A
fresh state has no last instant: it equals that of a key never seen, whenever it is looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

STEP_US = 60_000_000
"""The largest step back of a clock that merely freezes the drain."""

EXACT = 2**53
"""Every intermediate number of a law stays below this, so that doubles (Lua, JavaScript) are exact."""

S = TypeVar("S")


class Receipt(NamedTuple):
    """What a decision must remember so that part of it can be given back later.

    `since_us` names the busy period; a state in another one returns nothing. `mark` and `given_back`
    are the level after the admission and what had been returned by then, in the law's units; only the
    level family uses them.
    """

    cost: int
    at_us: int
    since_us: int
    mark: int = 0
    given_back: int = 0


class Law(Protocol[S]):
    """One limit as integers. Every method is pure; states passed in were advanced to the instant meant."""

    @property
    def capacity(self) -> int:
        """The most that may pass at one instant, in thousandths."""

    @property
    def grain(self) -> int:
        """Units of this law in a thousandth of a token."""

    def advance(self, state: S | None, now_us: int) -> S:
        """The state at `now_us`. None, and a state that has run out, become a fresh one."""

    def fits(self, state: S, cost: int, patience_us: int | None = None) -> bool:
        """Whether the cost is admitted, for a caller who would wait `patience_us` (None: as `hit`)."""

    def spend(self, state: S, cost: int) -> S:
        """The state after admitting the cost. Only for what fits."""

    def overdraw(self, state: S, cost: int, debt: int) -> S:
        """The state after a cost that is owed in any case, at most `debt` beyond the capacity."""

    def is_fresh(self, state: S) -> bool:
        """Whether the state equals that of a key never seen."""

    def used(self, state: S) -> int:
        """What counts against the capacity now, in thousandths, rounded up."""

    def left(self, state: S) -> int:
        """Capacity minus what is used, in the law's units; negative while in debt."""

    def wait_us(self, state: S, cost: int, now_us: int) -> int:
        """How long the work just admitted is held, from `now_us` on. `state` is the one after it."""

    def retry_after_us(self, state: S, cost: int, now_us: int) -> int | None:
        """How long after `now_us` a lone caller first passes: 0 if at once, None if never."""

    def reset_after_us(self, state: S, now_us: int) -> int | None:
        """How long after `now_us` the key is as fresh: 0 if it is, None if never by itself."""

    def receipt(self, state: S, cost: int) -> Receipt:
        """What to remember of an admission; `state` is the one after it."""

    def give_back(self, state: S, receipt: Receipt, units: int, *, own: int, full: bool) -> tuple[int, S]:
        """Give back at most `units` of what the receipt took: the units returned, and the state after.

        `own` is what the same decision has returned before. The rule that keeps the bound is
        docs/decisions/0011; `full` returns all that is still there, which can buy a second burst.
        """

    def holding(self, used: int, now_us: int, since_us: int) -> S:
        """A state in which `used` thousandths count as spent at `now_us`, in the busy period `since_us`."""


AnyLaw: TypeAlias = Law[Any]


def clock(at_us: int, now_us: int) -> int:
    """The instant that counts: never before the last one seen, unless the clock stepped back far."""
    return now_us if now_us >= at_us or at_us - now_us > STEP_US else at_us


def begun_us(at_us: int, last_us: int) -> int:
    """The name of a busy period that begins at `at_us`: that instant, or the first that is not taken yet.

    A period begins where a fresh key is charged, where a clock stepped back far, and where a limit was
    changed. No two of one key have the same name, so a receipt of an earlier one returns nothing.
    """
    return max(at_us, last_us + 1)


def later(us: int, at_us: int, now_us: int) -> int:
    """A wait that starts at `at_us`, as seen from `now_us` by a clock that may have gone back.

    No wait stays no wait.
    """
    return us + max(0, at_us - now_us) if us else 0
