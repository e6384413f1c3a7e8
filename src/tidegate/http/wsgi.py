"""A rate limit in front of any WSGI application: the twin of `asgi.py` for servers with threads.

The same rules: decided once, before the application runs; the application runs exactly once or not at
all; its exceptions and its response pass unchanged, but for the limit fields in the headers. What it
returns is handed on as it is (a `wsgi.file_wrapper` too), unless `charge` has to see it end.

- CORS: wrap the CORS layer around this one, so that refusals carry its fields too.
- `charge` settles before the last chunk leaves where the application tells the length or returns a list,
  else when the response has ended: a caller that has the whole answer may then be a moment early.
- A `LeakyQueue` admits work for later: the thread sleeps until its turn, `hold_max` at most.
- WSGI servers turn "-" in header names into "_", so a header with an underscore could pass for one that
  a proxy writes. The good servers drop those; see to it that yours does before you trust a proxy.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.core.hooks import is_async
from tidegate.errors import InvalidKey, PolicyError
from tidegate.http.attributes import Request, added
from tidegate.http.charge import STATUS_OF_ERROR, STATUS_OF_LEAVING, ChargeHook
from tidegate.http.guard import MARK, AttributesSetting, Guard, attributes_setting, check_hook
from tidegate.units import Duration, Number, milli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication

    from tidegate.core.decision import Decision
    from tidegate.http.fields import Draft, Legacy
    from tidegate.http.keys import ClientAddress
    from tidegate.http.problem import Answer
    from tidegate.limiter import Limiter

Environ: TypeAlias = dict[str, Any]


class RateLimitMiddleware:
    """Answers 429 or 503 for what `limiter` refuses, and tells every caller where it stands.

    Hooks get the environ and must not be async; what they raise is raised, never taken for "exempt".
    The arguments are those of the ASGI middleware; see there. `sleep` blocks the thread.

    Raises:
        PolicyError: a setting cannot be used. CostError: `cost` is no cost.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: Limiter,
        *,
        attributes: AttributesSetting = None,
        client: ClientAddress | None = None,
        cost: Number | Callable[[Environ], Number] = 1,
        exempt: Callable[[Environ], object] | None = None,
        charge: ChargeHook | None = None,
        on_refused: Callable[[Environ, Decision], Answer | None] | None = None,
        draft: Draft = "draft-10",
        legacy: Legacy = "off",
        expose: bool = False,
        exempt_preflight: bool = True,
        deny_status: int = 429,
        hold_max: Duration = "30s",
        sleep: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        if is_async(limiter.hit):
            raise PolicyError(f"limiter is {limiter!r}; WSGI has no event loop, so give a Limiter")
        self.app = app
        self._limiter = limiter
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
        self._proxy_header = _environ_name(self._attributes.client.header)
        self._wanted = [(_environ_name(name), name) for name in self._attributes.header_names]
        if not callable(cost):
            milli(cost)
        for name, hook in {"exempt": exempt, "charge": charge, "on_refused": on_refused}.items():
            check_hook(name, hook)
        hooks: dict[str, object] = {"attributes": self._attributes_hook, "cost": cost, "exempt": exempt}
        hooks |= {"charge": charge, "on_refused": on_refused, "sleep": sleep}
        for name, given in hooks.items():
            if is_async(given):
                raise PolicyError(f"{name} is an async function; WSGI has no event loop, so give a plain one")
        self._cost, self._exempt, self._charge, self._on_refused = cost, exempt, charge, on_refused
        self._exempt_preflight = exempt_preflight
        self._sleep, self._clock_s = sleep, clock_s
        self._ours = frozenset(name.lower() for name in self._guard.names)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Decide, then run the application or answer in its place."""
        marks = environ.get(MARK)
        if marks is not None and id(self._limiter) in marks:
            return self.app(environ, start_response)
        if self._exempt_preflight and environ["REQUEST_METHOD"] == "OPTIONS" and _is_preflight(environ):
            return self.app(environ, start_response)
        if self._exempt is not None and _plain("exempt", self._exempt(environ)):
            return self.app(environ, start_response)

        asked: Any
        if self._key_is_address and self._guard.address_is_enough():
            line = environ.get(self._proxy_header)
            asked = caller = self._attributes.address(
                environ.get("REMOTE_ADDR"), () if line is None else (line,)
            )
        else:
            asked = self._attributes.of(_request(environ, self._wanted))
            if self._attributes_hook is not None:
                asked = added(asked, _plain("attributes", self._attributes_hook(environ)))
            caller = asked["address"]
        cost = _plain("cost", self._cost(environ)) if callable(self._cost) else self._cost
        verb: Callable[..., Any] = self._limiter.hit if self._charge is None else self._limiter.reserve
        try:
            taken = verb(asked, cost, caller=caller)
        except InvalidKey:  # another thread has just put a policy in force that looks at more
            if asked is not caller or self._guard.address_is_enough():
                raise
            taken = verb({"key": caller, "address": caller}, cost, caller=caller)
        decision: Decision = taken if self._charge is None else taken.decision
        if marks is None:
            marks = environ[MARK] = {}
        marks[id(self._limiter)] = decision

        if not decision.allowed:
            hook = self._on_refused
            own = None if hook is None else _plain("on_refused", hook(environ, decision))
            return _answer(self._guard.refused(decision, own), environ, start_response)
        wait_us = decision.wait_us
        if wait_us > self._guard.hold_us_max:
            if self._charge is not None:
                taken.cancel()
            else:
                self._limiter.refund(decision)
            return _answer(self._guard.held_too_long(decision), environ, start_response)
        if self._charge is not None:
            return self._run_charged(taken, wait_us, environ, start_response)
        if wait_us:
            self._sleep(decision.wait)
        return self.app(environ, self._with_fields(decision, start_response))

    def _with_fields(self, decision: Decision, start_response: StartResponse) -> StartResponse:
        """`start_response`, putting the limit fields among the headers; exc_info and write pass through."""

        def start_with_fields(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            headers = list(headers)
            ours = self._guard.pairs(decision)
            if any(name.lower() in self._ours for name, _ in headers):
                headers = self._guard.merged(headers, ours)
            else:
                headers += ours
            if exc_info is None:
                return start_response(status, headers)
            return start_response(status, headers, exc_info)

        return start_with_fields

    def _run_charged(
        self, reservation: Any, wait_us: int, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        meter = _Meter(reservation, self._charge, self._clock_s)
        with_fields = self._with_fields(reservation.decision, start_response)

        def start_counting(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            meter.begin(status, headers)
            write = with_fields(status, headers, exc_info)

            def write_counting(data: bytes) -> Any:
                meter.count(data)
                return write(data)

            return write_counting

        with meter:
            if wait_us:
                self._sleep(reservation.decision.wait)
            body = self.app(environ, start_counting)
        if isinstance(body, list | tuple):  # the whole answer is here; a server may want to see its length
            meter.body_bytes += sum(len(chunk) for chunk in body)
            meter.settle(STATUS_OF_ERROR)
            return body
        return _Metered(body, meter)


class _Meter:
    """What a response has come to, settled once. As a context it settles when an exception passes."""

    def __init__(self, reservation: Any, charge: ChargeHook | None, clock_s: Callable[[], float]) -> None:
        self.body_bytes = 0
        self._status: int | None = None
        self._length_bytes: int | None = None
        self._reservation, self._charge, self._clock_s = reservation, charge, clock_s
        self._started_s = clock_s()
        self._settled = False

    def begin(self, status: str, headers: list[tuple[str, str]]) -> None:
        """Note what the application says of its response."""
        self._status = int(status[:3])
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        self._length_bytes = int(lengths[0]) if lengths and lengths[0].isdecimal() else None

    def count(self, chunk: bytes) -> None:
        """Count a chunk; if it is the last by Content-Length, settle before it leaves."""
        self.body_bytes += len(chunk)
        if self.body_bytes == self._length_bytes:
            self.settle(STATUS_OF_ERROR)

    def settle(self, status_if_none: int) -> None:
        """Give back what was not used, or take what was used beyond; a hook that raises keeps it all."""
        if self._settled:
            return
        self._settled = True
        assert self._charge is not None
        status = status_if_none if self._status is None else self._status
        used = _plain("charge", self._charge(status, self.body_bytes, self._clock_s() - self._started_s))
        if used is not None:
            self._reservation.settle(used)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        try:
            self.settle(STATUS_OF_ERROR)
        except Exception as broken:  # noqa: BLE001  # the application's own exception is the one to raise
            error.add_note(f"besides, charging by the response failed: {broken!r}")


class _Metered:
    """A response's chunks as they come, settled when they end, however they end."""

    def __init__(self, body: Iterable[bytes], meter: _Meter) -> None:
        self._body = body
        self._meter = meter
        self._chunks: Iterator[bytes] | None = None

    def __iter__(self) -> _Metered:
        return self

    def __next__(self) -> bytes:
        with self._meter:
            if self._chunks is None:
                self._chunks = iter(self._body)
            chunk = next(self._chunks, None)
        if chunk is None:
            self._meter.settle(STATUS_OF_ERROR)
            raise StopIteration
        self._meter.count(chunk)
        return chunk

    def close(self) -> None:
        """Called by the server at the end, also when the caller has left."""
        try:
            with self._meter:
                close = getattr(self._body, "close", None)
                if close is not None:
                    close()
        finally:
            self._meter.settle(STATUS_OF_LEAVING)


def _plain(name: str, value: Any) -> Any:
    """What a hook returned; something to await is an error, since it would be true whatever it holds."""
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise TypeError(f"the {name} hook returned something to await; WSGI has no event loop")
    return value


def _environ_name(header: str) -> str:
    name = header.upper().replace("-", "_")
    return name if name in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{name}"


def _request(environ: Environ, wanted: list[tuple[str, str]]) -> Request:
    """What attributes are made from; the path is whole, with what a mount took away, and read as UTF-8."""
    headers = {}
    for key, name in wanted:
        value = environ.get(key)
        if value is not None:
            headers[name] = (value,)
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    if not path.isascii():
        path = path.encode("latin-1", "replace").decode("utf-8", "replace")
    return Request(
        environ["REQUEST_METHOD"],
        path or "/",
        headers,
        environ.get("REMOTE_ADDR"),
        environ.get("QUERY_STRING", ""),
    )


def _is_preflight(environ: Environ) -> bool:
    return "HTTP_ORIGIN" in environ and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ


def _answer(answer: Answer, environ: Environ, start_response: StartResponse) -> list[bytes]:
    """Send a whole response in the application's place."""
    status, headers, body = answer
    start_response(f"{status} {_phrase(status)}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Refused"
