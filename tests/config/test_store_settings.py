# The store as a file says it: an address or a table, what it is told, and what is never shown.

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.test_settings import ENV
from tests.config.written import fits, loaded, said, with_settings
from tidegate import open_store
from tidegate.config import StoreSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.stores.memory import MemoryStore


@pytest.mark.parametrize(
    ("store", "options"),
    [
        ("memory://", {}),
        ("memory://?max_keys=5&when_full=forget", {"max_keys": 5, "when_full": "forget"}),
        ("{url: memory://, max_keys: 5, when_full: forget}", {"max_keys": 5, "when_full": "forget"}),
        ("{url: {env: STORE}, when_full: forget}", {"max_keys": 7, "when_full": "forget"}),
        ("{env: STORE}", {"max_keys": 7}),
    ],
)
def test_a_store_is_an_address_or_a_table(tmp_path: Path, store: str, options: dict[str, object]):
    """Options stand in the address or beside it, and `open_store` opens what the file says."""
    config = loaded(tmp_path, with_settings(f"store: {store}"), ENV)
    opened: MemoryStore = open_store(config.store_url)  # type: ignore[assignment]  # the address says memory

    assert config.store == StoreSettings("memory://", tuple(options.items()))
    assert (opened.max_keys, opened.when_full) == tuple(map(config.store.option, ("max_keys", "when_full")))


NETWORK = [
    ("redis://localhost:6379/0", "redis://localhost:6379/0", "closed"),
    ('{url: "redis+cluster://a:1,b:2"}', "redis+cluster://a:1,b:2", "closed"),
    (
        "{url: rediss://h/0, prefix: limits, deadline: 20ms, may_forget: true, replicas: 1, "
        "max_connections: 8}",
        "rediss://h/0?prefix=limits&deadline=20ms&may_forget=yes&replicas=1&max_connections=8",
        "closed",
    ),
    (
        '{url: "unix:///run/redis.sock?db=1", prefix: "a&b", on_outage: open}',
        "unix:///run/redis.sock?db=1&prefix=a%26b",
        "open",
    ),
    (
        "{url: {env: DATABASE}, schema: limits, prepare: false, deadline: 50ms}",
        "postgresql://me:secret@host/app?sslmode=require&schema=limits&prepare=no",
        "closed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("store", "url", "on_outage"), NETWORK)
def test_a_store_on_the_network(tmp_path: Path, store: str, url: str, on_outage: str):
    """What a store on the network is told beside its address goes to it with the address."""
    env = {"DATABASE": "postgresql://me:secret@host/app?sslmode=require"}
    config = loaded(tmp_path, with_settings(f"store: {store}"), env)

    assert (config.store_url, config.store.on_outage) == (url, on_outage)
    assert "secret" not in repr(config)


def test_an_address_with_a_password_is_never_shown(tmp_path: Path):
    """A password may stand in the file, and is in no repr; the address is shown without it."""
    written = 'store: {url: "redis://me:se@cret@host:6379/0?sentinel_password=hush", deadline: 1s}'
    config = loaded(tmp_path, with_settings(written))

    assert config.store.shown == "redis://***@host:6379/0"
    assert config.store_url.startswith("redis://me:se@cret@host")
    for part in ("se@cret", "cret@", "hush"):
        assert part not in repr(config)


PROBLEMS = [
    (
        "store: {url: redis://h, max_keys: 5}",
        (
            "store.max_keys: max_keys is not for this address; a Redis store takes prefix, deadline, "
            "may_forget, replicas, max_connections"
        ),
    ),
    (
        "store: {url: memory://, deadline: 50ms}",
        "store.deadline: deadline is not for this address; a memory store takes max_keys, when_full",
    ),
    (
        'store: {url: "redis://h?deadline=10ms", deadline: 50ms}',
        "store.url: deadline of the store is set twice; keep one of them",
    ),
    (
        "store: redis://h?schema=limits",
        "store: the store's address has the option 'schema'; it takes prefix, deadline, may_forget…",
    ),
    ("store: redis://[h", "store: the store's address cannot be read; write one such as redis://host:6379/0"),
    (
        "store: {url: redis://h, deadline: 50}",
        "store.deadline: deadline is 50; a length of time needs a unit; write for instance deadline: 50s…",
    ),
    ("store: {url: redis://h, deadline: 2min}", 'store.deadline: deadline is "2min"; write 1ms to 1min'),
    ("store: {url: redis://h, timeout: 50ms}", "store: unknown key 'timeout'; did you mean 'deadline'?"),
    ("store: {url: redis://h, may_forget: 1}", "store.may_forget: may_forget is 1; write true or false"),
    ("store: {url: postgres://h/d, schema: 5}", "store.schema: schema is 5; text is wanted…"),
    (
        "store: {url: redis://h, on_outage: reserve}",
        'store.on_outage: on_outage is "reserve"; write closed or open',
    ),
    (
        "store: mysql://localhost",
        'store: store is "mysql://localhost"; write an address that begins with memory://, redis:// or '
        "postgresql://",
    ),
    ("store: memory", 'store: store is "memory"; write an address that begins with memory://…'),
    (
        "store: mysql://u:pw@h",
        "store: store is no address that can be opened; write an address that begins with memory://…",
    ),
    ("store: memory://host", "store: the memory store has no host and no path; write memory://"),
    (
        "store: memory://?maxkeys=5",
        "store: the store's address has the option 'maxkeys'; did you mean 'max_keys'?",
    ),
    ("store: memory://?max_keys=0", 'store: max_keys is "0"; write a whole number from 1 to 1000000000000'),
    ("store: memory://?when_full=drop", 'store: when_full is "drop"; write refuse or forget'),
    ("store: memory://?max_keys=5&max_keys=6", "store: max_keys of the store is set twice; keep one of them"),
    (
        'store: {url: "memory://?max_keys=5", max_keys: 6}',
        "store.url: max_keys of the store is set twice; keep one of them",
    ),
    ("store: {max_keys: 5}", "store: url is missing; write for instance url: memory://"),
    (
        "store: {url: memory://, max_keys: 0}",
        "store.max_keys: max_keys is 0; write a whole number from 1 to 1000000000000",
    ),
    ("store: {url: memory://, maxkeys: 5}", "store: unknown key 'maxkeys'; did you mean 'max_keys'?"),
    ("store:", "store: store is empty; text is wanted"),
    (
        "store: ${STORE}",
        'store: store is "${STORE}"; nothing is filled in inside a text; write store: {env: STORE}',
    ),
    (
        "store: {env: NOPE}",
        "store: store is read from the environment variable NOPE, which is not set; set it and start again",
    ),
    (
        "store: {env: EMPTY}",
        "store: store is read from the environment variable EMPTY, which is empty; set it and start again",
    ),
    (
        "store: {env: SECRET}",
        (
            "store: store is read from the environment variable SECRET, which holds no address of a store; "
            "write an address that begins with memory://…"
        ),
    ),
    (
        "store: {env: STORE, max_keys: 5}",
        "store: store names an environment variable; beside env no other key is possible here",
    ),
    (
        "store: {env: 5}",
        "store: store is 5; write the name of an environment variable, for instance {env: TIDEGATE_TOKEN}",
    ),
]


@pytest.mark.parametrize(("line", "problem"), PROBLEMS)
def test_a_bad_store_says_what_to_write(tmp_path: Path, line: str, problem: str):
    """C163: a store that cannot be used is an error with its line; secrets are never shown."""
    (message,) = said(tmp_path, with_settings(line), ENV)

    assert fits(message, f"policy.yaml:6: {problem}")
    assert "hunter2" not in message
