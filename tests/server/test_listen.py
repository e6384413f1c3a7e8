# What a client can do to a connection: the server goes on answering the others.

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.running import Running, server
from tidegate.server.listen import HEAD_BYTES_MOST, Hangups

pytestmark = pytest.mark.real_time

POLICY = """\
version: 1
rules:
  - name: address
    by: [address]
    limit: {algorithm: token_bucket, capacity: 100000, rate: 1/s}
"""
QUICK = "tidegate.server.listen.REQUEST_WITHIN_S = tidegate.server.requests.BODY_WITHIN_S = 0.3"
GET = b"GET /auth HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server as it is."""
    yield from _running(tmp_path_factory.mktemp("listen"), "")


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that gives a request three tenths of a second to arrive."""
    yield from _running(tmp_path_factory.mktemp("hurried"), QUICK)


def _running(folder: Path, before: str) -> Iterator[Running]:
    (folder / "policy.yaml").write_text(POLICY)
    with server(folder, folder / "policy.yaml", before=before) as running:
        yield running
        assert running.stop() == 0
        assert running.complaints() == "", "a stranger's request is no news"


def connected(running: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), timeout=20)


def answers(connection: socket.socket, count: int) -> list[int]:
    """The statuses of so many answers with a Content-Length, in order."""
    received = b""
    statuses: list[int] = []
    while len(statuses) < count:
        head, end, rest = received.partition(b"\r\n\r\n")
        if end:
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            if len(rest) >= length:
                statuses.append(int(head.split()[1]))
                received = rest[length:]
                continue
        part = connection.recv(65_536)
        assert part, f"closed after {statuses} and {received[:200]!r}"
        received += part
    assert received == b""
    return statuses


def rest_of(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionResetError:
        pass  # it closed without reading all that was sent
    return received


def test_many_requests_in_one_breath(running: Running):
    """Pipelined requests are answered one by one and in order, each decided once."""
    with connected(running) as connection:
        connection.sendall(GET * 200 + b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n" + GET)

        assert answers(connection, 202) == [200] * 200 + [404, 200]


def test_a_body_that_nobody_reads_does_not_hurt_the_next_request(running: Running):
    """/auth ignores a body, however long; the next request on the connection is understood."""
    body = b"GET /nothing HTTP/1.1\r\n\r\n" * 20_000
    with connected(running) as connection:
        connection.sendall(b"POST /auth HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body + GET)

        assert answers(connection, 2) == [200, 200]


def test_a_body_in_chunks(running: Running):
    """A chunked body is put together, one that grows too large is a 413, and the connection goes on."""
    head = b"POST /v1/decide HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    good = json.dumps({"attributes": {"address": "x"}}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in good) + b"0\r\n\r\n"
    large = (b"10000\r\n" + b" " * 65_536 + b"\r\n") * 20 + b"0\r\n\r\n"
    with connected(running) as connection:
        connection.sendall(head + chunks + head + large + GET)

        assert answers(connection, 3) == [200, 413, 200]


def test_who_asks_before_sending_is_told_to_go_on(running: Running):
    """Expect: 100-continue is answered for a body that is wanted."""
    with connected(running) as connection:
        connection.sendall(
            b"POST /v1/decide HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: 17\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(1024).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b'{"attributes":{}}')
        assert answers(connection, 1) == [200]


def test_an_old_client(running: Running):
    """HTTP/1.0 is answered and closed."""
    with connected(running) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")

        assert rest_of(connection).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300,
        b"GET\r\n\r\n",
        b"\x00" * 100,
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /auth HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET /auth HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_closed(garbage: bytes, running: Running):
    """Bytes that are no HTTP/1.1 request are answered by 4xx or nothing, and the connection is closed."""
    with connected(running) as connection:
        connection.sendall(garbage)

        received = rest_of(connection)
        assert received == b"" or received.startswith(b"HTTP/1.1 4")
    assert running.get("/auth")[0] == 200


def test_a_websocket_is_an_ordinary_request(running: Running):
    """There are no websockets: the handshake is answered like the request it is."""
    with connected(running) as connection:
        connection.sendall(
            b"GET /auth HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )

        assert connection.recv(1024).startswith(b"HTTP/1.1 200 OK")


def test_a_head_that_does_not_end_is_cut_off(running: Running):
    """A head beyond 64 KiB is a 431, so no client can fill the memory with fields."""
    with connected(running) as connection:
        connection.sendall(b"GET /auth HTTP/1.1\r\nHost: a\r\n")
        try:
            for number in range(100):
                connection.sendall(b"X-Field-%d: " % number + b"x" * (HEAD_BYTES_MOST // 10) + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has closed already
        received = rest_of(connection)

    assert received == b"" or received.startswith(b"HTTP/1.1 431 ")
    assert running.get("/auth")[0] == 200


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET",
        b"GET /auth HTTP/1.1\r\nHost: a\r\nX-",
        b"POST /v1/decide HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        GET + b"GET /auth HTT",
    ],
)
def test_who_is_too_slow_is_closed(beginning: bytes, hurried: Running):
    """A connection whose request does not arrive in time is closed, however far it has come."""
    began_s = time.monotonic()
    with connected(hurried) as connection:
        connection.sendall(beginning)

        received = rest_of(connection)
        assert time.monotonic() - began_s < 10
    assert received.count(b"HTTP/1.1 200") == beginning.count(GET)


def drip(connection: socket.socket) -> None:
    """Send a byte now and then, for ten seconds at most."""
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        connection.sendall(b"x")
        time.sleep(0.05)


def test_who_drips_is_closed(hurried: Running):
    """A byte now and then does not keep a request alive beyond its time."""
    with connected(hurried) as connection:
        connection.sendall(b"GET /auth HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(connection)


def test_a_quiet_connection_is_kept(hurried: Running):
    """A client that has been answered may rest longer than a request may take to arrive."""
    with connected(hurried) as connection:
        connection.sendall(GET)
        assert answers(connection, 1) == [200]
        until_s = time.monotonic() + 1.6
        while time.monotonic() < until_s:
            assert hurried.get("/healthz")[0] == 200
        connection.sendall(GET)
        assert answers(connection, 1) == [200]


def test_slow_clients_hold_nobody_up(running: Running):
    """While two hundred connections wait for bytes that do not come, another client is served."""
    slow = [connected(running) for _ in range(200)]
    try:
        for connection in slow:
            connection.sendall(b"POST /v1/decide HTTP/1.1\r\n")
        assert running.get("/auth")[0] == 200
    finally:
        for connection in slow:
            connection.close()


def test_the_peer_is_the_peer(running: Running):
    """No header from a stranger changes who is counted, whichever the server below would know."""
    with connected(running) as connection:
        for name in (b"X-Forwarded-For", b"Forwarded", b"X-Real-IP", b"X-Client-IP"):
            connection.sendall(b"GET /auth HTTP/1.1\r\nHost: a\r\n%b: 203.0.113.7\r\n\r\n" % name)
            answers(connection, 1)
    asked = json.dumps({"attributes": {"address": "203.0.113.7"}, "peek": True}).encode()
    _, _, body = running.get("/v1/decide", {"Content-Type": "application/json"}, method="POST", body=asked)

    assert json.loads(body)["balance"] == 100_000


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_hang_up_before_the_loop_runs_is_kept():
    """A SIGHUP while the server starts is one reload once it runs, and later ones are one at a time."""
    calls: list[str] = []
    hangups = Hangups()
    before = signal.getsignal(signal.SIGHUP)

    async def reload() -> None:
        calls.append("begin")
        if len(calls) == 1:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0)
        calls.append("end")

    async def main() -> None:
        hangups.begin()
        for _ in range(20):
            await asyncio.sleep(0)

    try:
        hangups.listen()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        hangups.reload = reload
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGHUP, before)

    assert calls == ["begin", "end"] * 2
