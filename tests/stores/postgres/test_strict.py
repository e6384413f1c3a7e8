# Strict rules: what a store must not forget, and what it counts when it did.

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.servers.postgres import Database, Postgres
from tests.servers.redis_groups import wait_for
from tests.stores.postgres.conftest import make
from tests.stores.postgres.faces import TEN, Face, charge
from tidegate import FixedWindow, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.compose import Adjustment
from tidegate.core.law import Receipt
from tidegate.core.limits import Limit
from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.postgres.browse import list_keys, show_key
from tidegate.stores.postgres.check import check

Opened = Callable[..., Face]
US = 1_000_000
START_US = 1_700_000_000 * US


def epoch(postgres: Postgres, made: Database, us: int | None) -> None:
    """Let nothing have been lost since then; None: that is not known any more."""
    postgres.sql("DELETE FROM tidegate.epoch", url=made.unix_url)
    if us is not None:
        postgres.sql("INSERT INTO tidegate.epoch (since_us) VALUES (%s)", us, url=made.unix_url)


def test_unlogged_tables_are_refused(opened: Opened, made: Database):
    """A strict rule does not rely on tables that a crash empties; other requests of the call are decided."""
    store = opened(made.url)
    answers = store.decide_many([[charge("a")], [charge("b"), charge("c", strict=True)], [charge("d")]])

    assert [isinstance(answer, StoreError) for answer in answers] == [False, True, False]
    assert not isinstance(answers[1], StoreUnavailable)
    assert "UNLOGGED" in str(answers[1])
    assert store.left("b") == 10
    with pytest.raises(StoreError, match="UNLOGGED"):
        store.decide([charge(strict=True)], take=False)


def test_they_may_be_allowed(opened: Opened, made: Database):
    """`may_forget` says that a loss is taken into account."""
    store = opened(made.url, may_forget=True)

    assert [store.takes(strict=True, cost=5) for _ in range(3)] == [True, True, False]


@pytest.fixture(scope="module")
def careful() -> Iterator[Postgres]:
    """A server that waits for its disk, as servers do unless they are told otherwise."""
    with Postgres(fsync="on", full_page_writes="on") as server:
        yield server


def test_logged_tables_are_fine(opened: Opened, careful: Postgres):
    """A strict rule relies on tables whose commits wait for the disk."""
    with careful.database() as database:
        make(database.url, logged=True)
        store = opened(database.url, deadline="10s")

        assert [store.takes(strict=True, cost=5) for _ in range(3)] == [True, True, False]


def test_commits_that_do_not_wait_are_refused(opened: Opened, database: Database, postgres: Postgres):
    """With synchronous_commit off the latest charges could be lost."""
    make(database.url, logged=True)
    postgres.sql(f"ALTER ROLE {database.role} SET synchronous_commit = off")
    store = opened(database.url)

    assert store.takes()
    with pytest.raises(StoreError, match="synchronous_commit"):
        store.takes(strict=True)
    assert opened(database.url, may_forget=True).takes(strict=True)


def test_a_disk_that_is_not_waited_for_is_refused(opened: Opened, database: Database):
    """With fsync off a commit is not on disk when it is answered, also with LOGGED tables."""
    make(database.url, logged=True)
    store = opened(database.url)
    answers = store.decide_many([[charge("plain")], [charge(strict=True)]])

    assert [isinstance(answer, StoreError) for answer in answers] == [False, True]
    assert not isinstance(answers[1], StoreUnavailable)
    with pytest.raises(StoreError, match="fsync is off"):
        store.decide([charge(strict=True)], take=False)
    assert opened(database.url, may_forget=True).takes(strict=True)
    told = [finding.says for finding in check(store.store) if finding.what == "commits"]
    assert any("strict rules refuse it" in says for says in told)


def test_standbys_that_are_not_waited_for_are_refused(opened: Opened, own_postgres: Callable[..., Postgres]):
    """A standby may be promoted without the latest charges, unless commits wait for it."""
    server = own_postgres(fsync="on")
    made = server.create_database()
    make(made.url, logged=True)
    store = opened(made.url, deadline="10s")
    assert store.takes(strict=True)
    own_postgres(follows=server)

    with pytest.raises(StoreError, match="do not wait for the standbys"):
        store.takes(strict=True)
    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    server.sql("SELECT pg_reload_conf()")
    wait_for("commits wait", lambda: server.sql("SHOW synchronous_standby_names") == [("*",)])
    assert opened(made.url, deadline="10s").takes(strict=True)


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        (TokenBucket(10, "1/s"), 4),
        (TEN, 0),
        (FixedWindow(10, "7s"), 10),
        (FixedWindow(10, "1h"), 0),
        (FixedWindow(10, "day"), 0),
        (SlidingWindow(10, "1min"), 0),
        (SlidingLog(10, "1min"), 0),
        (SlidingLog(10, "4s"), 10),
    ],
    ids=repr,
)
def test_what_is_not_known_counts_as_used(
    opened: Opened, postgres: Postgres, made: Database, limit: Limit, left: int
):
    """Four seconds after the store began to remember, an unknown key has refilled for so long."""
    epoch(postgres, made, START_US)
    store = opened(made.url, may_forget=True)
    strict, plain = (
        store.decide([charge(key, limit=limit, strict=key == "strict")], START_US + 4 * US, take=False)[0]
        for key in ("strict", "plain")
    )

    assert strict.remaining == left
    assert plain.remaining == 10


def test_nothing_was_ever_lost(opened: Opened, made: Database):
    """After `init` a strict rule begins full, also one that no time refills."""
    store = opened(made.url, may_forget=True)

    assert store.left(strict=True) == 10
    assert store.left("other", strict=True, limit=TokenBucket(10, "1/h")) == 10


@pytest.mark.parametrize("begin", ["a refusal", "a charge on top"])
def test_a_loss_is_noticed_at_the_first_call(opened: Opened, postgres: Postgres, made: Database, begin: str):
    """Where the epoch is gone, everything is: from the first call on, that too when it is refused."""
    epoch(postgres, made, None)
    store = opened(made.url, may_forget=True)
    limit = TokenBucket(10, "1/s")
    if begin == "a refusal":
        assert not store.decide([charge(limit=limit, strict=True)], START_US)[0].allowed
    else:
        owed = Adjustment(charge(limit=limit, strict=True), Receipt(1_000, 0, 0), 1_000 * 1_000, debt=0)
        assert store.adjust([owed], START_US) == [0]
    later = store.decide([charge("another", 3, limit=limit, strict=True)], START_US + 3 * US)

    assert later[0].allowed
    assert later[0].remaining == 0
    assert postgres.sql("SELECT since_us FROM tidegate.epoch", url=made.unix_url) == [(START_US,)]


def test_looking_does_not_begin_an_epoch(opened: Opened, postgres: Postgres, made: Database):
    """A look at a strict key of a store that has lost everything finds nothing left, and writes nothing."""
    epoch(postgres, made, None)
    store = opened(made.url, may_forget=True)

    assert store.left(strict=True) == 0
    assert postgres.sql("SELECT count(*) FROM tidegate.epoch", url=made.unix_url) == [(0,)]


@pytest.mark.real_time
def test_after_a_crash_strict_rules_begin_empty(opened: Opened, victim: Postgres):
    """UNLOGGED tables lose the epoch together with the rest; others begin full."""
    store = opened(victim.url, deadline="5s", may_forget=True)
    assert store.takes(strict=True)
    victim.kill()
    victim.start()

    assert not store.takes(strict=True)
    assert store.takes("plain")
    make(victim.url)  # making it again pretends nothing
    assert not store.takes(strict=True)


EVERY: tuple[Limit, ...] = (
    *(TokenBucket(10, "1/h"), TEN, LeakyQueue(10, "1/h"), FixedWindow(10, "1h")),
    *(FixedWindow(10, "month", "Europe/Berlin"), SlidingWindow(10, "1h"), SlidingLog(10, "1h")),
)


class TestReset:
    """0015: what was lost counts as used up until it is reset, and a reset is not taken for a loss."""

    @pytest.fixture
    def lossy(self, opened: Opened, postgres: Postgres, made: Database) -> Face:
        """A store that has lost everything, as a crash of the server loses it."""
        epoch(postgres, made, None)
        return opened(made.url, may_forget=True)

    @pytest.mark.parametrize("limit", EVERY, ids=repr)
    @pytest.mark.parametrize("asked_before", [True, False])
    def test_a_lost_key_is_full_again(self, lossy: Face, limit: Limit, asked_before: bool):
        """By any law, whether it was asked for since or not; others stay used up."""
        key = "x" * 2_000
        if asked_before:
            assert not lossy.takes(key, strict=True, limit=limit)
        for _ in range(2):
            lossy.forget([("rule", key)])
            assert lossy.left(key, strict=True, limit=limit) == 10

        assert not lossy.takes("another", strict=True, limit=limit)
        assert [lossy.takes(key, strict=True, limit=limit, cost=5) for _ in range(3)] == [True, True, False]
        lossy.forget([("rule", key)])
        assert lossy.left(key, strict=True, limit=limit) == 10

    def test_it_begins_to_remember_then(self, lossy: Face, postgres: Postgres, made: Database):
        """A reset is a first call too: what is lost was lost before it."""
        lossy.forget([("rule", "acme")])

        ((since_us,),) = postgres.sql("SELECT since_us FROM tidegate.epoch", url=made.unix_url)
        assert since_us > START_US

    def test_a_receipt_of_before_returns_nothing(self, lossy: Face):
        """What was taken before the loss does not come back beyond what a reset has given."""
        owed = Adjustment(charge(strict=True), Receipt(1_000, 0, 0), -1_000 * 1_000)
        lossy.forget([("rule", "acme")])

        assert lossy.adjust([owed]) == [0]
        assert lossy.left(strict=True) == 10

    def test_it_is_shown_as_reset(self, lossy: Face):
        """People see a key of which nothing is known but that it is fresh, for about thirty days."""
        lossy.forget([("rule", "acme")])
        held = show_key(lossy.store, "rule", "acme")

        assert held is not None
        assert held.is_reset
        assert held.core_state is None
        now_us = lossy.decide([charge()], take=False)[0].now_us
        assert 30 * 86_400 * US < (held.forgotten_after_us(now_us) or 0) < 31 * 86_400 * US
        assert list_keys(lossy.store).keys == [("rule", "acme")]

    @pytest.mark.parametrize("limit", EVERY, ids=repr)
    @pytest.mark.parametrize("is_known", [True, False])
    def test_it_is_not_swept_too_early(
        self, lossy: Face, postgres: Postgres, made: Database, limit: Limit, is_known: bool
    ):
        """The row outlasts what it must be told apart from, a charge in between or not."""
        if is_known:
            lossy.decide([charge(limit=limit)])
        lossy.forget([("rule", "acme")])
        for _ in range(2):
            ((stays_us,),) = postgres.sql(
                "SELECT sweep_at_us - (SELECT since_us FROM tidegate.epoch) FROM tidegate.state",
                url=made.unix_url,
            )
            # a month that is about to end ends sooner
            assert stays_us > 3_600 * US or "month" in repr(limit)
            lossy.decide([charge(limit=limit, strict=True)])

    def test_where_nothing_was_lost_it_leaves_nothing(
        self, opened: Opened, postgres: Postgres, made: Database
    ):
        """Then an absent key is fresh anyway."""
        store = opened(made.url)
        store.forget([("rule", "x"), ("rule", "y")])

        assert postgres.sql("SELECT count(*) FROM tidegate.state", url=made.unix_url) == [(0,)]


@pytest.mark.real_time
def test_after_a_crash_a_reset_revives(opened: Opened, victim: Postgres):
    """A spending cap that a crash has emptied passes again once it is reset."""
    store = opened(victim.url, deadline="5s", may_forget=True)
    assert store.takes(strict=True)
    victim.kill()
    victim.start()
    assert not store.takes(strict=True)
    store.forget([("rule", "acme")])

    assert store.left(strict=True) == 10
    assert store.takes(strict=True)
