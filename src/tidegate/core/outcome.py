"""What one rule is asked of a request, and what it said.

An outcome only keeps the state that decided and the instant; every figure is computed from them when
it is read, by the law that decided. Durations are seconds here, with a twin in whole microseconds
(`..._us`).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

from tidegate.core.carry import Carry
from tidegate.core.keys import Key
from tidegate.core.law import Receipt
from tidegate.core.limits import Limit
from tidegate.units import MILLI, seconds

Mode: TypeAlias = Literal["enforce", "shadow", "deny", "bypass"]


class Charge(NamedTuple):
    """What one rule is asked of one request: to take `cost` thousandths from `key`.

    `own_price` tells that the rule set the cost and not the call, so that settling leaves it alone.
    `strict` tells a store that others share that a key it does not know may have been lost;
    `share` that this node's own share of the rule is meant, and not what the store holds.
    """

    rule: str
    key: Key
    limit: Limit
    cost: int
    mode: Mode = "enforce"
    carry: Carry = "strict"
    own_price: bool = False
    patience_us: int | None = None
    strict: bool = False
    share: bool = False


class Outcome(NamedTuple):
    """What one rule said. `state` is the key's after the decision; `charged` tells whether the cost
    was taken.

    `delay_us` is set where not the limit refused but the store had no room for a new key, or gave no
    answer: it is then a guess at when to come back. `outage` tells that it gave none, so that the rule's
    outage rule decided; then `state` says nothing of what the store holds.
    """

    charge: Charge
    allowed: bool
    charged: bool
    state: Any
    now_us: int
    delay_us: int | None = None
    outage: bool = False

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return self.charge.rule

    @property
    def limit(self) -> Limit:
        """The limit that decided."""
        return self.charge.limit

    @property
    def mode(self) -> Mode:
        """How the rule takes part: "enforce", or "shadow" if it only reports."""
        return self.charge.mode

    @property
    def cost(self) -> Fraction:
        """What the request cost in this rule, in tokens."""
        return Fraction(self.charge.cost, MILLI)

    @property
    def left(self) -> int:
        """Capacity minus what is used, in thousandths, rounded down; negative while in debt."""
        law = self.charge.limit.law
        return int(law.left(self.state) // law.grain)

    @property
    def balance(self) -> Fraction:
        """Capacity minus what is used, in tokens: exact, and negative while in debt."""
        law = self.charge.limit.law
        return Fraction(law.left(self.state), law.grain * MILLI)

    @property
    def remaining(self) -> int:
        """Whole tokens left, rounded down, never negative."""
        law = self.charge.limit.law
        return max(0, int(law.left(self.state) // (law.grain * MILLI)))

    @property
    def retry_after_us(self) -> int | None:
        """Microseconds until a lone caller passes this rule: 0 if allowed, None if never."""
        if self.allowed:
            return 0
        if self.delay_us is not None:
            return self.delay_us
        return self.limit.law.retry_after_us(self.state, self.charge.cost, self.now_us)

    @property
    def retry_after(self) -> float | None:
        """Seconds until a lone caller passes this rule: 0 if allowed, None if never."""
        return seconds_or_none(self.retry_after_us)

    @property
    def reset_after_us(self) -> int | None:
        """Microseconds until the key is as fresh; None if never by itself."""
        return self.limit.law.reset_after_us(self.state, self.now_us)

    @property
    def reset_after(self) -> float | None:
        """Seconds until the key is as fresh; None if never by itself."""
        return seconds_or_none(self.reset_after_us)

    @property
    def wait_us(self) -> int:
        """Microseconds for which the admitted work is to be held; 0 unless a queue admitted it."""
        return self.limit.law.wait_us(self.state, self.charge.cost, self.now_us) if self.charged else 0

    @property
    def wait(self) -> float:
        """Seconds for which the admitted work is to be held; 0 unless a queue admitted it."""
        return seconds(self.wait_us)

    @property
    def receipt(self) -> Receipt:
        """What has to be remembered so that the cost can be given back."""
        return self.limit.law.receipt(self.state, self.charge.cost)


def seconds_or_none(us: int | None) -> float | None:
    """Microseconds as seconds for the public border; None (never) stays None."""
    return None if us is None else seconds(us)
