# What people see of a server's keys: found in pages, shown, and made fresh.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike
from tests.stores.redis.faces import charge
from tidegate import SlidingLog, TokenBucket
from tidegate.core.keys import key_of
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.stores.redis.browse import every_key, list_keys, reset_keys, show_key
from tidegate.stores.redis.lines import ThreadLine
from tidegate.stores.redis.store import RedisStore

KEYS: list[Any] = [
    "acme",
    "a b",
    "a_b",
    "acne",
    "é",
    "{x}",
    "a:b",
    "*",
    key_of(("acme", 1)),
    key_of((None,)),
    b"",
]


@contextmanager
def opened(url: str) -> Iterator[RedisStore]:
    store = RedisStore(url, deadline="2s")
    try:
        yield store
    finally:
        store.close()


def _delete(store: RedisStore, rule: str, key: Any) -> None:
    """Let a key vanish from the server, as it does when it expires."""
    name, line = store.servers.names.key(rule, key), ThreadLine()
    slot = store.servers.topology.slot(rule, key)
    link = run_blocking(store.servers.topology.link(slot, line, line.now_s() + 5))
    run_blocking(line.run(link, [(b"UNLINK", name)], line.now_s() + 5))


@pytest.fixture(params=["one server", "a cluster"])
def url(request: pytest.FixtureRequest, valkey: RedisLike, redis_cluster: Cluster) -> str:
    """A server, and a cluster, of both of which all keys are seen."""
    return (
        valkey.url
        if request.param == "one server"
        else f"redis+cluster://127.0.0.1:{redis_cluster.nodes[0].port}"
    )


def test_all_keys_are_found(url: str):
    """Of all rules and kinds, each once; epochs and keys of others are none of them."""
    with opened(url) as store:
        for key in KEYS:
            store.decide([charge(key), charge(key, rule="second rule")])
        found = [key for page in every_key(store) for key in page.keys]

    assert sorted(map(str, found)) == sorted(
        str((rule, key)) for rule in ("rule", "second rule") for key in KEYS
    )


def test_by_rule_and_prefix(url: str):
    """Whatever the names hold: what looks like a pattern is taken as it is."""
    with opened(url) as store:
        for key in KEYS:
            store.decide([charge(key), charge(key, rule="ru*")])

        assert {rule for rule, _ in list_keys(store, "ru*").keys} == {"ru*"}
        assert {key for _, key in list_keys(store, "rule", "ac").keys} == {
            "acme",
            "acne",
            key_of(("acme", 1)),
        }
        assert list_keys(store, "rule", "*").keys == [("rule", "*")]
        assert list_keys(store, "no such rule").keys == []


def test_pages(url: str):
    """A cursor leads through all of them; none is left out, and pages stay small."""
    with opened(url) as store:
        store.decide_many([[charge(f"key {number}")] for number in range(500)])
        pages: list[list[Any]] = []
        cursor = None
        while not pages or cursor is not None:
            page = list_keys(store, cursor=cursor, most=50)
            pages.append(page.keys)
            cursor = page.cursor

    assert {key for page in pages for _, key in page} == {f"key {number}" for number in range(500)}
    assert len(pages) > 5
    assert max(map(len, pages)) <= 50


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_page_never_holds_more_than_wanted(url: str, most: int):
    """Also where one bucket of the server's table holds more; and nothing is left out."""
    with opened(url) as store:
        store.decide_many([[charge(f"key {number}")] for number in range(60)])
        found: list[Any] = []
        cursor = None
        while not found or cursor is not None:
            page = list_keys(store, cursor=cursor, most=most)
            assert len(page.keys) <= most
            found += page.keys
            cursor = page.cursor

    assert {key for _, key in found} == {f"key {number}" for number in range(60)}


def test_what_goes_between_two_pages_hides_no_other(url: str):
    """Keys that vanish, or come, while somebody reads on: those that are there all the time are all seen."""
    names = [f"key {number}" for number in range(300)]
    with opened(url) as store:
        store.decide_many([[charge(name)] for name in names])
        seen: set[Any] = set()
        cursor, pages = None, 0
        while not pages or cursor is not None:
            page = list_keys(store, cursor=cursor, most=2)
            seen |= {key for _, key in page.keys}
            cursor, pages = page.cursor, pages + 1
            for rule, key in page.keys:
                if key in names[100:]:
                    _delete(store, rule, key)
            store.decide([charge(f"another {pages}")])

    assert set(names[:100]) <= seen


@pytest.mark.parametrize(
    "cursor", ["", "0", "x-0", "0-x", "9-0", "-1-0", "0-0-0", "0-0-0-0", "0-0-0-xx", "²-0"]
)
def test_a_wrong_cursor(valkey: RedisLike, cursor: str):
    """It is told so."""
    with opened(valkey.url) as store, pytest.raises(StoreError, match="cursor"):
        list_keys(store, cursor=cursor)


def test_keys_of_others_are_passed_over(own_redis: Callable[..., RedisLike]):
    """Among 200,000 keys of others a page may be empty, but never late; the end is reached."""
    server = own_redis(enable_debug_command="yes")
    server.command("DEBUG", "POPULATE", 200_000)
    with opened(server.url) as store:
        store.decide([charge()])
        pages, cursor = 0, None
        found = []
        while not pages or cursor is not None:
            page = list_keys(store, cursor=cursor, most=1_000)
            pages, cursor = pages + 1, page.cursor
            found += page.keys

    assert found == [("rule", "acme")]
    assert pages > 3


def test_one_key(url: str):
    """Its state, as the server has it and as we read it, and when it expires."""
    with opened(url) as store:
        store.decide([charge(cost=3, limit=TokenBucket(10, "1/s"))])
        store.decide([charge("log", cost=2, limit=SlidingLog(5, "1h"))])
        store.decide([charge("for ever", cost=2)])
        bucket, log, lasting = (show_key(store, "rule", key) for key in ("acme", "log", "for ever"))
        nothing = show_key(store, "rule", "unknown")

    assert nothing is None
    assert bucket is not None
    assert bucket.value.startswith(b"L1 ")
    assert bucket.ttl_ms is not None
    assert 60_000 < bucket.ttl_ms <= 64_000
    assert bucket.state is not None
    assert bucket.state.used == 3_000
    assert log is not None
    assert log.state is not None
    assert log.state.used == 2_000
    assert lasting is not None
    assert lasting.ttl_ms is None


def test_a_key_that_is_no_state_of_ours(valkey: RedisLike):
    """A text is shown as it is; of another type only that is known."""
    valkey.command("SET", "tidegate:{text}:rule", "something else")
    valkey.command("LPUSH", "tidegate:{list}:rule", "x")
    with opened(valkey.url) as store:
        shown = show_key(store, "rule", "text")
        other = show_key(store, "rule", "list")

    assert shown is not None
    assert shown.value == b"something else"
    assert (shown.state, shown.foreign) == (None, None)
    assert other is not None
    assert (other.value, other.state, other.foreign) == (b"", None, "list")


def test_many_are_made_fresh(url: str):
    """Those of the rule and the prefix, and no others; how many is told."""
    with opened(url) as store:
        names = [f"{tenant} {number}" for tenant in ("acme", "other") for number in range(120)]
        store.decide_many([[charge(name, 10), charge(name, 10, rule="second")] for name in names])
        count = reset_keys(store, "rule", "acme ")
        left: list[Any] = store.decide_many(
            [[charge(name), charge(name, rule="second", mode="shadow")] for name in names]
        )

    assert count == 120
    assert [answer[0].allowed for answer in left] == [True] * 120 + [False] * 120
    assert not any(answer[1].allowed for answer in left)
