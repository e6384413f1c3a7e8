# The middlewares while the store is away: what each outage rule answers, and that the application runs once.

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.http import asgi_calls, wsgi_calls
from tests.limiter.remote import Remote, Servers
from tidegate import AsyncLimiter, Limiter, PolicyError, Rule, StoreUnavailable, TokenBucket
from tidegate.http import asgi, wsgi
from tidegate.http.fields import NAMES, fields
from tidegate.testing import ManualClock

LIMIT = TokenBucket(40, "1/s")
RESERVE = {"share": "50%", "nodes": 10, "index": 0}
RULES = {
    "closed": Rule("r", LIMIT, by=("address",)),
    "open": Rule("r", LIMIT, by=("address",), on_outage="open"),
    "bounded": Rule("r", LIMIT, by=("address",), on_outage="open", outage_limit=TokenBucket(2, "1/s")),
    "reserve": Rule("r", LIMIT, by=("address",), on_outage="reserve", reserve=RESERVE),
}
EXPECTED = {
    "closed": [503, 503, 503],
    "open": [200, 200, 200],
    "bounded": [200, 200, 503],
    "reserve": [200, 200, 503],
}
FACES: dict[str, Any] = {
    "ASGI": lambda app, limiter: (asgi.RateLimitMiddleware(app, limiter), asgi_calls),
    "WSGI": lambda app, limiter: (wsgi.RateLimitMiddleware(app, limiter), wsgi_calls),
}


def limiter_of(face: str, how: str) -> tuple[Any, Servers]:
    """A limiter whose shares have filled, and its servers."""
    servers = Servers(ManualClock())
    kind: Any = AsyncLimiter if face == "ASGI" else Limiter
    limiter = kind(RULES[how], store=Remote(servers), clock=servers.clock)
    servers.clock.advance(100)
    return limiter, servers


@pytest.mark.parametrize("how", RULES)
@pytest.mark.parametrize("face", FACES)
def test_each_outage_rule_answers(face, how):
    """C142: a refusal is 503 with Retry-After and no other limit field; what is admitted open has none."""
    limiter, servers = limiter_of(face, how)
    app = (wsgi_calls if face == "WSGI" else asgi_calls).App()
    limited, calls = FACES[face](app, limiter)
    servers.all("down")
    answers = [calls.call(limited) for _ in range(3)]

    assert [answer.status for answer in answers] == EXPECTED[how]
    assert app.runs == EXPECTED[how].count(200)
    for answer in answers:
        assert ("retry-after" in answer.headers) == (answer.status == 503)
        assert ("ratelimit" in answer.headers) == (how == "reserve" and answer.status == 200)
        if answer.status == 503:
            body = json.loads(answer.body)
            assert (body["violated-policies"], body["retry_after_ms"] > 0) == ([], True)
            assert "cannot be checked at the moment" in body["detail"]

    servers.all("up")
    assert calls.call(limited).status == 200


@pytest.mark.parametrize("how", ["open", "reserve"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "error",
    [RuntimeError("own"), ConnectionError("own"), StoreUnavailable("own", "deadline"), TimeoutError()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_error_of_the_application_is_its_own(face, how, error):
    """C180: whatever the application raises comes through unchanged, and it ran once, in an outage too."""
    limiter, servers = limiter_of(face, how)
    runs = []

    async def app(scope, receive, send):
        runs.append(scope)
        raise error

    def application(environ, start_response):
        runs.append(environ)
        raise error

    limited, calls = FACES[face](application if face == "WSGI" else app, limiter)
    servers.all("down")
    with pytest.raises(type(error)) as raised:
        calls.call(limited)
    assert raised.value is error
    assert len(runs) == 1


def test_a_limiter_that_would_block_the_loop_is_an_error():
    """A blocking limiter on a store on the network is refused where an event loop would wait for it."""
    limiter = Limiter(TokenBucket(1, "1/s"), store=Remote(Servers(ManualClock())))

    with pytest.raises(PolicyError, match="give an AsyncLimiter"):
        asgi.RateLimitMiddleware(asgi_calls.App(), limiter)


def test_a_charge_by_the_response_survives_an_outage():
    """The store goes away while the application runs: the answer is delivered, and the estimate stays."""
    limiter, servers = limiter_of("ASGI", "closed")

    async def app(scope, receive, send):
        servers.all("down")
        await asgi_calls.App()(scope, receive, send)

    limited = asgi.RateLimitMiddleware(app, limiter, cost=5, charge=lambda status, size, elapsed: 1)
    assert asgi_calls.call(limited).status == 200
    servers.all("up")
    assert asyncio.run(limiter.peek({"address": "203.0.113.7"})).remaining == 35


def said(decision, draft: Any = "draft-10") -> dict[str, str]:
    return dict(fields(decision, draft))


@pytest.mark.parametrize("draft", NAMES)
def test_what_nobody_knows_is_not_said(draft):
    """Admitted by an outage rule: no field; refused by one: Retry-After alone, whatever the form."""
    servers = Servers(ManualClock())
    found = []
    for rule in (
        Rule("r", TokenBucket(9, "1/s"), on_outage="open"),
        Rule("r", TokenBucket(9, "1/s"), on_outage="open", outage_limit=TokenBucket(1, "1/s")),
        Rule("r", TokenBucket(9, "1/s")),
    ):
        limiter = Limiter(rule, store=Remote(servers), clock=servers.clock)
        servers.all("down")
        found.append(said(limiter.hit({}), "draft-10" if draft == "legacy" else draft))
    assert found == [{}, {}, {"Retry-After": "1"}]


def test_a_limit_with_a_reserve_is_listed_as_the_whole():
    """The quota is the whole limit's whichever part decides; what is left is what that part has."""
    servers = Servers(ManualClock())
    reserve = {"share": "20%", "nodes": 4, "index": 0}
    rule = Rule("r", TokenBucket(100, "8/s"), on_outage="reserve", reserve=reserve)
    limiter = Limiter(rule, store=Remote(servers), clock=servers.clock)
    by_store = limiter.hit({})
    servers.clock.advance(60)
    by_share = limiter.hit({})

    assert said(by_store) == {"RateLimit-Policy": '"r";q=100;w=13', "RateLimit": '"r";r=79;t=1'}
    assert said(by_share) == {"RateLimit-Policy": '"r";q=100;w=13', "RateLimit": '"r";r=4;t=3'}
    assert said(by_share, "draft-07")["RateLimit"] == "limit=100, remaining=4, reset=3"
    assert said(by_share, "draft-03")["X-RateLimit-Limit"] == "100, 100;w=13"


def test_a_limit_that_gave_no_answer_is_not_listed():
    """Of two servers one is away: the limits that did answer are told, the others are not."""
    servers = Servers(ManualClock(), 2)
    rules = [Rule("r", TokenBucket(9, "1/s")), Rule("on 1", TokenBucket(2, "1/s"), on_outage="open")]
    limiter = Limiter(rules, store=Remote(servers), clock=servers.clock)
    servers.states[1] = "down"
    assert said(limiter.hit({})) == {"RateLimit-Policy": '"r";q=9;w=9', "RateLimit": '"r";r=8;t=1'}
