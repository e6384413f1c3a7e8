"""How a law travels: its kind and its numbers, in the order that `decide.sql` tells."""

from __future__ import annotations

from typing import TypeAlias

from tidegate.core.calendar import Local
from tidegate.core.law import AnyLaw
from tidegate.core.level import Level, Line
from tidegate.core.log import Log
from tidegate.core.windows import Even, Fixed, Sliding

OF_LEVEL, OF_LINE, OF_FIXED, OF_SLIDING, OF_LOG = 1, 2, 3, 4, 5

LawNumbers: TypeAlias = tuple[int, int, int, int, int, int, Local | None]

_told: dict[int, tuple[AnyLaw, LawNumbers]] = {}  # by identity, for to hash a law costs more


def law_numbers(law: AnyLaw) -> LawNumbers:
    """Kind, capacity in units, q or length, p or parts, own, free, and the calendar if there is one."""
    told = _told.get(id(law))
    if told is None or told[0] is not law:
        if len(_told) >= 10_000:
            _told.clear()
        told = _told[id(law)] = law, _law_numbers(law)
    return told[1]


def _law_numbers(law: AnyLaw) -> LawNumbers:
    if isinstance(law, Line):
        return OF_LINE, law.room, law.q, law.p, law.own, law.free, None
    if isinstance(law, Level):
        return OF_LEVEL, law.room, law.q, law.p, 0, 0, None
    if isinstance(law, Fixed):
        if isinstance(law.calendar, Even):
            return OF_FIXED, law.capacity, law.calendar.length_us, 0, 0, 0, None
        assert isinstance(law.calendar, Local), law.calendar
        return OF_FIXED, law.capacity, 0, 0, 0, 0, law.calendar
    if isinstance(law, Sliding):
        return OF_SLIDING, law.capacity, law.length_us, law.parts, 0, 0, None
    assert isinstance(law, Log), law
    return OF_LOG, law.capacity, law.window_us, 0, 0, 0, None


def calendar_text(calendar: Local) -> bytes:
    """The name of a calendar in the tables."""
    return f"{calendar.unit}:{calendar.zone}".encode()
