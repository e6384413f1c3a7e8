"""Decisions over Valkey: beside a PING of the same client, the bare script, and other libraries.

    python -m benchmarks redis

Client and server are pinned to the same processor. What is asked can never be refused, so every decision
writes. Commands a decision are counted by the server (INFO commandstats); its time is its own, too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from benchmarks.round_trips import Call, latencies, show_latencies, show_together, together
from tests.servers.redis_like import RedisLike
from tidegate import AsyncLimiter, Limiter, Policy, Rule, TokenBucket

PING = "PING"
CAPACITY, RATE = 1_000_000, "1/s"
CALLERS = 100
SCRIPT = """
local t = redis.call('TIME'); local now = t[1] * 1000000 + t[2]
local per, room, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + cost * per
if at - now > room then return {0, at - now - room} end
redis.call('SET', KEYS[1], string.format('%.0f', at), 'PX', math.ceil((at - now) / 1000) + 1)
return {1, room - (at - now)}
"""
"""What one would write by hand: a bucket as one instant (GCRA), server time, an expiry."""
BY_HAND = (1_000_000, CAPACITY * 1_000_000, 1)
FOUR = [Rule(f"rule {number}", TokenBucket(CAPACITY, RATE), by=("org",)) for number in range(4)]
FORTY_EIGHT = [Rule(f"rule {number}", TokenBucket(CAPACITY, RATE), by=("org",)) for number in range(48)]


def run(rounds: int, scale: int) -> None:
    """Measure and print; the server is started for it, and stopped."""
    with RedisLike("valkey-9") as server:
        print(f"\nValkey {server.version()}, by TCP on the loopback interface, no persistence")
        _one_after_another(server, rounds, 4_000 // scale)
        asyncio.run(_at_once(server, max(3, rounds // 3), 100 // scale or 5))
        _commands(server)


def _one_after_another(server: RedisLike, rounds: int, times: int) -> None:
    for library in ("redis", "valkey"):
        calls = _blocking(server, library)
        show_latencies(
            f"One caller, {library}-py: p50 and p99 of a call",
            latencies(calls, PING, rounds=rounds, times=times),
            PING,
        )


def _blocking(server: RedisLike, library: str) -> dict[str, Call]:
    client = _client(server, import_module(library))
    sha = client.script_load(SCRIPT)
    one = Limiter(TokenBucket(CAPACITY, RATE), store=_store(client))
    four = Limiter(Policy(FOUR), store=_store(client))
    many = Limiter(Policy(FORTY_EIGHT), store=_store(client))
    calls: dict[str, Call] = {
        PING: client.ping,
        "script by hand": lambda: client.evalsha(sha, 1, "by hand", *BY_HAND),
        "tidegate, one limit": lambda: one.hit("org-42"),
        "tidegate, four limits": lambda: four.hit({"org": "org-42"}),
        "tidegate, 48 limits": lambda: many.hit({"org": "org-42"}),
    }
    return calls | (_peers(server.url) if library == "redis" else {})


def _client(server: RedisLike, module: Any) -> Any:
    kind = getattr(module, "Redis", None) or module.Valkey
    return kind(host="127.0.0.1", port=server.port)


def _store(client: Any) -> Any:
    from tidegate.stores.redis.store import RedisStore

    return RedisStore(client, deadline="1s")


def _peers(url: str) -> dict[str, Call]:
    """Other libraries, as their documentation says; one that is not installed is left out."""
    found: dict[str, Call] = {}
    for name, make in (
        ("limits, fixed window", lambda: _limits(url, "FixedWindowRateLimiter")),
        ("limits, moving window", lambda: _limits(url, "MovingWindowRateLimiter")),
        ("throttled-py, GCRA", lambda: _throttled(url, "gcra")),
        ("throttled-py, token bucket", lambda: _throttled(url, "token_bucket")),
        ("pyrate-limiter, token bucket", lambda: _pyrate(url)),
    ):
        with suppress(ImportError):
            found[name] = make()
    return found


def _limits(url: str, strategy: str) -> Call:
    storage, strategies, limits = map(import_module, ("limits.storage", "limits.strategies", "limits"))
    limiter = getattr(strategies, strategy)(storage.storage_from_string(url))
    item = limits.RateLimitItemPerSecond(CAPACITY, CAPACITY)
    return lambda: limiter.hit(item, f"org-42 {strategy}")  # its strategies share their keys, and clash


def _throttled(url: str, algorithm: str) -> Call:
    throttled = import_module("throttled")
    limiter = throttled.Throttled(
        using=algorithm, quota=throttled.per_sec(1, burst=CAPACITY), store=throttled.RedisStore(server=url)
    )
    return lambda: limiter.limit("org-42")


def _pyrate(url: str) -> Call:
    pyrate, redis = import_module("pyrate_limiter"), import_module("redis")
    store = pyrate.RedisStateStore(redis.Redis.from_url(url), "pyrate:org-42")
    rate = pyrate.Rate(1, pyrate.Duration.SECOND, burst=CAPACITY)
    limiter = pyrate.Limiter(pyrate.StateBucket([rate], algorithm=pyrate.TokenBucket(), store=store))
    return lambda: limiter.try_acquire("org-42", blocking=False)


async def _at_once(server: RedisLike, rounds: int, each: int) -> None:
    module = import_module("redis.asyncio")
    client = module.Redis(host="127.0.0.1", port=server.port)
    sha = await client.script_load(SCRIPT)
    limiter = AsyncLimiter(TokenBucket(CAPACITY, RATE), store=_store(client))
    four = AsyncLimiter(Policy(FOUR), store=_store(client))
    keys = itertools.cycle([f"org-{number}" for number in range(1_000)])
    calls: dict[str, Callable[[], Any]] = {
        PING: client.ping,
        "script by hand": lambda: client.evalsha(sha, 1, next(keys), *BY_HAND),
        "tidegate, one limit": lambda: limiter.hit(next(keys)),
        "tidegate, four limits": lambda: four.hit({"org": next(keys)}),
    }
    with suppress(ImportError):
        calls["limits, fixed window"] = _awaited_limits(server.url, keys)
    with suppress(ImportError):
        calls["throttled-py, GCRA"] = _awaited_throttled(server.url, keys)
    lines = await together(calls, PING, callers=CALLERS, rounds=rounds, each=each)
    show_together(f"{CALLERS} callers at once, asyncio, 1,000 keys: decisions a second", lines, PING)
    await client.aclose()


def _awaited_limits(url: str, keys: Any) -> Callable[[], Any]:
    storage, strategies, limits = map(import_module, ("limits.storage", "limits.aio.strategies", "limits"))
    kept = storage.storage_from_string(f"async+{url}", implementation="redispy")
    limiter, item = strategies.FixedWindowRateLimiter(kept), limits.RateLimitItemPerSecond(CAPACITY, CAPACITY)
    return lambda: limiter.hit(item, next(keys))


def _awaited_throttled(url: str, keys: Any) -> Callable[[], Any]:
    throttled = import_module("throttled.asyncio")
    quota = import_module("throttled").per_sec(1, burst=CAPACITY)
    limiter = throttled.Throttled(using="gcra", quota=quota, store=throttled.RedisStore(server=url))
    return lambda: limiter.limit(next(keys))


def _commands(server: RedisLike) -> None:
    """What a decision makes the server do: calls from outside, commands inside, and its time."""
    print("\nWhat the server does for a decision, by its own statistics")
    for name, call in _blocking(server, "redis").items():
        for _ in range(20):
            call()
        server.command("CONFIG", "RESETSTAT")
        for _ in range(1_000):
            call()
        stats = server.info("commandstats")
        counted, took_us, outer = [], 0.0, ("evalsha", "eval", "ping")
        for entry, said in stats.items():
            command = entry.removeprefix("cmdstat_")
            fields = dict(part.split("=") for part in said.split(","))
            if int(fields["calls"]) >= 100:
                counted.append(f"{int(fields['calls']) / 1_000:g} {command}")
                took_us += float(fields["usec"]) / 1_000 if command in outer else 0
        print(f"  {name:28} {took_us:5.1f} us   {', '.join(sorted(counted))}")
