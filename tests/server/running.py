# A real server in a process of its own, on a free port of the loopback interface, stopped by its process id.

from __future__ import annotations

import http.client
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 30.0
PROGRAM = """
import sys
import tidegate.server.listen, tidegate.server.requests
{}
from tidegate.server.serve import run
path, host, port = sys.argv[1:]
sys.exit(run(path or None, host=host or None, port=int(port)))
"""


class Running:
    """A server that has started: where it is, and what it says."""

    def __init__(self, process: subprocess.Popen[bytes], complaints: Path) -> None:
        self.process = process
        self._complaints = complaints
        self.said = ""
        self.base = ""
        self.port = 0

    def complaints(self) -> str:
        """What has been written to standard error."""
        return self._complaints.read_text(errors="replace")

    def started(self) -> None:
        """Wait until it says where it is."""
        assert self.process.stdout is not None
        until_s = time.monotonic() + WITHIN_S
        while "open     " not in self.said or not self.said.endswith("\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until_s - time.monotonic()))
            part = os.read(self.process.stdout.fileno(), 65_536) if ready else b""
            assert part, f"the server did not start: {self.said}{self.complaints()}"
            self.said += part.decode()
        self.base = self.said.split("open     ")[1].split()[0].rstrip("/")  # "open" alone may be in a path
        self.port = urlsplit(self.base).port or 0

    def wait_for_complaint(self, text: str) -> str:
        """What stands in standard error, once this text does."""
        until_s = time.monotonic() + WITHIN_S
        while text not in self.complaints():
            assert time.monotonic() < until_s, self.complaints()
            time.sleep(0.02)
        return self.complaints()

    def get(
        self,
        target: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, fields and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        try:
            connection.request(method, target, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def hang_up(self) -> None:
        """Ask for a reload."""
        self.process.send_signal(signal.SIGHUP)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(WITHIN_S)


@contextmanager
def launched(
    folder: Path,
    path: Path | None = None,
    *,
    host: str = "",
    port: int = 0,
    env: Mapping[str, str] | None = None,
    before: str = "",
) -> Iterator[Running]:
    """A server process that may still be starting; killed at the end if it is there.

    `before` is a statement to run first, for shorter times than anybody would want to wait for.
    """
    complaints = folder / f"stderr-{time.monotonic_ns()}"
    with complaints.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before), str(path or ""), host, str(port)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})},
            cwd=folder,
        )
    try:
        yield Running(process, complaints)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def server(
    folder: Path, path: Path | None = None, *, env: Mapping[str, str] | None = None, before: str = ""
) -> Iterator[Running]:
    """A server that answers."""
    with launched(folder, path, env=env, before=before) as running:
        running.started()
        yield running
