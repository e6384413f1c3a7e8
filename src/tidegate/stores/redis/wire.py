"""What is sent to the scripts and what comes back: charges as bytes, and outcomes from a text.

Pure: no connection, no clock. `decide.lua` and `adjust.lua` say what each argument and each line means. The
answer equals that of `core.compose` on the same states; figures such as hints are computed by the law, from
the state in the reply.

Each call has a tag, and the reply begins with the argument that holds it, `echo_of` the call. What answers
another call (something on the way has sent a reply twice) is no answer.

Calendar windows are computed here, for scripts know no time zones. They are sent as three windows around
the instant at which the store is thought to be; if it is elsewhere, the answer is `Missed`, nothing has been
charged, and the request is to be asked again with the windows of that instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidegate.core.calendar import Local
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.law import EXACT, AnyLaw
from tidegate.core.level import Level, LevelState, Line
from tidegate.core.log import Log, LogState
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.windows import Fixed, FixedState, Sliding, SlidingState
from tidegate.errors import LimitError, StoreError, StoreUnavailable
from tidegate.stores.redis.causes import error_said
from tidegate.stores.redis.names import Names, slot
from tidegate.stores.redis.state import law_text
from tidegate.units import US_PER_S

INSTANT_US_MOST = EXACT // 2
"""Instants that are given lie nearer to 1970 than this (142 years), so that all sums stay exact."""

CHARGES_MOST = 255
"""So many charges a request has at most."""

_MOST = EXACT - 1
_new = tuple.__new__  # a named tuple made like this costs half of what its own constructor takes
_VERDICTS = {0: (False, False), 1: (True, False), 3: (True, True)}


class Missed(NamedTuple):
    """Nothing was charged: the store's clock is at `now_us`, outside the windows that were sent."""

    now_us: int


class _Told(NamedTuple):
    """What is sent of a law, made once for each."""

    law: AnyLaw
    text: bytes
    room: int
    calendar: Local | None


_told: dict[int, _Told] = {}
_bounds: dict[Local, tuple[int, int, bytes]] = {}


def encode_decide(
    requests: Sequence[Sequence[Charge]],
    names: Names,
    *,
    now_us: int | None = None,
    take: bool = True,
    windows_at_us: int | None = None,
    clustered: bool = False,
    tag: bytes = b"",
) -> tuple[list[bytes], list[bytes]]:
    """KEYS and ARGV of the script "decide" for independent requests.

    `windows_at_us` is about where the store's clock is; it matters for calendar windows only, and not where
    an instant is given. `clustered` takes the epoch of strict charges from the slot of their key; all keys
    of a call lie in one slot then.
    Raises StoreError for what cannot be asked, and LimitError for an instant that no calendar has.
    """
    keys: list[bytes] = []
    args = [_instant(now_us), (b"take" if take else b"look") + tag, b""]
    epochs = _Epochs(names, sum(map(len, requests)), clustered)
    at_us = windows_at_us if now_us is None else now_us
    for request in requests:
        for charge in request:
            law = charge.limit.law
            told = _told.get(id(law))
            if told is None or told.law is not law:
                told = _tell(law)
            key = names.key(charge.rule, charge.key)
            keys.append(key)
            units = charge.cost * law.grain
            if units > told.room:
                units = told.room + 1  # it never fits; only that matters
            if (
                charge.mode == "enforce"
                and charge.carry == "strict"
                and charge.patience_us is None
                and not charge.strict
                and told.calendar is None
            ):
                args.append(b"%d" % units)
            else:
                mode = b"s" if charge.mode == "shadow" else b"e"
                how = (mode, charge.carry.encode(), _most(charge, law, units), epochs.place(charge, key))
                args.append(b"%d %b %b %b %b%b" % (units, *how, _windows(told.calendar, at_us)))
            args.append(told.text)
    try:
        args[2] = bytes(map(len, requests))
    except ValueError:
        raise StoreError(f"a request has more than {CHARGES_MOST} charges") from None
    return keys + epochs.keys, args


def decode_decide(
    reply: object, requests: Sequence[Sequence[Charge]], echo: bytes = b""
) -> list[list[Outcome] | StoreError | Missed]:
    """What the script "decide" answered to each request.

    Raises StoreUnavailable for a reply that is none: it cannot be told then what was charged.
    """
    now_us, lines = _lines(reply, len(requests), echo)
    answers: list[list[Outcome] | StoreError | Missed] = []
    try:
        for request, line in zip(requests, lines, strict=True):
            if line[:1] == b"!":
                answers.append(error_said(line[1:].decode("utf-8", "replace")))
            elif line == b"?":
                answers.append(Missed(now_us))
            else:
                answers.append(_outcomes(request, line, now_us))
    except (ValueError, KeyError):
        raise _broken(reply) from None
    return answers


def encode_adjust(
    adjustments: Sequence[Adjustment],
    names: Names,
    *,
    now_us: int | None = None,
    windows_at_us: int | None = None,
    clustered: bool = False,
    tag: bytes = b"",
) -> tuple[list[bytes], list[bytes]]:
    """KEYS and ARGV of the script "adjust", as `encode_decide`."""
    keys: list[bytes] = []
    args = [_instant(now_us), tag]
    epochs = _Epochs(names, len(adjustments), clustered)
    at_us = windows_at_us if now_us is None else now_us
    for charge, receipt, units, own, full, debt in adjustments:
        law = charge.limit.law
        told = _tell(law)
        key = names.key(charge.rule, charge.key)
        keys.append(key)
        if units > 0:
            owed = min(units - units % law.grain, _MOST)
            most = min((law.capacity + debt) * law.grain, _MOST)
            how = (charge.carry.encode(), epochs.place(charge, key), _windows(told.calendar, at_us))
            args.append(b"owe %d %d %b %b%b" % (owed, most, *how))
        else:
            taken = (receipt.cost * law.grain, receipt.at_us, receipt.since_us, receipt.mark)
            args.append(b"back %d %d %d %d %d %d %d %d" % (-units, own, full, *taken, receipt.given_back))
        args.append(told.text)
    return keys + epochs.keys, args


def decode_adjust(
    reply: object, adjustments: Sequence[Adjustment], echo: bytes = b""
) -> list[int | StoreError | Missed]:
    """The units by which each level went down, as `decode_decide`."""
    now_us, lines = _lines(reply, len(adjustments), echo)
    answers: list[int | StoreError | Missed] = []
    try:
        for line in lines:
            if line[:1] == b"!":
                answers.append(error_said(line[1:].decode("utf-8", "replace")))
            else:
                answers.append(Missed(now_us) if line == b"?" else int(line))
    except ValueError:
        raise _broken(reply) from None
    return answers


def encode_forget(
    places: Sequence[tuple[str, Key]], names: Names, *, clustered: bool = False, tag: bytes = b""
) -> tuple[list[bytes], list[bytes]]:
    """KEYS and ARGV of the script "forget", which makes these (rule, key) fresh."""
    keys = [names.key(rule, key) for rule, key in places]
    epoch = names.epoch(slot(keys[0]) if clustered and keys else None)
    return [*keys, epoch], [tag]


def decode_forget(
    reply: object, places: Sequence[tuple[str, Key]], echo: bytes = b""
) -> list[StoreError | None]:
    """What kept each key from being made fresh; None where nothing did."""
    said, *lines = _split(reply, echo)
    if said or len(lines) != len(places) or any(line != b"1" and line[:1] != b"!" for line in lines):
        raise _broken(reply)
    return [None if line == b"1" else error_said(line[1:].decode("utf-8", "replace")) for line in lines]


def echo_of(args: Sequence[bytes]) -> bytes:
    """What the reply to these arguments begins with: the second of them, or the only one."""
    return args[min(1, len(args) - 1)]


def _tell(law: AnyLaw) -> _Told:
    told = _told.get(id(law))
    if told is None or told.law is not law:
        calendar = law.calendar if isinstance(law, Fixed) and isinstance(law.calendar, Local) else None
        told = _Told(law, law_text(law), law.capacity * law.grain, calendar)
        if len(_told) >= 10_000:
            _told.clear()
        _told[id(law)] = told
    return told


def _instant(now_us: int | None) -> bytes:
    if now_us is None:
        return b""
    if not -INSTANT_US_MOST <= now_us <= INSTANT_US_MOST:
        raise StoreError(f"the instant {now_us} us is too far from 1970 for the exact integers of Redis")
    return b"%d" % now_us


def _most(charge: Charge, law: AnyLaw, units: int) -> bytes:
    """The highest level at which the charge fits for a caller with patience; as the law's own `fits`."""
    patience_us = charge.patience_us
    if patience_us is None or not isinstance(law, Level):
        return b"-"
    most = law.room - units
    if isinstance(law, Line):
        most = min(most, law.p * patience_us - law.own * units + law.free)
    elif units <= law.room:
        most += law.p * min(patience_us, law.patience_us_most)
    return b"%d" % max(-1, min(most, _MOST))


class _Epochs:
    """The epoch keys that strict charges name, and where each stands in KEYS."""

    def __init__(self, names: Names, after: int, clustered: bool) -> None:
        self.keys: list[bytes] = []
        self._names, self._after, self._clustered = names, after, clustered

    def place(self, charge: Charge, key: bytes) -> bytes:
        """The position of the charge's epoch, from 1; "-" for a charge that is not strict."""
        if not charge.strict:
            return b"-"
        epoch = self._names.epoch(slot(key) if self._clustered else None)
        if epoch not in self.keys:
            self.keys.append(epoch)
        return b"%d" % (self._after + 1 + self.keys.index(epoch))


def _windows(calendar: Local | None, at_us: int | None) -> bytes:
    """The boundaries of the windows before, at and after the instant; nothing where there is no calendar."""
    if calendar is None:
        return b""
    assert at_us is not None, "calendar windows need to know about where the store's clock is"
    start_us, end_us, text = _bounds.get(calendar, (0, 0, b""))
    if start_us <= at_us < end_us:
        return text
    start_us, end_us = calendar.window(at_us)
    bounds = [start_us, end_us]
    try:
        bounds.insert(0, calendar.window(start_us - 1)[0])
        bounds.append(calendar.window(end_us)[1])
    except LimitError:  # at the end of all calendars
        pass
    text = b"".join([b" %d" % bound for bound in bounds])
    if len(_bounds) >= 1_000:
        _bounds.clear()
    _bounds[calendar] = (start_us, end_us, text)
    return text


def _lines(reply: object, count: int, echo: bytes) -> tuple[int, list[bytes]]:
    """The instant, and a line for each thing asked."""
    lines = _split(reply, echo)
    seconds, is_own, us = lines.pop(0).partition(b" ")
    try:
        now_us = int(seconds) * US_PER_S + int(us) if is_own else int(seconds)
    except ValueError:
        raise _broken(reply) from None
    if len(lines) != count:
        raise _broken(reply)
    return now_us, lines


def _split(reply: object, echo: bytes) -> list[bytes]:
    """The lines of a reply, behind the echo."""
    text = reply.encode("utf-8", "surrogateescape") if isinstance(reply, str) else reply
    if not isinstance(text, bytes) or text[-1:] != b"\n" or not text.startswith(echo):
        raise _broken(reply)
    return text[len(echo) : -1].split(b"\n")


def _broken(reply: object) -> StoreUnavailable:
    shown = repr(reply) if len(repr(reply)) <= 60 else f"{repr(reply)[:60]}..."
    return StoreUnavailable(
        f"the store answered {shown}, which is no answer to what was asked",
        "broken_reply",
    )


def _outcomes(request: Sequence[Charge], line: bytes, now_us: int) -> list[Outcome]:
    """The outcomes of one request. Raises ValueError or KeyError for a line that is none."""
    numbers = list(map(int, line.split()))
    outcomes, place = [], 0
    for charge in request:
        law = charge.limit.law
        state: LevelState | FixedState | SlidingState | LogState
        if isinstance(law, Level):
            verdict, level, at_us, ago_us, given_back = numbers[place : place + 5]
            state = _new(LevelState, (level, at_us, at_us - ago_us, given_back, law))
            place += 5
        else:
            verdict, first, second, third, fourth, fifth = numbers[place : place + 6]
            place += 6
            if isinstance(law, Fixed):
                state = FixedState(first, second, second - third, fourth, fifth, law)
            elif isinstance(law, Sliding):
                state = SlidingState(first, second, third, third - fourth, fifth, law)
            else:
                assert isinstance(law, Log)
                state = _log_state(law, charge.cost, first, second, second - third, fourth, fifth)
        fits, charged = _VERDICTS[verdict]
        outcomes.append(_new(Outcome, (charge, fits, charged, state, now_us, None, False)))
    if place != len(numbers):
        raise ValueError(line)
    return outcomes


def _log_state(
    law: Log, cost: int, used: int, at_us: int, since_us: int, frees_us: int, newest_us: int
) -> LogState:
    """A state that answers as the whole log does: when the cost fits, and when nothing counts."""
    excess = used + cost - law.capacity
    if not used:
        return law.holding(0, at_us, since_us)
    if frees_us < newest_us and 0 < excess < used:
        return LogState([frees_us, newest_us], [excess, used], 0, 2, at_us, since_us, law)
    return LogState([newest_us], [used], 0, 1, at_us, since_us, law)
