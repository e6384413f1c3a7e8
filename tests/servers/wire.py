# One command to a server that speaks the Redis protocol, on a connection of its own.
#
# Independent of every client library: a test can tell what the server holds from what a client believes.
# Replies are as the server sent them (RESP2): bytes, whole numbers, None, lists; an error is raised.

from __future__ import annotations

import socket
from typing import Any, BinaryIO


class Refused(Exception):
    """The server answered with an error."""


def ask(port: int, *words: str | bytes | float, password: str = "", timeout_s: float = 5.0) -> Any:
    """The reply to one command; TimeoutError if a read or the connection takes longer than `timeout_s`."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as line, line.makefile("rb") as replies:
        if password:
            line.sendall(packed("AUTH", password))
            _reply(replies)
        line.sendall(packed(*words))
        return _reply(replies)


def packed(*words: str | bytes | float) -> bytes:
    """A command as it travels."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _reply(replies: BinaryIO) -> Any:
    line = replies.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest
    if kind == b"-":
        raise Refused(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else replies.read(int(rest) + 2)[:-2]
    assert kind == b"*", line
    return None if rest == b"-1" else [_reply(replies) for _ in range(int(rest))]
