"""A store of a few lines on the scripts: one connection, no deadline. For tests of what the scripts answer.

The scripts can be others than the package's, so that a test can see that a changed one is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from tests.servers.redis_like import RedisLike
from tidegate.core.compose import Adjustment
from tidegate.core.keys import Key
from tidegate.core.outcome import Charge, Outcome
from tidegate.errors import StoreError
from tidegate.stores.redis import wire
from tidegate.stores.redis.names import Names
from tidegate.stores.redis.scripts import ADJUST, DECIDE, FORGET, Script
from tidegate.units import US_PER_S


def the_outcome(answers: list[Any]) -> Outcome:
    """The outcome of the only charge of the only request."""
    ((outcome,),) = answers
    assert isinstance(outcome, Outcome)
    return outcome


class PlainStore:
    """A store on a server's unix socket."""

    name = "redis"

    def __init__(
        self,
        server: RedisLike,
        decide: Script = DECIDE,
        adjust: Script = ADJUST,
        forget: Script = FORGET,
    ) -> None:
        self.redis: Any = redis.Redis(unix_socket_path=str(server.unix_path))
        self.names = Names()
        self.deciding, self.adjusting, self.forgetting = decide, adjust, forget

    def decide(
        self, charges: Sequence[Charge], now_us: int | None = None, *, take: bool = True
    ) -> list[Outcome]:
        """Decide one request, or raise its error."""
        (answer,) = self.decide_many([charges], now_us, take=take)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def decide_many(
        self, requests: Sequence[Sequence[Charge]], now_us: int | None = None, *, take: bool = True
    ) -> list[Any]:
        """Decide all requests in one call."""
        sent = wire.encode_decide(
            requests, self.names, now_us=now_us, take=take, windows_at_us=self._about(now_us)
        )
        return wire.decode_decide(self._call(self.deciding, sent), requests, wire.echo_of(sent[1]))

    def adjust(self, adjustments: Sequence[Adjustment], now_us: int | None = None) -> list[int]:
        """Give back or charge on top."""
        sent = wire.encode_adjust(adjustments, self.names, now_us=now_us, windows_at_us=self._about(now_us))
        changes = []
        for answer in wire.decode_adjust(
            self._call(self.adjusting, sent), adjustments, wire.echo_of(sent[1])
        ):
            if isinstance(answer, StoreError):
                raise answer
            assert isinstance(answer, int)
            changes.append(answer)
        return changes

    def forget(self, keys: Sequence[tuple[str, Key]]) -> None:
        """Make these keys fresh."""
        if keys:
            sent = wire.encode_forget(keys, self.names)
            assert wire.decode_forget(self._call(self.forgetting, sent), keys) == [None] * len(keys)

    def close(self) -> None:
        """Let go of the connection."""
        self.redis.close()

    def call(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        """The script's answer to these very arguments."""
        return self._call(script, (list(keys), list(args)))

    def _call(self, script: Script, sent: tuple[list[bytes], list[bytes]]) -> Any:
        keys, args = sent
        try:
            return self.redis.evalsha(script.sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            return self.redis.eval(script.text, len(keys), *keys, *args)

    def now_us(self) -> int:
        """Where the server's clock is."""
        seconds, us = self.redis.time()
        return int(seconds * US_PER_S + us)

    def together(self, script: Script, sent: tuple[list[bytes], list[bytes]], *after: Any) -> list[Any]:
        """The script's answer and those to other commands, with nothing in between."""
        self.redis.script_load(script.text)
        keys, args = sent
        pipeline = self.redis.pipeline(transaction=True)
        pipeline.evalsha(script.sha, len(keys), *keys, *args)
        for command in after:
            pipeline.execute_command(*command)
        return pipeline.execute()

    def _about(self, now_us: int | None) -> int:
        return self.now_us() if now_us is None else now_us
