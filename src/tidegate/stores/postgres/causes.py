"""What an error means: an outage, with its cause, or a mistake.

An outage is what passes by itself or by somebody's work on the server: no connection, no answer in time, a
server that starts, is full, or is a standby. Each rule's outage rule then decides. A mistake is ours: a
schema that was never made, a role without permission. It is a plain StoreError and never taken for an
outage, so that no rule lets requests through because of a bug.

Errors of a statement are told by their SQLSTATE. An error of connecting has none that libpq would show, so
it is told by its English words; in another language it counts as "connection", which is an outage too.
"""

from __future__ import annotations

import re

from tidegate.errors import StoreError, StoreUnavailable

FORGOTTEN = "TG001"
"""A key that was there is not any more: to be looked at again. Raised by the functions of the schema."""
OTHER_VERSION = "TG002"
OTHER_ISOLATION = "TG003"
NOT_PREPARED, PREPARED_ALREADY = "26000", "42P05"
GAVE_UP, HELD = "57014", "55P03"
TOO_LONG = frozenset({GAVE_UP, HELD})
"""The server has waited for a row, perhaps, and then said that it has not done what it was asked."""
ROLLED_BACK = frozenset({FORGOTTEN, OTHER_ISOLATION, NOT_PREPARED, "40001", "40P01"})
"""After these nothing has been carried out, for certain, and the same may be asked again."""

_BY_STATE = {
    HELD: "busy",  # a lock was not free in time
    GAVE_UP: "busy",  # nor was the whole done in time, and the server said so
    "25006": "read_only",
    "53100": "out_of_memory",  # the disk is full
    "53200": "out_of_memory",
    "40001": "busy",
    "40P01": "busy",
    FORGOTTEN: "busy",
}
_BY_CLASS = {
    "08": "connection",
    "28": "authentication",
    "53": "busy",
    "57": "loading",  # shutting down, starting, dropped
    "58": "broken_reply",  # the server's disk or system
    "XX": "broken_reply",  # the server's own bug, or damaged data
}
_NOT_THERE = frozenset({"3F000", "42883", "42P01", "42704"})
_CONNECTING = (
    (
        "loading",
        re.compile(
            r"starting up|shutting down|in recovery mode|not (yet )?accepting connections", re.IGNORECASE
        ),
    ),
    ("busy", re.compile(r"too many (clients|connections)|connection slots|connection limit", re.IGNORECASE)),
    (
        "authentication",
        re.compile(
            r"authentication|pg_hba\.conf|no password supplied|role .* (does not exist|is not permitted)",
            re.IGNORECASE,
        ),
    ),
    ("read_only", re.compile(r"session is read-only|server is in hot standby mode", re.IGNORECASE)),
    ("connection", re.compile("", re.IGNORECASE)),
)
_NO_DATABASE = re.compile(r'database "?[^"]*"? does not exist', re.IGNORECASE)

UNDECIDED = {
    2: "a strict rule must not forget, and the tables are UNLOGGED: a crash empties them. Make them LOGGED "
    "(tidegate store init URL --logged), or allow it with may_forget",
    3: "a strict rule must not forget, and synchronous_commit is off: a crash loses the latest charges. "
    "Switch it on for this role, or allow it with may_forget",
    4: "a strict rule must not forget, and commits do not wait for the standbys: one may be promoted without "
    "the latest charges. Set synchronous_standby_names, or allow it with may_forget",
    5: "a strict rule must not forget, and fsync is off: a crash of the machine loses charges, and may "
    "damage the whole database. Switch it on, or allow it with may_forget",
}
"""What it means that a request was not decided, by the status in the reply."""


class Refused(Exception):
    """The server answered with an error; the transaction has been rolled back."""

    def __init__(self, state: str, message: str) -> None:
        self.state = state
        super().__init__(message)


class Lost(Exception):
    """There is no connection, or it broke: what was asked may have been carried out or not."""


class TimeUp(Exception):
    """The deadline is over, and no answer came."""


class Crowded(TimeUp):
    """The time went by in waiting for a connection, or a row, that others have: not the server's silence."""


def classified(error: Exception, schema: str) -> StoreError:
    """The StoreUnavailable or, for a mistake, the StoreError that says what this error means."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, Crowded):
        return StoreUnavailable(str(error), "busy")
    if isinstance(error, TimeUp):
        return StoreUnavailable(str(error) or "no answer came in time", "deadline")
    if isinstance(error, Lost):
        return _of_connecting(_shortened(error))
    assert isinstance(error, Refused), error
    return _of_statement(error.state, _shortened(error), schema)


def _of_statement(state: str, text: str, schema: str) -> StoreError:
    cause = _BY_STATE.get(state) or _BY_CLASS.get(state[:2])
    if cause is not None:
        return StoreUnavailable(f"{text} ({state})", cause)
    if state in _NOT_THERE:
        return StoreError(
            f"the schema {schema!r} is not there, or is not tidegate's: {text}; run: tidegate store init URL"
        )
    if state == OTHER_VERSION:
        return StoreError(
            f"{text}, which this version of tidegate does not know; run: tidegate store init URL"
        )
    if state == "42501":
        return StoreError(
            f"the role may not do this: {text}; grant it USAGE on the schema {schema!r} and EXECUTE on the "
            "functions that docs/postgres.md names"
        )
    return StoreError(f"the server refused what it was asked: {text} ({state})")


def _of_connecting(text: str) -> StoreError:
    if _NO_DATABASE.search(text):
        return StoreError(f"the server cannot be used: {text}")
    cause = next(cause for cause, words in _CONNECTING if words.search(text))
    return StoreUnavailable(text, cause)


def _shortened(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
