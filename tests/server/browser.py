"""A Chromium that tests steer over its debugging protocol, and nothing more than they need of it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from websockets.sync.client import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --remote-debugging-port=0 --hide-scrollbars"
).split()
START_WITHIN_S = 30.0


def found() -> str | None:
    """Where Chromium is, None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Tab:
    """One page: what it shows, what it logs, and a way to act in it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []
        """What the page's console and its policy complain of."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=START_WITHIN_S))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        if message["method"] == "Log.entryAdded":
            self.complaints.append(f"{told['entry']['level']}: {told['entry']['text']}")
        elif message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif message["method"] == "Runtime.consoleAPICalled" and told["type"] in {"error", "warning"}:
            self.complaints.append(str(told["args"]))

    def run(self, script: str) -> Any:
        """The value of an expression in the page, a promise's once it is kept."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """The first true value of an expression; an error if it stays false."""
        until_s = time.monotonic() + 30
        while not (value := self.run(script)):
            assert time.monotonic() < until_s, f"{script} stays {value!r}; {self.complaints}"
        return value

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def press(self, key: str, code: str, text: str = "", modifiers: int = 0) -> None:
        """Press and release a key."""
        number = {"Tab": 9, "Enter": 13}.get(key, 0)
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path) -> None:
        """Keep what the whole page looks like."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Tab]:
    """A browser with a fresh profile in that folder; it is stopped at the end."""
    program = found()
    assert program is not None
    with (profile / "log").open("wb") as log:
        running = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(profile)},
        )
    try:
        with connect(_page_address(profile, running), max_size=None, compression=None) as socket:
            yield Tab(socket)
    finally:
        running.terminate()
        try:
            running.wait(10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _page_address(profile: Path, running: subprocess.Popen[bytes]) -> str:
    from urllib.request import urlopen

    written = profile / "DevToolsActivePort"
    until_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until_s and running.poll() is None:
        lines = written.read_text().split() if written.exists() else []
        if lines:
            with urlopen(f"http://127.0.0.1:{lines[0]}/json/list", timeout=START_WITHIN_S) as answer:
                pages = [target for target in json.load(answer) if target["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise AssertionError(f"Chromium did not start: {(profile / 'log').read_text(errors='replace')[-2000:]}")
