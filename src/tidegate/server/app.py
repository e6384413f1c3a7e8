"""The decision server as one ASGI application: a table of routes, and what each of them answers.

    POST /v1/decide   {"attributes": {...}, "cost": 1} -> the decision as JSON, or several in one call.
                      200 whether allowed or refused: "allowed" is the answer to the question asked.
    ANY  /auth        for nginx, Traefik and curl: the request itself is the question, the status the
                      answer: 200, or 429 with Retry-After (503 where a shared total is short).
    GET  /            a page that says the policy in words and lets one try it
    GET  /healthz, /metrics
    POST /v1/reset    {"attributes": {...}} -> fresh again     } these change state beyond deciding,
    POST /v1/reload   read the configuration file again        } so they want a bearer token

No input is an error of the server: what cannot be read is answered by a problem that says what to send.
Only a failing function of the policy is a 500; what it raised is logged here and told nobody.
The embedded store is asked in the event loop, where it never waits; one on the network is awaited.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tidegate.core.hooks import is_async
from tidegate.core.limits import LeakyQueue, TokenBucket
from tidegate.core.policy import Policy
from tidegate.errors import ConfigError, CostError, InvalidKey, StoreError, StoreUnavailable
from tidegate.http.guard import Guard
from tidegate.limiter import AsyncLimiter, Limiter
from tidegate.server.answers import Answer, ProblemError, encoded, json_answer, made, shown
from tidegate.server.metrics import Metrics
from tidegate.server.origin import FIELDS, options, original, request_of
from tidegate.server.page import PAGE_HEADERS, page
from tidegate.server.requests import ClientLeftError, attributes_in, question, questions, read_body
from tidegate.server.settings import Settings, attributes_looked_at
from tidegate.server.strict_json import read
from tidegate.server.verdict import verdict

if TYPE_CHECKING:
    from tidegate.core.decision import Decision
    from tidegate.http.problem import Answer as Refusal

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Handler: TypeAlias = Callable[[Scope, Receive], Awaitable[Answer]]
Reload: TypeAlias = Callable[[], Awaitable[Exception | None]]

HOLD_MOST: Final = "30s"
"""The longest time for which /auth holds a request until its turn in a queue."""

_AT_ONCE: Final = 50  # so many requests of one call are decided before others get their turn
_log: Final = logging.getLogger("tidegate.server")


class Route(NamedTuple):
    """A handler and the methods it takes; None: all."""

    handler: Handler
    methods: tuple[str, ...] | None


class _InForce(NamedTuple):
    """All that a change of the configuration replaces, so that it is replaced at once."""

    settings: Settings
    guard: Guard
    wanted: Mapping[bytes, str]
    peer_is_all: bool
    """Whether no rule looks at anything but the peer's address, so that nothing else need be read."""
    may_hold: bool
    """Whether a rule can ask for a wait."""


class App:
    """Answers for one limiter. Safe in one event loop; `put_in_force` is called in that loop too.

    Args:
        limiter: what decides; over a store on the network an AsyncLimiter.
        settings: what the configuration says of attributes, fields and the token.
        reload: reads the configuration again; returns why it was not taken, or None. None: there is no file.
        metrics: the counters, to share them.
        sleep, clock_s: time, for tests.
    """

    def __init__(
        self,
        limiter: Limiter | AsyncLimiter,
        settings: Settings | None = None,
        *,
        reload: Reload | None = None,
        metrics: Metrics | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._limiter: Any = limiter
        self._awaits = is_async(limiter.hit)
        self._reload = reload
        self._sleep, self._clock_s = sleep, clock_s
        self.metrics = metrics if metrics is not None else Metrics()
        self.metrics.watch(limiter.store)
        self.metrics.in_force(limiter.policy)
        self._in_force = self._prepared(limiter.policy, settings if settings is not None else Settings())
        self._reload_failed = False
        self._complaints = Limiter(TokenBucket(10, "1/s"))
        self._routes: dict[str, Route] = {
            "/v1/decide": Route(self._decide, ("POST",)),
            "/auth": Route(self._auth, None),
            "/": Route(self._page, ("GET", "HEAD")),
            "/healthz": Route(self._health, ("GET", "HEAD")),
            "/metrics": Route(self._metrics, ("GET", "HEAD")),
            "/v1/reset": Route(self._reset, ("POST",)),
            "/v1/reload": Route(self._reload_now, ("POST",)),
        }

    def put_in_force(self, policy: Policy, settings: Settings) -> None:
        """Answer by another policy and other settings from the next request on."""
        prepared = self._prepared(policy, settings)
        self._limiter.replace_policy(policy)
        self._in_force = prepared
        self.metrics.in_force(policy)

    def _prepared(self, policy: Policy, settings: Settings) -> _InForce:
        guard = Guard(
            self._limiter,
            draft=settings.fields,
            legacy=settings.legacy,
            expose=False,
            deny_status=429,
            hold_max=HOLD_MOST,
            wall_clock_s=time.time,
        )
        names = settings.attributes.header_names
        if settings.attributes.client.trusted:
            names |= FIELDS
        looked_at = attributes_looked_at(policy)
        return _InForce(
            settings,
            guard,
            {name.encode("latin-1"): name for name in names},
            peer_is_all=not settings.attributes.client.trusted
            and looked_at is not None
            and looked_at <= {"address", "key"} - settings.attributes.names,
            may_hold=looked_at is None
            or any(rule.overrides or isinstance(rule.limit, LeakyQueue) for rule in policy),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; an ASGI application is called so."""
        kind = scope["type"]
        if kind == "http":
            try:
                answer = await self._handler(scope["path"], scope["method"])(scope, receive)
            except ProblemError as problem:
                self.metrics.failed(problem.cause)
                answer = problem.answer()
            except ClientLeftError:
                return
            status, headers, body = answer
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        elif kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no websockets here"})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            stops = message["type"] == "lifespan.shutdown"
            if stops:  # here, in the loop that the connections belong to
                await self._limiter.aclose()
            await send({"type": message["type"] + ".complete"})
            if stops:
                return

    def _handler(self, path: str, method: str) -> Handler:
        """What answers at this path. Raises ProblemError for an unknown one and for a wrong method."""
        route = self._routes.get(path)
        if route is None:
            known = ", ".join(self._routes)
            raise ProblemError(404, f"There is nothing at {shown(path)}; there is {known}.")
        handler, methods = route
        if methods is not None and method not in methods:
            allow = ", ".join(methods)
            raise ProblemError(405, f"{path} takes {allow}.", [("Allow", allow)])
        return handler

    # --- deciding ---

    async def _auth(self, scope: Scope, receive: Receive) -> Answer:
        """Decide on the request itself, or on the one that a trusted gateway asks about."""
        settings, guard, wanted, peer_is_all, may_hold = self._in_force
        deny, via = options(scope["query_string"])
        if peer_is_all:
            peer = scope.get("client")
            address = settings.attributes.address(peer[0] if peer else None, ())
            values: dict[str, Any] = {"address": address, "key": address}
        else:
            request = request_of(scope, wanted)
            client = settings.attributes.client
            if client.trusted and client.trusts(request.peer):
                request = original(request, via)
            values = settings.attributes.of(request)
        decision = await self._decided(values, 1, values["address"])
        if not decision.allowed:
            return _refused(guard.refused(decision), deny)
        if may_hold and (wait_us := decision.wait_us):
            if wait_us > guard.hold_us_max:
                given_back = self._limiter.refund(decision)
                if self._awaits:
                    await given_back
                return _refused(guard.held_too_long(decision), deny)
            self.metrics.held += 1
            try:
                await self._sleep(decision.wait)
            finally:
                self.metrics.held -= 1
        return Answer(200, [*_EMPTY, *encoded(guard.pairs(decision))], b"")

    async def _decide(self, scope: Scope, receive: Receive) -> Answer:
        """Decide on the questions of the body: one, or several that are independent of each other."""
        value = read(await read_body(_header_lines(scope), receive))
        if not (isinstance(value, dict) and "requests" in value):
            return json_answer(await self._told(value))
        asked, told = questions(value), []
        for first in range(0, len(asked), _AT_ONCE):
            some = [self._told_or_wrong(entry) for entry in asked[first : first + _AT_ONCE]]
            if self._awaits:  # together, so that the store is asked for all of them at once
                told += await asyncio.gather(*some)
            else:
                told += [await one for one in some]
                await asyncio.sleep(0)
        return json_answer({"decisions": told})

    async def _told_or_wrong(self, value: object) -> dict[str, Any]:
        try:
            return await self._told(value)
        except ProblemError as problem:
            self.metrics.failed(problem.cause)
            return {"error": problem.told()}

    async def _told(self, value: object) -> dict[str, Any]:
        asked = question(value)
        if asked.peek:
            try:
                seen = self._limiter.peek(asked.attributes, asked.cost)
                return verdict(await seen if self._awaits else seen)
            except Exception as error:
                raise self._problem(error, asked.cost) from error
        decision = await self._decided(asked.attributes, asked.cost, asked.caller)
        return verdict(decision, self._in_force.guard.pairs)

    async def _decided(self, attributes: Mapping[str, Any], cost: float, caller: Hashable) -> Decision:
        """The decision, counted and timed. Raises ProblemError where there is none."""
        started_s = self._clock_s()
        try:
            answer = self._limiter.hit(attributes, cost, caller=caller)
            decision: Decision = await answer if self._awaits else answer
        except Exception as error:
            raise self._problem(error, cost) from error
        self.metrics.decided(decision, self._clock_s() - started_s)
        return decision

    def _problem(self, error: Exception, cost: float = 0) -> ProblemError:
        """Whose fault it is that nothing was decided: the caller's is explained, the others are logged."""
        if isinstance(error, InvalidKey):
            return ProblemError(400, f"{error}.")
        if isinstance(error, CostError) and cost != int(cost):  # a log counts whole tokens
            return ProblemError(400, f"{error}.")
        if isinstance(error, StoreUnavailable):
            self._complain("the store did not answer")
            return ProblemError(503, "The store does not answer.", cause="store")
        if isinstance(error, StoreError):
            self._complain("the store cannot be used as it is")
            return ProblemError(
                503, "The store cannot be used as it is; the log of this server says why.", cause="store"
            )
        self._complain("a cost or override function of the policy failed")
        return ProblemError(500, "The policy could not be applied to this request.", cause="policy")

    def _complain(self, text: str) -> None:
        """Log the exception at hand, at most about once a second: a broken policy fails for every request."""
        if self._complaints.hit(text):
            _log.exception("%s", text)

    # --- what wants a token ---

    async def _reset(self, scope: Scope, receive: Receive) -> Answer:
        headers = _header_lines(scope)
        self._check_token(headers)
        value = read(await read_body(headers, receive))
        if not isinstance(value, dict) or set(value) - {"attributes"}:
            raise ProblemError(
                400, 'Send {"attributes": {...}}, as in the requests that are to be forgotten.'
            )
        attributes = attributes_in(value)
        try:
            reset = self._limiter.reset(attributes)
            if self._awaits:
                await reset
        except Exception as error:
            raise self._problem(error) from error
        return json_answer({"reset": True})

    async def _reload_now(self, scope: Scope, receive: Receive) -> Answer:
        self._check_token(_header_lines(scope))
        if self._reload is None:
            raise ProblemError(
                409, "The server runs without a file; start it with one: tidegate serve CONFIG"
            )
        error = await self._reload()
        self.reloaded(error)
        if error is None:
            return json_answer({"reloaded": True, "rules": len(self._limiter.policy)})
        if isinstance(error, ConfigError):
            problems = [str(problem) for problem in error.problems]
            detail = "The file is not taken; the configuration before it stays in force."
            raise ProblemError(422, detail, problems=problems)
        raise ProblemError(500, "The file could not be put in force; the log says why.", cause="policy")

    def reloaded(self, error: Exception | None) -> None:
        """Count a reload, and show in /healthz whether the last one was taken."""
        self._reload_failed = error is not None
        self.metrics.reloaded(ok=error is None)

    def _check_token(self, headers: Mapping[bytes, bytes]) -> None:
        token = self._in_force.settings.token
        if token is None:
            raise ProblemError(
                403,
                "This changes state, which is off: no token is set. Write server: {token: {env: "
                "TIDEGATE_TOKEN}} into the configuration and start the server with that variable.",
            )
        scheme, _, sent = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(sent.strip(), token.encode()):
            said = "Show the token of the configuration: Authorization: Bearer ..."
            raise ProblemError(401, said, [("WWW-Authenticate", 'Bearer realm="tidegate"')])

    # --- looking ---

    async def _page(self, scope: Scope, receive: Receive) -> Answer:
        # In a thread: to say a thousand rules in words takes half a second, and others want to be decided.
        body = await asyncio.to_thread(
            page, self._limiter.policy, self._limiter.store, self._limiter.on_outage
        )
        return made(200, "text/html; charset=utf-8", body, PAGE_HEADERS)

    async def _health(self, scope: Scope, receive: Receive) -> Answer:
        told: dict[str, Any] = {"status": "ok", "rules": len(self._limiter.policy)}
        health = getattr(self._limiter.store, "health", None)
        if health is not None and health.stats().open:
            told["store"] = "the store gives no answer; outage rules decide"
        if self._reload_failed:
            told["reload"] = "the last reload failed; the configuration before it is in force"
        return json_answer(told)

    async def _metrics(self, scope: Scope, receive: Receive) -> Answer:
        accept = _header_lines(scope).get(b"accept", b"").decode("latin-1")
        content_type, body = self.metrics.page(accept)
        return made(200, content_type, body)


_EMPTY: Final = [(b"content-length", b"0"), (b"cache-control", b"no-store")]


def _header_lines(scope: Scope) -> dict[bytes, bytes]:
    """The header fields by name; of several with one name the last."""
    return {name.lower(): value for name, value in scope["headers"]}


def _refused(answer: Refusal, deny: int | None) -> Answer:
    """The answer to a refused request, with another status in the head and in the body if it is asked for."""
    status, pairs, body = answer
    if deny is not None and deny != status:
        problem = json.loads(body)
        problem["status"] = status = deny
        body = json.dumps(problem, separators=(",", ":")).encode("ascii")
        pairs = [(name, str(len(body)) if name == "Content-Length" else value) for name, value in pairs]
    return Answer(status, encoded(pairs), body)
