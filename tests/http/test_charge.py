# Charging by the response: reserved before, settled once after, in both protocols and on every way out.

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.http.asgi_calls import call, call_async, scope_of
from tests.http.noted import noting
from tests.http.wsgi_calls import call as wsgi_call
from tidegate import AsyncLimiter, LeakyQueue, Limiter, SlidingLog, TokenBucket
from tidegate.errors import PolicyError
from tidegate.http import asgi, wsgi
from tidegate.http.charge import only_status
from tidegate.testing import ManualClock

Middleware: Any = asgi.RateLimitMiddleware  # untyped: wrong settings are tested too
Wsgi: Any = wsgi.RateLimitMiddleware

KEY = "203.0.113.7"


class Ask:
    """One way to send requests through a middleware whose application answers as it is told."""

    def __init__(self, protocol: str, limiter, **settings) -> None:
        self.limiter = limiter
        self.runs = 0
        self.protocol = protocol
        self.plan: object = 200
        self.late = False
        self.app: Any
        if protocol == "asgi":
            self.app = Middleware(self._asgi, limiter, **settings)
        else:
            self.app = Wsgi(self._wsgi, limiter, **settings)

    async def _asgi(self, scope, receive, send) -> None:
        self.runs += 1
        if self.plan == "raise":
            raise RuntimeError("endpoint")
        await send({"type": "http.response.start", "status": self.plan, "headers": []})
        if self.late:
            await send({"type": "http.response.body", "body": b"12345", "more_body": True})
            raise RuntimeError("late")
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
        await send({"type": "http.response.body", "body": b"67"})

    def _wsgi(self, environ, start_response):
        self.runs += 1
        if self.plan == "raise":
            raise RuntimeError("endpoint")
        start_response(f"{self.plan} X", [])
        yield b"12345"
        if self.late:
            raise RuntimeError("late")
        yield b"67"

    def __call__(self, plan, *, late: bool = False) -> int:
        self.plan, self.late = plan, late
        try:
            return call(self.app).status if self.protocol == "asgi" else wsgi_call(self.app).status
        except RuntimeError:
            return 500

    @property
    def remaining(self) -> int:
        decision = self.limiter.peek(KEY)
        return (asyncio.run(decision) if isinstance(self.limiter, AsyncLimiter) else decision).remaining


@pytest.fixture(params=["asgi", "asgi-async", "wsgi"])
def asking(request):
    """A maker of `Ask` for a limit, by protocol and kind of limiter."""

    def make(limit, **settings) -> Ask:
        kind = AsyncLimiter if request.param == "asgi-async" else Limiter
        return Ask(request.param.partition("-")[0], kind(limit, clock=ManualClock()), **settings)

    return make


def test_only_failed_logins_count(asking):
    """C184: limit 3 of 401s: 200, 401, 401, an exception, 401; then refused. The others cost nothing."""
    ask = asking(TokenBucket(3, "0/s"), charge=only_status({401}))

    assert [ask(plan) for plan in (200, 401, 401, "raise", 401, 200)] == [200, 401, 401, 500, 401, 429]
    assert ask.runs == 5


def test_a_charge_sees_status_bytes_and_time(asking):
    """The hook gets what was answered; elapsed time is in seconds."""
    seen: list[Any] = []
    times = iter([10.0, 12.5])
    ask = asking(
        TokenBucket(9, "0/s"), charge=lambda *given: seen.append(given), clock_s=lambda: next(times, 99.0)
    )
    ask(201)

    assert seen == [(201, 7, 2.5)]


@pytest.mark.parametrize(("used", "left"), [(None, 6), (0, 10), (1, 9), (4, 6), (7, 3), (0.5, 9)])
def test_what_was_used_is_what_is_charged(asking, used: float | None, left: int):
    """None keeps what was reserved; less comes back; more is taken on top."""
    ask = asking(TokenBucket(10, "0/s"), cost=4, charge=lambda *_: used)
    ask(200)

    assert ask.remaining == left


@pytest.mark.parametrize(("plan", "late", "status"), [("raise", False, 500), (200, True, 200)])
def test_an_exception_is_settled_once(asking, plan: object, late: bool, status: int):
    """C180: one settlement: as 500 before the start, with the status that went out after it."""
    seen: list[Any] = []
    ask = asking(TokenBucket(9, "0/s"), charge=noting(seen))
    ask(plan, late=late)

    assert seen == [status]
    assert ask.remaining == 9


def test_in_parallel_nothing_overshoots():
    """C184: with one left, ten at once: one runs, nine are refused, since the cost is reserved beforehand."""
    running: list[Any] = []

    async def app(scope, receive, send):
        running.append(scope)
        await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run():
        limited = Middleware(app, AsyncLimiter(TokenBucket(1, "0/s")), charge=only_status({401}))
        answers = await asyncio.gather(*[call_async(limited, scope_of()) for _ in range(10)])
        return [answer.status for answer in answers]

    assert sorted(asyncio.run(run())) == [401] + [429] * 9
    assert len(running) == 1


def test_it_is_settled_before_the_answer_is_complete():
    """A caller that has the last byte finds what it did not use given back."""
    limiter = Limiter(TokenBucket(1, "0/s"))
    left: list[Any] = []

    async def app(scope, receive, send):
        async def looking(message):
            left.append(limiter.peek(KEY).remaining)
            await send(message)

        return await limited(scope, receive, looking)

    async def inner(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await send({"type": "http.response.body", "body": b"after the end"})

    limited = Middleware(inner, limiter, charge=only_status({401}))
    call(app)

    assert left == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize("started", [False, True])
def test_a_client_that_leaves(kind: type, started: bool):
    """Invariant 8: a cancelled request is settled once, as 499 or with the status that went out."""
    seen: list[Any] = []

    async def app(scope, receive, send):
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()

    async def run():
        limiter = kind(TokenBucket(3, "0/s"))
        limited = Middleware(app, limiter, charge=noting(seen))
        task = asyncio.create_task(call_async(limited, scope_of(), incoming=[]))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        left = limiter.peek(KEY)
        return (await left if kind is AsyncLimiter else left).remaining

    assert asyncio.run(run()) == 3
    assert seen == [200 if started else 499]


def test_cancelling_during_settlement_does_not_stop_it():
    """Invariant 8: a settlement once begun ends, though the request is cancelled meanwhile."""
    settled: list[Any] = []

    async def run():
        gate = asyncio.Event()

        async def charge(*given):
            await gate.wait()
            settled.append(given[0])
            return 0

        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})

        limiter = AsyncLimiter(TokenBucket(3, "0/s"))
        limited = Middleware(app, limiter, charge=charge)
        task = asyncio.create_task(call_async(limited, scope_of()))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        taken = (await limiter.peek(KEY)).remaining
        gate.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return taken, (await limiter.peek(KEY)).remaining

    assert asyncio.run(run()) == (2, 3)
    assert settled == [200]


def test_a_charge_that_raises_keeps_what_was_reserved(asking):
    """C190: a broken hook gives nothing back; it never turns a request into a free one."""

    def broken(*given):
        raise LookupError("broken")

    ask = asking(TokenBucket(3, "0/s"), charge=broken)
    with pytest.raises(LookupError, match="broken"):
        ask(200)

    assert ask.remaining == 2


def test_the_applications_exception_comes_before_the_hooks(asking):
    """C180: if both fail, the application's exception is raised, with a note about the other."""

    def broken(*given):
        raise LookupError("broken hook")

    ask = asking(TokenBucket(3, "0/s"), charge=broken)
    ask.plan, ask.late = "raise", False
    with pytest.raises(RuntimeError, match="endpoint") as raised:
        call(ask.app) if ask.protocol == "asgi" else wsgi_call(ask.app)

    assert "broken hook" in raised.value.__notes__[0]
    assert ask.remaining == 2


def test_charging_after_the_response_is_bounded(asking):
    """C079: log(10, 60): cost 15 is refused outright; cost 6 passes once and then is refused."""
    assert [asking(SlidingLog(10, "1min"), cost=15, charge=lambda *_: 15)(200) for _ in range(3)] == [429] * 3

    ask = asking(SlidingLog(10, "1min"), cost=6, charge=lambda *_: 6)
    assert [ask(200) for _ in range(3)] == [200, 429, 429]


def test_a_refused_or_unheld_request_is_not_charged():
    """What never ran is not settled: refused, or given back since its turn is too late."""
    seen: list[Any] = []
    ask = Ask(
        "asgi",
        Limiter(LeakyQueue(3, "1/s"), clock=ManualClock()),
        hold_max=0,
        charge=noting(seen, None),
    )

    assert [ask(200) for _ in range(3)] == [200, 503, 503]
    assert (seen, ask.remaining) == ([200], 2)


def test_cancelled_while_held_is_settled_as_left():
    """Invariant 8: the work never ran, and the reservation is settled, as 499."""
    seen: list[Any] = []

    async def sleep(seconds):
        raise asyncio.CancelledError

    ask = Ask(
        "asgi",
        Limiter(LeakyQueue(3, "1/s"), clock=ManualClock()),
        sleep=sleep,
        charge=noting(seen, None),
    )
    ask(200)
    with pytest.raises(asyncio.CancelledError):
        ask(200)

    assert seen == [200, 499]
    assert ask.runs == 1


@pytest.mark.parametrize("statuses", [[], [99], [600], ["401"], [True], 4])
def test_only_status_checks_its_statuses(statuses):
    """What is no status is an error at construction."""
    with pytest.raises(PolicyError):
        only_status(statuses)


def test_only_status_takes_one_or_several():
    """A single number is allowed, and any collection."""
    one = only_status(401)

    assert [one(status, 0, 0.0) for status in (401, 200)] == [None, 0]
    assert [only_status([401, 403])(status, 0, 0.0) for status in (401, 403, 500)] == [None, None, 0]
