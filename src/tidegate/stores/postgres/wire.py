"""What is sent to the functions of the schema and what comes back: charges as arrays, outcomes from one.

Pure: no connection, no clock. `decide.sql` and `adjust.sql` say what each number means. Arrays travel in the
binary format of PostgreSQL, so nothing is quoted and no text of anybody's is read as SQL. The answer equals
that of `core.compose` on the same states; hints are computed by the law, from the state in the reply.

Calendar windows are computed here, for the server's own time zones are not ours. They are sent as three
windows around the instant at which the server is thought to be; if it is elsewhere, the answer is `Missed`,
nothing has been charged, and the request is to be asked again with the windows around that instant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from tidegate.core.calendar import Local
from tidegate.core.carry import WAYS
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.law import EXACT
from tidegate.core.level import Level, LevelState
from tidegate.core.log import Log, LogState
from tidegate.core.outcome import Charge, Outcome
from tidegate.core.windows import Fixed, FixedState, Sliding, SlidingState
from tidegate.errors import LimitError, StoreError, StoreUnavailable
from tidegate.stores.postgres.causes import UNDECIDED
from tidegate.stores.postgres.laws import OF_LEVEL, calendar_text, law_numbers
from tidegate.stores.postgres.places import Place, is_digest, place_of, whole_of

VERSION = 1
"""The version of the schema that this file speaks to."""

_HELD = 9

Parameters: TypeAlias = list[bytes | None]

_BYTEA, _BIGINT, _TEXT = 17, 20, 25
_WAY = {way: number for number, way in enumerate(WAYS, 1)}
_HEADER, _NUMBER = Struct(">5i"), Struct(">q")
_MOST = EXACT - 1
_INSTANT_MOST = 2**61
_new = tuple.__new__  # a named tuple made like this costs half of what its own constructor takes


class Ask(NamedTuple):
    """One request: its charges, and whether they are to be taken or only looked at."""

    charges: Sequence[Charge]
    take: bool = True


class Call(NamedTuple):
    """How a call is to be carried out; the same for all that travels in it.

    `leaves_held`: requests for rows that others hold are left out, and answered with `Held`.
    """

    now_us: int | None = None
    look_first: bool = False
    may_forget: bool = False
    lock_timeout_ms: int = 0
    leaves_held: bool = False


class Missed(NamedTuple):
    """Nothing was charged: this instant lies outside the calendar windows that were sent."""

    at_us: int


class Held(NamedTuple):
    """Nothing was charged: another transaction holds a row of the request."""


class Calendars:
    """The windows around an instant, kept until another window is wanted. Shared by threads as it is."""

    def __init__(self) -> None:
        self._edges: dict[Local, tuple[int, ...]] = {}

    def edges_us(self, calendar: Local, at_us: int) -> tuple[int, ...]:
        """Where the window before, the one of the instant and the one after begin, and where that ends."""
        edges = self._edges.get(calendar)
        if edges is None or not edges[1] <= at_us < edges[2]:
            start_us, end_us = calendar.window(at_us)
            edges = (self._start_us(calendar, start_us), start_us, end_us, self._end_us(calendar, end_us))
            if len(self._edges) >= 1_000:
                self._edges.clear()
            self._edges[calendar] = edges
        return edges

    def _start_us(self, calendar: Local, before_us: int) -> int:
        try:
            return calendar.window(before_us - 1)[0]
        except LimitError:  # the first of all windows
            return before_us

    def _end_us(self, calendar: Local, after_us: int) -> int:
        try:
            return calendar.window(after_us)[1]
        except LimitError:  # the last of all windows
            return after_us


def encode_decide(asks: Sequence[Ask], call: Call, calendars: Calendars, windows_at_us: int) -> Parameters:
    """The parameters of `decide` for independent requests, decided in this order.

    Where a key is named by its digest there is one more, and they are those of `decide_named`. Raises
    StoreError for what cannot be asked, and LimitError for an instant that no calendar has.
    """
    writing = _Writing([charge for charges, _ in asks for charge in charges], call, calendars, windows_at_us)
    numbers = _header(call, len(asks))
    for charges, take in asks:
        numbers += (take, len(charges))
        for charge in charges:
            numbers += writing.charge(charge)
    wholes = writing.wholes()
    return writing.parameters(numbers) if wholes is None else [*writing.parameters(numbers), wholes]


def encode_one(charge: Charge, now_us: int | None) -> Parameters | None:
    """The parameters of `take_one`; None for a charge that it does not decide."""
    rule, key, limit, cost, mode, _, _, patience_us, strict, *_ = charge
    kind, room, q, p, *_ = law_numbers(limit.law)
    if kind != OF_LEVEL or mode != "enforce" or patience_us is not None or strict or not 0 < cost < _MOST:
        return None
    pack = _NUMBER.pack
    return [
        *(pack(VERSION), *place_of(rule, key), pack(room), pack(q), pack(p), pack(cost)),
        None if now_us is None else pack(_checked(now_us)),
    ]


def encode_adjust(
    adjustments: Sequence[Adjustment], call: Call, calendars: Calendars, windows_at_us: int
) -> Parameters:
    """The parameters of `adjust`, as `encode_decide`."""
    writing = _Writing([one.charge for one in adjustments], call, calendars, windows_at_us)
    numbers = _header(call, len(adjustments))
    for charge, receipt, units, own, full, debt in adjustments:
        numbers += writing.charge(charge)
        numbers += (
            units if units < 0 else min(units // charge.limit.law.grain, _MOST),
            receipt.cost,
            receipt.at_us,
            receipt.since_us,
            receipt.mark,
            receipt.given_back,
            own,
            full,
            min(debt, _MOST),
        )
    return [*writing.parameters(numbers), writing.wholes()]


def encode_forget(keys: Sequence[tuple[str, Key]], call: Call) -> Parameters:
    """The parameters of `forget`."""
    wholes = {place_of(rule, key): whole_of(key) for rule, key in keys}
    places = sorted(wholes)
    numbers = bigints(_header(call, len(places)))
    return [*_named(places), numbers, texts([wholes[place] for place in places], _BYTEA)]


def decode_decide(reply: object, asks: Sequence[Ask]) -> list[list[Outcome] | StoreError | Missed | Held]:
    """What `decide` answered to each request.

    Raises StoreUnavailable for a reply that is none: it cannot be told then what was charged.
    """
    numbers = numbers_in(reply)
    now_us, at = numbers[0], 1
    answers: list[list[Outcome] | StoreError | Missed | Held] = []
    try:
        for charges, _ in asks:
            status = numbers[at]
            at += 1
            if status == 0:
                end = at + 6 * len(charges)
                answers.append(_outcomes(charges, numbers[at:end], now_us))
                at = end
            elif status == 1:
                answers.append(Missed(numbers[at]))
                at += 1
            else:
                answers.append(Held() if status == _HELD else StoreError(UNDECIDED[status]))
    except (IndexError, KeyError, ValueError):
        raise broken(reply) from None
    if at != len(numbers):
        raise broken(reply)
    return answers


def decode_adjust(reply: object, adjustments: Sequence[Adjustment]) -> list[int | Missed]:
    """The units by which each level went down, as `decode_decide`."""
    numbers = numbers_in(reply)
    if len(numbers) != 1 + 2 * len(adjustments):
        raise broken(reply)
    pairs = zip(numbers[1::2], numbers[2::2], strict=True)
    return [value if status == 0 else Missed(value) for status, value in pairs]


def instant_in(reply: object) -> int:
    """The instant at which the reply was made."""
    return numbers_in(reply)[0]


def bigints(numbers: Sequence[int]) -> bytes:
    """An array of bigint, in binary."""
    count = len(numbers)
    if not count:
        return _HEADER.pack(0, 0, _BIGINT, 0, 1)[:12]
    row = [8] * (2 * count)
    row[1::2] = numbers
    return _HEADER.pack(1, 0, _BIGINT, count, 1) + _pairs(count).pack(*row)


def texts(values: Sequence[bytes], kind: int = _TEXT) -> bytes:
    """An array of text or, with the other kind, of bytea."""
    if not values:
        return _HEADER.pack(0, 0, kind, 0, 1)[:12]
    parts = [_HEADER.pack(1, 0, kind, len(values), 1)]
    for value in values:
        parts += (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)


def broken(reply: object) -> StoreUnavailable:
    """The error for a reply that is none."""
    text = repr(reply)
    return StoreUnavailable(
        f"the store answered {text[:60]}{'...' if len(text) > 60 else ''}, which is no answer", "broken_reply"
    )


class _Writing:
    """One call while it is written down: its keys in order, each once, and its calendars."""

    def __init__(
        self, charges: Sequence[Charge], call: Call, calendars: Calendars, windows_at_us: int
    ) -> None:
        self._calendars = calendars
        self._at_us = windows_at_us if call.now_us is None else call.now_us
        self._edges: dict[Local, tuple[int, ...]] = {}
        places = {(charge.rule, charge.key): place_of(charge.rule, charge.key) for charge in charges}
        self._places = sorted(places.values())
        numbers = {place: number for number, place in enumerate(self._places, 1)}
        self._numbers = {pair: numbers[place] for pair, place in places.items()}

    def charge(self, charge: Charge) -> tuple[int, ...]:
        """The numbers of a charge."""
        rule, key, limit, cost, mode, carry, _, patience_us, strict, *_ = charge
        kind, room, q, p, own, free, calendar = law_numbers(limit.law)
        return (
            self._numbers[rule, key],
            kind,
            room,
            q,
            p,
            own,
            free,
            min(cost, _MOST),
            -1 if patience_us is None else min(patience_us, _MOST),
            mode == "shadow",
            _WAY[carry],
            strict,
            0 if calendar is None else self._number_of(calendar),
        )

    def _number_of(self, calendar: Local) -> int:
        if calendar not in self._edges:
            self._edges[calendar] = self._calendars.edges_us(calendar, self._at_us)
        return list(self._edges).index(calendar) + 1

    def wholes(self) -> bytes | None:
        """The keys in full that are named by their digests, and nothing for the others; None without any."""
        for _, named in self._places:
            if is_digest(named):
                wholes = {self._numbers[rule, key]: whole_of(key) for rule, key in self._numbers}
                return texts([wholes[number] for number in range(1, len(self._places) + 1)], _BYTEA)
        return None

    def parameters(self, numbers: list[int]) -> Parameters:
        """The five parameters that all calls have."""
        calendars = [calendar_text(calendar) for calendar in self._edges]
        edges_us = [edge for edges in self._edges.values() for edge in edges]
        return [
            *_named(self._places),
            bigints(numbers),
            texts(calendars) if calendars else None,
            bigints(edges_us) if edges_us else None,
        ]


def _header(call: Call, count: int) -> list[int]:
    told = call.now_us is not None
    now_us = _checked(call.now_us or 0)
    return [
        VERSION,
        call.leaves_held,
        call.look_first,
        call.may_forget,
        call.lock_timeout_ms,
        told,
        now_us,
        count,
    ]


def _checked(now_us: int) -> int:
    if abs(now_us) > _INSTANT_MOST:
        raise StoreError(f"the instant {now_us} us is too far from 1970 for the integers of PostgreSQL")
    return now_us


def _named(places: Sequence[Place]) -> tuple[bytes, bytes]:
    return texts([rule for rule, _ in places], _BYTEA), texts([key for _, key in places], _BYTEA)


@lru_cache(maxsize=256)
def _pairs(count: int) -> Struct:
    return Struct(">" + "iq" * count)


@lru_cache(maxsize=256)
def _values(count: int) -> Struct:
    return Struct(">" + "4xq" * count)


def numbers_in(reply: object) -> tuple[int, ...]:
    """The numbers of an array of bigint. Raises StoreUnavailable for what is none."""
    if not isinstance(reply, bytes | bytearray | memoryview) or len(reply) < _HEADER.size + 12:
        raise broken(reply)
    dimensions, has_null, kind, count, _ = _HEADER.unpack_from(reply)
    if (dimensions, has_null, kind) != (1, 0, _BIGINT) or len(reply) != _HEADER.size + 12 * count:
        raise broken(reply)
    return _values(count).unpack_from(reply, _HEADER.size)


def _outcomes(charges: Sequence[Charge], numbers: Sequence[int], now_us: int) -> list[Outcome]:
    """The outcomes of one request. Raises ValueError for numbers that are none."""
    if len(numbers) != 6 * len(charges):
        raise ValueError(numbers)
    outcomes = []
    for place, charge in enumerate(charges):
        verdict, used, at_us, since_us, first, second = numbers[6 * place : 6 * place + 6]
        law = charge.limit.law
        state: Any
        if isinstance(law, Level):
            state = _new(LevelState, (used, at_us, since_us, first, law))
        elif isinstance(law, Fixed):
            state = FixedState(used, at_us, since_us, first, second, law)
        elif isinstance(law, Sliding):
            state = SlidingState(second, used, at_us, since_us, first, law)
        else:
            assert isinstance(law, Log), law
            state = _log_state(law, charge.cost, used, at_us, since_us, first, second)
        if verdict not in {0, 1, 3}:
            raise ValueError(verdict)
        outcomes.append(_new(Outcome, (charge, verdict > 0, verdict == 3, state, now_us, None, False)))
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
