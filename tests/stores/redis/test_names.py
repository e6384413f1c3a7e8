# The names of keys: no two alike, readable back, and in the slot that the server says.

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.redis_groups import Cluster
from tests.servers.redis_like import RedisLike
from tidegate.core.keys import KEY_BYTES_MOST, Key, key_of
from tidegate.errors import StoreError
from tidegate.stores.redis.names import SLOTS, Names, slot

TEXTS = st.text(st.characters(codec=None), max_size=12) | st.text(
    "{}()%:*?[]\\ ns01=\x00\n\ud800", max_size=8
)
VALUES = st.recursive(
    st.none() | TEXTS | st.binary(max_size=8) | st.integers(),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)
OUR_KEYS = st.lists(VALUES, min_size=1, max_size=3).map(tuple).map(key_of)
KEYS: st.SearchStrategy[Key] = OUR_KEYS | TEXTS | st.binary(max_size=20) | st.just(b"")
PLACES = st.tuples(TEXTS, KEYS)
NAMES = Names()
HOSTILE: tuple[Key, ...] = (
    *(
        "",
        " ",
        "a b",
        "a_b",
        "a%20b",
        "a\nb",
        "a\x00b",
        '"',
        "'",
        "%",
        "{}",
        "{",
        "}",
        "a}b",
        "(n)",
        "()",
        "(all)",
    ),
    *("\U0001f600", "\ud800", "e\u0301", "\u00e9", "\u05d0\u05d1", "s1:x", "a:b", "*", "?", "[a]", "\\"),
    *(
        b"",
        b"n",
        b"nn",
        b"s0:",
        b"s1:x",
        b"s1:",
        b"s01:x",
        b"s2:x",
        b"i1:5",
        b"t4:s1:x",
        b"\xff\xfe",
        b"b1:\xff",
    ),
    *(b"s1:xs1:y", b"s3:xs1s1:y", b"s99999999999:x"),
)


@given(PLACES, PLACES)
def test_no_two_places_share_a_name(one: tuple[str, Key], other: tuple[str, Key]):
    """C147: (rule, key) is injective, whatever bytes either holds."""
    assert (NAMES.key(*one) == NAMES.key(*other)) is (one == other)


@given(PLACES)
def test_a_name_can_be_read_back(place: tuple[str, Key]):
    """What a name says is what it was made of, a text a text and bytes bytes."""
    read = NAMES.parse(NAMES.key(*place))

    assert read == place
    assert read is not None
    assert type(read[1]) is type(place[1])


@given(PLACES, st.data())
def test_what_is_no_name_of_ours_is_not_read(place: tuple[str, Key], data: st.DataObject):
    """A name that was changed is none, or the very name of another place."""
    name = NAMES.key(*place)
    at = data.draw(st.integers(0, len(name)))
    changed = name[:at] + data.draw(st.binary(max_size=3)) + name[data.draw(st.integers(at, len(name))) :]
    read = NAMES.parse(changed)

    assert read is None or NAMES.key(*read) == changed


def test_hostile_keys_are_apart():
    """C148: spaces, quotes, signs of patterns, surrogates, and bytes that look like keys of ours."""
    names = {NAMES.key("rule", key) for key in HOSTILE}

    assert len(names) == len(HOSTILE)
    assert all(name.startswith(b"tidegate:{") and b"\n" not in name and b" " not in name for name in names)


@pytest.mark.parametrize(
    ("rule", "key", "name"),
    [
        ("organization", "acme", b"tidegate:{acme}:organization"),
        ("per-user", key_of(("acme", "alice")), b"tidegate:{acme}:per-user:s5:alice"),
        ("per-user", key_of((None, "alice")), b"tidegate:{(n)}:per-user:s5:alice"),
        ("per-user", key_of((42,)), b"tidegate:{(i2a)}:per-user"),
        ("per-user", key_of((None,)), b"tidegate:{(n)}:per-user"),
        ("everyone", b"", b"tidegate:{(all)}:everyone"),
        ("a b:c", "x{y}", b"tidegate:{x%7By%7D}:a%20b%3Ac"),
        ("caf\u00e9", "\u00e9", b"tidegate:{\xc3\xa9}:caf\xc3\xa9"),
    ],
)
def test_names_are_readable(rule: str, key: Key, name: bytes):
    """What an operator sees in the server says whom it limits."""
    assert NAMES.key(rule, key) == name
    assert NAMES.parse(name) == (rule, key)


@given(TEXTS, TEXTS, st.lists(VALUES, min_size=1, max_size=2))
def test_rules_of_one_tenant_share_a_slot(rule: str, tenant: str, more: list[object]):
    """Whatever else a key names, its first value decides the slot."""
    alone, together = key_of((tenant,)), key_of((tenant, *more))

    assert slot(NAMES.key("org", alone)) == slot(NAMES.key(rule, together))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"123456789", 0x31C3),
        (b"foo{}{bar}", 8363),
        (b"foo{{bar}}zap", 4015),
        (b"foo{bar}{zap}", 5061),
        (b"{user1000}.following", 3443),
    ],
)
def test_slots_are_the_cluster_s(name: bytes, expected: int):
    """The known values, and the odd braces, of the cluster specification."""
    assert slot(name) == expected


def test_the_server_says_the_same_slots(redis_cluster: Cluster):
    """CLUSTER KEYSLOT agrees for every kind of key, and for the epochs."""
    names = [NAMES.key(rule, key) for rule in ("rule", "a{b}c", "") for key in HOSTILE]

    for name in [*names, *(NAMES.epoch(number) for number in (0, 1, 8_191, 16_383)), NAMES.epoch()]:
        assert redis_cluster.slot_of(name) == slot(name), name


def test_every_slot_has_an_epoch_of_its_own():
    """The epoch of a slot lies in that slot, and is no key of a rule."""
    epochs = [NAMES.epoch(number) for number in range(SLOTS)]

    assert [slot(epoch) for epoch in epochs] == list(range(SLOTS))
    assert len(set(epochs)) == SLOTS
    assert not any(NAMES.parse(epoch) for epoch in [*epochs[:100], NAMES.epoch()])


def test_long_keys_have_names(valkey: RedisLike):
    """The longest key, every byte of it hostile, is a key of the server like any other."""
    for key in (
        "\x00" * KEY_BYTES_MOST,
        key_of(("\x00" * (KEY_BYTES_MOST - 20), "x")),
        b"\xff" * KEY_BYTES_MOST,
    ):
        name = NAMES.key("rule", key)
        valkey.command("SET", name, "1")

        assert NAMES.parse(name) == ("rule", key)
        assert valkey.command("GET", name) == b"1"


@given(PLACES, st.text(max_size=3))
def test_a_pattern_finds_its_keys(place: tuple[str, Key], other: str):
    """By rule, and by how a text key begins; `parse` tells the few others that a pattern also finds."""
    rule, key = place
    name = NAMES.key(rule, key).decode("latin-1")

    def finds(pattern: bytes) -> bool:
        return fnmatch.fnmatchcase(name, pattern.decode("latin-1"))

    assert finds(NAMES.pattern())
    assert finds(NAMES.pattern(rule))
    if isinstance(key, str) and key:
        assert finds(NAMES.pattern(rule, key[: len(other)]))
        assert finds(NAMES.pattern(rule, other)) or not key.startswith(other)


def test_patterns_find_in_the_server(valkey: RedisLike):
    """SCAN takes the pattern as it is meant, signs of patterns in keys included."""
    for key in ("a*b", "a[b", "axb", "a b"):
        valkey.command("SET", NAMES.key("r*", key), "1")
        valkey.command("SET", NAMES.key("rx", key), "1")

    def found(pattern: bytes) -> set[tuple[str, Key] | None]:
        return {NAMES.parse(name) for name in valkey.command("SCAN", 0, "MATCH", pattern, "COUNT", 100)[1]}

    assert found(NAMES.pattern("r*")) == {("r*", key) for key in ("a*b", "a[b", "axb", "a b")}
    assert found(NAMES.pattern("r*", "a*")) == {("r*", "a*b")}
    assert found(NAMES.pattern("rx", "a[")) == {("rx", "a[b")}


@pytest.mark.parametrize("prefix", ["", " ", "a b", "a{b}", "a*", "a?", "[a]", "a\\b", "a\nb", 5, None, b"x"])
def test_a_prefix_that_would_mislead_is_refused(prefix: object):
    """Braces would move every key into one slot, and signs of patterns would find too many."""
    with pytest.raises(StoreError, match="prefix is"):
        Names(prefix)  # type: ignore[arg-type]  # that is the point


@given(PLACES)
def test_prefixes_are_apart(place: tuple[str, Key]):
    """C144: what one program's names say is nothing to another's."""
    assert Names("shop").parse(Names("shop:eu").key(*place)) is None
    assert Names("shop:eu").parse(Names("shop:eu").key(*place)) == place
