# Ports for servers of the tests, no two alike, however many test runs share the machine.
#
# They lie below 32768, where systems begin to hand out ports by themselves, so that nobody is given one while
# its server is down between two starts. A port is claimed by a record lock on its own byte of one file: the
# lock belongs to this process and ends with it. The lower part is for nodes of a Redis cluster, which also
# take the port that stands 10,000 higher; they get their claim on both.

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from threading import Lock

CLUSTER_PORTS = range(20_000, 22_000)
OTHER_PORTS = range(22_000, 30_000)
BUS_OFFSET = 10_000

_claimed: set[int] = set()
_claiming = Lock()
_files: dict[int, int] = {}  # process id -> descriptor: a forked child holds none of its parent's locks
_chance = random.SystemRandom()  # a test that seeds `random` must not make two runs meet


def claim_port(*, with_bus: bool = False) -> int:
    """A port on which nothing listens and that no other run will take, until `release_port`."""
    ports = CLUSTER_PORTS if with_bus else OTHER_PORTS
    with _claiming:
        for port in _chance.sample(ports, len(ports)):
            if _take(port):
                if not with_bus or _take(port + BUS_OFFSET):
                    return port
                _give_back(port)
    raise OSError(f"no port is free in {ports}")


def release_port(port: int, *, with_bus: bool = False) -> None:
    """Let others have the port."""
    with _claiming:
        _give_back(port)
        if with_bus:
            _give_back(port + BUS_OFFSET)


def _take(port: int) -> bool:
    if port in _claimed:
        return False
    try:
        fcntl.lockf(_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _claimed.add(port)
    if not _is_silent(port):
        _give_back(port)
        return False
    return True


def _give_back(port: int) -> None:
    _claimed.discard(port)
    fcntl.lockf(_file(), fcntl.LOCK_UN, 1, port)


def _is_silent(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _file() -> int:
    process = os.getpid()
    if process not in _files:
        path = Path(tempfile.gettempdir(), f"tidegate-test-ports-{os.getuid()}")
        _files[process] = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    return _files[process]
