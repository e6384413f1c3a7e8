"""What callers hand in, and the script calls that it becomes.

An item is what one caller wants: requests to decide, adjustments, keys to forget. A `ScriptCall` takes what
can go together out of any number of items, and knows where each answer belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge
from tidegate.errors import StoreError, TidegateError
from tidegate.stores.redis.connections import Command
from tidegate.stores.redis.link import Link
from tidegate.stores.redis.names import Names
from tidegate.stores.redis.scripts import ADJUST, DECIDE, FORGET, Script
from tidegate.stores.redis.wire import (
    decode_adjust,
    decode_decide,
    decode_forget,
    echo_of,
    encode_adjust,
    encode_decide,
    encode_forget,
)

BYTES_A_CHARGE = 160

BY_NAME = {script: (b"EVALSHA", script.sha.encode()) for script in (DECIDE, ADJUST, FORGET)}
"""How a script is called that the server has."""
_WHOLE = {script: (b"EVAL", script.text.encode()) for script in (DECIDE, ADJUST, FORGET)}


class Ask(NamedTuple):
    """Requests to decide, each all-or-nothing."""

    requests: Sequence[Sequence[Charge]]
    now_us: int | None = None
    take: bool = True

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return sum(BYTES_A_CHARGE + len(charge.key) for request in self.requests for charge in request)


class Change(NamedTuple):
    """Adjustments, each for itself."""

    adjustments: Sequence[Adjustment]
    now_us: int | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return sum(BYTES_A_CHARGE + len(one.charge.key) for one in self.adjustments)


class Forget(NamedTuple):
    """Keys to make fresh, each a rule and a key."""

    keys: Sequence[tuple[str, Key]]
    now_us: int | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes."""
        return sum(BYTES_A_CHARGE + len(key) for _, key in self.keys)


Item: TypeAlias = Ask | Change | Forget


class ScriptCall:
    """What goes into one script call, where its answers belong, and what came of it."""

    def __init__(self, script: Script, slot: int | None, now_us: int | None, take: bool) -> None:
        self.script, self.slot = script, slot
        self.now_us, self.take = now_us, take
        self.asked: list[Any] = []
        self.places: list[tuple[int, int]] = []
        self.words: tuple[bytes, ...] = ()
        self.tag = self.echo = b""
        self.link: Link | None = None
        self.reply: Any = None
        self.acknowledged: int | None = None
        self.whole = self.was_missing = self.is_asking = False
        self.times_put_off = 0

    def each_alone(self) -> list[ScriptCall]:
        """A call for each thing asked."""
        alone = []
        for one, place in zip(self.asked, self.places, strict=True):
            part = ScriptCall(self.script, self.slot, self.now_us, self.take)
            part.asked, part.places = [one], [place]
            part.is_asking = self.is_asking
            alone.append(part)
        return alone

    def encode(self, names: Names, at_us: int, tag: bytes) -> None:
        """Write down keys and arguments, with the calendar windows around this instant."""
        self.tag = tag
        self.words = self._encoded(self.asked, names, at_us)

    def _encoded(self, asked: Sequence[Any], names: Names, at_us: int) -> tuple[bytes, ...]:
        clustered = self.slot is not None
        if self.script is FORGET:
            keys, args = encode_forget(asked, names, clustered=clustered, tag=self.tag)
        elif self.script is ADJUST:
            keys, args = encode_adjust(
                asked, names, now_us=self.now_us, windows_at_us=at_us, clustered=clustered, tag=self.tag
            )
        else:
            keys, args = encode_decide(
                asked,
                names,
                now_us=self.now_us,
                take=self.take,
                windows_at_us=at_us,
                clustered=clustered,
                tag=self.tag,
            )
        self.echo = echo_of(args)
        return (b"%d" % len(keys), *keys, *args)

    def without_impossible(self, names: Names, at_us: int) -> list[tuple[tuple[int, int], StoreError]]:
        """Leave out what cannot be encoded; the places of that, with the reason."""
        refused = []
        kept = []
        for one, place in zip(self.asked, self.places, strict=True):
            try:
                self._encoded([one], names, at_us)
                kept.append((one, place))
            except TidegateError as error:
                refused.append((place, error if isinstance(error, StoreError) else StoreError(str(error))))
        self.asked, self.places = [one for one, _ in kept], [place for _, place in kept]
        return refused

    def commands(self, replicas: int, left_s: float) -> list[Command]:
        """What is sent for it."""
        commands: list[Command] = [(*(_WHOLE if self.whole else BY_NAME)[self.script], *self.words)]
        if self.is_asking:
            commands.insert(0, (b"ASKING",))
        if replicas and self.is_strict():
            wait_ms = max(1, int(left_s * 800))  # the rest is for the way back
            commands.append((b"WAIT", b"%d" % replicas, b"%d" % wait_ms))
        return commands

    def is_strict(self) -> bool:
        """Whether a loss of what it writes would matter."""
        return self.take and self.script is DECIDE and any(is_strict(request) for request in self.asked)

    def decode(self) -> list[Any]:
        """An answer, an error or Missed for each of what was asked."""
        if self.script is FORGET:
            return list(decode_forget(self.reply, self.asked, self.echo))
        if self.script is ADJUST:
            return list(decode_adjust(self.reply, self.asked, self.echo))
        return list(decode_decide(self.reply, self.asked, self.echo))


def is_strict(request: Sequence[Charge]) -> bool:
    """Whether a loss of what the request is charged would matter."""
    for charge in request:  # noqa: SIM110 - every request comes by here, and a generator takes longer
        if charge.strict:
            return True
    return False


def key_of(one: Any, script: Script) -> tuple[str, Key]:
    """The rule and the key of something asked; of a request those of its first charge."""
    if script is FORGET:
        rule, key = one
        return rule, key
    charge = one[0] if script is DECIDE else one.charge
    return charge.rule, charge.key
