# Callers of one event loop travel together, and each is answered by himself.

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from tests.promptness import GRACE_S, best_s
from tests.stores.looping import on_a_loop
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.lane import Lane


class Journeys:
    """What a lane sends: a batch is held until it is let go, unless `at_once`; answers are items tenfold."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()
        self.under_way = 0
        self.most_under_way = 0
        if at_once:
            self.go.set()

    async def send(self, items: Sequence[int], until_s: float) -> list[int | StoreError]:
        self.batches.append(list(items))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            await self.go.wait()
        finally:
            self.under_way -= 1
        return [StoreError(f"{item} is negative") if item < 0 else item * 10 for item in items]


def soon(within_s: float = 10.0) -> float:
    return asyncio.get_running_loop().time() + within_s


@on_a_loop
async def test_callers_of_one_moment_share_a_batch() -> None:
    """A hundred tasks that ask in one turn of the loop leave together, in order."""
    journeys = Journeys()
    lane = Lane(journeys.send)
    answers = await asyncio.gather(*(_ask(lane, number) for number in range(100)))

    assert answers == [number * 10 for number in range(100)]
    assert journeys.batches == [list(range(100))]


@on_a_loop
async def test_batches_are_bounded_in_items_weight_and_number() -> None:
    """Ten items, or a weight of 100, a batch; two batches at a time."""
    journeys = Journeys()
    lane = Lane(journeys.send, items_most=10, weight_most=100, batches_most=2)
    await asyncio.gather(*(_ask(lane, number, weight=5 if number < 50 else 40) for number in range(60)))

    assert [len(batch) for batch in journeys.batches] == [10] * 5 + [2] * 5
    assert journeys.most_under_way == 2


@on_a_loop
async def test_an_answer_that_comes_later_holds_nobody_up() -> None:
    """Whoever waits for a future of his own waits alone: answered then, by his deadline, or when all ends."""
    later: list[asyncio.Future[int | StoreError]] = []

    async def send(items: Sequence[int], until_s: float) -> list[int | asyncio.Future[int | StoreError]]:
        later.extend(asyncio.get_running_loop().create_future() for item in items if item < 0)
        futures = iter(later[-sum(item < 0 for item in items) :])
        return [next(futures) if item < 0 else item * 10 for item in items]

    lane: Lane[int, int] = Lane(send)
    asked = [asyncio.ensure_future(_ask(lane, number)) for number in (1, -1, -2, 2, -3)]
    hasty = asyncio.ensure_future(_ask(lane, -4, within_s=0.05))
    assert [await asked[0], await asked[3]] == [10, 20]
    with pytest.raises(StoreUnavailable, match="in time"):
        await hasty
    later[0].set_result(7)
    later[1].set_result(StoreError("no"))

    assert await asked[1] == 7
    with pytest.raises(StoreError, match="no"):
        await asked[2]
    lane.close()
    with pytest.raises(StoreError, match="closed"):
        await asked[4]
    later[2].set_result(1)
    later[3].set_result(1)


@on_a_loop
async def test_an_item_too_heavy_for_any_batch_travels_alone() -> None:
    """It is not left behind for ever."""
    journeys = Journeys()
    lane = Lane(journeys.send, weight_most=100)
    await asyncio.gather(*(_ask(lane, number, weight=1_000) for number in range(3)))

    assert journeys.batches == [[0], [1], [2]]


@on_a_loop
async def test_one_that_fails_leaves_the_others_alone() -> None:
    """Its error is its own answer."""
    lane = Lane(Journeys().send)
    answers = await asyncio.gather(*(_ask(lane, item) for item in (1, -2, 3)), return_exceptions=True)

    assert answers[0] == 10
    assert answers[2] == 30
    assert str(answers[1]) == "-2 is negative"


@on_a_loop
async def test_a_batch_that_fails_is_everybodys_error() -> None:
    """An outage is told to each by an error of his own; so is what nobody expected."""

    async def fail(items: Sequence[int], until_s: float) -> list[int | StoreError]:
        raise StoreUnavailable("down", "connection") if items[0] else ZeroDivisionError("bug")

    lane: Lane[int, int] = Lane(fail, items_most=2)
    answers = await asyncio.gather(*(_ask(lane, item) for item in (1, 1, 0, 0)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2 + [ZeroDivisionError] * 2
    assert answers[0] is not answers[1]
    assert await asyncio.gather(_ask(lane, 1), return_exceptions=True)


def test_each_is_answered_by_its_own_deadline() -> None:
    """Whatever its batch does: three deadlines in one batch that never comes back."""
    assert best_s(lambda: asyncio.run(_latest_s()), within_s=GRACE_S) < GRACE_S


async def _latest_s() -> float:
    journeys = Journeys(at_once=False)
    lane = Lane(journeys.send)
    loop = asyncio.get_running_loop()

    async def wait(within_s: float) -> tuple[str, float]:
        begin_s = loop.time()
        with pytest.raises(StoreUnavailable) as raised:
            await lane.ask(1, 1, begin_s + within_s)
        return raised.value.cause, loop.time() - begin_s

    wanted = (0.06, 0.02, 0.04)
    answers = await asyncio.gather(*map(wait, wanted))
    journeys.go.set()

    late_s = [took_s - wanted_s for (_, took_s), wanted_s in zip(answers, wanted, strict=True)]
    assert [cause for cause, _ in answers] == ["deadline"] * 3
    assert min(late_s) >= 0
    return max(late_s)


@on_a_loop
async def test_who_never_left_is_told_too() -> None:
    """Items behind batches that hang end by their deadline, are counted, and are not sent afterwards."""
    journeys = Journeys(at_once=False)
    counted: list[int] = []
    lane = Lane(journeys.send, items_most=1, batches_most=1, late=counted.append)
    answers = await asyncio.gather(*(_ask(lane, item, 0.02) for item in range(3)), return_exceptions=True)
    journeys.go.set()
    answer = await _ask(lane, 7)

    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert sum(counted) == 2
    assert answer == 70
    assert journeys.batches == [[0], [7]]


@on_a_loop
async def test_a_loop_that_was_busy_takes_the_answer_that_has_come() -> None:
    """The answer and the end of the deadline are found in the same turn: the answer counts."""
    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    async def send(items: Sequence[int], until_s: float) -> list[int | StoreError]:
        await answered
        return [item * 10 for item in items]

    lane: Lane[int, int] = Lane(send)
    asked = lane.ask(1, 1, soon(0.02))
    await asyncio.sleep(0)
    loop.call_at(loop.time() + 0.01, answered.set_result, None)  # sooner, as sockets come before deadlines
    _spin(loop, 0.03)

    assert await asked == 10


@on_a_loop
async def test_the_queue_is_bounded() -> None:
    """Beyond it the answer is "busy", at once."""
    journeys = Journeys(at_once=False)
    lane = Lane(journeys.send, waiting_most=5)
    asked = [asyncio.ensure_future(lane.ask(number, 1, soon())) for number in range(5)]
    with pytest.raises(StoreUnavailable) as raised:
        await lane.ask(6, 1, soon())
    journeys.go.set()

    assert raised.value.cause == "busy"
    assert await asyncio.gather(*asked) == [0, 10, 20, 30, 40]


@on_a_loop
async def test_a_storm_of_cancellations() -> None:
    """Callers who leave at any moment disturb nobody: all others are answered, each with his own answer."""
    chance = random.Random(7)

    async def send(items: Sequence[int], until_s: float) -> list[int | StoreError]:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        return [item * 10 for item in items]

    lane: Lane[int, int] = Lane(send, items_most=16, batches_most=3)
    tasks = {number: asyncio.create_task(_ask(lane, number)) for number in range(2_000)}
    for number in chance.sample(range(2_000), 1_000):
        tasks[number].cancel()
        if chance.random() < 0.2:
            await asyncio.sleep(0)
    answers = await asyncio.gather(*tasks.values(), return_exceptions=True)

    assert all(
        answer == number * 10 or isinstance(answer, asyncio.CancelledError)
        for number, answer in enumerate(answers)
    )
    assert sum(isinstance(answer, int) for answer in answers) >= 1_000
    assert await _ask(lane, 3) == 30


@on_a_loop
async def test_who_has_left_before_is_not_sent() -> None:
    """Nothing is charged for a caller who was cancelled while he waited."""
    journeys = Journeys()
    lane = Lane(journeys.send)
    tasks = [asyncio.create_task(_ask(lane, number)) for number in range(4)]
    asyncio.get_running_loop().call_soon(tasks[2].cancel)
    await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)

    assert journeys.batches == [[0, 1, 3]]


@on_a_loop
async def test_closing_answers_everybody() -> None:
    """With an error that is a mistake and no outage; and later callers, too."""
    journeys = Journeys(at_once=False)
    lane = Lane(journeys.send, items_most=1, batches_most=1)
    tasks = [asyncio.create_task(_ask(lane, number)) for number in range(3)]
    await asyncio.sleep(0.001)
    lane.close()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    with pytest.raises(StoreError, match="closed"):
        await _ask(lane, 1)

    assert {type(answer) for answer in answers} == {StoreError}
    assert journeys.under_way == 0


async def _ask(lane: Lane[int, int], item: int, within_s: float = 10.0, weight: int = 1) -> int:
    return await lane.ask(item, weight, soon(within_s))


def _spin(loop: asyncio.AbstractEventLoop, s: float) -> None:
    """Keep the loop busy."""
    until_s = loop.time() + s
    while loop.time() < until_s:
        pass
