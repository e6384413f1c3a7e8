# `tidegate serve` as a process: what it says, what it obeys, and that nothing is served by a bad file.

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.asked import samples_in
from tests.server.running import launched, server
from tests.servers.postgres import Database
from tests.servers.redis_like import RedisLike
from tidegate.server.serve import exposure

pytestmark = pytest.mark.real_time

GOOD = """\
version: 1
rules:
  - name: address
    by: [address]
    limit: {algorithm: token_bucket, capacity: 3, rate: 0/s}
"""
OTHER = GOOD.replace("capacity: 3", "capacity: 7")


def written(folder: Path, text: str, name: str = "policy.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_readme_holds(tmp_path: Path):
    """Without a file the example is served: 20 calls pass, the 21st is refused, and Retry-After is obeyed."""
    with server(tmp_path) as running:
        assert f"open     {running.base}/\n" in running.said
        assert f"'{running.base}/auth?n=[1-21]'   # call 21 is refused" in running.said
        answers = [running.get(f"/auth?n={n}") for n in range(1, 21)]
        assert [status for status, _, _ in answers] == [200] * 20
        later = (running.get(f"/auth?n={n}") for n in range(21, 200))
        # The 21st, unless the machine was so slow that some of the 5 a second came back.
        status, headers, body = next(answer for answer in later if answer[0] != 200)
        assert status == 429
        assert headers["content-type"] == "application/problem+json"
        assert headers["ratelimit"].startswith('"address";r=0;t=')
        assert json.loads(body)["violated-policies"] == ["address"]
        refused_at_s = time.monotonic()
        wait_s = int(headers["retry-after"])
        assert wait_s == 1
        while time.monotonic() < refused_at_s + wait_s:
            time.sleep(0.01)
        assert running.get("/auth")[0] == 200
        assert running.stop() == 0
        assert running.complaints() == ""


def test_the_page_health_and_metrics_are_served(tmp_path: Path):
    """What is there to look at is there, and the metrics are what Prometheus reads."""
    with server(tmp_path) as running:
        status, headers, body = running.get("/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"Up to 20 at once" in body
        assert "server" not in headers
        assert json.loads(running.get("/healthz")[2]) == {"status": "ok", "rules": 3}
        running.get("/auth")
        shown = samples_in(running.get("/metrics")[2].decode())
        assert shown["tidegate_decisions_total", "memory", "allowed"] == 1
        assert shown["process_open_fds",] > 0


BAD = {
    "unknown key": (GOOD.replace("by:", "bye:"), ":4: rules.address: "),
    "bad YAML": (GOOD + "  - {name: [", ":6: "),
    "unknown unit": (GOOD.replace("0/s", "5/horu"), ":5: rules.address.limit.rate: "),
    "bare number": (GOOD.replace("0/s", "5"), ":5: rules.address.limit.rate: "),
    "duplicate rule": (GOOD + GOOD.partition("rules:\n")[2], ":6: rules[1]: "),
    "duplicate key": (GOOD + "version: 1\n", ":6: "),
    "empty": ("", ":1: "),
    "no rules": ("version: 1\nrules: []\n", ":2: rules: "),
    "half written": (GOOD[: GOOD.index("rate")], ""),
    "cut at a line": (GOOD[: GOOD.index("    limit")], ""),
    "no UTF-8": (GOOD + "# \udcff\n", ""),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_a_failure_to_start(kind: str, tmp_path: Path):
    """C163: at first start a bad file ends the process with code 2, naming the file and the place."""
    text, place = BAD[kind]
    path = tmp_path / "policy.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))

    with launched(tmp_path, path) as running:
        assert running.process.wait(30) == 2
        assert f"{path}{place}" in running.complaints()
        assert "Traceback" not in running.complaints()
        assert running.process.stdout is not None
        assert running.process.stdout.read() == b""


def test_a_bad_file_leaves_the_last_good_one_in_force(tmp_path: Path):
    """C163: each kind of bad file is refused whole on SIGHUP, names file and place, and changes nothing."""
    path = written(tmp_path, GOOD)
    with server(tmp_path, path) as running:
        assert [running.get("/auth")[0] for _ in range(2)] == [200, 200]
        for number, (text, place) in enumerate(BAD.values(), 1):
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
            running.hang_up()
            _wait_for_reloads(running, failed=number, ok=0)
            assert f"{path}{place}" in running.complaints()
        assert "the configuration before it stays in force" in running.complaints()
        assert "the last reload failed" in json.loads(running.get("/healthz")[2])["reload"]
        assert [running.get("/auth")[0] for _ in range(2)] == [200, 429]

        path.write_text(OTHER)
        running.hang_up()
        _wait_for_reloads(running, failed=len(BAD), ok=1)
        assert json.loads(running.get("/healthz")[2]) == {"status": "ok", "rules": 1}
        status, headers, _ = running.get("/auth")
        assert (status, headers["ratelimit-policy"]) == (429, '"address";q=7')  # raised, and still used up
        assert running.stop() == 0
        assert "Traceback" not in running.complaints()


def _wait_for_reloads(running, *, failed: int, ok: int) -> None:
    until_s = time.monotonic() + 30
    while True:
        shown = samples_in(running.get("/metrics")[2].decode())
        counted = shown["tidegate_reloads_total", "failed"], shown["tidegate_reloads_total", "ok"]
        if counted == (failed, ok):
            return
        assert time.monotonic() < until_s, (counted, running.complaints())
        time.sleep(0.02)


def test_a_missing_file_is_a_failure_to_start(tmp_path: Path):
    """A file that is not there ends the process with code 2."""
    with launched(tmp_path, tmp_path / "none.yaml") as running:
        assert running.process.wait(30) == 2
        assert "there is no such file" in running.complaints()


def test_hang_ups_in_a_row_end_in_the_newest_file(tmp_path: Path):
    """Many SIGHUPs while files change neither end the process nor leave an older file in force."""
    path = written(tmp_path, GOOD)
    with server(tmp_path, path) as running:
        for capacity in range(10, 60):
            path.write_text(GOOD.replace("capacity: 3", f"capacity: {capacity}"))
            running.hang_up()
        until_s = time.monotonic() + 30
        while running.get("/auth")[1].get("ratelimit-policy") != '"address";q=59':
            assert time.monotonic() < until_s, running.complaints()
            time.sleep(0.05)
        assert running.stop() == 0


def test_a_hang_up_without_a_file_is_told(tmp_path: Path):
    """The example cannot be read again; SIGHUP says so and nothing ends."""
    with server(tmp_path) as running:
        running.hang_up()
        running.wait_for_complaint("there is no file to read again")
        assert running.get("/auth")[0] == 200


def test_a_reload_by_token(tmp_path: Path):
    """With a token from the environment POST /v1/reload reads the file again; without it nothing changes."""
    path = written(tmp_path, GOOD + "server: {token: {env: TIDEGATE_TOKEN}}\n")
    with server(tmp_path, path, env={"TIDEGATE_TOKEN": "s3cret"}) as running:
        for _ in range(3):
            running.get("/auth")
        path.write_text(path.read_text().replace("capacity: 3", "capacity: 7"))
        bearer = {"Authorization": "Bearer s3cret"}

        assert running.get("/v1/reload", {"Authorization": "Bearer x"}, method="POST")[0] == 401
        assert running.get("/auth")[1]["ratelimit-policy"] == '"address";q=3'
        status, _, body = running.get("/v1/reload", bearer, method="POST")
        assert (status, json.loads(body)) == (200, {"reloaded": True, "rules": 1})
        assert running.get("/auth")[1]["ratelimit-policy"] == '"address";q=7'
        path.write_text(GOOD + "server: {port: 1}\n")
        status, _, body = running.get("/v1/reload", bearer, method="POST")
        assert (status, "needs a restart" in json.loads(body)["problems"][0]) == (422, True)
        fresh = {**bearer, "Content-Type": "application/json"}
        asked = b'{"attributes": {"address": "127.0.0.1"}}'
        assert running.get("/v1/reset", fresh, method="POST", body=asked)[0] == 200
        assert running.get("/auth")[0] == 200


def test_a_token_that_is_not_set_is_a_failure_to_start(tmp_path: Path):
    """A token from a variable that is not there is an error at the start, never an open door."""
    path = written(tmp_path, GOOD + "server: {token: {env: TIDEGATE_TOKEN}}\n")
    with launched(tmp_path, path, env={"TIDEGATE_TOKEN": ""}) as running:
        assert running.process.wait(30) == 2
        assert "TIDEGATE_TOKEN" in running.complaints()


def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path):
    """A taken port ends the process with code 1 and one line that says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with launched(tmp_path, port=port) as running:
            assert running.process.wait(30) == 1
            (line,) = running.complaints().splitlines()
            assert f"port {port} on 127.0.0.1 is taken" in line
            assert "--port" in line


@pytest.mark.parametrize(
    ("host", "said"), [("no.such.host.invalid", "is not known here"), ("192.0.2.1", "no address of")]
)
def test_an_address_that_cannot_be_had(host: str, said: str, tmp_path: Path):
    """A host that is unknown, or belongs to another machine, ends the process with code 1 and one line."""
    with launched(tmp_path, host=host) as running:
        assert running.process.wait(30) == 1
        (line,) = running.complaints().splitlines()
        assert said in line


def test_other_interfaces_come_with_a_warning():
    """Listening beyond this machine without trusted proxies is said to be a risk; the loopback is none."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "fe80::1%eth0"):
        assert "can be reached from other machines" in str(exposure(host, []))
        assert exposure(host, ["10.0.0.0/8"]) is None
    for host in ("127.0.0.1", "127.1.2.3", "::1"):
        assert exposure(host, []) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_is_at_hand(number: int, tmp_path: Path):
    """A request that is held until its turn is still answered after SIGTERM or SIGINT, and the code is 0."""
    line = """\
version: 1
rules:
  - name: jobs
    limit: {algorithm: leaky_queue, capacity: 5, rate: 2/s}
    by: []
"""
    with server(tmp_path, written(tmp_path, line)) as running:
        assert running.get("/auth")[0] == 200
        with socket.create_connection(("127.0.0.1", running.port)) as waiting:
            waiting.sendall(b"GET /auth HTTP/1.1\r\nHost: a\r\n\r\n")
            until_s = time.monotonic() + 30
            while samples_in(running.get("/metrics")[2].decode())["tidegate_held_requests",] != 1:
                assert time.monotonic() < until_s
            running.process.send_signal(number)
            assert waiting.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        assert running.process.wait(30) == 0
        assert "Traceback" not in running.complaints()


SHARED = """\
version: 1
store: {{url: "{url}", deadline: 2s}}
rules:
  - name: cap
    by: [address]
    limit: {{algorithm: token_bucket, capacity: 3, rate: 0/s}}
    {more}
"""


@pytest.mark.parametrize(
    ("options", "url", "more", "said"),
    [
        (
            {"save": "3600 1"},
            "redis://127.0.0.1:{}/0",
            "strict: true",
            "may forget what strict rules have charged: save is '3600 1'",
        ),
        ({"requirepass": "right"}, "redis://:wrong@127.0.0.1:{}/0", "", "invalid username-password pair"),
        ({"requirepass": "right"}, "redis://127.0.0.1:{}/0", "", "Authentication required"),
    ],
)
def test_a_store_that_refuses_us_is_a_failure_to_start(
    options: dict[str, str],
    url: str,
    more: str,
    said: str,
    own_redis: Callable[..., RedisLike],
    tmp_path: Path,
):
    """What waiting does not mend ends the process with code 2 and one line, before anything listens."""
    there = own_redis(**options)
    path = written(tmp_path, SHARED.format(url=url.format(there.port), more=more))
    with launched(tmp_path, path) as running:
        assert running.process.wait(30) == 2
        (line,) = running.complaints().splitlines()
        assert said in line
        assert "does not answer" not in line
        assert "wrong" not in line
        assert running.process.stdout is not None
        assert running.process.stdout.read() == b""


def test_a_schema_that_is_not_there_is_a_failure_to_start(database: Database, tmp_path: Path):
    """The line says how to make it."""
    with launched(tmp_path, written(tmp_path, SHARED.format(url=database.url, more=""))) as running:
        assert running.process.wait(30) == 2
        (line,) = running.complaints().splitlines()
        assert "run: tidegate store init URL" in line


def test_a_reload_looks_at_the_store_too(own_redis: Callable[..., RedisLike], tmp_path: Path):
    """A strict rule that the server must not hold is not put in force; what was goes on."""
    there = own_redis(save="3600 1")
    path = written(tmp_path, SHARED.format(url=there.url, more=""))
    with server(tmp_path, path) as running:
        path.write_text(SHARED.format(url=there.url, more="strict: true"))
        running.hang_up()
        running.wait_for_complaint("may forget what strict rules have charged")
        assert "Traceback" not in running.complaints()
        assert running.get("/auth")[0] == 200


def test_strict_rules_are_served_where_nothing_is_forgotten(
    own_redis: Callable[..., RedisLike], tmp_path: Path
):
    """Neither a server that keeps what it says, nor one whose losses are accepted, is complained of."""
    for options, query in (({}, ""), ({"save": "3600 1"}, "?may_forget=yes")):
        there = own_redis(**options)
        there.command("SET", "tidegate:epoch", 0)
        path = written(tmp_path, SHARED.format(url=there.url + query, more="strict: true"))
        with server(tmp_path, path) as running:
            assert running.get("/auth")[0] == 200
            assert running.stop() == 0
            assert running.complaints() == ""


def test_strict_rules_that_begin_used_up_are_a_warning(own_redis: Callable[..., RedisLike], tmp_path: Path):
    """A server that nothing is known of: the line says how to tell it that nothing was spent."""
    path = written(tmp_path, SHARED.format(url=own_redis().url, more="strict: true"))
    with server(tmp_path, path) as running:
        (line,) = running.complaints().splitlines()
        assert "strict rules begin used up" in line
        assert "tidegate store init --full" in line
        assert running.get("/auth")[0] == 429


def test_a_store_that_is_away_is_a_warning(own_redis: Callable[..., RedisLike], tmp_path: Path):
    """Serving begins, outage rules decide, and when the store is back it decides."""
    there = own_redis()
    there.stop()
    path = written(tmp_path, SHARED.format(url=there.url, more="on_outage: open"))
    with server(tmp_path, path) as running:
        (line,) = running.complaints().splitlines()
        assert "gives no usable answer (connection); serving begins" in line
        assert "outage rules decide until it is back: " in line
        assert [running.get("/auth")[0] for _ in range(5)] == [200] * 5
        there.start()
        until_s = time.monotonic() + 30
        while running.get("/auth")[0] != 429:
            assert time.monotonic() < until_s, running.complaints()
            time.sleep(0.02)
        assert running.stop() == 0
