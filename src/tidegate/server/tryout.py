"""The command that is printed when the server starts, for whoever wants to see it decide.

It is tried before it is printed, on the policy in force and a store of its own: what is shown is shown to do
what it says, or nothing is.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from tidegate.http.attributes import Request
from tidegate.limiter import Limiter
from tidegate.testing import ManualClock
from tidegate.units import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.core.policy import Policy
    from tidegate.core.rule import Rule
    from tidegate.server.settings import Settings

_DEMO = "demo"
_DEMOS = {"address": "203.0.113.7", "method": "GET", "path": "/", "host": "example.com", "route": "GET /"}


def command(policy: Policy, settings: Settings, base: str) -> str | None:
    """A command whose last call is refused, or one that a rule decides; None where neither is found."""
    calls = first_refused(policy, settings)
    if calls is not None:
        return (
            f"curl -s -o /dev/null -w '%{{http_code}}\\n' '{base}/auth?n=[1-{calls}]'"
            f"   # call {calls} is refused"
        )
    if _deciding(policy, settings.attributes.of(_plain_request())):
        return f"curl -i '{base}/auth'"
    for rule in policy:
        attributes = _spoken_of(rule)
        if rule.name in _deciding(policy, attributes):
            body = shlex.quote(json.dumps({"attributes": attributes}))
            asked = f"curl -s '{base}/v1/decide' -H 'Content-Type: application/json' -d {body}"
            return f"{asked}   # the rule {quoted(rule.name)} decides"
    return None


def first_refused(policy: Policy, settings: Settings, calls_most: int = 100) -> int | None:
    """The first of so many calls of /auth by one client at one instant that is refused, None if none is."""
    trial = Limiter(policy, clock=ManualClock())
    values = settings.attributes.of(_plain_request())
    try:
        return next((call for call in range(1, calls_most + 1) if not trial.hit(values)), None)
    except Exception:  # noqa: BLE001  # a function of the policy that fails is told when somebody asks
        return None


def _plain_request() -> Request:
    return Request("GET", "/auth", {"host": ["127.0.0.1"]}, "127.0.0.1")


def _deciding(policy: Policy, attributes: Mapping[str, Any]) -> set[str]:
    """The enforced rules that decide such a request."""
    try:
        decision = Limiter(policy, clock=ManualClock()).peek(attributes)
    except Exception:  # noqa: BLE001  # as above
        return set()
    return {outcome.charge.rule for outcome in decision.outcomes if outcome.charge.mode == "enforce"}


def _spoken_of(rule: Rule) -> dict[str, str]:
    """Attributes of a request that the rule speaks of, as far as its patterns tell."""
    attributes = {name: _DEMOS.get(name, _DEMO) for name in rule.by}
    for name, pattern in (rule.match or {}).items():
        several = pattern is not None and not isinstance(pattern, str | int)
        patterns = list(pattern) if several else [pattern]  # type: ignore[arg-type]  # narrowed by `several`
        texts = [str(one) for one in patterns if one is not None]
        attributes.pop(name, None)
        if texts:
            attributes[name] = texts[0].removesuffix("*") or _DEMO
    return attributes
