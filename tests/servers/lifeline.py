# Whatever happens to the run of tests, its servers end and their folders go.
#
# A watching process reads from a pipe what has been started. When the pipe closes, because the run has ended
# in whatever way (kill -9 and os._exit included), it kills what is left, by process id, and removes the
# folders. A process that ended is struck off once it has been waited for, so that a number given out anew is
# never hit.

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock

WATCHER = """
import os, shutil, signal, sys, time
left = set()
for line in sys.stdin:
    verb, _, what = line.rstrip("\\n").partition(" ")
    (left.add if verb == "started" else left.discard)(what)
processes = [int(what) for what in left if what.isdigit()]
for process in processes:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
if processes:
    time.sleep(0.2)  # a server's own children may still be writing
for folder in left:
    if not folder.isdigit():
        shutil.rmtree(folder, ignore_errors=True)
"""

_watchers: dict[int, subprocess.Popen[str]] = {}  # by the process that it watches: a fork has none of its own
_writing = Lock()


def started(what: int | Path) -> None:
    """From now on this process is killed, or this folder removed, when the run of tests ends."""
    _tell(f"started {what}\n")


def ended(what: int | Path) -> None:
    """This process has been waited for, or this folder removed: nothing is left to do about it."""
    _tell(f"ended {what}\n")


def _tell(line: str) -> None:
    with _writing:
        watcher = _watchers.get(os.getpid()) or _watch()
        assert watcher.stdin is not None
        watcher.stdin.write(line)
        watcher.stdin.flush()


def _watch() -> subprocess.Popen[str]:
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WATCHER], stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    _watchers[os.getpid()] = watcher
    atexit.register(_leave, os.getpid())
    return watcher


def _leave(process: int) -> None:
    if os.getpid() == process:
        _watchers.pop(process).communicate()
