# What changes state beyond deciding wants a token.

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.asked import JSON, Reply, app_of, ask, decide, samples
from tidegate import Policy, Rule, TokenBucket
from tidegate.errors import ConfigError, Problem
from tidegate.server.app import App
from tidegate.server.settings import Settings

ONE = Rule("org", TokenBucket(1, "1/h"), by=("org",))
BEARER = [("Authorization", "Bearer s3cret")]


def with_token(*rules: Rule, **more: Any) -> App:
    return app_of(*(rules or [ONE]), settings=Settings(token="s3cret"), **more)[0]


def reset(app: App, value: object, headers: list[tuple[str, str]] = BEARER) -> Reply:
    return ask(app, "POST", "/v1/reset", json.dumps(value).encode(), [*JSON, *headers])


@pytest.mark.parametrize("path", ["/v1/reset", "/v1/reload"])
def test_without_a_token_in_the_configuration_nobody_may(path: str):
    """No token set: 403 for everybody, saying how to set one; an empty token is no way in."""
    app, _ = app_of(ONE)

    for headers in ([], BEARER, [("Authorization", "Bearer ")], [("Authorization", "Bearer None")]):
        reply = ask(app, "POST", path, b'{"attributes":{}}', [*JSON, *headers])
        assert (reply.status, "{token: {env: TIDEGATE_TOKEN}}" in reply.detail) == (403, True)


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer s3cre",
        "Bearer s3cret2",
        "Basic s3cret",
        "s3cret",
        "Bearer S3CRET",
        "Bearer \xff",
    ],
)
@pytest.mark.parametrize("path", ["/v1/reset", "/v1/reload"])
def test_a_wrong_token_is_a_401(path: str, sent: str):
    """A missing or wrong token is a 401 that names the scheme, before the body is looked at."""
    app = with_token()

    reply = ask(app, "POST", path, b"no json", [*JSON, ("Authorization", sent)] if sent else JSON)

    assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer realm="tidegate"')
    assert "s3cret" not in reply.detail


@pytest.mark.parametrize("sent", ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "])
def test_a_reset_key_is_fresh(sent: str):
    """With the token a key is fresh again, and only that key."""
    app = with_token()
    for org in ("a", "b"):
        decide(app, {"attributes": {"org": org}})

    assert reset(app, {"attributes": {"org": "a"}}, [("Authorization", sent)]).json == {"reset": True}
    assert decide(app, {"attributes": {"org": "a"}}).json["allowed"]
    assert not decide(app, {"attributes": {"org": "b"}}).json["allowed"]


def test_everybodys_budget_is_reset_by_naming_nobody():
    """A shared rule is reset by empty attributes alone, never along with a key."""
    app = with_token(Rule("everyone", TokenBucket(1, "1/h")))
    decide(app, {"attributes": {"org": "a"}})

    reset(app, {"attributes": {"org": "a"}})
    assert not decide(app, {"attributes": {"org": "a"}}).json["allowed"]
    reset(app, {"attributes": {}})
    assert decide(app, {"attributes": {"org": "a"}}).json["allowed"]


@pytest.mark.parametrize("value", [{}, [], {"attributes": []}, {"attributes": {}, "all": True}, None])
def test_a_wrong_reset_says_what_to_send(value: object):
    """What names no attributes resets nothing."""
    app = with_token()

    reply = reset(app, value)

    assert reply.status == 400
    assert "attributes" in reply.detail


def test_a_reload_is_answered_by_what_came_of_it():
    """The new policy is in force when the answer comes; a bad file is a 422 with its problems."""
    outcomes: list[Exception | None] = []

    async def reload() -> Exception | None:
        outcome = outcomes.pop(0)
        if outcome is None:
            app.put_in_force(Policy([Rule("new", TokenBucket(5, "1/s"))]), Settings(token="s3cret"))
        return outcome

    app = with_token(reload=reload)
    problem = Problem("p.yaml", 3, "rules.org.limit", "rate is 5; a rate needs a period")

    outcomes.append(ConfigError([problem]))
    bad = ask(app, "POST", "/v1/reload", headers=BEARER)
    assert (bad.status, bad.json["problems"]) == (422, [str(problem)])
    assert "reload" in ask(app, "GET", "/healthz").json
    assert decide(app, {"attributes": {}}).json["rule"] == "org"
    outcomes.append(OSError("the disk is on fire"))
    failed = ask(app, "POST", "/v1/reload", headers=BEARER)
    assert (failed.status, "fire" in failed.detail) == (500, False)
    outcomes.append(None)
    assert ask(app, "POST", "/v1/reload", headers=BEARER).json == {"reloaded": True, "rules": 1}
    assert decide(app, {"attributes": {}}).json["rule"] == "new"
    assert ask(app, "GET", "/healthz").json == {"status": "ok", "rules": 1}
    counted = samples(app)
    assert (counted["tidegate_reloads_total", "ok"], counted["tidegate_reloads_total", "failed"]) == (1, 2)


def test_without_a_file_there_is_nothing_to_reload():
    """A server that runs without a file says so."""
    reply = ask(with_token(), "POST", "/v1/reload", headers=BEARER)

    assert (reply.status, "tidegate serve CONFIG" in reply.detail) == (409, True)


def test_settings_that_cannot_be_used_change_nothing():
    """A policy is not put in force with settings that fail: both stay as they were."""
    app = with_token()
    bad = Settings(fields="draft-03", legacy="date", token="other")

    with pytest.raises(ValueError, match="draft-03"):
        app.put_in_force(Policy([Rule("new", TokenBucket(5, "1/s"))]), bad)

    assert decide(app, {"attributes": {}}).json["rule"] == "org"
    assert reset(app, {"attributes": {}}).status == 200


def test_a_change_of_the_policy_neither_refills_nor_forgives():
    """C067, C165: a key that was used up is used up under the changed limit too."""
    app, clock = app_of(Rule("org", TokenBucket(10, "1/s"), by=("org",)))
    asked = {"attributes": {"org": "a"}}
    for _ in range(10):
        decide(app, asked)

    app.put_in_force(Policy([Rule("org", TokenBucket(20, "10/s"), by=("org",))]), Settings())

    assert decide(app, asked).json["remaining"] == 0
    clock.advance(1)
    assert decide(app, {**asked, "peek": True}).json["remaining"] == 10
