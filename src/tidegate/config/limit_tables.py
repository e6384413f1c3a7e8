"""The six limits as tables of the file, and the limit that each of them says.

Every algorithm has its own keys; a key of another one is unknown. What the numbers mean together is
checked by the limit itself, when it is built.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from tidegate.config import values
from tidegate.config.tables import (
    Reading,
    Schema,
    Table,
    builds,
    key,
    place_named,
    reads,
    table,
    tagged,
    word,
    wrong_at,
)
from tidegate.core.limits import (
    FixedWindow,
    LeakyBucket,
    LeakyQueue,
    Limit,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from tidegate.errors import LimitError
from tidegate.units import Rate  # pydantic reads annotations at run time

_SIZE: Schema = {"type": "number", "exclusiveMinimum": 0}
_TOKENS: Schema = {"type": "number", "minimum": 0}
LENGTH: Schema = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[A-Za-zµ]+\s*$"}
_WINDOW: Schema = {"anyOf": [LENGTH, {"enum": list(values.CALENDAR_WORDS)}]}
_RATE: Schema = {
    "type": "string",
    "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(/|\bper\b)\s*([0-9]+(\.[0-9]+)?)?\s*[A-Za-zµ]+\s*$",
}

Size: TypeAlias = Annotated[int | float, reads(values.size, _SIZE)]
Tokens: TypeAlias = Annotated[int | float, reads(values.number, _TOKENS)]
Length: TypeAlias = Annotated[str, reads(values.length, LENGTH)]


class LimitTable(Table):
    """A limit as it stands in the file."""

    algorithm: Annotated[str, key("token_bucket", "How the limit counts.")]

    def limit_built(self) -> Limit:
        """The limit itself. Raises LimitError if its numbers do not fit together."""
        raise NotImplementedError


class _Leveled(LimitTable):
    capacity: Annotated[Size, key(20, "The most work that may pass at one instant, in tokens.")]
    rate: Annotated[
        Rate, reads(values.rate, _RATE), key("5/s", "Sustained work per time: 5/s, 300 per 5 min.")
    ]


class TokenBucketTable(_Leveled):
    """A budget: bursts up to the capacity, refilled at the rate. Admitted work never waits."""

    called = "a token_bucket limit"
    algorithm: Annotated[Literal["token_bucket"], key("token_bucket", "How the limit counts.")]

    def limit_built(self) -> Limit:
        """The limit itself."""
        return TokenBucket(self.capacity, self.rate)


class LeakyBucketTable(_Leveled):
    """A meter: the complement of the token bucket, with the same verdicts."""

    called = "a leaky_bucket limit"
    algorithm: Annotated[Literal["leaky_bucket"], key("leaky_bucket", "How the limit counts.")]

    def limit_built(self) -> Limit:
        """The limit itself."""
        return LeakyBucket(self.capacity, self.rate)


class LeakyQueueTable(_Leveled):
    """A waiting line: admitted work leaves at the rate."""

    called = "a leaky_queue limit"
    algorithm: Annotated[Literal["leaky_queue"], key("leaky_queue", "How the limit counts.")]
    first_release: Annotated[
        Literal["immediate", "interval"],
        word("immediate", "interval"),
        key("immediate", "Whether the first job leaves at once or after one interval."),
    ] = "immediate"
    delay_after: Annotated[Tokens, key(0, "So much work ahead costs no wait, in tokens.")] = 0

    def limit_built(self) -> Limit:
        """The limit itself."""
        return LeakyQueue(self.capacity, self.rate, self.first_release, self.delay_after)


class _Windowed(LimitTable):
    limit: Annotated[Size, key(5, "The most work in one window, in tokens.")]


class SlidingLogTable(_Windowed):
    """At most the limit in any stretch of one window, exactly; whole tokens."""

    called = "a sliding_log limit"
    algorithm: Annotated[Literal["sliding_log"], key("sliding_log", "How the limit counts.")]
    window: Annotated[Length, key("10min", "The length of the window: 10min, 1 h.")]

    def limit_built(self) -> Limit:
        """The limit itself."""
        return SlidingLog(self.limit, self.window)  # type: ignore[arg-type]  # it refuses fractions itself


class FixedWindowTable(_Windowed):
    """At most the limit in each window; up to twice as much across a boundary."""

    called = "a fixed_window limit"
    algorithm: Annotated[Literal["fixed_window"], key("fixed_window", "How the limit counts.")]
    window: Annotated[
        str,
        reads(values.window, _WINDOW),
        key("10min", "A length (10min), or a calendar unit (day, week, month, year)."),
    ]
    zone: Annotated[
        str,
        reads(lambda value, _: values.text(value), {"type": "string", "pattern": r"\S"}),
        key("Europe/Berlin", "The time zone of a calendar unit."),
    ] = "UTC"

    def limit_built(self) -> Limit:
        """The limit itself."""
        return FixedWindow(self.limit, self.window, self.zone)


class SlidingWindowTable(_Windowed):
    """At most the limit by an estimate from two counters: smooth, small, not exact."""

    called = "a sliding_window limit"
    algorithm: Annotated[Literal["sliding_window"], key("sliding_window", "How the limit counts.")]
    window: Annotated[Length, key("10min", "The length of the window: 10min, 1 h.")]

    def limit_built(self) -> Limit:
        """The limit itself."""
        return SlidingWindow(self.limit, self.window)


_TABLE_OF: dict[str, type[LimitTable]] = {
    "token_bucket": TokenBucketTable,
    "leaky_bucket": LeakyBucketTable,
    "leaky_queue": LeakyQueueTable,
    "sliding_log": SlidingLogTable,
    "fixed_window": FixedWindowTable,
    "sliding_window": SlidingWindowTable,
}
ALGORITHMS = tuple(_TABLE_OF)

_EXAMPLE = "{algorithm: token_bucket, capacity: 20, rate: 5/s}"


def _limit(value: object, reading: Reading) -> Limit:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise values.refused(
                value, "a rule has one limit. Write one here, and one rule for each further limit"
            )
        raise values.refused(value, f"write a table, for instance {_EXAMPLE}")
    stated = table(_TABLE_OF[_algorithm_of(value, reading)], value, reading)
    try:
        return stated.limit_built()
    except LimitError as error:
        raise wrong_at([(place_named(str(error), value), str(error))], value) from error


def _algorithm_of(value: dict[str, object], reading: Reading) -> str:
    """The algorithm that a limit states; if it states none, what stands there in its place is unknown."""
    if "algorithm" in value:
        return table(_Algorithm, {"algorithm": value["algorithm"]}, reading).algorithm
    known = {name for kind in _TABLE_OF.values() for name in kind.model_fields}
    reading.tables[id(value)] = _Algorithm
    return table(
        _Algorithm, {name: inner for name, inner in value.items() if name not in known}, reading
    ).algorithm


class _Algorithm(Table):
    """The one key that all limits have; it tells which others there are."""

    called = "every limit"
    algorithm: Annotated[
        str,
        reads(lambda value, _: values.one_of(value, ALGORITHMS), {"enum": list(ALGORITHMS)}),
        key("token_bucket", "How the limit counts."),
    ]


AnyLimit: TypeAlias = Annotated[
    Limit,
    builds(
        _limit,
        tagged(
            "algorithm",
            TokenBucketTable
            | LeakyBucketTable
            | LeakyQueueTable
            | SlidingLogTable
            | FixedWindowTable
            | SlidingWindowTable,
        ),
    ),
]
