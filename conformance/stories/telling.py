"""The words in which the stories are told. Times are in seconds, exact; what is not expected is not named.

    case("name", "why", ["C013"], bucket(10, "1/3s"), [hit(0, left=9), hit(1, left=8)])

`yes` and `no` are hits with their verdict. Expectations: `left` (whole tokens), `balance`, `wait`,
`retry` and `reset` in seconds; NEVER for a hint that has no instant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

NEVER = "never"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = {"wait": "wait_us", "retry": "retry_after_us", "reset": "reset_after_us"}

Json = dict[str, Any]


def case(
    name: str,
    why: str,
    covers: list[str],
    limit: Json | list[tuple[str, Json]],
    steps: list[Any],
    **options: Any,
) -> Json:
    """One case. A list of named limits makes it a layered one. Nested lists of steps are laid out flat."""
    rejected = options.pop("rejected", False)
    told: Json = {"name": name, "why": why, "covers": covers}
    if isinstance(limit, list):
        told["limits"] = [{"name": each, "limit": its} for each, its in limit]
    else:
        told["limit"] = limit
    if options:
        told["options"] = options
    if rejected:
        told["rejected"] = True
    told["steps"] = list(_flat(steps))
    return told


def _flat(steps: list[Any]) -> Any:
    for step in steps:
        if isinstance(step, list):
            yield from _flat(step)
        else:
            yield step


def bucket(capacity: Any, rate: str, algorithm: str = "token_bucket") -> Json:
    return {"algorithm": algorithm, "capacity": str(capacity), "rate": rate}


def meter(capacity: Any, rate: str) -> Json:
    return bucket(capacity, rate, "leaky_bucket")


def queue(capacity: Any, rate: str, first_release: str = "immediate", delay_after: Any = 0) -> Json:
    line = bucket(capacity, rate, "leaky_queue")
    return line | {"first_release": first_release, "delay_after": str(delay_after)}


def log(limit: Any, window: str) -> Json:
    return {"algorithm": "sliding_log", "limit": str(limit), "window": window}


def fixed(limit: Any, window: str, zone: str = "UTC") -> Json:
    return {"algorithm": "fixed_window", "limit": str(limit), "window": window} | (
        {"zone": zone} if zone != "UTC" else {}
    )


def sliding(limit: Any, window: str) -> Json:
    return {"algorithm": "sliding_window", "limit": str(limit), "window": window}


def retold(cases: list[Json], algorithm: str) -> list[Json]:
    """The bucket's cases on another machine of the same law. A queue holds work, so its waits are its own."""
    told = []
    for each in cases:
        if "limit" not in each or each["limit"]["algorithm"] != "token_bucket":
            continue
        limit = each["limit"] | {"algorithm": algorithm}
        if algorithm == "leaky_queue":
            limit |= {"first_release": "immediate", "delay_after": "0"}
        steps = [{name: step[name] for name in step if name != "wait_us"} for step in each["steps"]]
        told.append(each | {"limit": limit, "steps": steps})
    return told


def us_text(microseconds: int) -> str:
    """Microseconds as seconds, for steps that are computed."""
    return f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06d}"


def us(seconds: Any) -> int:
    """Seconds as whole microseconds; an instant may also be written "2026-03-29T01:00:00Z"."""
    if isinstance(seconds, str) and "T" in seconds:
        return (datetime.fromisoformat(seconds) - _EPOCH) // timedelta(microseconds=1)
    exact = Fraction(str(seconds)) * 1_000_000
    assert exact.denominator == 1, f"{seconds} s is finer than a microsecond"
    return exact.numerator


def hit(at: Any, cost: Any = 1, allowed: bool | None = None, **expected: Any) -> Json:
    return _asked("hit", at, cost, allowed, expected)


def yes(at: Any, cost: Any = 1, **expected: Any) -> Json:
    return _asked("hit", at, cost, True, expected)


def no(at: Any, cost: Any = 1, **expected: Any) -> Json:
    return _asked("hit", at, cost, False, expected)


def peek(at: Any, cost: Any = 0, allowed: bool | None = None, **expected: Any) -> Json:
    return _asked("peek", at, cost, allowed, expected)


def error(at: Any, cost: Any) -> Json:
    return {"op": "hit", **_when(at), "cost": str(cost), "error": True}


def refund(at: Any, step: int, cost: Any, returned: Any = None) -> Json:
    return _given_back("refund", at, step, cost, returned)


def settle(at: Any, step: int, cost: Any, returned: Any = None) -> Json:
    return _given_back("settle", at, step, cost, returned)


def refund_all(at: Any, step: int, returned: list[Any], keys: list[str] | None = None) -> Json:
    """Give back all that a layered decision took."""
    told: Json = {"op": "refund", **_when(at), "step": step, "returned": [str(each) for each in returned]}
    return told | ({"keys": keys} if keys else {})


def reset() -> Json:
    return {"op": "reset"}


def change(limit: Json) -> Json:
    return {"op": "change", "limit": limit}


def many(at: Any, times: int, admitted: int, cost: Any = 1, **expected: Any) -> Json:
    """The same hit so many times at one instant, of which the first `admitted` pass."""
    told = _asked("hit", at, cost, None, expected)
    return told | {"times": times, "admitted": admitted}


def _asked(op: str, at: Any, cost: Any, allowed: bool | None, expected: Json) -> Json:
    told: Json = {"op": op, **_when(at)}
    if isinstance(cost, list):
        told["costs"] = [str(each) for each in cost]
    else:
        told["cost"] = str(cost)
    for name in ("keys", "rule"):
        if name in expected:
            told[name] = expected.pop(name)
    if "patience" in expected:
        told["patience_us"] = us(expected.pop("patience"))
    if allowed is not None:
        told["allowed"] = allowed
    if "left" in expected:
        told["remaining"] = expected.pop("left")
    if "balance" in expected:
        told["balance"] = str(expected.pop("balance"))
    for name, field in _SECONDS.items():
        if name in expected:
            value = expected.pop(name)
            told[field] = None if value == NEVER else us(value)
    assert not expected, f"not an expectation: {sorted(expected)}"
    return told


def _given_back(op: str, at: Any, step: int, cost: Any, returned: Any) -> Json:
    told: Json = {"op": op, **_when(at), "step": step, "cost": str(cost)}
    return told | ({} if returned is None else {"returned": str(returned)})


def _when(at: Any) -> Json:
    told: Json = {"at_us": us(at)}
    return told | {"at": at.replace("T", " ")} if isinstance(at, str) and "T" in at else told
