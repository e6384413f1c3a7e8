"""A lane: callers of one event loop who ask at the same moment travel together, and are answered one by one.

What waits when the loop has run through its turn leaves as one batch. What comes while one is under way waits
until it is back, so that batches grow with the load by themselves; but not while a full batch waits, and not
for longer than `PAUSE_S`, so that a server far away is asked by several at once. A batch is bounded in items
and weight, and so are the batches under way and the items that wait.

Each item is answered by its own deadline, whatever its batch does. One timer serves them all. A caller who is
cancelled leaves the others alone: what has not left yet stays here, and what has left is answered for nobody.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from tidegate.errors import StoreError, StoreUnavailable

I = TypeVar("I")  # noqa: E741 - an item
A = TypeVar("A")

_Seat: TypeAlias = tuple[I, int, float, asyncio.Future[A]]
"""One caller's place: the item, its weight, when its time is over, and what he waits for."""

ITEMS_MOST = 128
WEIGHT_MOST = 65_536
BATCHES_MOST = 4
PAUSE_S = 0.002
WAITING_MOST = 20_000


class Lane(Generic[I, A]):
    """Batches for one destination on one event loop; used on that loop alone.

    `send(items, until_s)` answers a batch, an answer or a StoreError for each item, in order, or a future of
    either, for which that item alone waits, outside the bounds; it minds the deadline of the whole, which is
    the latest of the items'. `late` hears how many never left in time.
    """

    def __init__(
        self,
        send: Callable[[Sequence[I], float], Awaitable[Sequence[A | StoreError | asyncio.Future[Any]]]],
        *,
        late: Callable[[int], None] = lambda items: None,
        items_most: int = ITEMS_MOST,
        weight_most: int = WEIGHT_MOST,
        batches_most: int = BATCHES_MOST,
        pause_s: float = PAUSE_S,
        waiting_most: int = WAITING_MOST,
    ) -> None:
        self._send, self._late = send, late
        self._items_most, self._weight_most = items_most, weight_most
        self._batches_most, self._waiting_most = batches_most, waiting_most
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Seat[I, A]] = deque()
        self._travelling: dict[asyncio.Task[None], list[_Seat[I, A]]] = {}
        self._apart: dict[asyncio.Future[A], _Seat[I, A]] = {}  # who waits for a future of his own
        self._leaving: asyncio.Handle | None = None  # who will look at what waits
        self._is_pausing = False  # whether that is later than at the end of this turn of the loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        self._is_closed = False

    def ask(self, item: I, weight: int, until_s: float) -> Awaitable[A]:
        """The answer to the item, or its StoreError; by `until_s` (of the loop's time) in any case."""
        if self._is_closed:
            raise StoreError("the store is closed")
        if len(self._waiting) >= self._waiting_most:
            raise StoreUnavailable(f"{len(self._waiting)} decisions wait already", "busy")
        future: asyncio.Future[A] = self._loop.create_future()
        self._waiting.append((item, weight, until_s, future))
        if self._leaving is None or self._is_pausing:
            self._call()
        if until_s < self._timer_at_s:
            self._set_timer(until_s)
        return future

    def close(self) -> None:
        """Answer everybody with a StoreError and stop what is under way."""
        self._is_closed = True
        for handle in (self._timer, self._leaving):
            if handle is not None:
                handle.cancel()
        for task in self._travelling:
            task.cancel()
        for seat in self._all():
            _settle(seat[3], StoreError("the store was closed meanwhile"))
        self._waiting.clear()

    def _call(self) -> None:
        """Have what waits leave: at the end of this turn if it may, else after a pause."""
        under_way = len(self._travelling)
        if under_way and len(self._waiting) < self._items_most:
            if self._leaving is None and under_way < self._batches_most:
                self._leaving, self._is_pausing = self._loop.call_later(self._pause_s, self._leave), True
        elif under_way < self._batches_most:
            if self._leaving is not None:
                self._leaving.cancel()
            self._leaving, self._is_pausing = self._loop.call_soon(self._leave), False

    def _leave(self) -> None:
        """Send what waits, as long as batches may leave."""
        self._leaving = None
        while self._waiting and len(self._travelling) < self._batches_most and not self._is_closed:
            seats: list[_Seat[I, A]] = []
            weight = 0
            while self._waiting and len(seats) < self._items_most:
                seat = self._waiting[0]
                if seats and weight + seat[1] > self._weight_most:
                    break
                self._waiting.popleft()
                if not seat[3].done():
                    seats.append(seat)
                    weight += seat[1]
            if seats:
                task = self._loop.create_task(self._travel(seats))
                self._travelling[task] = seats
                task.add_done_callback(self._arrived)

    async def _travel(self, seats: list[_Seat[I, A]]) -> None:
        try:
            answers = await self._send([seat[0] for seat in seats], max([seat[2] for seat in seats]))
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
            self._free()
            for seat in seats:
                _settle(seat[3], error)
            return
        self._free()
        for seat, answer in zip(seats, answers, strict=True):
            if isinstance(answer, asyncio.Future):
                self._follow(seat, answer)
            else:
                _settle(seat[3], answer)

    def _follow(self, seat: _Seat[I, A], answer: asyncio.Future[Any]) -> None:
        future = seat[3]
        self._apart[future] = seat

        def arrived(answer: asyncio.Future[Any]) -> None:
            self._apart.pop(future, None)
            ended = StoreError("the event loop ended the call")
            _settle(future, ended if answer.cancelled() else answer.exception() or answer.result())

        answer.add_done_callback(arrived)

    def _free(self) -> None:
        """The batch of this task is back: callers who are answered now may leave with the next at once."""
        task = asyncio.current_task()
        assert task is not None
        self._travelling.pop(task, None)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        for seat in self._travelling.pop(task, ()):  # its task was cancelled, by whoever ends the loop
            _settle(seat[3], StoreError("the event loop ended the call"))
        if self._waiting and not self._is_closed and (self._leaving is None or self._is_pausing):
            self._call()

    def _all(self) -> list[_Seat[I, A]]:
        travelling = (seat for seats in self._travelling.values() for seat in seats)
        return [*self._waiting, *travelling, *self._apart.values()]

    def _set_timer(self, until_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A loop that was busy finds an answer and a deadline in the same turn: the answer goes first.
        self._timer = self._loop.call_at(until_s, self._loop.call_soon, self._expire)
        self._timer_at_s = until_s

    def _expire(self) -> None:
        """Answer whoever's time is over, and wait for the next."""
        self._timer, self._timer_at_s = None, math.inf
        now_s, next_s = self._loop.time(), math.inf
        self._late(sum(until_s <= now_s and not future.done() for _, _, until_s, future in self._waiting))
        for _, _, until_s, future in self._all():
            if future.done():
                continue
            if until_s <= now_s:
                _settle(future, StoreUnavailable("no answer came in time", "deadline"))
            elif until_s < next_s:
                next_s = until_s
        if next_s < math.inf:
            self._set_timer(next_s)


def own(error: StoreError) -> StoreError:
    """The same error for one of several callers: each raise adds to an error where it was raised."""
    if isinstance(error, StoreUnavailable):
        copied: StoreError = StoreUnavailable(str(error), error.cause)
    else:
        copied = StoreError(str(error))
    copied.__cause__ = error.__cause__
    return copied


def _settle(future: asyncio.Future[A], answer: A | Exception) -> None:
    """Answer the caller, unless he has been answered or has left. Errors are his own to raise."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(own(answer) if isinstance(answer, StoreError) else answer)
    else:
        future.set_result(answer)
