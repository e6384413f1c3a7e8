"""How the server is asked, written once for both faces: encoded, sent, judged, and decoded.

One call is one statement, and one round trip. Nothing that may have been carried out is sent again; what is
sent a second time has been rolled back for certain: a deadlock, a key that was swept while it was looked
for, a prepared statement that the session did not have, an instant outside the calendar windows that went
along, a row that another transaction holds. And that only while the deadline allows it.

Who travels together does not wait long for a row that only some of them want: then these are left out and
asked once more, apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError, StoreUnavailable, TidegateError
from tidegate.stores.health import DECIDED, SILENT, proof_in
from tidegate.stores.lane import WEIGHT_MOST
from tidegate.stores.postgres.causes import (
    HELD,
    OTHER_ISOLATION,
    ROLLED_BACK,
    TOO_LONG,
    Crowded,
    Lost,
    Refused,
    TimeUp,
)
from tidegate.stores.postgres.driver import Row
from tidegate.stores.postgres.trips import Trips, ticks_us
from tidegate.stores.postgres.wire import (
    Ask,
    Call,
    Held,
    Missed,
    Parameters,
    broken,
    decode_adjust,
    decode_decide,
    encode_adjust,
    encode_decide,
    encode_forget,
    encode_one,
    instant_in,
)

ATTEMPTS_MOST = 4
ROUNDS_MOST = 3
CHARGES_MOST = 256
"""So many charges travel in one call, for it holds their locks until it ends."""
BYTES_A_CHARGE = 220
"""What a charge weighs beside its key."""

BRIEFLY = 0.2
"""The share of what time is left for which requests wait for a row that only some of them want."""
HALF = 0.4
"""And for one that all of them want: somewhat less than half of it, for one may wait twice (driver.py)."""

MISSED_AGAIN = "the calendar windows that were sent were missed again and again"


class Asking:
    """Asks on behalf of one face or loop."""

    def __init__(self, trips: Trips) -> None:
        self.trips = trips
        self.health = trips.health
        self._shared = trips.shared
        self._port = trips.port

    async def one(
        self, charges: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome]:
        """The outcomes of one request: what `decide` does, by a shorter way. Raises its error."""
        if len(charges) != 1 or not take:
            return await self._one(charges, now_us, take, until_s)
        stuck, key = self._shared.stuck, (charges[0].rule, charges[0].key)
        if not stuck.may_ask(key):
            busy = StoreUnavailable("others hold the row, and somebody waits for it already", "busy")
            raise self.trips.judged(busy, 1)
        is_held = False
        try:
            return await self._one(charges, now_us, take, until_s)
        except StoreUnavailable as error:
            cause = error.__cause__
            was_held = isinstance(cause, TimeUp) and stuck.knows(key)
            is_held = was_held or (isinstance(cause, Refused) and cause.state in TOO_LONG)
            raise
        finally:
            stuck.ended(key, is_held=is_held)

    async def _one(
        self, charges: Sequence[Charge], now_us: int | None, take: bool, until_s: float
    ) -> list[Outcome]:
        ask = Ask(charges, take)
        if charges and not self.health.is_open:
            shared, now_s = self._shared, self._port.now_s()
            keys = [(charge.rule, charge.key) for charge in charges]
            is_known = take and shared.familiar.knows(keys, now_s)
            name, parameters = "take_one", None
            if is_known and len(charges) == 1 and not shared.lock_timeout_ms:
                parameters = encode_one(charges[0], now_us)
            if parameters is None:
                name, call = "decide", self._call(now_us, look_first=not is_known)
                around_us = self._server_us() if now_us is None else now_us
                parameters = encode_decide((ask,), call, shared.calendars, around_us)
                name = _deciding(parameters)
            try:
                rows = await self.trips.exchanged(shared.statements[name], parameters, until_s)
                reply = _value(rows)
                answer = None if reply is None else decode_decide(reply, (ask,))[0]
            except Refused as error:
                shared.familiar.refused(keys)
                if error.state not in ROLLED_BACK:
                    raise self.trips.judged(error, 1) from error
            except (Lost, TimeUp, StoreUnavailable) as error:
                raise self.trips.judged(error, 1) from error
            else:
                if isinstance(answer, list):
                    self._heard((ask,), (keys,), (answer,), now_s)
                    return answer
                shared.familiar.refused(keys)
        (decided,) = await self.decide((ask,), now_us, until_s)
        if isinstance(decided, Exception):
            raise decided
        return decided

    async def decide(
        self, asks: Sequence[Ask], now_us: int | None, until_s: float
    ) -> list[list[Outcome] | TidegateError]:
        """The outcomes of each request, or in its place the error: of the store, or of the instant.

        Requests for rows that others hold for long are asked once more, apart, when the others are done.
        """
        answers: list[Any] = await self.together(asks, now_us, until_s)
        return await self._with_held(asks, answers, now_us, until_s)

    async def _with_held(
        self, asks: Sequence[Ask], answers: list[Any], now_us: int | None, until_s: float
    ) -> list[list[Outcome] | TidegateError]:
        held = [place for place, answer in enumerate(answers) if isinstance(answer, Held)]
        if held:
            again = await self.together([asks[place] for place in held], now_us, until_s, waits=True)
            for place, answer in zip(held, again, strict=True):
                answers[place] = answer
        return answers

    async def together(
        self, asks: Sequence[Ask], now_us: int | None, until_s: float, *, waits: bool = False
    ) -> list[list[Outcome] | TidegateError | Held]:
        """As `decide`; where others hold a row, those who want it are left out, unless all shall wait."""
        answers: list[Any] = [None if ask.charges else [] for ask in asks]
        waiting = [place for place, ask in enumerate(asks) if ask.charges]
        around_us = self._server_us() if now_us is None else now_us
        for _ in range(ROUNDS_MOST):
            missed: list[int] = []
            parts = _parts(asks, waiting)
            for part in parts:
                try:
                    chosen = [asks[place] for place in part]
                    decoded = await self._decided(chosen, now_us, around_us, until_s, waits=waits)
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
        """The same for any number, all within the deadline. After a call left unanswered none follows."""
        answers: list[Any] = []
        failed: StoreUnavailable | None = None
        until_s = self.trips.until_s(deadline_us)
        for part in _parts(asks, range(len(asks))):
            if failed is None and answers and self._port.now_s() >= until_s:  # the server is not to blame
                failed = StoreUnavailable("no time is left to ask for the rest of many", "deadline")
            if failed is None:
                chosen = [asks[place] for place in part]
                got = await self.together(chosen, now_us, until_s)
                failed = next(
                    (one for one in got if isinstance(one, StoreUnavailable) and _is_silence(one)), None
                )
                answers += got
            else:
                answers += [failed] * len(part)
        return await self._with_held(asks, answers, now_us, until_s)

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

    async def _decided(
        self, asks: Sequence[Ask], now_us: int | None, around_us: int, until_s: float, *, waits: bool
    ) -> list[Any]:
        """What one call answers to each request."""
        shared, now_s = self._shared, self._port.now_s()
        decoded: list[Any]
        keys = [[(charge.rule, charge.key) for charge in ask.charges] for ask in asks]
        is_known = any(ask.take for ask in asks) and all(shared.familiar.knows(some, now_s) for some in keys)
        call = self._call(now_us, look_first=not is_known)
        may_leave = not waits and any(some != keys[0] for some in keys)
        if may_leave or waits:
            share = BRIEFLY if may_leave else HALF
            call = call._replace(lock_timeout_ms=max(1, int((until_s - now_s) * 1_000 * share)))
        decoded = await self._called(
            "decide",
            partial(encode_decide, asks, calendars=shared.calendars, windows_at_us=around_us),
            partial(decode_decide, asks=asks),
            call,
            until_s,
            len(asks),
            may_leave=may_leave,
            waits=waits,
        )
        self._heard(asks, keys, decoded, now_s)
        return decoded

    def _heard(
        self,
        asks: Sequence[Ask],
        keys: Sequence[Sequence[tuple[str, Key]]],
        answers: Sequence[object],
        now_s: float,
    ) -> None:
        """A call was answered: tell the breaker, remember which keys were charged, and see to the sweep."""
        shared = self._shared
        if not self.health.is_well:
            self.health.answered(ticks_us(), proof_in(answers))
        for ask, some, answer in zip(asks, keys, answers, strict=True):
            if ask.take and isinstance(answer, list):
                if all(outcome.charged for outcome in answer):
                    shared.familiar.charged(some, now_s)
                else:
                    shared.familiar.refused(some)
        shared.attendant.see_to_sweep(self._port, self.trips)

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
        *,
        may_leave: bool = False,
        waits: bool = False,
    ) -> Any:
        """What a function of the schema answers, decoded. The breaker is asked before, and told after."""
        await self.trips.check(until_s)
        try:
            rows = await self._repeated(name, encode, call, until_s, may_leave)
            decoded = decode(_value(rows))
        except (Refused, Lost, TimeUp, StoreUnavailable) as error:
            was_held = waits and isinstance(error, TimeUp)
            why = Crowded("others hold the row, and it was not free in time") if was_held else error
            raise self.trips.judged(why, calls) from error
        if not self.health.is_well:
            self.health.answered(ticks_us(), proof_in(decoded) if isinstance(decoded, list) else DECIDED)
        return decoded

    async def _repeated(
        self, name: str, encode: Callable[..., Parameters], call: Call, until_s: float, may_leave: bool
    ) -> list[Row]:
        """The rows, asked for again where nothing has been carried out for certain."""
        for attempt in range(ATTEMPTS_MOST):
            parameters = encode(call=call)
            statement = self._shared.statements[_deciding(parameters) if name == "decide" else name]
            try:
                return await self.trips.exchanged(statement, parameters, until_s)
            except Refused as error:
                is_last = attempt == ATTEMPTS_MOST - 1 or self._port.now_s() >= until_s
                if error.state == HELD and may_leave and not call.leaves_held:
                    call = call._replace(leaves_held=True)
                elif error.state not in ROLLED_BACK or is_last:
                    raise
                if error.state == OTHER_ISOLATION:
                    self._shared.in_transactions = True
                call = call._replace(look_first=True)
        raise AssertionError("unreachable")

    def _server_us(self) -> int:
        """About where the server's clock is."""
        return _local_us() + self._shared.server_is_ahead_us


def _deciding(parameters: Parameters) -> str:
    """The function that these are for: where a key is named by its digest, it is told in full besides."""
    return "decide" if len(parameters) == 5 else "decide_named"


def _value(rows: Sequence[Row]) -> bytes | None:
    """The only value of the only row."""
    if len(rows) != 1 or len(rows[0]) != 1:
        raise broken(rows)
    return rows[0][0]


def _parts(asks: Sequence[Ask], waiting: Sequence[int]) -> list[list[int]]:
    """The requests that travel together."""
    parts: list[list[int]] = []
    room = bytes_left = 0
    for place in waiting:
        charges = asks[place].charges
        weight = weight_of(charges)
        if not parts or len(charges) > room or weight > bytes_left:
            parts.append([])
            room, bytes_left = CHARGES_MOST, WEIGHT_MOST
        parts[-1].append(place)
        room -= len(charges)
        bytes_left -= weight
    return parts


def weight_of(charges: Sequence[Charge]) -> int:
    """About how many bytes a request makes in a call."""
    return sum([BYTES_A_CHARGE + len(charge.key) for charge in charges])


def _is_silence(answer: object) -> bool:
    """Whether a part was not answered at all, so that it would be vain to send the next."""
    return isinstance(answer, StoreUnavailable) and answer.cause in {*SILENT, "breaker"}


def _local_us() -> int:
    return time.time_ns() // 1_000
