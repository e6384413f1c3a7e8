# The hammer: real threads and processes, two bounds, and an end in any case.

from __future__ import annotations

import time

import pytest

from tests.promptness import best_s
from tests.store_tools.broken import Away, Generous, Late
from tidegate import StoreError, StoreUnavailable
from tidegate.stores.memory import MemoryStore
from tidegate.testing.hammer import hammer


def open_memory(url: str) -> MemoryStore:
    """A store that says it is shared by processes, and is not."""
    store = MemoryStore()
    store.name = "pretended"
    return store


def open_failing(url: str) -> MemoryStore:
    """A store that every process but the first fails to open."""
    import multiprocessing

    if multiprocessing.parent_process() is not None:
        raise StoreError("the server is away")
    return open_memory(url)


@pytest.mark.real_time
def test_threads_get_exactly_the_limit():
    """C001: whatever the interleaving, what came through lies between the two bounds."""

    def apart_s() -> float:
        result = hammer("memory://", threads=4, seconds=0.3, capacity=50, rate="100/s")
        assert result.ok
        assert result.saturated
        assert 50 <= result.lower <= result.admitted <= result.upper
        assert result.calls == result.refused + result.admitted
        return (result.upper - result.lower) / 100

    assert best_s(apart_s, within_s=0.2) < 0.2, "the bounds say little"


@pytest.mark.real_time
def test_a_generous_store_is_found():
    """A store that admits more than the limit is above the upper bound."""
    result = hammer("memory://", threads=2, seconds=0.2, opener=lambda _: Generous())

    assert not result.ok
    assert result.admitted > result.upper


@pytest.mark.real_time
def test_calls_that_were_missed_may_have_been_charged():
    """The bound below is lower by just what they would have taken; they are neither admitted nor refused."""
    plain = hammer("late://", threads=2, seconds=0.3, rate="1/h", opener=lambda _: Late(0))
    result = hammer("late://", threads=2, seconds=0.3, rate="1/h", opener=lambda _: Late(30))

    assert (plain.missed, plain.admitted) == (0, 100)
    assert (result.missed, result.admitted, result.ok) == (30, 70, True)
    assert result.calls == result.refused + result.missed + result.admitted
    assert plain.lower - result.lower == pytest.approx(30, abs=0.01)


@pytest.mark.real_time
def test_too_little_is_found_among_missed_calls():
    """Missed calls excuse what they may have taken, and no more."""
    late = Late(30)
    late.decide_twice = True
    result = hammer("late://", threads=2, seconds=0.3, rate="1/h", opener=lambda _: late)

    assert (result.missed, result.admitted) == (30, 40)
    assert not result.ok


@pytest.mark.real_time
def test_a_store_that_answers_nothing():
    """Then there is no verdict at all: the reason is raised."""
    with pytest.raises(StoreUnavailable, match="is away"):
        hammer("late://", seconds=0.05, opener=lambda _: Away())


@pytest.mark.real_time
def test_processes_that_do_not_share_are_found():
    """A store that is not shared, though it says so, admits a capacity in each process: that is seen."""
    result = hammer("pretended://", processes=3, seconds=0.2, rate="1/s", opener=open_memory)

    assert (result.processes, result.errors) == (3, ())
    assert result.admitted >= 300
    assert not result.ok


@pytest.mark.real_time
def test_a_store_that_cannot_be_opened():
    """If processes fail to open the store the run ends soon, and says why."""
    began = time.monotonic()
    result = hammer("pretended://", processes=2, seconds=0.2, opener=open_failing)

    assert time.monotonic() - began < 25
    assert not result.ok
    assert "StoreError: the server is away" in result.errors


def test_several_processes_need_a_shared_store():
    """A memory store has a budget in each process, so several are refused before anything starts."""
    with pytest.raises(StoreError, match="8 processes would have a budget each; hammer it with --threads 8"):
        hammer("memory://", processes=8)


@pytest.mark.real_time
def test_without_saturation_there_is_no_bound_below():
    """If the limit was never reached, nothing is claimed of what should have been admitted."""
    result = hammer("memory://", seconds=0.05, capacity=10**6, rate="1000000/s")

    assert not result.saturated
    assert result.lower == 0
    assert result.ok


@pytest.mark.real_time
def test_the_key_is_forgotten():
    """Nothing is left of the key that was hammered."""
    store = MemoryStore()
    hammer("memory://", threads=2, seconds=0.05, opener=lambda _: store)
    states = [table.state(key) for table in store._tables.values() for key in table.cells]
    assert all(state.law.is_fresh(state) for state in states)
