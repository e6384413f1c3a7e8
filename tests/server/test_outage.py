# The decision server over a store on the network, while it answers and while it does not.

from __future__ import annotations

import json

import pytest

from tests.limiter.remote import Awaited, Remote, Servers
from tests.server.asked import JSON, ask, decide, samples
from tests.server.running import ROOT, server
from tidegate import AsyncLimiter, Policy, Rule, StoreUnavailable, TokenBucket
from tidegate.server.app import App
from tidegate.server.settings import Settings
from tidegate.testing import ManualClock

TOKEN = [("Authorization", "Bearer t"), *JSON]


def app_over(*rules, on_outage="closed", count=1):
    """The application over a store of so many servers, and these."""
    servers = Servers(ManualClock(), count)
    policy = Policy(rules or [Rule("org", TokenBucket(3, "1/s"), by=("org",))])
    limiter = AsyncLimiter(policy, store=Remote(servers), clock=servers.clock, on_outage=on_outage)
    return App(limiter, Settings(token="t")), servers


def test_a_store_on_the_network_decides():
    """Single questions, many at once, looks, resets and /auth are all asked of the awaited face."""
    app, _ = app_over()
    asked = {"attributes": {"org": "acme"}}

    assert decide(app, asked).json["source"] == "remote"
    many = decide(app, {"requests": [asked, {"attributes": {}, "cost": -1}, asked, asked]}).json["decisions"]
    assert [one.get("allowed", "error" in one) for one in many] == [True, True, True, False]
    assert decide(app, {**asked, "peek": True}).json["allowed"] is False
    assert ask(app, "POST", "/v1/reset", json.dumps(asked).encode(), TOKEN).json == {"reset": True}
    assert decide(app, asked).json["remaining"] == 2
    assert [ask(app, "GET", "/auth").status for _ in range(4)] == [200, 200, 200, 429]
    assert samples(app)["tidegate_store_up",] == 1


def test_many_questions_wait_together(monkeypatch):
    """Of one call the questions are asked side by side, so that a store can send them as one batch."""
    app, _ = app_over(Rule("org", TokenBucket(200, "1/s"), by=("org",)))
    waiting, most = 0, 0
    decides = Awaited.decide

    async def counting(self, charges, now_us=None, **how):
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        outcomes = await decides(self, charges, now_us, **how)
        waiting -= 1
        return outcomes

    monkeypatch.setattr(Awaited, "decide", counting)
    answers = decide(app, {"requests": [{"attributes": {"org": "acme"}}] * 120}).json["decisions"]
    assert [answer["remaining"] for answer in answers] == list(range(199, 79, -1))
    assert most == 50


def test_an_outage_is_answered_by_the_rules():
    """C142: a closed rule is 503 with Retry-After, an open one 200 without limit fields; both say why."""
    closed, servers = app_over()
    servers.all("down")
    refused = ask(closed, "GET", "/auth")
    told = decide(closed, {"attributes": {"org": "acme"}}).json

    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert refused.json["detail"].startswith("The limit for this request cannot be checked at the moment")
    assert (told["allowed"], told["source"], told["remaining"], told["retry_after"]) == (
        False,
        "outage",
        0,
        1.0,
    )
    assert told["headers"].keys() == {"Retry-After"}

    opened, servers = app_over(on_outage="open")
    servers.all("down")
    admitted = ask(opened, "GET", "/auth")
    assert (admitted.status, "ratelimit" in admitted.headers) == (200, False)
    assert decide(opened, {"attributes": {"org": "acme"}}).json["headers"] == {}


def test_what_needs_the_store_says_so():
    """A reset cannot be answered by a rule: 503, and nothing has been forgotten."""
    app, servers = app_over()
    servers.all("down")
    reset = ask(app, "POST", "/v1/reset", b'{"attributes": {"org": "a"}}', TOKEN)

    assert (reset.status, reset.detail) == (503, "The store does not answer.")


def test_an_outage_shows_in_the_metrics():
    """C142: decisions without the store are counted by source, and by rule and verdict; causes are named."""
    app, servers = app_over(
        Rule("org", TokenBucket(3, "1/s"), by=("org",)),
        Rule("open", TokenBucket(3, "1/s"), by=("org",), on_outage="open"),
    )
    health = app._limiter.store.health
    shown = samples(app)
    assert (shown["tidegate_store_up",], shown["tidegate_store_outages_total",]) == (1, 0)
    assert shown["tidegate_store_unavailable_total", "deadline"] == 0

    servers.all("down")
    for now_us in range(3):
        decide(app, {"attributes": {"org": "acme"}})
        health.failed(StoreUnavailable("refused", "connection"), now_us)
    shown = samples(app)
    assert shown["tidegate_decisions_total", "outage", "refused"] == 3
    assert shown["tidegate_refusals_total", "org"] == 3
    assert shown["tidegate_outage_verdicts_total", "org", "refused"] == 3
    assert shown["tidegate_outage_verdicts_total", "open", "allowed"] == 3
    assert (shown["tidegate_store_up",], shown["tidegate_store_outages_total",]) == (0, 1)
    assert shown["tidegate_store_unavailable_total", "connection"] == 3


def test_the_server_is_well_while_its_rules_can_decide():
    """/healthz stays 200 in an outage, for rules go on deciding, and says what is wrong with the store."""
    app, _ = app_over()
    assert ask(app, "GET", "/healthz").json == {"status": "ok", "rules": 1}

    health = app._limiter.store.health
    for now_us in range(3):
        health.failed(StoreUnavailable("refused", "connection"), now_us)
    told = ask(app, "GET", "/healthz")
    assert (told.status, told.json["status"]) == (200, "ok")
    assert told.json["store"] == "the store gives no answer; outage rules decide"


def test_the_page_tells_of_outages_and_not_of_addresses():
    """The page says what each rule does in an outage, and where state lives by kind alone."""
    app, _ = app_over()
    body = ask(app, "GET", "/").body.decode()

    assert "closed: while the store gives no answer nothing passes" in body
    assert "State lives in remote" in body
    assert app._limiter.store.health.where not in body


FAKE = """
import sys, types
sys.path.insert(0, {root!r})
from tests.limiter.remote import Remote, Servers
from tidegate.testing import ManualClock
class Fake(Remote):
    def __init__(self, url):
        assert url == "redis://me:hush@host:6379/0?prefix=limits", url
        servers = Servers(ManualClock())
        servers.all("down")
        super().__init__(servers)
    def close(self):
        print("closed", self.awaited.closed, file=sys.stderr, flush=True)
module = types.ModuleType("tidegate.stores.redis.store")
module.RedisStore = Fake
sys.modules["tidegate.stores.redis.store"] = module
"""

FILE = """\
version: 1
rules:
  - {name: org, limit: {algorithm: token_bucket, capacity: 3, rate: 1/s}, by: [org]}
store: {url: {env: STORE}, prefix: limits, on_outage: open}
"""


@pytest.mark.real_time
def test_serving_takes_the_store_of_the_file(tmp_path):
    """`serve` takes store and outage default of the file, shows no password, and closes it in the end."""
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)
    env = {"STORE": "redis://me:hush@host:6379/0"}
    with server(tmp_path, path, env=env, before=FAKE.format(root=str(ROOT))) as running:
        status, headers, _ = running.get("/auth")
        assert (status, "ratelimit" in headers) == (200, False)
        assert running.stop() == 0
        assert "closed True" in running.complaints()
        assert "hush" not in running.said + running.complaints()
