# The breaker of a store, on instants that are given.

from __future__ import annotations

import os

import pytest

from tidegate.errors import StoreUnavailable
from tidegate.stores.health import (
    CHARGED,
    DECIDED,
    FAILURES_TO_OPEN,
    OVERDUE_US,
    PROBE_EVERY_US,
    PROBE_LOST_US,
    PROBED,
    QUIET_US,
    Health,
)

SILENCE = StoreUnavailable("no answer", "deadline")
FULL = StoreUnavailable("no room", "out_of_memory")


@pytest.fixture
def health() -> Health:
    return Health("the store")


def test_failures_in_a_row_open_it(health: Health):
    """Three of them; an answer in between begins anew, be it an error that came in time."""
    for error in (SILENCE, SILENCE, None, SILENCE, SILENCE, FULL, SILENCE, SILENCE):
        health.answered(0) if error is None else health.failed(error, 0)
    assert not health.is_open
    health.check()
    health.failed(SILENCE, 0)

    with pytest.raises(StoreUnavailable) as raised:
        health.check()
    assert raised.value.cause == "breaker"


def test_calls_that_travelled_together_are_one_failure(health: Health):
    """A batch of a hundred that got no answer is counted as a hundred calls, and as one failure."""
    health.failed(SILENCE, 0, 100)

    assert not health.is_open
    assert health.stats().unavailable == {"deadline": 100}


def test_one_probe_at_a_time(health: Health):
    """At once after it opened, then every so often; not beside another one, unless that is lost."""
    for _ in range(FAILURES_TO_OPEN):
        health.failed(SILENCE, 0)

    assert health.take_probe(0)
    assert not health.take_probe(PROBE_EVERY_US)
    health.probed()
    assert not health.take_probe(PROBE_EVERY_US - 1)
    assert health.take_probe(PROBE_EVERY_US)
    assert not health.take_probe(PROBE_EVERY_US + PROBE_LOST_US - 1)
    assert health.take_probe(PROBE_EVERY_US + PROBE_LOST_US)


def test_an_answer_closes_it(health: Health):
    """Then there is nothing to probe."""
    for _ in range(FAILURES_TO_OPEN):
        health.failed(SILENCE, 0)
    health.answered(1)

    assert not health.is_open
    assert not health.take_probe(10 * PROBE_EVERY_US)
    health.check()


def test_an_outage_is_two_lines(health: Health, caplog: pytest.LogCaptureFixture):
    """However often it flickers: its begin, and its end once nothing has failed for a while."""
    for at_us in range(0, 3_000_000, 1_000):
        health.failed(SILENCE if at_us % 3_000 else FULL, at_us)
        health.answered(at_us + 500)
    health.answered(3_000_000 + QUIET_US)
    health.answered(3_000_000 + 2 * QUIET_US)

    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "answers again after 3.0 s; 3000 calls had no answer" in caplog.records[1].getMessage()
    assert health.stats().outages == 1
    assert health.is_well


def test_calls_not_sent_are_counted(health: Health):
    """Those that the open breaker has answered."""
    for _ in range(FAILURES_TO_OPEN):
        health.failed(SILENCE, 0)
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            health.check()

    assert health.stats().unavailable == {"deadline": 3, "breaker": 5}


def test_a_forked_child_begins_without_locks(health: Health):
    """A lock or a probe of another thread stays in the parent."""
    for _ in range(FAILURES_TO_OPEN):
        health.failed(SILENCE, 0)
    assert health.take_probe(0)
    with health._lock:
        child = os.fork()
        if child == 0:
            os._exit(health.take_probe(PROBE_EVERY_US))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_what_answers_where_charges_fail_does_not_end_an_outage(
    health: Health, caplog: pytest.LogCaptureFixture
):
    """It tells who has used up his budget, and answers probes; it is one outage until it charges."""
    for at_us in range(0, 20 * QUIET_US, 4 * QUIET_US):
        health.failed(FULL, at_us)
        for later in (1, 2, 3):
            health.answered(at_us + later * QUIET_US, DECIDED if later < 3 else PROBED)
    assert health.stats().outages == 1
    health.answered(21 * QUIET_US, CHARGED)
    health.answered(22 * QUIET_US, CHARGED)

    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_probe_closes_the_breaker_and_ends_no_outage(health: Health):
    """That takes a decision: probes may work where decisions do not."""
    for _ in range(FAILURES_TO_OPEN):
        health.failed(SILENCE, 0)
    for at_us in (1, QUIET_US + 1):
        health.answered(at_us, PROBED)
    assert not health.is_open
    assert not health.is_well
    for at_us in (2 * QUIET_US, 3 * QUIET_US):
        health.answered(at_us, DECIDED)

    assert health.is_well


def test_a_probe_is_overdue_where_nobody_probed(health: Health):
    """Then one caller may, before anybody is refused on old evidence."""
    for _ in range(FAILURES_TO_OPEN):
        health.failed(SILENCE, 1_000)
    assert not health.is_overdue(1_000 + OVERDUE_US)
    assert health.is_overdue(1_001 + OVERDUE_US)
    assert health.take_probe(1_001 + OVERDUE_US)

    assert not health.is_overdue(1_002 + OVERDUE_US)
    assert not health.take_probe(1_002 + OVERDUE_US)
