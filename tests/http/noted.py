# Hooks that note what they are given, for tests that ask what a middleware made of a request or response.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate import Limiter, Policy, Rule, TokenBucket

if TYPE_CHECKING:
    from collections.abc import Mapping


def noting(seen: list[Any], used: object = 0) -> Any:
    """A charge that notes the status and says that `used` was used."""

    def charge(status: int, _body_bytes: int, _elapsed_s: float) -> object:
        seen.append(status)
        return used

    return charge


def noting_limiter(seen: list[Any]) -> Limiter:
    """A limiter that notes the attributes of every request."""

    def cost(attributes: Mapping[str, object]) -> int:
        seen.append(attributes)
        return 1

    return Limiter(Policy([Rule("r", TokenBucket(9, "1/s"), cost=cost)]))
