"""The limits that people write: an algorithm with its numbers, checked once, immutable.

Each says in its docstring what it guarantees in any interval, and where it is weaker. `law` is the
same limit as integers, which is what decides. A limit that exists is valid and fits the integers; one
that does not fit is refused here, with the nearest one that does.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, Literal, Self

from tidegate.core.calendar import Local, zone_named
from tidegate.core.fitting import finest_tick_us, fits_integers, nearest_that_fits, units_of
from tidegate.core.law import EXACT, AnyLaw
from tidegate.core.level import Level, Line
from tidegate.core.log import Log
from tidegate.core.windows import Calendar, Even, Fixed, Sliding
from tidegate.errors import LimitError
from tidegate.units import (
    MILLI,
    US_PER_S,
    Duration,
    Number,
    Rate,
    decimal_text,
    div_ceil,
    duration_text,
    duration_us,
    exact,
    shown,
)

LOG_LIMIT_MOST = 100_000
"""The largest SlidingLog: it remembers every spend."""

_LONGEST_WINDOW_US = 100 * 366 * 86_400 * US_PER_S
_DAY_US = 86_400 * US_PER_S
_CALENDAR_US: dict[str, int] = {
    "day": _DAY_US,
    "week": 7 * _DAY_US,
    "month": 30 * _DAY_US,
    "year": 365 * _DAY_US,
}
_FIXED_US: dict[str, int] = {"second": US_PER_S, "minute": 60 * US_PER_S, "hour": 3_600 * US_PER_S}


class Limit:
    """What all limits have in common.

    Two limits are equal if they are of one class with equal numbers; `repr` is the constructor call.
    """

    algorithm: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]]  # the constructor's arguments, in order

    law: AnyLaw
    """The limit as integers: what decides."""

    rate: Rate | None = None
    """Sustained work per time; None for the windows, which have none of their own."""

    quota_window_us: int | None
    """The time in which a whole quota comes again, None if never; a month counts 30 days, a year 365."""

    capacity: int | Fraction
    """The most that may pass at one instant, in tokens."""

    @property
    def quota(self) -> int:
        """Whole tokens that may pass at one instant."""
        return int(self.capacity)

    @property
    def whole(self) -> Limit:
        """The limit that this is a part of, for the parts of one with a reserve; else itself."""
        return self.__dict__.get("_whole", self)  # type: ignore[no-any-return]  # only `part_of` sets it

    def part_of(self, whole: Limit) -> Self:
        """The same limit, which now tells that it is a part of another; it stays equal to what it was."""
        self._keep(_whole=whole)
        return self

    def _keep(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a limit cannot be changed; make a new one instead of setting {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a limit cannot be changed; {name} stays")

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limit) and type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __reduce__(self) -> tuple[type[Limit], tuple[object, ...]]:
        return type(self), self._values()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self._fields)
        return f"{type(self).__name__}({shown})"


class _LevelLimit(Limit):
    """A capacity and a rate under the law of `level.py`."""

    _fields: ClassVar[tuple[str, ...]] = ("capacity", "rate")

    rate: Rate

    def __init__(self, capacity: Number, rate: Rate | str) -> None:
        self._keep_level(capacity, rate, Level)

    def _keep_level(
        self, capacity: Number, rate: Rate | str, law_of: Callable[[int, int, int], Level]
    ) -> None:
        size, flow = _capacity(capacity), Rate.parse(rate)
        p, q = units_of(flow)
        if not fits_integers(size, p, q):
            raise LimitError(nearest_that_fits(size, flow))
        law = law_of(int(size * q), q, p)
        self._keep(capacity=_plain(size), rate=flow, law=law)
        self._keep(quota_window_us=div_ceil(law.room, p) if p else None)

    @classmethod
    def within(cls, limit: Number, per: Duration, burst: Number | None = None) -> Self:
        """The limit that never lets more than `limit` pass in any period of length `per`.

        It keeps capacity + rate * per = limit. `burst` is its capacity, by default a tenth of the limit
        (at least 1); the rest of the limit is the rate. A bucket of capacity `limit` and rate limit / per
        would let twice as much through in some period. `per` is "1min", a timedelta, or seconds.
        Raises LimitError for a burst that leaves nothing for the rate, and as the constructor does.
        """
        total = _capacity(limit, "limit")
        size = Fraction(max(1, total // 10)) if burst is None else _capacity(burst, "burst")
        if size >= total:
            raise LimitError(
                f"burst is {decimal_text(size)} of {decimal_text(total)}; it must be below the limit, "
                "or nothing is left for the rate"
            )
        return cls(size, Rate(total - size, per))


class TokenBucket(_LevelLimit):
    """A budget: at most `capacity` at once, refilled at `rate`, starting full. Admitted work never waits.

    In every interval of length d at most capacity + rate * d passes. Stored as a level (what was spent
    and has not come back), so it is the exact complement of `LeakyBucket` with the same numbers.

    Args:
        capacity: the largest burst in tokens, at least a thousandth.
        rate: "5/s", "300/min", "10 per 3 days", or a Rate. "0/s" never refills.

    Raises:
        LimitError: a number is wrong, or does not fit the exact integers; the message names one that does.
    """

    algorithm = "token_bucket"


class LeakyBucket(_LevelLimit):
    """A meter: a level that every request raises and time drains; full means refused. Nothing waits.

    In every interval of length d at most capacity + rate * d passes. It gives the verdicts of
    `TokenBucket` with the same numbers at every instant; GCRA is the same thing. It tests
    `level + cost <= capacity`; write-ups that test `level < capacity` admit past the capacity.
    """

    algorithm = "leaky_bucket"


class LeakyQueue(_LevelLimit):
    """A waiting line: what is admitted leaves at `rate`, and `capacity` counts all work not yet drained.

    The verdicts are those of `TokenBucket` with the same numbers; the decision's `wait` says how long to
    hold the work. With `delay_after=0` departures are at least cost / rate apart, so in every interval of
    length d at most one job + rate * d leaves. nginx `rate=r burst=b` is `LeakyQueue(b + 1, r)`, and
    `delay=d` is `delay_after=d`.

    Args:
        capacity: places, in tokens of work, the one being served included.
        rate: how fast the line drains; it must drain.
        first_release: "immediate" (a job waits for the work ahead of it) or "interval" (its own work
            counts too, so the first leaves one interval after it came).
        delay_after: so much work ahead costs no wait.
    """

    algorithm = "leaky_queue"
    _fields = ("capacity", "rate", "first_release", "delay_after")

    first_release: Literal["immediate", "interval"]
    delay_after: int | Fraction

    def __init__(
        self,
        capacity: Number,
        rate: Rate | str,
        first_release: Literal["immediate", "interval"] = "immediate",
        delay_after: Number = 0,
    ) -> None:
        if first_release not in ("immediate", "interval"):
            raise LimitError(f'first_release is {first_release!r}; write "immediate" or "interval"')
        free = exact(delay_after, "delay_after")
        if free < 0 or (free * MILLI).denominator != 1:
            raise LimitError(
                f"delay_after is {shown(delay_after)}; write tokens of work, 0 or more, in thousandths"
            )
        own = 1 if first_release == "interval" else 0
        self._keep(first_release=first_release, delay_after=_plain(free))
        self._keep_level(capacity, rate, lambda room, q, p: Line(room, q, p, own, min(int(free * q), room)))
        if self.rate.tokens == 0:
            raise LimitError("rate is 0; a line that does not drain would hold its work for ever")


class SlidingLog(Limit):
    """At most `limit` in any stretch of one window, exactly: for one-time codes and logins.

    What was spent at t stops counting at exactly t + window. Each spend is remembered, up to `limit`
    entries (16 bytes and an integer each) a key, so the limit is at most 100,000 and costs are whole
    tokens. Looking and refusing cost a binary search; giving back copies the entries.
    """

    algorithm = "sliding_log"
    _fields = ("limit", "window")

    limit: int
    window: str

    def __init__(self, limit: int, window: Duration) -> None:
        size = _capacity(limit, "limit")
        if size.denominator != 1:
            raise LimitError(f"limit is {shown(limit)}; a sliding log counts whole tokens")
        if size > LOG_LIMIT_MOST:
            raise LimitError(
                f"limit is {shown(limit)}; a sliding log remembers every spend, so it is at most "
                f"{LOG_LIMIT_MOST}. For more use SlidingWindow, or TokenBucket.within to bound any period"
            )
        us = _window_us(window)
        self._keep(
            limit=size.numerator, capacity=size.numerator, window=duration_text(us), quota_window_us=us
        )
        self._keep(law=Log(size.numerator * MILLI, us))


class FixedWindow(Limit):
    """At most `limit` in each window: cheap, easily explained, and weak at the boundaries.

    In a stretch of one window's length that crosses a boundary up to twice the limit can pass.

    Args:
        limit: tokens in each window.
        window: a length ("10min"; windows are counted from the epoch, in UTC) or a calendar unit: "day",
            "week" (from Monday), "month" or "year" of `zone`. "second", "minute" and "hour" are lengths.
        zone: the time zone of calendar units, for instance "Europe/Berlin".
    """

    algorithm = "fixed_window"
    _fields = ("limit", "window", "zone")

    limit: int | Fraction
    window: str
    zone: str

    def __init__(self, limit: Number, window: Duration, zone: str = "UTC") -> None:
        size = _capacity(limit, "limit")
        if 2 * size * MILLI >= EXACT:
            most = (EXACT - 1) // (2 * MILLI)
            raise LimitError(f"limit is {shown(limit)}; the exact integers hold at most {most}")
        zone_named(zone)
        calendar: Calendar
        if isinstance(window, str) and window in _CALENDAR_US:
            text, length_us = window, _CALENDAR_US[window]
            calendar = Local(window, zone)  # type: ignore[arg-type]  # the keys are the units
        else:
            length_us = (
                _FIXED_US[window] if isinstance(window, str) and window in _FIXED_US else _window_us(window)
            )
            text, calendar = duration_text(length_us), Even(length_us)
            if zone != "UTC":
                raise LimitError(
                    f"zone is {zone!r} for a window of {text}; that is as long everywhere, so leave the zone "
                    f"out, or count a calendar unit ({', '.join(_CALENDAR_US)})"
                )
        self._keep(
            limit=_plain(size), capacity=_plain(size), window=text, zone=zone, quota_window_us=length_us
        )
        self._keep(law=Fixed(int(size * MILLI), calendar))


class SlidingWindow(Limit):
    """At most `limit` by an estimate from two counters: smooth, small, and not exact.

    The estimate takes the previous window's work as spread evenly. Where it was not, up to twice the
    limit can pass in a stretch of one window's length; over long times the rate is limit / window.
    """

    algorithm = "sliding_window"
    _fields = ("limit", "window")

    limit: int | Fraction
    window: str

    def __init__(self, limit: Number, window: Duration) -> None:
        size, us = _capacity(limit, "limit"), _window_us(window)
        self._keep(limit=_plain(size), capacity=_plain(size), window=duration_text(us), quota_window_us=us)
        tick_us = finest_tick_us(int(size * MILLI), us)
        if tick_us is None:
            most = (EXACT - 1) // (2 * MILLI)
            raise LimitError(
                f"limit is {shown(limit)} per {duration_text(us)}; the exact integers hold at most {most} "
                "in a window of whole milliseconds"
            )
        self._keep(law=Sliding(int(size * MILLI), tick_us, us // tick_us))


def _plain(value: Fraction) -> int | Fraction:
    return value.numerator if value.denominator == 1 else value


def _shown(value: object) -> str:
    if isinstance(value, Fraction):
        return decimal_text(value)
    return repr(str(value)) if isinstance(value, Rate) else repr(value)


def _capacity(value: Number, what: str = "capacity") -> Fraction:
    size = exact(value, what)
    if size == 0:
        raise LimitError(
            f"{what} is 0; a limit must allow something. To block a key use a rule with mode='deny', "
            "for no limit at all mode='bypass'"
        )
    if size < 0:
        raise LimitError(f"{what} is {shown(value)}; it must be positive")
    if (size * MILLI).denominator != 1:
        raise LimitError(
            f"{what} is {shown(value)}; tokens are counted in thousandths, so round it to three decimals"
        )
    return size


def _window_us(window: Duration) -> int:
    us = duration_us(window, "window")
    if us > _LONGEST_WINDOW_US:
        raise LimitError(f"window is {duration_text(us)}; the longest is a hundred years")
    return us
