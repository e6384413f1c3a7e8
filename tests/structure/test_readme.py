# The first minute of a newcomer: what README.md says to type, typed.
#
# The server and the requests are real, and so is the time between them. A round of requests takes
# milliseconds; where the machine stalls for about as long as a token takes to come back, another round is
# asked for once all tokens are back.

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from tests.structure.markdown import blocks

ROOT = Path(__file__).resolve().parents[2]
README = list(blocks((ROOT / "README.md").read_text(encoding="utf-8")))
COMMANDS = [
    line.partition("#")[0].strip()
    for block in README
    if block.language == "sh"
    for line in block.text.splitlines()
]

ROUNDS_MOST = 8
TOKEN_S = 0.2  # 5/s
FRESH_S = 4.0  # 20 tokens at 5/s


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server started as `make run` starts it, on a free port; stopped by its process."""
    recipe = re.search(
        r"^run:.*\n\t@?\$\(BIN\)/tidegate (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert recipe, "the Makefile's `run` starts tidegate"
    server = subprocess.Popen(
        [sys.executable, "-m", "tidegate", *shlex.split(recipe[1]), "--port", "0"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "src", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/?\n", said)):
            line = server.stdout.readline()
            assert line, f"the server ended before it said where it is: {said}"
            said += line
        yield int(found[1])
    finally:
        server.terminate()
        server.wait(timeout=20)
        server.stdout.close()


def the_curl() -> tuple[str, int, list[str]]:
    """Host, port and paths of the README's one curl, its [1-21] written out."""
    (line,) = [command for command in COMMANDS if command.startswith("curl ")]
    (url,) = [word for word in shlex.split(line) if word.startswith("http://")]
    found = re.fullmatch(r"http://([\d.]+):(\d+)(/[^\[]*)\[(\d+)-(\d+)\]", url)
    assert found, url
    numbers = range(int(found[4]), int(found[5]) + 1)
    return found[1], int(found[2]), [f"{found[3]}{number}" for number in numbers]


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    body: bytes


def ask(port: int, paths: list[str]) -> tuple[list[Answer], float]:
    """Send all requests at once on one connection; the answers, and the seconds that all of it took."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        connection.makefile("rb") as stream,
    ):
        begun = time.monotonic()
        connection.sendall(
            b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths)
        )
        answers = [_read(stream) for _ in paths]
        return answers, time.monotonic() - begun


def _read(stream: BinaryIO) -> Answer:
    status = int(stream.readline().split()[1])
    fields = {}
    while line := stream.readline().decode().strip():
        field, _, value = line.partition(": ")
        fields[field.lower()] = value
    return Answer(status, fields, stream.read(int(fields["content-length"])))


def test_the_two_commands_exist():
    """The README's two commands are targets of the Makefile."""
    made = [command.split()[1] for command in COMMANDS if command.startswith("make ")]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert made == ["run", "test"]
    assert set(made) <= set(targets)


def test_the_curl_goes_where_the_server_is():
    """The address in the README is the one that the example policy makes the server listen on."""
    host, port, paths = the_curl()
    policy = (ROOT / "examples" / "policy.yaml").read_text(encoding="utf-8")

    assert (host, port, len(paths)) == ("127.0.0.1", 8080, 21)
    assert "host: 127.0.0.1" in policy
    assert "port: 8080" in policy


@pytest.mark.real_time
def test_the_twenty_first_call_is_refused(port: int):
    """Twenty calls pass and the twenty-first is a 429; who waits as long as its hint says is served."""
    _, _, paths = the_curl()
    for _ in range(ROUNDS_MOST):
        answers, took_s = ask(port, paths)
        if took_s < TOKEN_S * 0.9:
            break
        time.sleep(FRESH_S)
    else:
        pytest.fail(f"of {ROUNDS_MOST} rounds of 21 requests none took less than {TOKEN_S * 0.9:g} s")

    assert [answer.status for answer in answers] == [200] * 20 + [429]
    hint_ms = json.loads(answers[-1].body)["retry_after_ms"]
    assert 0 < hint_ms <= TOKEN_S * 1000
    assert int(answers[-1].fields["retry-after"]) * 1000 >= hint_ms

    time.sleep(hint_ms / 1000)
    assert [answer.status for answer in ask(port, paths[:1])[0]] == [200]
