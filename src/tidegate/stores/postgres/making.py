"""Making the schema, and bringing one of an older version up to ours.

It is done by one explicit command and never by a decision, in one transaction, and as often as one likes:
what is there already stays, with all state. Only the functions are made anew.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.errors import StoreError
from tidegate.stores.postgres.causes import Refused
from tidegate.stores.postgres.schema import CHANGED, STEPS, init_script, version_script
from tidegate.stores.postgres.trips import Trips

WITHIN_S = 60.0
_TRIES = 3
_NOT_MADE = frozenset({"3F000", "42P01"})
_NOT_ALLOWED = "42501"


class Made(NamedTuple):
    """What `init` has found and left. `before` is the version that was there, 0 for none.

    `was_logged` says how the tables were before; None where there were none.
    """

    schema: str
    before: int
    version: int
    logged: bool
    was_logged: bool | None = None

    def __str__(self) -> str:
        kind = "LOGGED" if self.logged else "UNLOGGED"
        if self.was_logged is not None and self.logged != self.was_logged:
            tables = f"its tables were UNLOGGED and are {kind} now; a later init leaves them so"
        elif self.was_logged:
            tables = f"its tables are {kind}, and stay so"
        else:
            tables = f"its tables are {kind}"
        if self.before == self.version:
            return f"schema {self.schema!r} has version {self.version} already; {tables}"
        done = "made" if self.before == 0 else f"upgraded from version {self.before}"
        return f"schema {self.schema!r} {done}: version {self.version}, {tables}"


async def make(trips: Trips, schema: str, *, logged: bool) -> Made:
    """The schema is there, in our version. Raises StoreError, also for a version that is newer than ours.

    Tables that are UNLOGGED become LOGGED if that is wanted; LOGGED ones stay so.
    """
    try:
        return await _made(trips, schema, logged=logged)
    except StoreError as error:
        refused = error.__cause__
        if isinstance(refused, Refused) and refused.state == _NOT_ALLOWED:
            raise StoreError(
                f"the role may not make the schema {schema!r}: {refused}; init needs a role that may create "
                "a schema in this database (GRANT CREATE ON DATABASE), or that owns the one that is there"
            ) from refused
        raise


async def _made(trips: Trips, schema: str, *, logged: bool) -> Made:
    until_s = trips.until_s(int(WITHIN_S * 1_000_000))
    for tries_left in reversed(range(_TRIES)):
        before, is_logged = await _present(trips, schema, until_s)
        if before > len(STEPS):
            raise StoreError(
                f"the schema {schema!r} has version {before}, and this tidegate knows versions up to "
                f"{len(STEPS)}; upgrade tidegate"
            )
        become = logged if not before else True if logged and not is_logged else None
        try:
            await trips.run(init_script(schema, before, logged=become), until_s)
        except StoreError as error:
            if tries_left and isinstance(error.__cause__, Refused) and error.__cause__.state == CHANGED:
                continue  # another one was quicker
            raise
        was_logged = is_logged if before else None
        return Made(schema, before, len(STEPS), is_logged if become is None else become, was_logged)
    raise AssertionError("unreachable")


async def _present(trips: Trips, schema: str, until_s: float) -> tuple[int, bool]:
    """The version that is there, 0 for none, and whether its tables are logged."""
    try:
        ((number, logged),) = await trips.run(version_script(schema), until_s)
    except StoreError as error:
        if isinstance(error.__cause__, Refused) and error.__cause__.state in _NOT_MADE:
            return 0, False
        raise
    return int(number or b"0"), logged == b"t"
