# Servers end with the run that started them, in whatever way that ends.

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers import lifeline
from tests.servers.ports import claim_port, release_port
from tests.servers.process import has_ended
from tests.servers.redis_groups import wait_for
from tests.servers.redis_like import RedisLike

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import os, sys
from tests.servers.postgres import Postgres, _children
from tests.servers.redis_like import RedisLike
redis, postgres = RedisLike().start(), Postgres().start()
redis.freeze()
processes = [redis.pid, postgres.pid, *_children(postgres.pid)]
postgres.freeze()
print(redis.folder, postgres.folder, *processes, flush=True)
if sys.argv[1] == "waits":
    sys.stdin.read()
os._exit(1)
"""


@pytest.mark.parametrize("how", ["waits", "leaves"])
def test_servers_end_with_the_run(how: str):
    """Killed, or gone by os._exit, a run leaves no process and no folder, not even of frozen servers."""
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert run.stdout is not None
    first, second, *processes = run.stdout.readline().split()
    assert len(processes) > 3
    if how == "waits":
        run.send_signal(signal.SIGKILL)
    run.communicate()

    wait_for("the processes have ended", lambda: all(has_ended(int(process)) for process in processes))
    wait_for("the folders are gone", lambda: not Path(first).exists() and not Path(second).exists())


def test_runs_do_not_share_ports():
    """A port that one run has claimed is not given to another, until it is given back."""
    claim = "from tests.servers.ports import _take; import sys; print(_take(int(sys.argv[1])))"
    ports = [claim_port(), claim_port(with_bus=True)]

    def taken_elsewhere(port: int) -> bool:
        said = subprocess.run(
            [sys.executable, "-c", claim, str(port)], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return said.stdout == "True\n"

    wanted = [ports[0], ports[1], ports[1] + 10_000]
    assert [taken_elsewhere(port) for port in wanted] == [False] * 3
    release_port(ports[0])
    release_port(ports[1], with_bus=True)
    assert [taken_elsewhere(port) for port in wanted] == [True] * 3


def test_a_forked_child_ends_no_server(own_redis: Callable[..., RedisLike]):
    """A child that does at its exit what its parent would do leaves the parent's servers alone."""
    server = own_redis()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            lifeline._leave(parent)
        finally:
            os._exit(0)
    os.waitpid(child, 0)

    assert server.command("PING") == b"PONG"
