# The WSGI middleware's hooks and settings: never async, never silent when broken; holding for a queue.

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.http.wsgi_calls import App, bucket, call
from tidegate import AsyncLimiter, LeakyQueue, Limiter, Policy, Rule, TokenBucket
from tidegate.errors import CostError, PolicyError
from tidegate.http.charge import only_status
from tidegate.http.problem import Answer
from tidegate.http.wsgi import RateLimitMiddleware
from tidegate.testing import ManualClock

Middleware: Any = RateLimitMiddleware  # untyped: wrong settings are tested too


def test_hooks():
    """Attributes, cost, exempt and on_refused get the environ."""
    limited = Middleware(
        App(),
        Limiter(Policy([Rule("org", TokenBucket(10, "0/s"), by=("org",))])),
        attributes=lambda environ: {"org": environ["PATH_INFO"]},
        cost=lambda environ: 4,
        exempt=lambda environ: environ["REQUEST_METHOD"] == "TRACE",
        on_refused=lambda environ, decision: (
            Answer(599, [], b"mine") if environ["PATH_INFO"] == "/a" else None
        ),
    )

    assert [call(limited, "/a").status for _ in range(3)] == [200, 200, 599]
    assert call(limited, "/a").started[0][0] == "599 Refused"
    assert call(limited, "/a", method="TRACE").status == 200
    assert [call(limited, "/b").status for _ in range(3)] == [200, 200, 429]


async def _hook(*given):
    return {}


class CallableObject:
    async def __call__(self, *given):
        return {}


@pytest.mark.parametrize("hook", ["attributes", "cost", "exempt", "on_refused", "charge", "sleep"])
@pytest.mark.parametrize("function", [_hook, partial(_hook, 1), partial(partial(_hook)), CallableObject()])
def test_an_async_hook_is_an_error_at_construction(hook: str, function: object):
    """C190: a coroutine would be true whatever it holds, so an async hook is refused before it can exempt."""
    with pytest.raises(PolicyError, match=f"{hook} is an async function"):
        Middleware(App(), bucket(), **{hook: function})


@pytest.mark.parametrize("hook", ["attributes", "cost", "exempt", "on_refused", "charge"])
def test_a_hidden_coroutine_is_an_error(hook: str):
    """C190: a plain function that returns a coroutine is found when it does, and nothing is exempt."""
    limited = Middleware(App(), bucket(1), **{hook: lambda *given: _hook()})
    if hook == "on_refused":
        call(limited)

    with pytest.raises(TypeError, match=f"{hook} hook returned something to await"):
        call(limited)


@pytest.mark.parametrize("hook", ["attributes", "cost", "exempt", "on_refused"])
def test_a_hook_that_raises_is_an_error_and_not_exempt(hook: str):
    """C190: what a hook raises comes out, and the application does not run."""

    def broken(*given):
        raise LookupError("broken hook")

    app = App()
    limited = Middleware(app, bucket(1), **{hook: broken})
    if hook == "on_refused":
        call(limited)
    runs = app.runs
    with pytest.raises(LookupError, match="broken hook"):
        call(limited)

    assert app.runs == runs


def test_an_async_limiter_is_an_error():
    """WSGI has no event loop in which it could be awaited."""
    with pytest.raises(PolicyError, match="give a Limiter"):
        Middleware(App(), AsyncLimiter(TokenBucket(1, "1/s")))


def test_a_queue_holds_requests_until_their_turn():
    """A LeakyQueue's wait is slept in the thread; one beyond `hold_max` is given back and answered by 503."""
    slept: list[float] = []
    app = App()
    limited = Middleware(
        app, Limiter(LeakyQueue(9, "1/s"), clock=ManualClock()), sleep=slept.append, hold_max="2s"
    )
    answers = [call(limited) for _ in range(5)]

    assert [answer.status for answer in answers] == [200, 200, 200, 503, 503]
    assert (slept, app.runs) == ([1.0, 2.0], 3)
    assert answers[3].headers["retry-after"] == "1"


def test_a_queue_with_a_charge():
    """C184: holding and charging by the response go together; what is not held is cancelled."""
    slept: list[float] = []
    limiter = Limiter(LeakyQueue(9, "1/s"), clock=ManualClock())
    limited = Middleware(App(), limiter, sleep=slept.append, hold_max="1s", charge=only_status({200}))

    assert [call(limited).status for _ in range(3)] == [200, 200, 503]
    assert slept == [1.0]
    assert limiter.peek("203.0.113.7").remaining == 7


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"cost": -1}, CostError), ({"exempt": 1}, PolicyError), ({"draft": "x"}, PolicyError)],
)
def test_a_wrong_setting_is_an_error_at_construction(settings: dict, error: type):
    """Before the first request."""
    with pytest.raises(error):
        Middleware(App(), bucket(), **settings)


def test_a_policy_that_is_replaced_between_two_steps():
    """A thread may put a policy that looks at more in force just before this one asks: one charge."""
    limiter = bucket(9)

    def replacing(*given, **named):
        limiter.__dict__.pop("hit")
        limiter.replace_policy(Policy([Rule("all", TokenBucket(4, "1/h"), by=("address",))]))
        return limiter.hit(*given, **named)

    call(Middleware(App(), limiter))
    limiter.__dict__["hit"] = replacing
    answered = call(Middleware(App(), limiter))

    assert answered.headers["ratelimit-policy"] == '"all";q=4;w=14400'
    assert limiter.peek({"address": "203.0.113.7"}).remaining == 3
