"""Who is calling: the address that a request is accounted to.

A connection's peer is the one address that cannot be made up. Only where that peer is one of your
own proxies does a header say more, and only its right end: each proxy appends the address it saw, so
reading goes from the right, hop by hop, as long as the hops are trusted; the first one that is not is
the client. What stands further left was written by the client and is not looked at.

- The default trusts nobody: the peer is the client.
- One header is read, the one your proxies write; never two, or the client could choose which counts.
- An entry that is no address ("unknown", "_hidden", "localhost", "", garbage, too long) ends the walk:
  the last valid hop is used. A client never becomes an error, and never becomes unlimited.
- The work is bounded: at most `hops_max` entries and `_TAIL` characters are read from the right.
- One person has a whole IPv6 network, so IPv6 addresses are grouped by /64; IPv4 stays single. An
  IPv4 address in IPv6 clothes (::ffff:203.0.113.7) is the IPv4 address; zone ids and ports go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

from tidegate.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

UNIX = "unix"  # the word for "a peer on a UNIX socket" in a list of trusted proxies
_TAIL = 8192  # characters of a header that are looked at, from the right
_ENTRY = 128  # the longest entry that can be an address: quotes, brackets, a zone and a port included
_REMEMBERED = 256  # characters of the longest line whose answer is kept
_CACHED_MAX = 4096
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_PORT = re.compile(r":[0-9]{1,5}")
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A pair or nothing, up to the semicolon. The unquoted value is wider than a token: proxies exist that
# write for=192.0.2.43:47011 or a bare IPv6 address, and what is meant is plain.
_PAIR = re.compile(rf'[ \t]*(?:({_WORD})=("(?:[^"\\]|\\.)*"|[^\s;,"=]+))?[ \t]*(?:;|\Z)', re.DOTALL)


@dataclass(frozen=True)
class ClientAddress:
    """Finds the client's address behind the proxies that are `trusted`.

    `trusted` lists networks ("10.0.0.0/8", "2001:db8::/32"), addresses, and "unix" for peers on a
    UNIX socket. `header` is the one that these proxies append to: "x-forwarded-for", "forwarded"
    (RFC 7239) or any other with the same form as the first, such as "x-real-ip".
    `ipv4_prefix` and `ipv6_prefix` say how many leading bits name one client.
    Raises PolicyError at construction for what is no network, and for a network of all addresses:
    who trusts everybody lets every client choose its own address.
    """

    trusted: Sequence[str] = ()
    header: str = "x-forwarded-for"
    ipv4_prefix: int = 32
    ipv6_prefix: int = 64
    hops_max: int = 32
    _masks: tuple[tuple[int, int, int], ...] = field(init=False, repr=False, compare=False)
    _unix: bool = field(init=False, repr=False, compare=False)
    _clients: dict[tuple[str | None, str], str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.trusted, str):
            raise PolicyError(f"trusted is {self.trusted!r}; write a list, for instance [{self.trusted!r}]")
        entries = tuple(self.trusted)
        object.__setattr__(self, "trusted", entries)
        header = str(self.header).strip().lower()
        if not HEADER_NAME.fullmatch(header):
            raise PolicyError(f"header is {self.header!r}; name one header, for instance 'x-forwarded-for'")
        object.__setattr__(self, "header", header)
        check_range("ipv4_prefix", self.ipv4_prefix, 1, 32)
        check_range("ipv6_prefix", self.ipv6_prefix, 1, 128)
        check_range("hops_max", self.hops_max, 1, 1000)
        object.__setattr__(self, "_unix", UNIX in entries)
        object.__setattr__(self, "_clients", {})  # answers already found, emptied when it is full
        networks = [_network(entry) for entry in entries if entry != UNIX]
        masks = tuple((net.version, int(net.netmask), int(net.network_address)) for net in networks)
        object.__setattr__(self, "_masks", masks)

    def of(self, peer: str | None, lines: Sequence[str] = ()) -> str | None:
        """The client of a connection from `peer` that sent `lines` of the header, in their order.

        None where there is no address: a peer on a UNIX socket that is not a trusted proxy, or one
        that says nothing. A peer that is no address but a name (a test client) is its own client.
        """
        if peer is not None and not peer.strip():
            peer = None
        if not self.trusted or not lines:
            return self._name(peer) if peer else None
        if len(lines) > 1 or len(lines[0]) > _REMEMBERED:
            return self._walked(peer, lines)
        asked = (peer, lines[0])
        client = self._clients.get(asked)
        if client is None:
            client = self._walked(peer, lines)
            if len(self._clients) >= _CACHED_MAX:
                self._clients.clear()
            self._clients[asked] = client
        return client

    def _walked(self, peer: str | None, lines: Sequence[str]) -> str | None:
        """The client, found by walking from the peer over the trusted hops."""
        client = peer
        if self._names_proxy(peer):
            for hop in self._hops(lines):
                client = hop
                if not self._names_proxy(hop):
                    break
        return self._name(client) if client else None

    def trusts(self, peer: str | None) -> bool:
        """Whether a connection from this peer comes from one of the trusted proxies."""
        return self._names_proxy(peer)

    def _hops(self, lines: Sequence[str]) -> Iterator[str]:
        """The valid hops from the right, ending before the first entry that is no address."""
        if self.header == "forwarded":
            entries: Iterator[str] = map(_for_of, _parts(lines, _comma_outside_quotes))
        else:
            entries = _parts(lines, _comma)
        for _, entry in zip(range(self.hops_max), entries, strict=False):
            if _parsed(entry) is None:
                return
            yield entry

    def _names_proxy(self, hop: str | None) -> bool:
        """Whether this peer or entry is one of the trusted proxies."""
        if not hop:
            return self._unix
        address = _parsed(hop)
        if address is None:
            return False
        version, number = address.version, int(address)
        return any(number & mask == start and version == of for of, mask, start in self._masks)

    def _name(self, hop: str) -> str:
        return _grouped(hop, self.ipv4_prefix, self.ipv6_prefix)


def _parts(lines: Sequence[str], comma_before: Callable[[str, int], int]) -> Iterator[str]:
    """The parts between the commas of all lines, from the right, out of `_TAIL` characters at most."""
    left = _TAIL
    for line in reversed(lines):
        tail = line[-left:]
        cut = len(tail) < len(line)
        left -= len(tail)
        end = len(tail)
        while True:
            comma = comma_before(tail, end)
            if comma < 0 and cut:
                return  # the left end is missing, so this part is not known whole
            yield tail[comma + 1 : end].strip(" \t")
            if comma < 0:
                break
            end = comma
        if left <= 0:
            return


def _comma(text: str, end: int) -> int:
    """The position of the last comma before `end`, or -1."""
    return text.rfind(",", 0, end)


def _comma_outside_quotes(text: str, end: int) -> int:
    """The same for `Forwarded`, not counting commas in quoted strings.

    It reads backwards, since what a client wrote further left may hold an open quote: read forwards,
    that quote would swallow the element that the proxy appended.
    """
    quoted = False
    place = end
    while True:
        comma = -1 if quoted else text.rfind(",", 0, place)
        quote = text.rfind('"', 0, place)
        if quote <= comma:
            return comma
        place = quote
        if quoted and _is_escaped(text, quote):
            continue
        quoted = not quoted


def _is_escaped(text: str, place: int) -> bool:
    """Whether an odd number of backslashes stands right before `place`."""
    start = place
    while start and text[start - 1] == "\\":
        start -= 1
    return (place - start) % 2 == 1


def _for_of(element: str) -> str:
    """The value of `for` in one forwarded-element, unquoted; "" if absent, doubled or malformed."""
    if len(element) > 4 * _ENTRY:
        return ""
    found, place = "", 0
    while place < len(element):
        pair = _PAIR.match(element, place)
        if pair is None:
            return ""
        if pair[1] and pair[1].lower() == "for":
            if found:
                return ""
            value = pair[2]
            found = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value
        place = pair.end()
    return found


@lru_cache(maxsize=_CACHED_MAX)
def _parsed(entry: str) -> Address | None:
    """The address in "203.0.113.7", "203.0.113.7:443", "2001:db8::1" or "[2001:db8::1]:443", else None."""
    if not 0 < len(entry) <= _ENTRY:
        return None
    if entry[0] == "[":
        inside, bracket, port = entry[1:].partition("]")
        if not bracket or ":" not in inside or not _is_port(port):
            return None
        return _address(inside)
    if entry.count(":") == 1:
        host, colon, port = entry.partition(":")
        return _address(host) if _is_port(colon + port) else None
    return _address(entry)


def _is_port(text: str) -> bool:
    return not text or (_PORT.fullmatch(text) is not None and int(text[1:]) <= 65_535)


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or address


@lru_cache(maxsize=_CACHED_MAX)
def _grouped(hop: str, ipv4_prefix: int, ipv6_prefix: int) -> str:
    """The address in `hop` without port and zone, or its network; a peer that is no address as it is."""
    address = _parsed(hop)
    if address is None:
        return hop
    prefix = ipv4_prefix if address.version == 4 else ipv6_prefix
    if prefix == address.max_prefixlen:
        return str(address)
    return str(ip_network((address, prefix), strict=False))


def _network(entry: object) -> Network:
    """A trusted network as written in a configuration."""
    if not isinstance(entry, str):
        raise PolicyError(f"trusted proxy {entry!r} is not text; write for instance '10.0.0.0/8'")
    try:
        network = ip_network(entry.strip())
    except ValueError as error:
        raise PolicyError(_what_is_wrong(entry, error)) from None
    if network.prefixlen == 0:
        raise PolicyError(f"trusted proxy {entry!r} is every address there is; {_TRUST_ALL}")
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return IPv4Network((mapped, network.prefixlen - 96))
    return network


_TRUST_ALL = "then every client could choose its own address. List the networks of your proxies"


def _what_is_wrong(entry: str, error: ValueError) -> str:
    shown = repr(entry if len(entry) <= 64 else entry[:63] + "…")
    if entry.strip() == "*":
        return f"trusted proxy {shown} is everybody; {_TRUST_ALL}"
    if "host bits" in str(error):
        right = ip_network(entry.strip(), strict=False)
        return f"trusted proxy {shown} has bits set behind its prefix; write {str(right)!r} for the network"
    return (
        f"trusted proxy {shown} is no network or address; write for instance '10.0.0.0/8', '2001:db8::/32', "
        f"'192.0.2.7', or 'unix' for peers on a UNIX socket"
    )


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Raise PolicyError unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(f"{name} is {value!r}; it must be a whole number from {low} to {high}")
