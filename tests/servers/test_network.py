# The network that fails on demand fails in the way that it was told to, and heals.

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from tests.servers.network import REPLIES, REQUESTS, Network
from tests.servers.postgres import Postgres
from tests.servers.redis_groups import wait_for
from tests.servers.redis_like import RedisLike
from tests.servers.wire import ask, packed

pytestmark = pytest.mark.real_time


class Client:
    """One connection that sends commands and takes bytes as they come."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 5.0)

    def send(self, *words: str) -> None:
        self.socket.sendall(packed(*words))

    def receive(self, *, within_s: float = 5.0) -> bytes:
        """The next bytes; empty if the connection has ended."""
        self.socket.settimeout(within_s)
        return self.socket.recv(65_536)

    def is_silent(self) -> bool:
        """Whether nothing comes for a fifth of a second."""
        try:
            self.receive(within_s=0.2)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self.socket.close()


@pytest.fixture
def way(valkey: RedisLike, network: Callable[[int], Network]) -> Network:
    """A network before the shared server."""
    return network(valkey.port)


@pytest.fixture
def client(way: Network) -> Iterator[Client]:
    """A connection by way of it."""
    with closing(Client(way.port)) as opened:
        yield opened


def test_it_passes_everything_on(way: Network, valkey: RedisLike):
    """Small and large commands and replies arrive as they were sent."""
    large = "x" * 5_000_000

    assert ask(way.port, "SET", "a", large) == b"OK"
    assert ask(way.port, "GET", "a") == large.encode()
    assert way.accepted == 2
    assert way.through(valkey.url) == f"redis://127.0.0.1:{way.port}/0"
    wait_for("closed connections are forgotten", lambda: way.open == 0)


def test_it_swallows_all(way: Network, client: Client, valkey: RedisLike):
    """Connections are taken, and nobody hears of what is sent; new ones are served once it is healed."""
    client.send("PING")
    assert client.receive() == b"+PONG\r\n"
    way.swallow()
    client.send("INCR", "a")
    with closing(Client(way.port)) as late:
        late.send("INCR", "a")
        assert client.is_silent()
        assert late.is_silent()

        way.heal()
        assert ask(way.port, "EXISTS", "a") == 0
        late.send("PING")
        assert late.is_silent()  # a stream with a hole in it is not delivered


def test_it_swallows_replies(way: Network, client: Client, valkey: RedisLike):
    """The server does what it is asked, and the client does not learn of it."""
    way.swallow(REPLIES)
    client.send("INCR", "a")

    assert client.is_silent()
    assert valkey.command("GET", "a") == b"1"


def test_it_swallows_requests(way: Network, client: Client, valkey: RedisLike):
    """The server is not asked on an open connection, and still replies to what it got before."""
    client.send("BLPOP", "list", "0")
    wait_for("it blocks", lambda: valkey.info("clients")["blocked_clients"] == "1")
    way.swallow(REQUESTS)
    valkey.command("RPUSH", "list", "late")
    assert b"late" in client.receive()

    client.send("INCR", "a")
    assert client.is_silent()
    assert valkey.command("EXISTS", "a") == 0


def test_it_holds(way: Network, client: Client, valkey: RedisLike):
    """What is held is not lost: it arrives when the network heals."""
    client.send("INCR", "a")
    assert client.receive() == b":1\r\n"
    way.hold()
    client.send("INCR", "a")
    assert client.is_silent()
    assert valkey.command("GET", "a") == b"1"

    way.heal()
    assert client.receive() == b":2\r\n"


def test_it_delays(way: Network, client: Client):
    """Replies come later by what was said, and in their order; what is healed delivers at once."""
    way.delay(0.3, request_s=0.1)
    began_s = time.monotonic()
    client.send("ECHO", "one")
    client.send("ECHO", "two")
    received = b""
    while b"two" not in received:
        received += client.receive()
    took_s = time.monotonic() - began_s

    assert received == b"$3\r\none\r\n$3\r\ntwo\r\n"
    assert took_s >= 0.4

    way.delay(1_000.0)
    client.send("ECHO", "held")
    assert client.is_silent()
    way.heal()
    client.send("PING")
    received = b""
    while b"PONG" not in received:
        received += client.receive()
    assert received == b"$4\r\nheld\r\n+PONG\r\n"


def test_it_cuts(way: Network, client: Client, valkey: RedisLike):
    """A connection ends after so many bytes of the reply, or of the request, which then is never whole."""
    way.cut_after(3)
    client.send("PING")
    received = b""
    while more := client.receive():
        received += more
    assert received == b"+PO"

    way.cut_after(10, REQUESTS)
    with closing(Client(way.port)) as other:
        other.send("INCR", "a")
        assert other.receive() == b""
    assert valkey.command("EXISTS", "a") == 0


def test_it_cuts_once(way: Network, client: Client):
    """Only the first connection that gets there is ended."""
    way.cut_after(0, once=True)
    with closing(Client(way.port)) as other:
        client.send("PING")
        assert client.receive() == b""

        other.send("PING")
        assert other.receive() == b"+PONG\r\n"


def test_it_refuses(way: Network, client: Client):
    """New connections are refused, open ones stay."""
    way.refuse()
    with pytest.raises(ConnectionRefusedError):
        ask(way.port, "PING")
    client.send("PING")
    assert client.receive() == b"+PONG\r\n"

    way.heal()
    assert ask(way.port, "PING") == b"PONG"


def test_it_drops(way: Network, client: Client):
    """Open connections are broken, new ones are taken."""
    client.send("PING")
    client.receive()
    way.drop()

    with pytest.raises(ConnectionResetError):
        client.receive()
    assert ask(way.port, "PING") == b"PONG"


def test_it_leads_elsewhere(way: Network, own_redis: Callable[..., RedisLike]):
    """New connections reach the other server; where nobody listens they are broken."""
    other = own_redis()
    other.command("SET", "a", "elsewhere")
    way.lead_to(other.port)
    assert ask(way.port, "GET", "a") == b"elsewhere"

    other.kill()
    with pytest.raises(ConnectionError):
        ask(way.port, "PING")


def test_it_carries_postgres(postgres: Postgres, network: Callable[[int], Network]):
    """PostgreSQL is reached by it too, and its client sees a cut as a lost connection."""
    way = network(postgres.port)
    url = way.through(postgres.url)
    assert postgres.sql("SELECT 1", url=url) == [(1,)]

    with psycopg.connect(url) as connection:
        way.cut_after(5)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_closed_one_is_gone(valkey: RedisLike):
    """Its port refuses, and its connections are broken."""
    with Network(valkey.port) as way:
        client = Client(way.port)
        client.send("PING")
        client.receive()

    with closing(client), pytest.raises(ConnectionResetError):
        client.receive()
    with pytest.raises(ConnectionRefusedError):
        ask(way.port, "PING")
