"""How the server is asked, written once for both faces: encoded, sent, judged, and decoded.

One call is one statement, and one round trip. Nothing that may have been carried out is sent again; what is
sent a second time has been rolled back for certain: a deadlock, a key that was swept while it was looked
for, a prepared statement that the session did not have, an instant outside the calendar windows that went
along. And that only while the deadline allows it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Outcome
from tidegate.errors import StoreError, StoreUnavailable, TidegateError
from tidegate.stores.health import SILENT, Health
from tidegate.stores.postgres.address import Options
from tidegate.stores.postgres.attending import Attendant
from tidegate.stores.postgres.causes import (
    OTHER_ISOLATION,
    ROLLED_BACK,
    Lost,
    Refused,
    TimeUp,
    classified,
)
from tidegate.stores.postgres.driver import Link, Row, Statement
from tidegate.stores.postgres.familiar import Familiar
from tidegate.stores.postgres.pool import Pool
from tidegate.stores.postgres.ports import Port
from tidegate.stores.postgres.schema import statements
from tidegate.stores.postgres.wire import (
    Ask,
    Calendars,
    Call,
    Missed,
    Parameters,
    broken,
    decode_adjust,
    decode_decide,
    encode_adjust,
    encode_decide,
    encode_forget,
    instant_in,
)

ATTEMPTS_MOST = 4
ROUNDS_MOST = 3
CHARGES_MOST = 256
"""So many charges travel in one call, for it holds their locks until it ends."""

MISSED_AGAIN = "the calendar windows that were sent were missed again and again"

FORGETFUL = frozenset({"read_only", "authentication", "loading"})
"""After these the connections are not used again: another server may have the name by now."""


class Shared:
    """What the faces and loops of one store have in common."""

    def __init__(self, options: Options, health: Health, *, is_lent: bool) -> None:
        self.options = options
        self.health = health
        self.is_lent = is_lent
        self.attendant = Attendant(health)
        self.statements = statements(options.schema)
        self.calendars = Calendars()
        self.familiar = Familiar()
        self.server_is_ahead_us = 0
        self.in_transactions = False  # whether the sessions have another isolation level than we need

    @property
    def lock_timeout_ms(self) -> int:
        """What each call says itself, where the session is not ours to be told."""
        told = self.is_lent or not self.options.prepare
        return -(-self.options.deadline_us // 1_000) if told else 0


class Asking:
    """Asks on behalf of one face or loop."""

    def __init__(self, shared: Shared, port: Port, pool: Pool) -> None:
        self._shared = shared
        self._port = port
        self.pool = pool
        self.health = shared.health

    def check(self) -> None:
        """Raise StoreUnavailable at once while the breaker is open; then the server is being probed."""
        if self.health.is_open:
            self._shared.attendant.see_to_probe(self._port, self)
            self.health.check()

    def failed(self, error: StoreUnavailable, calls: int = 1) -> None:
        """Tell the breaker that so many callers got no usable answer."""
        was_open = self.health.is_open
        self.health.failed(error, _now_us(), calls)
        if error.cause in FORGETFUL or (self.health.is_open and not was_open):
            self.pool.renew()

    def until_s(self, deadline_us: int | None) -> float:
        """When a call that begins now must have ended."""
        us = self._shared.options.deadline_us if deadline_us is None else deadline_us
        return self._port.now_s() + us / 1_000_000

    async def decide(
        self, asks: Sequence[Ask], now_us: int | None, until_s: float
    ) -> list[list[Outcome] | TidegateError]:
        """The outcomes of each request, or in its place the error: of the store, or of the instant."""
        answers: list[Any] = [None if ask.charges else [] for ask in asks]
        waiting = [place for place, ask in enumerate(asks) if ask.charges]
        around_us = self._server_us() if now_us is None else now_us
        for _ in range(ROUNDS_MOST):
            missed: list[int] = []
            parts = _parts(asks, waiting)
            for part in parts:
                try:
                    chosen = [asks[place] for place in part]
                    decoded = await self._decided(chosen, now_us, around_us, until_s)
                except TidegateError as error:
                    if len(part) > 1 and not isinstance(
                        error, StoreError
                    ):  # one of them cannot be written down
                        parts += [[place] for place in part]
                        continue
                    decoded = [error] * len(part)
                for place, answer in zip(part, decoded, strict=True):
                    answers[place] = answer
                    if isinstance(answer, Missed):
                        missed.append(place)
                        around_us = answer.at_us
            if not missed:
                return answers
            waiting = missed
            if now_us is None:
                self._shared.server_is_ahead_us = around_us - _local_us()
        for place in waiting:
            answers[place] = StoreError(MISSED_AGAIN)
        return answers

    async def decide_many(
        self, asks: Sequence[Ask], now_us: int | None, deadline_us: int | None
    ) -> list[list[Outcome] | TidegateError]:
        """The same for any number. The deadline is that of a call; after one left unanswered none follows."""
        answers: list[list[Outcome] | TidegateError] = []
        failed: StoreUnavailable | None = None
        for part in _parts(asks, range(len(asks))):
            if failed is None:
                chosen = [asks[place] for place in part]
                got = await self.decide(chosen, now_us, self.until_s(deadline_us))
                failed = next(
                    (one for one in got if isinstance(one, StoreUnavailable) and _is_silence(one)), None
                )
                answers += got
            else:
                answers += [failed] * len(part)
        return answers

    async def adjust(
        self, adjustments: Sequence[Adjustment], now_us: int | None, until_s: float
    ) -> list[int]:
        """The units by which each level went down. Raises StoreError, or LimitError of the instant."""
        if not adjustments:
            return []
        answers: list[Any] = [None] * len(adjustments)
        waiting = list(range(len(adjustments)))
        around_us = self._server_us() if now_us is None else now_us
        for _ in range(ROUNDS_MOST):
            chosen = [adjustments[place] for place in waiting]
            decoded = await self._called(
                "adjust",
                partial(encode_adjust, chosen, calendars=self._shared.calendars, windows_at_us=around_us),
                partial(decode_adjust, adjustments=chosen),
                self._call(now_us),
                until_s,
            )
            for place, answer in zip(waiting, decoded, strict=True):
                answers[place] = answer
            waiting = [place for place in waiting if isinstance(answers[place], Missed)]
            if not waiting:
                return answers
            around_us = answers[waiting[0]].at_us
        raise StoreError(MISSED_AGAIN)

    async def forget(self, keys: Sequence[tuple[str, Key]], until_s: float) -> None:
        """Make these keys fresh. Raises StoreError."""
        for begin in range(0, len(keys), CHARGES_MOST):
            some = keys[begin : begin + CHARGES_MOST]
            await self._called("forget", partial(encode_forget, some), instant_in, self._call(None), until_s)

    async def sweep(self, rows_most: int, until_s: float) -> int:
        """Delete rows of keys that are fresh, at most so many; how many there were. Raises StoreError."""
        ((gone,),) = await self.function("sweep", (rows_most.to_bytes(4, "big"), None), until_s)
        return int.from_bytes(gone or b"", "big")

    async def rows(
        self, statement: Statement, parameters: Sequence[bytes | None], until_s: float
    ) -> list[Row]:
        """The rows of what is no decision: the breaker is neither asked nor told. Raises StoreError."""
        try:
            return await self._exchanged(statement, parameters, until_s)
        except (Refused, Lost, TimeUp) as error:
            raise classified(error, self._shared.options.schema) from error

    async def function(self, name: str, parameters: Sequence[bytes | None], until_s: float) -> list[Row]:
        """The rows that a function of the schema returns. Raises StoreError."""
        return await self.rows(self._shared.statements[name], parameters, until_s)

    async def nothing(self, until_s: float) -> None:
        """Have nothing decided, as a measure of a call. Raises StoreError."""
        await self.function("decide", _nothing(self._shared.calendars), until_s)

    async def run(self, script: bytes, until_s: float) -> list[Row]:
        """The rows, as text, of the last statement of a script. Raises StoreError."""
        try:
            return await self._by_link(lambda link: link.run(self._port, script, until_s), until_s)
        except (Refused, Lost, TimeUp) as error:
            raise classified(error, self._shared.options.schema) from error

    async def probe(self, until_s: float) -> None:
        """Ask for a decision about nothing, and tell the breaker if it was answered as soon as one must be.

        To get a connection may take longer, until then.
        """
        shared, port = self._shared, self._port
        parameters = _nothing(shared.calendars)
        try:
            await self._by_link(
                lambda link: link.ask(port, shared.statements["decide"], parameters, self.until_s(None)),
                until_s,
            )
        except (Refused, Lost, TimeUp, StoreError) as error:
            if isinstance(classified(error, shared.options.schema), StoreUnavailable):
                return
        self.health.answered(_now_us())

    async def _decided(
        self, asks: Sequence[Ask], now_us: int | None, around_us: int, until_s: float
    ) -> list[Any]:
        """What one call answers to each request."""
        shared, now_s = self._shared, self._port.now_s()
        decoded: list[Any]
        keys = [[(charge.rule, charge.key) for charge in ask.charges] for ask in asks]
        is_known = any(ask.take for ask in asks) and all(shared.familiar.knows(some, now_s) for some in keys)
        decoded = await self._called(
            "decide",
            partial(encode_decide, asks, calendars=shared.calendars, windows_at_us=around_us),
            partial(decode_decide, asks=asks),
            self._call(now_us, look_first=not is_known),
            until_s,
            len(asks),
        )
        shared.attendant.see_to_sweep(self._port, self)
        for ask, some, answer in zip(asks, keys, decoded, strict=True):
            if ask.take and isinstance(answer, list):
                if all(outcome.charged for outcome in answer):
                    shared.familiar.charged(some, now_s)
                else:
                    shared.familiar.refused(some)
        return decoded

    def _call(self, now_us: int | None, *, look_first: bool = False) -> Call:
        shared = self._shared
        return Call(now_us, look_first, shared.options.may_forget, shared.lock_timeout_ms)

    async def _called(
        self,
        name: str,
        encode: Callable[..., Parameters],
        decode: Callable[[object], Any],
        call: Call,
        until_s: float,
        calls: int = 1,
    ) -> Any:
        """What a function of the schema answers, decoded. The breaker is asked before, and told after."""
        shared, health = self._shared, self.health
        self.check()
        try:
            rows = await self._repeated(shared.statements[name], encode, call, until_s)
            if len(rows) != 1 or len(rows[0]) != 1:
                raise broken(rows)
            decoded = decode(rows[0][0])
        except (Refused, Lost, TimeUp, StoreUnavailable) as error:
            problem = classified(error, shared.options.schema)
            if isinstance(problem, StoreUnavailable):
                self.failed(problem, calls)
            else:
                health.answered(_now_us())
            raise problem from error
        if not health.is_well:
            health.answered(_now_us())
        return decoded

    async def _repeated(
        self, statement: Statement, encode: Callable[..., Parameters], call: Call, until_s: float
    ) -> list[Row]:
        """The rows, asked for again where nothing has been carried out for certain."""
        for attempt in range(ATTEMPTS_MOST):
            parameters = encode(call=call)
            try:
                return await self._exchanged(statement, parameters, until_s)
            except Refused as error:
                is_last = attempt == ATTEMPTS_MOST - 1 or self._port.now_s() >= until_s
                if error.state not in ROLLED_BACK or is_last:
                    raise
                if error.state == OTHER_ISOLATION:
                    self._shared.in_transactions = True
                call = call._replace(look_first=True)
        raise AssertionError("unreachable")

    async def _exchanged(
        self, statement: Statement, parameters: Sequence[bytes | None], until_s: float
    ) -> list[Row]:
        """The rows of one statement."""
        in_transaction = self._shared.in_transactions
        return await self._by_link(
            lambda link: link.ask(self._port, statement, parameters, until_s, in_transaction=in_transaction),
            until_s,
        )

    async def _by_link(self, work: Callable[[Link], Awaitable[list[Row]]], until_s: float) -> list[Row]:
        """What comes of work with a link, which is dropped if that is anything but an answer."""
        pool = self.pool
        link = await pool.take(until_s)
        try:
            if link.allowed_ms and (until_s - self._port.now_s()) * 1_000 > link.allowed_ms + 1:
                await link.allow(self._port, until_s)
            rows = await work(link)
        except Refused:
            await pool.give(link)
            raise
        except BaseException:
            link.drop()
            await pool.give(link)
            raise
        await pool.give(link)
        return rows

    def _server_us(self) -> int:
        """About where the server's clock is."""
        return _local_us() + self._shared.server_is_ahead_us


def _nothing(calendars: Calendars) -> Parameters:
    """A call that decides nothing: it fails where decisions would."""
    return encode_decide([], Call(look_first=True), calendars, 0)


def _parts(asks: Sequence[Ask], waiting: Sequence[int]) -> list[list[int]]:
    """The requests that travel together."""
    parts: list[list[int]] = []
    room = 0
    for place in waiting:
        if not parts or len(asks[place].charges) > room:
            parts.append([])
            room = CHARGES_MOST
        parts[-1].append(place)
        room -= len(asks[place].charges)
    return parts


def _is_silence(answer: object) -> bool:
    """Whether a part was not answered at all, so that it would be vain to send the next."""
    return isinstance(answer, StoreUnavailable) and answer.cause in {*SILENT, "breaker"}


def _local_us() -> int:
    return time.time_ns() // 1_000


def _now_us() -> int:
    return time.monotonic_ns() // 1_000
