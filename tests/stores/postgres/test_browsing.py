# What operators see: keys page by page, one key's state, what is reset, and what the check says.

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.servers.postgres import Database, Postgres
from tests.stores.postgres.faces import Face, charge
from tidegate import FixedWindow, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.keys import key_of
from tidegate.core.limits import Limit
from tidegate.errors import StoreError
from tidegate.stores.postgres.browse import every_key, list_keys, reset_keys, show_key
from tidegate.stores.postgres.check import check

OpenedBlocking = Callable[..., Face]


@pytest.fixture
def face(made: Database, opened_blocking: OpenedBlocking) -> Face:
    """A store in which two rules have thirty keys each, and a third has two odd ones."""
    face = opened_blocking(made.unix_url)
    requests = [
        [charge(f"acme{number}", rule="per org"), charge(key_of((f"acme{number}", "bob")), rule="per user")]
        for number in range(30)
    ]
    face.decide_many([*requests, [charge("\0\ud800", rule="ödd")], [charge(b"", rule="ödd")]])
    return face


def test_all_keys_page_by_page(face: Face):
    """Each comes exactly once, in the order of rules, whatever the size of a page."""
    found = []
    cursor = None
    while True:
        page = list_keys(face.store, cursor=cursor, most=7)
        assert len(page.keys) <= 7
        found += page.keys
        cursor = page.cursor
        if cursor is None:
            break

    assert len(found) == len(set(found)) == 62
    assert [rule for rule, _ in found] == ["per org"] * 30 + ["per user"] * 30 + ["ödd"] * 2
    assert {key for rule, key in found if rule == "ödd"} == {"\0\ud800", b""}


def test_by_rule_and_prefix(face: Face):
    """A key of several values begins as its first value does."""
    by_rule = list_keys(face.store, "per user")
    by_prefix = list_keys(face.store, key_prefix="acme2")
    by_both = list_keys(face.store, "per user", "acme2")

    assert len(by_rule.keys) == 30
    assert len(by_prefix.keys) == 22
    assert len(by_both.keys) == 11
    assert by_both.keys[0] == ("per user", key_of(("acme2", "bob")))
    assert list_keys(face.store, "nobody").keys == list_keys(face.store, key_prefix="zz").keys == []


def test_a_cursor_of_others(face: Face):
    """It is refused."""
    for cursor in ("x", "00", "zz-00", "-"):
        if cursor == "-":
            assert list_keys(face.store, cursor=cursor).keys
            continue
        with pytest.raises(StoreError, match="cursor"):
            list_keys(face.store, cursor=cursor)


LIMITS: list[tuple[Limit, str]] = [
    (TokenBucket(10, "1/h"), "level"),
    (LeakyQueue(10, "1/h"), "level"),
    (FixedWindow(10, "1h"), "fixed_window"),
    (FixedWindow(10, "month", "Europe/Berlin"), "fixed_window"),
    (SlidingWindow(10, "1h"), "sliding_window"),
    (SlidingLog(10, "1h"), "sliding_log"),
]


@pytest.mark.parametrize(("limit", "algorithm"), LIMITS, ids=repr)
def test_one_key(opened_blocking: OpenedBlocking, made: Database, limit: Limit, algorithm: str):
    """Its row explains itself: the law that wrote it, and the state under it."""
    face = opened_blocking(made.unix_url)
    (outcome,) = face.decide([charge(limit=limit, cost=4)])
    shown = show_key(face.store, "rule", "acme")

    assert shown is not None
    assert (shown.algorithm, shown.capacity, shown.used) == (algorithm, 10_000, 4_000)
    assert (shown.at_us, shown.busy_since_us) == (outcome.state.at_us, outcome.state.busy_since_us)
    assert shown.state.law.capacity == limit.law.capacity
    assert shown.swept_at_us is not None
    assert shown.swept_at_us > outcome.now_us
    assert show_key(face.store, "rule", "nobody") is None


def test_resetting_by_prefix(face: Face):
    """Those keys are fresh, and no others."""
    count = reset_keys(face.store, "per org", "acme1")

    assert count == 11
    assert face.left("acme10", rule="per org") == 10
    assert face.left("acme2", rule="per org") == 9
    assert sum(len(page.keys) for page in every_key(face.store)) == 62


def grades(face: Face) -> dict[str, tuple[str, str]]:
    return {finding.what: (finding.grade, finding.value) for finding in check(face.store)}


def test_a_check(face: Face):
    """All that matters is looked at; what a crash would lose is a warning."""
    found = grades(face)

    assert found["version"][0] == found["clock"][0] == found["schema"][0] == found["functions"][0] == "ok"
    assert found["mode"] == ("ok", "primary")
    assert found["commits"][0] == "warning"  # the tests' server waits for no disk
    assert found["tables"][0] == "warning"
    assert found["epoch"] == ("ok", "since ever")


def test_a_check_of_an_empty_database(opened_blocking: OpenedBlocking, database: Database):
    """It says what to run."""
    found = {finding.what: finding for finding in check(opened_blocking(database.url).store)}

    assert found["schema"].grade == "error"
    assert "tidegate store init URL" in found["schema"].says


def test_a_check_of_nothing(opened_blocking: OpenedBlocking):
    """No server is an error too, and no exception."""
    (found,) = check(opened_blocking("postgresql://127.0.0.1:1/nobody").store)

    assert (found.what, found.grade, found.value) == ("connection", "error", "connection")


@pytest.mark.real_time
def test_a_check_of_a_standby(opened_blocking: OpenedBlocking, own_postgres: Callable[..., Postgres]):
    """A standby takes no charges."""
    from tests.stores.postgres.conftest import make

    primary = own_postgres()
    make(primary.url, logged=True)
    found = grades(opened_blocking(own_postgres(follows=primary).url))

    assert found["mode"] == ("error", "standby")
