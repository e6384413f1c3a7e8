"""Everything that is measured, behind one call: `decide(key)`, true if admitted.

Each contender is a function of a `Load` that returns such a `decide`. A library is
imported where it is made, so one that is not installed is skipped with a message. What each does is not
the same (windows are no buckets, and only some results carry more than yes or no); the README says how.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from tidegate import FixedWindow, Limiter, Rate, TokenBucket
from tidegate.stores.memory import MemoryStore

Decide = Callable[[str], Any]

FLOOR = "floor: dict and lock"


class Load(NamedTuple):
    """The limit of a scenario: so many tokens in so many seconds, and a burst."""

    tokens: int
    period_s: int
    burst: int

    @property
    def window_s(self) -> int:
        """For libraries that know no burst: the window in which the burst may pass."""
        return max(1, round(self.burst * self.period_s / self.tokens))


class Contender(NamedTuple):
    """A way to decide. `distribution` is what to install, "" for what is in this repository."""

    name: str
    distribution: str
    make: Callable[[Load], Decide]


def floor(load: Load) -> Decide:
    """What one would write by hand: tokens and a stamp in a dict, floats, one lock, yes or no."""
    rate, burst = load.tokens / load.period_s, load.burst
    buckets: dict[str, list[float]] = {}
    lock, now = threading.Lock(), time.monotonic

    def decide(key: str) -> bool:
        with lock:
            at = now()
            bucket = buckets.get(key)
            if bucket is None:
                buckets[key] = [burst - 1.0, at]
                return True
            tokens = bucket[0] + (at - bucket[1]) * rate
            if tokens > burst:  # noqa: PLR1730  # a call of min() would slow the floor down
                tokens = burst
            bucket[1] = at
            if tokens >= 1.0:
                bucket[0] = tokens - 1.0
                return True
            bucket[0] = tokens
            return False

    return decide


def limiter(load: Load) -> Limiter:
    """A limiter with room for every key of these benchmarks."""
    return Limiter(TokenBucket(load.burst, Rate(load.tokens, load.period_s)), store=MemoryStore(2_000_000))


def compiled(load: Load) -> Decide:
    """`Limiter.hit` as users call it."""
    return limiter(load).hit


def slow_twin(load: Load) -> Decide:
    """The same without the compiled path: the layered function that policies of several rules take."""
    return partial(Limiter.hit, limiter(load))


def fixed_window(load: Load) -> Decide:
    """`Limiter.hit` of a window, to be set beside the libraries that have windows only."""
    return Limiter(FixedWindow(load.burst, load.window_s), store=MemoryStore(2_000_000)).hit


def token_bucket(load: Load) -> Decide:
    """token-bucket: pure Python, no lock."""
    library: Any = import_module("token_bucket")
    return library.Limiter(load.tokens / load.period_s, load.burst, library.MemoryStorage()).consume


def limits_fixed(load: Load) -> Decide:
    """The library limits with a fixed window of burst / rate seconds."""
    library: Any = import_module("limits")
    strategies: Any = import_module("limits.strategies")
    strategy = strategies.FixedWindowRateLimiter(import_module("limits.storage").MemoryStorage())
    return partial(strategy.hit, library.RateLimitItemPerSecond(load.burst, load.window_s))


def limits_sliding(load: Load) -> Decide:
    """The library limits with its sliding window of two counters."""
    library: Any = import_module("limits")
    strategies: Any = import_module("limits.strategies")
    strategy = strategies.SlidingWindowCounterRateLimiter(import_module("limits.storage").MemoryStorage())
    return partial(strategy.hit, library.RateLimitItemPerSecond(load.burst, load.window_s))


def throttled(using: str, load: Load) -> Decide:
    """throttled-py; its store forgets above 1024 keys unless told otherwise."""
    library: Any = import_module("throttled")
    limit = library.Throttled(
        using=using,
        quota=library.per_duration(timedelta(seconds=load.period_s), load.tokens, load.burst),
        store=library.MemoryStore(options={"MAX_SIZE": 2_000_000}),
    ).limit
    return lambda key: not limit(key).limited


def pyrate(load: Load) -> Decide:
    """pyrate-limiter's token bucket: it has one bucket object a key, kept by a factory."""
    library: Any = import_module("pyrate_limiter")
    clocks: Any = import_module("pyrate_limiter.clocks")
    rate = library.Rate(load.tokens, load.period_s * 1000, burst=load.burst)

    class Factory(library.BucketFactory):  # type: ignore[misc]  # it is only there when it is installed
        def __init__(self) -> None:
            self.clock = clocks.MonotonicClock()
            self.buckets: dict[str, Any] = {}

        def wrap_item(self, name: str, weight: int = 1) -> Any:
            return library.RateItem(name, self.clock.now(), weight=weight)

        def get(self, item: Any) -> Any:
            bucket = self.buckets.get(item.name)
            if bucket is None:
                bucket = library.StateBucket([rate], algorithm=library.TokenBucket())
                self.buckets[item.name] = bucket
            return bucket

    return partial(library.Limiter(Factory()).try_acquire, blocking=False)


def floodgate(load: Load) -> Decide:
    """floodgate-rs: native code, fixed windows."""
    library: Any = import_module("floodgate")
    trigger = library.FixedMapping(load.burst, timedelta(seconds=load.window_s)).trigger
    return lambda key: trigger(key) is None


CONTENDERS = [
    Contender(FLOOR, "", floor),
    Contender("tidegate, hit", "", compiled),
    Contender("tidegate, slow twin", "", slow_twin),
    Contender("tidegate, fixed window", "", fixed_window),
    Contender("token-bucket", "token-bucket", token_bucket),
    Contender("limits, fixed window", "limits", limits_fixed),
    Contender("limits, sliding window", "limits", limits_sliding),
    Contender("throttled-py, GCRA", "throttled-py", partial(throttled, "gcra")),
    Contender("throttled-py, token bucket", "throttled-py", partial(throttled, "token_bucket")),
    Contender("pyrate-limiter, token bucket", "pyrate-limiter", pyrate),
    Contender("floodgate-rs, fixed window", "floodgate-rs", floodgate),
]

DISTRIBUTIONS = sorted({contender.distribution for contender in CONTENDERS} - {""})
