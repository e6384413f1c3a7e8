"""What a refused caller is told: status, a problem+json body, and fields that forbid keeping it.

Which status, and why:

- 429, type quota-exceeded: the caller's own limit is used up.
- 503, type temporary-reduced-capacity: a rule without attributes (`by=()`) refused. That total is
  shared by everybody, so the caller did nothing wrong, and load balancers may try another place.
- 503, type temporary-reduced-capacity, no policy violated: the store that counts gave no answer, and the
  rule is one that refuses then. Whether the caller is within its limit is not known.
- 429 without Retry-After and with `retry_after_ms` null: waiting does not help, since the cost is
  above the capacity or the limit never refills. It stays 429 under a shared rule too: 503 would
  promise that the lack is temporary.
- 429, type about:blank: a `deny` rule. Clients that know rate limits stop at 429 and do not take it
  for a fault of theirs; 403 says the same more bluntly and is one setting away (`deny_status`).

Pure functions; the same decision gives the same bytes.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from tidegate.http.fields import RETRY_AFTER, Pairs, policy_name
from tidegate.units import div_ceil, header_seconds

if TYPE_CHECKING:
    from tidegate.core.decision import Decision
    from tidegate.core.outcome import Outcome

CONTENT_TYPE = "application/problem+json"
_TYPES = "https://iana.org/assignments/http-problem-types#"
QUOTA_EXCEEDED = f"{_TYPES}quota-exceeded"
TEMPORARY_REDUCED_CAPACITY = f"{_TYPES}temporary-reduced-capacity"
ABOUT_BLANK = "about:blank"
_TITLES = {
    QUOTA_EXCEEDED: "Request cannot be satisfied as assigned quota has been exceeded",
    TEMPORARY_REDUCED_CAPACITY: "Request cannot be satisfied due to temporary server capacity constraints",
}


class Answer(NamedTuple):
    """A whole response: what a middleware sends, or a hook returns, instead of the application's."""

    status: int
    headers: Pairs
    body: bytes


def refusal(decision: Decision, *, shared: bool = False, deny_status: int = 429) -> Answer:
    """The answer to a refused request, without the fields of `fields.py`.

    `shared` says that the binding rule counts everybody together.
    """
    binding = decision.binding
    if binding is None:
        detail = f'Requests like this one are blocked by the rule "{decision.rule}".'
        return _answer(deny_status, ABOUT_BLANK, detail, [decision.rule], None)
    hint_us = decision.retry_hint_us
    if binding.outage and hint_us is not None:
        detail = f"The limit for this request cannot be checked at the moment; {_again(hint_us)}."
        return _answer(503, TEMPORARY_REDUCED_CAPACITY, detail, [], hint_us)
    refusing = [out for out in decision.outcomes if out.mode == "enforce" and not out.allowed]
    violated = [out.rule for out in refusing if not out.outage or out is binding]
    kind = TEMPORARY_REDUCED_CAPACITY if shared and hint_us is not None else QUOTA_EXCEEDED
    status = 503 if kind is TEMPORARY_REDUCED_CAPACITY else 429
    return _answer(status, kind, _detail(binding, hint_us), violated, hint_us)


def line_too_long(decision: Decision, hold_us_max: int) -> Answer:
    """The answer to a request whose turn would come later than it may be held: 503 and when to ask again.

    After that time the same place in line is within the bound, if nobody came meanwhile.
    """
    over_us = max(1, decision.wait_us - hold_us_max)
    detail = f'The line of the limit "{decision.rule}" is longer than a request is held here.'
    answer = _answer(503, TEMPORARY_REDUCED_CAPACITY, detail, [decision.rule], over_us)
    answer.headers.append((RETRY_AFTER, str(header_seconds(over_us))))
    return answer


def _detail(binding: Outcome, hint_us: int | None) -> str:
    named = f'the limit "{binding.rule}"'
    if hint_us is not None:
        return f"Too many requests under {named}; {_again(hint_us)}."
    if binding.cost > binding.limit.capacity:
        return f"This request costs more than {named} ever allows at once; waiting does not help."
    return f"Nothing is left under {named}, and it does not refill; waiting does not help."


def _again(hint_us: int) -> str:
    again_s = header_seconds(hint_us)
    return f"try again in {again_s} second{'s' if again_s != 1 else ''}"


def _answer(status: int, kind: str, detail: str, violated: list[str], retry_after_us: int | None) -> Answer:
    body = {
        "type": kind,
        "title": _TITLES.get(kind) or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "violated-policies": [policy_name(rule) for rule in violated],
        "retry_after_ms": None if retry_after_us is None else div_ceil(retry_after_us, 1000),
    }
    data = json.dumps(body, separators=(",", ":")).encode("ascii")
    headers = [
        ("Content-Type", CONTENT_TYPE),
        ("Content-Length", str(len(data))),
        ("Cache-Control", "no-store"),
    ]
    return Answer(status, headers, data)
