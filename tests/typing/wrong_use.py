# Mistakes that a type checker must find. Behind each line stands the code of the one error that mypy gives.
# This file is never run.

from __future__ import annotations

from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket

TokenBucket(20)  # error: call-arg
TokenBucket("20", "5/s")  # error: arg-type
TokenBucket(20, 5)  # error: arg-type
Rule("org", "5/s")  # error: arg-type
Rule("org", TokenBucket(20, "5/s"), mode="soft")  # error: arg-type
Rule("org", TokenBucket(20, "5/s"), on_outage="lease")  # error: arg-type
Policy(20)  # error: arg-type
Limiter(TokenBucket(20, "5/s"), on_outage="reserve")  # error: arg-type
Limiter(TokenBucket(20, "5/s"), workers="4")  # error: arg-type

limiter = Limiter(TokenBucket(20, "5/s"))
limiter.hit()  # error: call-arg
limiter.hit(1.5)  # error: arg-type
limiter.hit("org", cost="2")  # error: arg-type
limiter.hit("org").remaining = 3  # error: misc
limiter.hit("org").limits  # error: attr-defined
limiter.aquire("org")  # error: attr-defined


@limiter.limit()
def price(item: str) -> float:
    return float(item)


price(3)  # error: arg-type
text: str = price("3")  # error: assignment


async def main() -> None:
    twin = AsyncLimiter(TokenBucket(1, "1/s"))
    twin.hit("org").allowed  # error: attr-defined
    twin.hit("org")  # error: unused-coroutine
