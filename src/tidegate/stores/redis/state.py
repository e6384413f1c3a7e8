"""How laws and states are written in the server: short texts that explain themselves.

    L1 room q p  level at ago given                      bucket, meter, queue (core/level.py)
    F1 capacity calendar  counted at ago start end       fixed window; even:LENGTH_US, month:ZONE, ...
    S1 capacity tick parts  before counted at ago start  two counters
    G1 capacity window  first past base total at ago     sliding log, then rows of two doubles (log.lua)
    N1                                                   made fresh, whatever the limit (forget.lua)

The law stands first, as the scripts get it with each charge, so "the limit has changed" is "the value
begins differently". `ago` is how long before `at` the busy period began. Numbers are whole; instants are
microseconds, amounts thousandths of a token, of the level family units.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args
from urllib.parse import quote, unquote

from tidegate.core.calendar import CalendarUnit, Local
from tidegate.core.law import EXACT, AnyLaw
from tidegate.core.level import Level, LevelState
from tidegate.core.log import Log, LogState
from tidegate.core.windows import Calendar, Even, Fixed, FixedState, Sliding, SlidingState
from tidegate.errors import LimitError, StoreError
from tidegate.units import MILLI

HEAD_BYTES, ROW_BYTES = 128, 16
"""Where the rows of a log begin, and the length of one."""

LOOKED_AT_BYTES = 192
"""So much of a value the scripts look at."""

LAW_BYTES_MOST = 100
"""The numbers of a state take up to 91 bytes behind its law."""

_ALGORITHMS = {b"L1": "level", b"F1": "fixed_window", b"S1": "sliding_window", b"G1": "sliding_log"}
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class StoredState(NamedTuple):
    """What a key of the server holds. `state` is the core's, and names the law that wrote it.

    Bucket, meter and queue share a law, so all three are "level". `used` thousandths counted against the
    `capacity` at the instant `at_us`. "fresh" is a key that was reset, with no law and no state.
    """

    algorithm: str
    capacity: int
    used: int
    at_us: int
    busy_since_us: int
    state: Any


def law_text(law: AnyLaw) -> bytes:
    """A law as the scripts know it. Raises StoreError for one whose numbers doubles cannot hold."""
    if isinstance(law, Level):
        text = b"L1 %d %d %d " % (law.room, law.q, law.p)
    elif isinstance(law, Fixed):
        text = b"F1 %d %b " % (law.capacity, _calendar_text(law.calendar).encode())
    elif isinstance(law, Sliding):
        text = b"S1 %d %d %d " % (law.capacity, law.tick_us, law.parts)
    elif isinstance(law, Log):
        text = b"G1 %d %d " % (law.capacity, law.window_us)
    else:
        raise StoreError(f"a limit of type {type(law).__name__} cannot be kept in Redis")
    if law.capacity >= EXACT or len(text) > LAW_BYTES_MOST:
        raise StoreError(f"the limit {text.decode()!r} does not fit the exact integers of Redis")
    return text


def parse_state(value: bytes) -> StoredState | None:
    """What a value says; None if it is no state of ours.

    The first 192 bytes are enough, but of a log they tell the sum alone, taken as spent when it was written.
    """
    if value == b"N1":
        return StoredState("fresh", 0, 0, 0, 0, None)
    words = value[:HEAD_BYTES].split(b" ") if value.startswith(b"G") else value.split(b" ")
    try:
        state: Any = _READERS[words[0]](words, value)
    except (KeyError, ValueError, IndexError):
        return None
    if state is None:
        return None
    law = state.law
    used = law.used(state)
    return StoredState(_ALGORITHMS[words[0]], law.capacity, used, state.at_us, state.busy_since_us, state)


def _level(words: list[bytes], _: bytes) -> LevelState | None:
    room, q, p, level, at_us, ago_us = _numbers(words[1:-1], 6)
    given = words[7]
    given_back = int(given) if given.isdigit() else _numbers([given], 1)[0]
    if room <= 0 or q < MILLI or q % MILLI or room % (q // MILLI) or min(p, level, given_back) < 0:
        return None
    return LevelState(level, at_us, at_us - ago_us, given_back, Level(room, q, p))


def _fixed(words: list[bytes], _: bytes) -> FixedState | None:
    (capacity,), calendar = _numbers(words[1:2], 1), _calendar(words[2].decode())
    counted, at_us, ago_us, start_us, end_us = _numbers(words[3:], 5)
    if capacity <= 0 or counted < 0:
        return None
    return FixedState(counted, at_us, at_us - ago_us, start_us, end_us, Fixed(capacity, calendar))


def _sliding(words: list[bytes], _: bytes) -> SlidingState | None:
    capacity, tick_us, parts, before, counted, at_us, ago_us, start_us = _numbers(words[1:], 8)
    law = Sliding(capacity, tick_us, parts)
    if (
        min(capacity, tick_us, parts) <= 0
        or law.length_us >= EXACT
        or not start_us <= at_us < start_us + law.length_us
    ):
        return None
    if min(before, counted) < 0 or max(before, counted) > law.most:
        return None
    return SlidingState(before, counted, at_us, at_us - ago_us, start_us, law)


def _log(words: list[bytes], value: bytes) -> LogState | None:
    capacity, window_us, first, past, base, total, at_us, ago_us = _numbers(words[1:9], 8)
    if len(words) == 9 or min(capacity, window_us) <= 0 or not 0 <= first <= past or not 0 <= base <= total:
        return None
    law, since_us = Log(capacity, window_us), at_us - ago_us
    rows = value[HEAD_BYTES + ROW_BYTES * first : HEAD_BYTES + ROW_BYTES * past]
    if len(rows) < ROW_BYTES * (past - first):
        return law.holding(total - base, at_us, since_us) if len(value) >= LOOKED_AT_BYTES else None
    numbers = [int(number) for number in struct.unpack(f"<{len(rows) // 8}d", rows)]
    totals = [sum_ - base for sum_ in numbers[1::2]]
    if (totals[-1] if totals else 0) != total - base:
        return None
    return LogState(numbers[::2], totals, 0, len(totals), at_us, since_us, law)


def _numbers(words: list[bytes], count: int) -> list[int]:
    """So many whole numbers as the scripts read them, exponents included. Raises ValueError for others."""
    if len(words) != count or not all(map(_NUMBER.fullmatch, words)):
        raise ValueError(words)
    numbers = list(map(float, words))
    if not all(number.is_integer() and abs(number) < EXACT for number in numbers):
        raise ValueError(words)
    return list(map(int, numbers))


def _calendar_text(calendar: Calendar) -> str:
    if isinstance(calendar, Even):
        return f"even:{calendar.length_us}"
    if isinstance(calendar, Local):
        return f"{calendar.unit}:{quote(calendar.zone)}"
    raise StoreError(f"windows of type {type(calendar).__name__} cannot be kept in Redis")


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """The calendar of a zone that is not known here: of what it counted, only the window is known."""

    unit: str
    zone: str

    def window(self, now_us: int) -> tuple[int, int]:
        """An instant alone."""
        return now_us, now_us + 1


def _calendar(text: str) -> Calendar:
    unit, _, of = text.partition(":")
    if unit == "even":
        (length_us,) = _numbers([of.encode()], 1) if of.isdigit() else (0,)
        if length_us == 0:
            raise ValueError(text)
        return Even(length_us)
    if unit not in get_args(CalendarUnit) or not of:
        raise ValueError(text)
    try:
        return Local(unit, unquote(of))  # type: ignore[arg-type]  # it is one of the units
    except LimitError:
        return _Elsewhere(unit, unquote(of))


_READERS: dict[
    bytes, Callable[[list[bytes], bytes], LevelState | FixedState | SlidingState | LogState | None]
]
_READERS = {b"L1": _level, b"F1": _fixed, b"S1": _sliding, b"G1": _log}
