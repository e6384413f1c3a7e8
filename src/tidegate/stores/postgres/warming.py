"""What a new session does before any caller has it: the first calls, which take far longer than later ones.

A session that has just begun reads the catalogs and compiles the functions: some milliseconds of work, which
become more than a deadline where many sessions begin at once. So it does that for nobody, by calls that find
nothing and write nothing.
"""

from __future__ import annotations

from functools import cache

from tidegate.core.limits import TokenBucket
from tidegate.core.outcome import Charge
from tidegate.stores.postgres.causes import GAVE_UP, Refused
from tidegate.stores.postgres.driver import Link
from tidegate.stores.postgres.ports import Port
from tidegate.stores.postgres.schema import statements
from tidegate.stores.postgres.wire import Ask, Calendars, Call, Parameters, encode_decide, encode_one

NOBODY = Charge("", b"", TokenBucket(1, "1/s"), 1_000)
"""A charge on a key that no rule has, for each rule has a name."""


async def warm(link: Link, port: Port, schema: str, until_s: float) -> None:
    """The session has done its first calls. What was answered does not matter; raises Lost or TimeUp."""
    for name, parameters in _first_calls():
        while True:
            try:
                await link.ask(port, statements(schema)[name], parameters, until_s)
            except Refused as error:
                if error.state == GAVE_UP and port.now_s() < until_s:
                    continue  # it took longer than a call may, and what has been done by then stays
            break


@cache
def _first_calls() -> list[tuple[str, Parameters]]:
    one = encode_one(NOBODY, None)
    assert one is not None
    return [
        ("decide", encode_decide([Ask([NOBODY], take=False)], Call(look_first=True), Calendars(), 0)),
        ("take_one", one),
    ]
