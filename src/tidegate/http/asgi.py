"""A rate limit in front of any ASGI application.

Each request is decided once, before the application runs; the application runs exactly once if it is
allowed and not at all if it is not. Nothing of the response is collected: the limit fields go into the
one start message, chunks pass as they come, exceptions pass unchanged, and scopes that are neither
"http" nor "websocket" pass untouched.

- Websockets: the handshake is charged, as a GET; messages inside are not. A refusal is sent before the
  handshake is accepted: as HTTP where the server can (`websocket.http.response`), else as a close.
- CORS: put the CORS middleware outside this one (added after it, where order is outermost last). Then
  refusals carry its fields too, and browsers can read them. Preflights are not counted by default, since
  a browser sends them unasked; a plain OPTIONS request is counted like any other.
- A `LeakyQueue` admits work for later: the request is held until its turn, but not longer than
  `hold_max`. A later turn is given back and answered by 503. A caller that leaves while it is held has
  used its place: others may already be timed behind it.
- The same limiter twice around one request, as with mounted applications, charges once, at the outermost.
- `Limiter` is called in the event loop, which is right for the embedded store. With a store on the network
  it is an error at construction: use `AsyncLimiter`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.core.hooks import is_async
from tidegate.errors import PolicyError
from tidegate.http.attributes import Request, added
from tidegate.http.charge import STATUS_OF_ERROR, STATUS_OF_LEAVING, ChargeHook
from tidegate.http.guard import MARK, AttributesSetting, Guard, attributes_setting, check_hook
from tidegate.ports import is_remote
from tidegate.units import Duration, Number, milli

if TYPE_CHECKING:
    from tidegate.core.decision import Decision
    from tidegate.http.fields import Draft, Legacy, Pairs
    from tidegate.http.keys import ClientAddress
    from tidegate.http.problem import Answer
    from tidegate.limiter import AsyncLimiter, Limiter

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_LIMITED = frozenset(("http", "websocket"))
_ANSWERS = frozenset(("http.response.start", "websocket.http.response.start"))
_STARTS = _ANSWERS | {"websocket.accept"}
_KNOWN_MAX = 4_096
_KNOWN_BYTES_MAX = 64
_POLICY_VIOLATION = 1008


class RateLimitMiddleware:
    """Answers 429 or 503 for what `limiter` refuses, and tells every caller where it stands.

    Hooks get the scope and may be sync or async; what they raise is raised, never taken for "exempt".

    Args:
        limiter: a Limiter or AsyncLimiter. One made of a single limit counts by client address.
        attributes: what rules see beside the defaults: a mapping or `Attributes` (see attributes.py), or a
            hook that returns a mapping.
        client: how the client's address is found behind proxies (see keys.py); by default the peer is it.
        cost: what a request costs, or a hook that returns it.
        exempt: a hook that tells which requests are not limited.
        charge: (status, body bytes, elapsed seconds) -> cost really used; see charge.py.
        on_refused: a hook (scope, decision) that returns an `Answer`, or None for the usual one.
        draft, legacy: the form of the fields, see fields.py.
        expose: let scripts on other origins read these fields (Access-Control-Expose-Headers).
        exempt_preflight: let CORS preflights (OPTIONS with Origin and Access-Control-Request-Method) pass.
        deny_status: the status of a `deny` rule.
        hold_max: the longest time for which a request is held, 0 for not at all.
        sleep, clock_s, wall_clock_s: time, for tests.

    Raises:
        PolicyError: a setting cannot be used. CostError: `cost` is no cost.
    """

    def __init__(
        self,
        app: App,
        limiter: Limiter | AsyncLimiter,
        *,
        attributes: AttributesSetting = None,
        client: ClientAddress | None = None,
        cost: Number | Callable[[Scope], Any] = 1,
        exempt: Callable[[Scope], Any] | None = None,
        charge: ChargeHook | None = None,
        on_refused: Callable[[Scope, Decision], Any] | None = None,
        draft: Draft = "draft-10",
        legacy: Legacy = "off",
        expose: bool = False,
        exempt_preflight: bool = True,
        deny_status: int = 429,
        hold_max: Duration = "30s",
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock_s: Callable[[], float] = time.monotonic,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.app = app
        self._limiter: Any = limiter
        self._awaits = is_async(limiter.hit)
        if not self._awaits and is_remote(limiter.store):
            raise PolicyError(
                "limiter would hold up the event loop while its store on the network is asked; "
                "give an AsyncLimiter with the same policy and store"
            )
        self._guard = Guard(
            limiter,
            draft=draft,
            legacy=legacy,
            expose=expose,
            deny_status=deny_status,
            hold_max=hold_max,
            wall_clock_s=wall_clock_s,
        )
        self._attributes, self._attributes_hook = attributes_setting(attributes, client)
        self._key_is_address = self._attributes_hook is None and not self._attributes.names_key
        self._trusts_proxies = bool(self._attributes.client.trusted)
        self._known: dict[str, str | None] = {}
        self._proxy_header = self._attributes.client.header.encode("ascii")
        self._wanted = {name.encode("latin-1"): name for name in self._attributes.header_names}
        if not callable(cost):
            milli(cost)
        check_hook("exempt", exempt)
        check_hook("charge", charge)
        check_hook("on_refused", on_refused)
        self._cost, self._exempt, self._charge, self._on_refused = cost, exempt, charge, on_refused
        self._exempt_preflight = exempt_preflight
        self._sleep, self._clock_s = sleep, clock_s
        self._encoded = {name: name.lower().encode("ascii") for name in self._guard.names}
        self._ours = frozenset(self._encoded.values())
        self._settling: set[asyncio.Task[object]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Decide, then run the application or answer in its place."""
        kind = scope["type"]
        if kind not in _LIMITED:
            return await self.app(scope, receive, send)
        marks = scope.get(MARK)
        if marks is not None and id(self._limiter) in marks:
            return await self.app(scope, receive, send)
        if (
            self._exempt_preflight
            and kind == "http"
            and scope["method"] == "OPTIONS"
            and _is_preflight(scope)
        ):
            return await self.app(scope, receive, send)
        if self._exempt is not None and await _result(self._exempt(scope)):
            return await self.app(scope, receive, send)

        cost = await _result(self._cost(scope)) if callable(self._cost) else self._cost
        asked: Any  # after the last await before the decision: another policy may want other attributes
        if self._key_is_address and self._guard.address_is_enough():
            asked = caller = self._address(scope)
        else:
            asked = self._attributes.of(_request(scope, self._wanted))
            if self._attributes_hook is not None:
                asked = added(asked, await _result(self._attributes_hook(scope)))
            caller = asked["address"]
        verb = self._limiter.hit if self._charge is None else self._limiter.reserve
        taken = verb(asked, cost, caller=caller)
        if self._awaits:
            taken = await taken
        decision: Decision = taken if self._charge is None else taken.decision
        if marks is None:
            marks = scope[MARK] = {}
        marks[id(self._limiter)] = decision

        if not decision.allowed:
            own = await _result(self._on_refused(scope, decision)) if self._on_refused is not None else None
            return await _answer(self._guard.refused(decision, own), scope, receive, send)
        wait_us = decision.wait_us
        if wait_us > self._guard.hold_us_max:
            given_back = taken.cancel() if self._charge is not None else self._limiter.refund(decision)
            await _result(given_back)
            return await _answer(self._guard.held_too_long(decision), scope, receive, send)
        if self._charge is not None:
            return await self._run_charged(taken, wait_us, scope, receive, send)
        if wait_us:
            await self._sleep(decision.wait)
        return await self.app(scope, receive, self._with_fields(decision, send))

    def _address(self, scope: Scope) -> str | None:
        """The client's address alone, for a policy that looks at nothing else."""
        peer = scope.get("client")
        if peer and not self._trusts_proxies:  # then the peer is the client
            try:
                return self._known[peer[0]]
            except KeyError:
                return self._newly_known(peer[0])
        name = self._proxy_header
        lines = [value.decode("latin-1") for raw, value in scope["headers"] if raw.lower() == name]
        return self._attributes.address(peer[0] if peer else None, lines)

    def _newly_known(self, peer: str) -> str | None:
        """The client that a peer is, remembered; what is remembered is bounded, and forgotten whole."""
        address = self._attributes.address(peer, ())
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        if len(peer) <= _KNOWN_BYTES_MAX:
            self._known[peer] = address
        return address

    def _with_fields(self, decision: Decision, send: Send) -> Send:
        """`send`, putting the limit fields into the message that starts the response."""

        async def send_with_fields(message: Message) -> None:
            if message["type"] in _STARTS:
                message = {**message, "headers": self._headers(message.get("headers", ()), decision)}
            await send(message)

        return send_with_fields

    def _headers(
        self, theirs: Iterable[tuple[bytes, bytes]], decision: Decision
    ) -> list[tuple[bytes, bytes]]:
        theirs = list(theirs)
        ours = self._guard.pairs(decision)
        for name, _ in theirs:
            if name.lower() in self._ours:
                pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in theirs]
                return _encoded(self._guard.merged(pairs, ours))
        encoded = self._encoded
        theirs += [(encoded[name], value.encode("ascii")) for name, value in ours]
        return theirs

    async def _run_charged(
        self, reservation: Any, wait_us: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Run the application and settle once: when its last chunk is about to leave, or however it ends.

        Before the last chunk, so that a caller who has the whole answer finds it settled.
        """
        started_s = self._clock_s()
        status: int | None = None
        body_bytes = 0
        settled = False
        send_with_fields = self._with_fields(reservation.decision, send)

        async def settle(final_status: int) -> None:
            nonlocal settled
            if not settled:
                settled = True
                await self._settle(reservation, final_status, body_bytes, self._clock_s() - started_s)

        async def send_counting(message: Message) -> None:
            nonlocal status, body_bytes
            kind = message["type"]
            if kind in _ANSWERS:
                status = message["status"]
            elif kind == "websocket.accept":
                status = 101
            elif kind == "websocket.close" and status is None:
                status = 403
            elif kind == "http.response.body":
                body_bytes += len(message.get("body", b""))
                if not message.get("more_body", False):
                    await settle(STATUS_OF_ERROR if status is None else status)
            await send_with_fields(message)

        try:
            if wait_us:
                await self._sleep(reservation.decision.wait)
            await self.app(scope, receive, send_counting)
        except BaseException as error:
            left = isinstance(error, asyncio.CancelledError)
            try:
                await settle(status if status is not None else STATUS_OF_LEAVING if left else STATUS_OF_ERROR)
            except Exception as broken:  # noqa: BLE001  # the application's own exception is the one to raise
                error.add_note(f"besides, charging by the response failed: {broken!r}")
            raise
        await settle(STATUS_OF_ERROR if status is None else status)

    async def _settle(self, reservation: Any, status: int, body_bytes: int, elapsed_s: float) -> None:
        """Give back what was not used, or take what was used beyond; a hook that raises keeps it all."""
        assert self._charge is not None
        used = self._charge(status, body_bytes, elapsed_s)
        if not self._awaits and not isawaitable(used):
            if used is not None:
                reservation.settle(used)
            return

        # In a task of its own: a caller that leaves cancels this request, not the settlement.
        async def settle() -> None:
            cost = await _result(used)
            if cost is not None:
                await _result(reservation.settle(cost))

        task: asyncio.Task[object] = asyncio.ensure_future(settle())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
        await asyncio.shield(task)


async def _result(value: Any) -> Any:
    """What a hook returned, awaited if it has to be."""
    return await value if isawaitable(value) else value


def _request(scope: Scope, wanted: dict[bytes, str]) -> Request:
    """What attributes are made from. The path is whole, whether or not a mount took a part of it away."""
    headers: dict[str, list[str]] = {}
    for raw, value in scope["headers"]:
        name = wanted.get(raw.lower())
        if name is not None:
            headers.setdefault(name, []).append(value.decode("latin-1"))
    path, root = scope["path"], scope.get("root_path", "")
    if root and path != root and not path.startswith(root.rstrip("/") + "/"):
        path = root + path
    peer = scope.get("client")
    return Request(
        scope.get("method", "GET"),
        path,
        headers,
        peer[0] if peer else None,
        scope.get("query_string", b"").decode("latin-1"),
    )


def _is_preflight(scope: Scope) -> bool:
    names = {name.lower() for name, _ in scope["headers"]}
    return b"origin" in names and b"access-control-request-method" in names


async def _answer(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a whole response in the application's place."""
    status, pairs, body = answer
    headers = _encoded(pairs)
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        return
    if (await receive())["type"] != "websocket.connect":
        return
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "rate limited"})


def _encoded(pairs: Pairs) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
