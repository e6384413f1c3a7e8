# The command that is printed at the start: it does what it says, or none is printed.

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.server.running import Running, server
from tidegate import Policy, Rule, TokenBucket
from tidegate.server.settings import Settings
from tidegate.server.tryout import command, first_refused

RULE = """\
version: 1
rules:
  - name: address
    by: [{by}]
    limit: {{algorithm: token_bucket, capacity: 3, rate: 0/s}}
{more}
"""


def written(folder: Path, by: str, more: str = "") -> Path:
    path = folder / "policy.yaml"
    path.write_text(RULE.format(by=by, more=more))
    return path


def printed(running: Running) -> tuple[str, str]:
    """The command, and what is said of it."""
    line = next(line for line in running.said.splitlines() if line.startswith("  try"))
    asked, _, promise = line.removeprefix("  try").strip().partition("   # ")
    return asked, promise


@pytest.mark.real_time
def test_the_curl_that_is_printed_is_refused_at_the_end(tmp_path: Path):
    """The command that the server prints does what it says: the last call of it is the first refused."""
    with server(tmp_path, written(tmp_path, "address")) as running:
        asked, promise = printed(running)

        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=30, check=True)

        assert done.stdout.split() == ["200", "200", "200", "429"]
        assert promise == "call 4 is refused"


@pytest.mark.real_time
def test_the_question_that_is_printed_is_decided(tmp_path: Path):
    """The command that asks by JSON is answered by the rule that it names."""
    with server(tmp_path, written(tmp_path, "org", "    match: {path: [/v1/*]}")) as running:
        asked, promise = printed(running)
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=30, check=True)

    assert promise == "the rule 'address' decides"
    told = json.loads(done.stdout)
    assert [outcome["rule"] for outcome in told["outcomes"]] == ["address"]
    assert (told["allowed"], told["remaining"]) == (True, 2)


def test_a_command_is_printed_only_if_it_will_do_as_it_says():
    """The first refused call is found by asking; where none of the first hundred is, none is promised."""
    shown = {
        "bucket": Policy([Rule("a", TokenBucket(20, "5/s"), by=("address",))]),
        "elsewhere": Policy([Rule("a", TokenBucket(2, "5/s"), match={"path": "/exports"})]),
        "priced": Policy([Rule("a", TokenBucket(10, "5/s"), cost=3)]),
        "denied": Policy([Rule("a", mode="deny")]),
        "large": Policy([Rule("a", TokenBucket(1_000, "5/s"))]),
        "broken": Policy([Rule("a", TokenBucket(1_000, "5/s"), cost=lambda _: 1 // 0)]),
    }

    assert {name: first_refused(policy, Settings()) for name, policy in shown.items()} == {
        "bucket": 21,
        "elsewhere": None,
        "priced": 4,
        "denied": 1,
        "large": None,
        "broken": None,
    }


def test_a_command_that_no_rule_decides_is_not_shown():
    """Where /auth is spoken of by no rule, a question as JSON is shown that one decides; else no command."""
    rules = [
        Rule("watched", TokenBucket(2, "5/s"), by=("org",), mode="shadow"),
        Rule("it's paid", TokenBucket(7, "0/s"), by=("org",), match={"path": ["/v1/*"], "method": ["POST"]}),
    ]
    routes = Policy([Rule("routes", TokenBucket(7, "0/s"), match={"route": "POST /users/{id}"})])
    blocked = Policy([Rule("blocked", mode="deny", match={"path": "/admin"})])

    shown = command(Policy(rules), Settings(), "http://127.0.0.1:8080")
    assert shown is not None
    assert '{"attributes": {"org": "demo", "path": "/v1/", "method": "POST"}}' in shown
    assert '{"attributes": {"route": "POST /users/{id}"}}' in str(command(routes, Settings(), "http://a"))
    assert command(blocked, Settings(), "http://a") is None
    assert command(Policy(rules[:1]), Settings(), "http://a") is None
