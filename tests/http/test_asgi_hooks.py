# The ASGI middleware's hooks and settings: called and awaited, never silent when broken; holding for a queue.

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.http.asgi_calls import App, bucket, call
from tidegate import AsyncLimiter, LeakyQueue, Limiter, Policy, Rule, TokenBucket
from tidegate.errors import CostError, PolicyError
from tidegate.http.asgi import RateLimitMiddleware
from tidegate.http.attributes import Attributes
from tidegate.http.keys import ClientAddress
from tidegate.http.problem import Answer
from tidegate.testing import ManualClock

Middleware: Any = RateLimitMiddleware  # untyped: wrong settings are tested too


@pytest.fixture(params=[Limiter, AsyncLimiter])
def kind(request) -> type:
    return request.param


@pytest.mark.parametrize(
    ("own", "sent"), [("120", "120"), ("1", "3"), ("Wed, 01 Jan 2098 00:00:00 GMT", None)]
)
def test_one_retry_after_with_a_hooks(own: str, sent: str | None):
    """C072: the hook's answer to a refusal and the limiter's wait become one Retry-After, the later."""

    def on_refused(scope, decision):
        return Answer(529, [("Retry-After", own), ("X-Why", decision.rule)], b"slow down")

    limited = Middleware(App(), bucket(1, "1/3s"), on_refused=on_refused)
    call(limited)
    answer = call(limited)

    assert (answer.status, answer.body) == (529, b"slow down")
    assert answer.headers["retry-after"] == (sent or own)
    assert answer.headers["x-why"] == "limit"
    assert answer.headers["ratelimit"] == '"limit";r=0;t=3'


async def _async(value):
    return value


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_are_called_and_awaited(is_async: bool, kind: type):
    """C190: attributes, cost, exempt and on_refused, each as a plain and as an async function."""

    def give(value):
        return _async(value) if is_async else value

    limiter = kind(Policy([Rule("org", TokenBucket(10, "0/s"), by=("org",))]))
    limited = Middleware(
        App(),
        limiter,
        attributes=lambda scope: give({"org": scope["path"]}),
        cost=lambda scope: give(4),
        exempt=lambda scope: give(scope["method"] == "TRACE"),
        on_refused=lambda scope, decision: give(Answer(429, [], b"mine") if scope["path"] == "/a" else None),
    )

    assert [call(limited, "/a").status for _ in range(3)] == [200, 200, 429]
    assert call(limited, "/a").body == b"mine"
    assert call(limited, "/a", method="TRACE").status == 200
    assert [call(limited, "/b").status for _ in range(3)] == [200, 200, 429]
    assert call(limited, "/b").body != b"mine"


@pytest.mark.parametrize("hook", ["attributes", "cost", "exempt", "on_refused", "charge"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_raises_is_an_error_and_not_exempt(hook: str, is_async: bool):
    """C190: what a hook raises comes out; a broken hook never lets a request pass uncounted."""

    def broken(*given):
        raise LookupError("broken hook")

    async def broken_async(*given):
        raise LookupError("broken hook")

    app = App()
    limiter = bucket(1)
    limited = Middleware(app, limiter, **{hook: broken_async if is_async else broken})
    if hook == "on_refused":
        call(limited)
    with pytest.raises(LookupError, match="broken hook"):
        call(limited)

    assert app.runs == (1 if hook in ("on_refused", "charge") else 0)
    assert limiter.peek("203.0.113.7").remaining == (0 if app.runs else 1)


def test_attributes_from_a_hook_that_returns_nothing():
    """C190: a hook that forgets its return is an error at the first request, not an unlimited service."""
    with pytest.raises(TypeError, match="attributes hook returned None"):
        call(Middleware(App(), bucket(), attributes=lambda scope: None))


def test_a_store_error_comes_out_before_the_application_runs():
    """What the limiter raises is raised; the application does not run uncounted."""
    app = App()
    with pytest.raises(CostError):
        call(Middleware(app, bucket(), cost=lambda scope: -1))

    assert app.runs == 0


def test_a_queue_holds_requests_until_their_turn(kind: type):
    """A LeakyQueue's wait is slept before the application runs; the twenty-first is refused at once."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    limiter = kind(LeakyQueue(4, "5/s"), clock=ManualClock())
    limited = Middleware(App(), limiter, sleep=sleep)
    answers = [call(limited) for _ in range(5)]

    assert [answer.status for answer in answers] == [200, 200, 200, 200, 429]
    assert slept == [0.2, 0.4, 0.6]


def test_nothing_is_held_longer_than_allowed(kind: type):
    """A later turn is given back and answered by 503 with the time until the line is short enough."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    app = App()
    limiter = kind(LeakyQueue(20, "1/s"), clock=ManualClock())
    limited = Middleware(app, limiter, sleep=sleep, hold_max="2s")
    answers = [call(limited) for _ in range(5)]

    assert [answer.status for answer in answers] == [200, 200, 200, 503, 503]
    assert slept == [1.0, 2.0]
    assert app.runs == 3
    assert answers[3].headers["retry-after"] == "1"
    assert json.loads(answers[4].body)["retry_after_ms"] == 1000


def test_a_caller_that_leaves_while_held_has_used_its_place():
    """The application does not run, and the place stays taken, since others are timed behind it."""
    app = App()
    limiter = bucket_queue = Limiter(LeakyQueue(5, "1/s"), clock=ManualClock())

    async def sleep(seconds):
        raise asyncio.CancelledError

    limited = Middleware(app, bucket_queue, sleep=sleep)
    call(limited)
    with pytest.raises(asyncio.CancelledError):
        call(limited)

    assert app.runs == 1
    assert limiter.peek("203.0.113.7").remaining == 3


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"attributes": 7}, PolicyError, "attributes is 7"),
        ({"attributes": {"org": "X-Org"}}, PolicyError, "write for instance"),
        ({"attributes": Attributes(), "client": ClientAddress()}, PolicyError, "given twice"),
        ({"cost": -1}, CostError, "cost is -1"),
        ({"cost": float("nan")}, CostError, "cost is nan"),
        ({"exempt": True}, PolicyError, "exempt is True"),
        ({"charge": 401}, PolicyError, "charge is 401"),
        ({"on_refused": "no"}, PolicyError, "on_refused is 'no'"),
        ({"draft": "draft-1"}, PolicyError, "choose one of"),
        ({"legacy": True}, PolicyError, "choose one of"),
        ({"deny_status": 200}, PolicyError, "deny_status is 200"),
        ({"deny_status": "403"}, PolicyError, "deny_status is '403'"),
        ({"hold_max": "soon"}, ValueError, "hold_max is 'soon'"),
        ({"hold_max": -1}, ValueError, "hold_max is -1"),
    ],
)
def test_a_wrong_setting_is_an_error_at_construction(settings: dict, error: type, message: str):
    """Each names the value and the way out, before the first request."""
    with pytest.raises(error, match=message):
        Middleware(App(), bucket(), **settings)


def test_an_answer_that_is_none_is_an_error():
    """C190: a hook that returns something else than an `Answer` is told so."""
    limited = Middleware(App(), bucket(1), on_refused=lambda scope, decision: "slow down")
    call(limited)

    with pytest.raises(TypeError, match="must return an Answer or None"):
        call(limited)


def test_a_new_policy_is_in_force_at_the_next_request(kind: type):
    """What rules look at may change while the service runs: from the address alone to any attribute."""
    limiter = bucket(9, kind=kind)
    limited = Middleware(App(), limiter, attributes={"org": {"header": "X-Org"}})
    before = call(limited, headers={"X-Org": "a"})
    limiter.replace_policy(Policy([Rule("org", TokenBucket(1, "1/h"), by=("org",))]))
    after = [call(limited, headers={"X-Org": org}).status for org in ("a", "a", "b")]

    assert before.headers["ratelimit"] == '"limit";r=8;t=1'
    assert after == [200, 429, 200]
