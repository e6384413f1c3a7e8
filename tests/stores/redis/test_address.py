# What a URL says, and what it must not: without any server.

from __future__ import annotations

from typing import Any

import pytest

from tidegate.errors import StoreError
from tidegate.stores.redis.address import Options, options_of, read_url
from tidegate.stores.redis.store import RedisStore

DEFAULTS = options_of(prefix="tidegate", deadline="50ms", may_forget=False, replicas=0, max_connections=64)


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "arguments", "more"),
    [
        ("redis://example.org", "single", [("example.org", 6379)], {}, {}),
        ("redis://", "single", [("localhost", 6379)], {}, {}),
        ("valkey://h:1/2", "single", [("h", 1)], {"db": 2}, {}),
        ("rediss://h:1?db=2", "single", [("h", 1)], {"db": 2}, {"tls": True}),
        ("redis://u:p%40@h", "single", [("h", 6379)], {"username": "u", "password": "p@"}, {}),
        ("redis://:p@[::1]:7", "single", [("::1", 7)], {"password": "p"}, {}),
        ("unix:///run/r.sock?db=1", "single", [], {"db": 1}, {"path": "/run/r.sock"}),
        ("unix://:p@/run/r.sock", "single", [], {"password": "p"}, {"path": "/run/r.sock"}),
        ("redis+cluster://a:1,b,c:3", "cluster", [("a", 1), ("b", 6379), ("c", 3)], {}, {}),
        ("valkeys+cluster://a", "cluster", [("a", 6379)], {}, {"tls": True}),
        (
            "redis+sentinel://:p@a:1,b/main/3?sentinel_password=q",
            "sentinel",
            [("a", 1), ("b", 26379)],
            {"password": "p", "db": 3},
            {"master": "main", "sentinel_arguments": {"password": "q"}},
        ),
        (
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=no&client_name=us",
            "single",
            [("h", 6379)],
            {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False, "client_name": "us"},
            {"tls": True},
        ),
    ],
)
def test_what_a_url_says(
    url: str, kind: str, hosts: list[Any], arguments: dict[str, Any], more: dict[str, Any]
):
    """In all its forms."""
    address, options = read_url(url, DEFAULTS)

    assert (address.kind, list(address.hosts), address.arguments) == (kind, hosts, arguments)
    assert {name: getattr(address, name) for name in more} == more
    assert options == DEFAULTS


def test_options_in_a_url():
    """They stand in place of the defaults."""
    _, options = read_url(
        "redis://h?prefix=p&deadline=20ms&may_forget=yes&replicas=2&max_connections=8", DEFAULTS
    )

    assert options == Options("p", 20_000, True, 2, 8)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://secret@h", "redis://"),
        ("redis+other://secret@h", r"redis\+sentinel://"),
        ("redis://u:secret@h?colour=red", "colour"),
        ("redis://u:secret@h?db=1&db=2", "twice"),
        ("redis://u:secret@h/1?db=2", "twice"),
        ("redis://u:secret@h/one", "no whole number"),
        ("redis://u:secret@h:port", "port"),
        ("redis://:secret", "port"),
        ("redis://u:secret@h:0", "port"),
        ("redis://u:secret@h:99999", "port"),
        ("redis://:sec/ret@h/0", "%2F"),
        ("redis://u:secret@h#0", "%23"),
        ("redis://u:secret@a,b", "several hosts"),
        ("redis+cluster://u:secret@a/1", "database"),
        ("redis+sentinel://u:secret@a", "name"),
        ("redis://u:secret@h?sentinel_password=secret", "sentinel"),
        ("unix://u:secret@h/path", "three slashes"),
        ("unix://", "three slashes"),
        ("redis://u:secret@h?deadline=soon", "deadline"),
        ("redis://u:secret@h?deadline=0s", "deadline"),
        ("redis://u:secret@h?deadline=2h", "deadline"),
        ("redis://u:secret@h?may_forget=perhaps", "may_forget"),
        ("redis://u:secret@h?replicas=some", "replicas"),
        ("redis://u:secret@h?replicas=1000", "replicas"),
        ("redis://u:secret@h?max_connections=0", "max_connections"),
        ("redis://u:secret@h?prefix=", "prefix"),
        ("redis://u:secret@h?prefix", "cannot be read"),
        ("redis://[u:secret@h", "cannot be read"),
    ],
)
def test_what_a_url_must_not_say(url: str, says: str):
    """It is told with the way out, and without what may be a password."""
    with pytest.raises(StoreError, match=says) as raised:
        RedisStore(url)

    assert "sec" not in str(raised.value).replace("seconds", "")


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": 7},
        {"deadline": 0},
        {"deadline": "later"},
        {"may_forget": 1},
        {"replicas": -1},
        {"replicas": True},
        {"max_connections": 0},
        {"max_connections": 2.5},
    ],
    ids=str,
)
def test_options_of_a_call(options: dict[str, Any]):
    """They are checked when the store is made."""
    with pytest.raises(StoreError, match=next(iter(options))):
        RedisStore("redis://localhost", **options)


def test_a_store_shows_no_password():
    """Neither face does, nor their names in logs."""
    store = RedisStore("redis://user:secret@example.org:1/2")

    assert "secret" not in f"{store} {store.awaited} {store.health.where}"
    assert "example.org:1" in repr(store)
