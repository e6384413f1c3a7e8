# What the tests of the decorator share.

from __future__ import annotations

from tidegate import RateLimited, TokenBucket

TWO = TokenBucket(2, "0/s")


def passes(call, times=4):
    """How many of so many calls come through."""
    count = 0
    for _ in range(times):
        try:
            call()
        except RateLimited:
            continue
        count += 1
    return count
