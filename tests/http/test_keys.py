# Who is calling: proxies, the two header forms, networks, and what clients may write into a header.

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import PolicyError
from tidegate.http.keys import ClientAddress

PROXIES = ("10.0.0.0/8", "2001:db8:ffff::/48")
FORWARDED = ClientAddress(PROXIES, header="Forwarded")
BEHIND = ClientAddress(PROXIES)


def test_by_default_the_peer_is_the_client():
    """Without trusted proxies no header is looked at."""
    assert ClientAddress().of("203.0.113.7", ["198.51.100.1"]) == "203.0.113.7"


def test_a_trusted_peer_names_the_client():
    """C167: the peer 10.0.0.1 is trusted, so the client is what it appended."""
    assert BEHIND.of("10.0.0.1", ["203.0.113.7"]) == "203.0.113.7"


def test_what_the_client_wrote_itself_does_not_count():
    """C168: counted from the right, whatever n addresses stand further left."""
    found = {BEHIND.of("10.0.0.1", [f"198.51.100.{n}, 203.0.113.7"]) for n in range(1, 13)}

    assert found == {"203.0.113.7"}


def test_an_untrusted_peer_cannot_name_another():
    """C168: with an untrusted peer the header is ignored."""
    assert BEHIND.of("203.0.113.9", ["198.51.100.1"]) == "203.0.113.9"


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        (["203.0.113.7, 10.0.0.2, 10.0.0.3"], "203.0.113.7"),
        (["198.51.100.1", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        (["203.0.113.7", "10.0.0.2", "10.0.0.3"], "203.0.113.7"),
        (["10.0.0.2, 10.0.0.3"], "10.0.0.2"),
        (["203.0.113.7,\t10.0.0.2"], "203.0.113.7"),
        (["203.0.113.7, [2001:db8:ffff::1]:80"], "203.0.113.7"),
        ([], "10.0.0.1"),
    ],
)
def test_trusted_hops_are_walked_over(lines: list[str], client: str):
    """Several lines are one list in their order; if all hops are trusted, the leftmost is the client."""
    assert BEHIND.of("10.0.0.1", lines) == client


@pytest.mark.parametrize(
    ("entry", "client"),
    [
        ("203.0.113.7:51234", "203.0.113.7"),
        ("[2001:db8::1]:443", "2001:db8::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("2001:db8::1", "2001:db8::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("fe80::1%a%b", "fe80::/64"),
        ("unknown", "10.0.0.1"),
        ("_hidden", "10.0.0.1"),
        ("localhost", "10.0.0.1"),
        ("", "10.0.0.1"),
        (" ", "10.0.0.1"),
        ("203.0.113.999", "10.0.0.1"),
        ("203.0.113.07", "10.0.0.1"),
        ("203.0.113.7:", "10.0.0.1"),
        ("203.0.113.7:99999", "10.0.0.1"),
        ("203.0.113.7:x", "10.0.0.1"),
        ("203.0.113.7 evil", "10.0.0.1"),
        ("[2001:db8::1", "10.0.0.1"),
        ("[203.0.113.7]", "10.0.0.1"),
        ("٢٠٣.0.113.7", "10.0.0.1"),
        ("3405803783", "10.0.0.1"),
        ("x" * 10_000, "10.0.0.1"),
        (", ".join(["203.0.113.7"] + ["10.0.0.2"] * 5_000), "10.0.0.2"),
    ],
)
def test_an_entry_is_an_address_or_ends_the_walk(entry: str, client: str):
    """C172: ports go, IPv6 becomes its /64; what is invalid leaves the last valid hop."""
    assert BEHIND.of("10.0.0.1", [entry]) == client


def test_an_invalid_entry_further_left_keeps_the_hops_before_it():
    """C172: the walk stops at the invalid entry and does not look behind it."""
    assert BEHIND.of("10.0.0.1", ["203.0.113.7, unknown, 10.0.0.9"]) == "10.0.0.9"


@pytest.mark.parametrize(
    ("element", "client"),
    [
        ("for=203.0.113.7", "203.0.113.7"),
        ('For="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::/64"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("proto=https; for=192.0.2.60 ;host=example.com", "192.0.2.60"),
        ("for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
        ('for="198.51.100.17:8080", for=10.0.0.2', "198.51.100.17"),
        ('for=192.0.2.43;host="a,b;for=1.2.3.4"', "192.0.2.43"),
        (r'for=9.9.9.9, for=192.0.2.43;host="a\",\\"', "192.0.2.43"),
        (r'for="\192.0.2.43"', "192.0.2.43"),
        ("for=192.0.2.43:47011", "192.0.2.43"),
        ("for=2001:db8::1", "2001:db8::/64"),
        ("for=192.0.2.43;;", "192.0.2.43"),
        ("for=unknown", "10.0.0.1"),
        ("for=_gazonk", "10.0.0.1"),
        ('for="_SEVKISEK"', "10.0.0.1"),
        ("by=192.0.2.43", "10.0.0.1"),
        ("for=1.1.1.1;for=2.2.2.2", "10.0.0.1"),
        ("for", "10.0.0.1"),
        ("for=", "10.0.0.1"),
        ('for="', "10.0.0.1"),
        ("for = 192.0.2.43", "10.0.0.1"),
        ("192.0.2.43", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_forwarded_is_parsed_properly(element: str, client: str):
    """Quoted strings, ports, brackets, obfuscated identifiers and junk of RFC 7239."""
    assert FORWARDED.of("10.0.0.1", [element]) == client


@pytest.mark.parametrize("junk", ['for="evil', '"', r'for="\\\"', 'host="x', "for=a;b;c=", "\x00"])
def test_an_open_quote_does_not_swallow_what_the_proxy_appended(junk: str):
    """C168: a client cannot hide behind an unbalanced quote; the right end is read first."""
    assert FORWARDED.of("10.0.0.1", [f"{junk}, for=203.0.113.7"]) == "203.0.113.7"
    assert FORWARDED.of("10.0.0.1", [junk, "for=203.0.113.7"]) == "203.0.113.7"


def test_only_the_configured_header_is_read():
    """X-Forwarded-For syntax means nothing to `forwarded`, and the other way round."""
    assert FORWARDED.header == "forwarded"
    assert BEHIND.of("10.0.0.1", ["for=203.0.113.7"]) == "10.0.0.1"


def test_one_ipv6_network_is_one_client():
    """C170: twenty addresses of a /64 are one key, the next network another."""
    networks = {ClientAddress().of(f"2001:db8:1:2::{n:x}") for n in range(20)}

    assert networks == {"2001:db8:1:2::/64"}
    assert ClientAddress().of("2001:db8:1:3::1") == "2001:db8:1:3::/64"


def test_prefixes_can_be_chosen():
    """C170: the prefix length is configurable, for both families."""
    single = ClientAddress(ipv6_prefix=128, ipv4_prefix=24)

    assert single.of("2001:db8:0:0::1") == "2001:db8::1"
    assert single.of("203.0.113.7") == "203.0.113.0/24"


def test_spellings_of_one_address_are_one_client():
    """A client cannot multiply itself by writing its address differently."""
    spellings = ["2001:db8:0:0:0:0:0:1", "2001:DB8::1", "[2001:db8::1]:1", "2001:db8::1%x"]

    assert len({ClientAddress().of(spelling) for spelling in spellings}) == 1
    assert ClientAddress().of("::ffff:203.0.113.7") == ClientAddress().of("203.0.113.7")


def test_a_mapped_peer_is_the_ipv4_proxy():
    """A dual-stack socket shows IPv4 peers as ::ffff:10.0.0.1; that is 10.0.0.1."""
    assert BEHIND.of("::ffff:10.0.0.1", ["203.0.113.7"]) == "203.0.113.7"
    assert ClientAddress(["::ffff:10.0.0.0/104"]).of("10.0.0.1", ["203.0.113.7"]) == "203.0.113.7"


@pytest.mark.parametrize("peer", [None, ""])
def test_a_peer_without_an_address(peer: str | None):
    """A UNIX socket names nobody, unless it is said to be a proxy's: then its header counts."""
    local = ClientAddress(["unix"])

    assert ClientAddress().of(peer) is None
    assert BEHIND.of(peer, ["203.0.113.7"]) is None
    assert local.of(peer, ["203.0.113.7"]) == "203.0.113.7"
    assert local.of(peer, ["unknown"]) is None
    assert local.of("203.0.113.9", ["203.0.113.7"]) == "203.0.113.9"


def test_a_peer_that_is_a_name_is_its_own_client():
    """Test clients call themselves "testclient"; that is nobody's proxy."""
    assert BEHIND.of("testclient", ["203.0.113.7"]) == "testclient"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trusted": ["*"]}, "'\\*' is everybody"),
        ({"trusted": ["0.0.0.0/0"]}, "every client could choose its own address"),
        ({"trusted": ["::/0"]}, "every client could choose its own address"),
        ({"trusted": ["10.0.0.1/8"]}, "write '10.0.0.0/8'"),
        ({"trusted": ["10.0.0.0/33"]}, "no network or address"),
        ({"trusted": ["proxy.example"]}, "'proxy.example' is no network"),
        ({"trusted": [""]}, "no network or address"),
        ({"trusted": [10]}, "is not text"),
        ({"trusted": "10.0.0.0/8"}, "write a list"),
        ({"header": ""}, "name one header"),
        ({"header": "x-forwarded-for, forwarded"}, "name one header"),
        ({"ipv6_prefix": 0}, "ipv6_prefix is 0"),
        ({"ipv6_prefix": 129}, "from 1 to 128"),
        ({"ipv4_prefix": "24"}, "ipv4_prefix is '24'"),
        ({"ipv4_prefix": True}, "ipv4_prefix is True"),
        ({"hops_max": 0}, "hops_max is 0"),
    ],
)
def test_a_wrong_setting_is_an_error_at_construction(settings: dict, message: str):
    """Each names the value and the way out."""
    with pytest.raises(PolicyError, match=message):
        ClientAddress(**settings)


@given(
    st.lists(
        st.text(st.characters(max_codepoint=0x2FF), max_size=60)
        | st.text('for=";,\\ []:.%_0123456789abcdef', max_size=60)
    ),
    st.sampled_from([BEHIND, FORWARDED]),
)
def test_no_header_is_an_error(lines: list[str], client: ClientAddress):
    """C172: whatever a client sends, the answer is an address or a network."""
    found = client.of("10.0.0.1", lines)

    assert found is not None
    assert set(found) <= set("0123456789abcdef.:/")


@given(st.lists(st.sampled_from(['for="', '"', ",", ";", "\\", "for=1.2.3.4", '\\"', "=", "10.0.0.2", " "])))
def test_what_stands_left_never_changes_what_the_proxy_appended(parts: list[str]):
    """C168: the right end decides, whatever is written before it."""
    assert FORWARDED.of("10.0.0.1", ["".join(parts) + ", for=203.0.113.7"]) == "203.0.113.7"
    assert BEHIND.of("10.0.0.1", ["".join(parts) + ", 203.0.113.7"]) == "203.0.113.7"


class Counting(str):
    """A header line that counts how often, and how much of it, it is read."""

    __slots__ = ("read",)

    def __getitem__(self, place):
        part = super().__getitem__(place)
        self.read = getattr(self, "read", 0) + len(part)
        return part


@pytest.mark.parametrize("client", [BEHIND, FORWARDED])
@pytest.mark.parametrize(
    "unit", ["10.0.0.2,", "for=10.0.0.2,", '"', '\\"', "\\", ",", 'for="', ";", "[", '"\\']
)
def test_the_work_is_bounded(client: ClientAddress, unit: str):
    """C172: of a header of megabytes only the right end is read."""
    line = Counting(unit * 500_000)
    client.of("10.0.0.1", [line])

    assert line.read <= 8192


def test_many_lines_are_bounded_too():
    """C172: five thousand header lines cost no more than the hops that are read."""
    assert BEHIND.of("10.0.0.1", ["203.0.113.7"] + ["10.0.0.2"] * 5_000) == "10.0.0.2"
    assert FORWARDED.of("10.0.0.1", ["for=203.0.113.7"] + ["for=10.0.0.2"] * 5_000) == "10.0.0.2"


def test_what_is_cut_off_by_the_bound_is_not_guessed():
    """C172: an entry whose left end lies beyond the bound is not taken for an address."""
    padded = "203.0.113.7" + "," + " " * 8_185 + "10.0.0.2"
    beyond = "1" + "203.0.113.7, " + "10.0.0.2, " * 818 + "10.0.0.22"

    assert BEHIND.of("10.0.0.1", [padded]) == "10.0.0.1"
    assert ClientAddress(PROXIES, hops_max=1000).of("10.0.0.1", [beyond]) == "10.0.0.2"
    assert FORWARDED.of("10.0.0.1", [f"for=203.0.113.7;x={'y' * 9_000}"]) == "10.0.0.1"
    assert FORWARDED.of("10.0.0.1", [f"for=203.0.113.7;x={'y' * 600}"]) == "10.0.0.1"
    assert FORWARDED.of("10.0.0.1", [f"for=203.0.113.7;x={'y' * 400}"]) == "203.0.113.7"


def test_hops_have_a_bound_of_their_own():
    """C172: behind more trusted hops than are walked, the last one seen is the client."""
    one = ClientAddress(PROXIES, hops_max=1)

    assert one.of("10.0.0.1", ["203.0.113.7, 10.0.0.2"]) == "10.0.0.2"


def test_answers_that_are_kept_have_a_bound():
    """Any number of made-up lines leaves the answers right and their number small."""
    client = ClientAddress(PROXIES)
    found = [client.of("10.0.0.1", [f"198.51.100.{n}, 203.0.{n % 256}.{n // 256}"]) for n in range(10_000)]

    assert found == [f"203.0.{n % 256}.{n // 256}" for n in range(10_000)]
    assert len(client._clients) <= 4096


def test_it_can_be_copied_and_compared():
    """Equal settings are equal, and a used one pickles."""
    again = pickle.loads(pickle.dumps(BEHIND))

    assert again == BEHIND == ClientAddress(list(PROXIES))
    assert again.of("10.0.0.1", ["203.0.113.7"]) == "203.0.113.7"
