"""A client that shows no connections of its own, asked by its public methods: a wrapper, a fake, a stub.

It has `evalsha` and `eval` as redis-py has them, or `execute_command` alone, all blocking or all awaited. How
long a blocking one takes is up to it: nothing can take back a call that somebody else has begun.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from tidegate.errors import StoreError, StoreUnavailable
from tidegate.stores.redis.address import Host
from tidegate.stores.redis.causes import classified, is_no_script
from tidegate.stores.redis.connections import AwaitedConnection, BlockingConnection, Command
from tidegate.stores.redis.opening import NOT_SERVED


def is_askable(client: object) -> bool:
    """Whether it has the methods that are needed."""
    return not isinstance(client, type) and any(
        callable(getattr(client, name, None)) for name in ("evalsha", "execute_command")
    )


class StubOpener:
    """Makes "connections" that call the client's methods."""

    def __init__(self, client: Any) -> None:
        self._client = client
        method = getattr(client, "evalsha", None) or client.execute_command
        self._is_awaited = inspect.iscoroutinefunction(method)

    def open(self, host: Host | None) -> BlockingConnection:
        """See `Opener`."""
        if self._is_awaited:
            raise StoreError(NOT_SERVED["blocking"])
        return _BlockingStub(self._client)

    async def open_awaited(self, host: Host | None) -> AwaitedConnection:
        """See `Opener`."""
        if not self._is_awaited:
            raise StoreError(NOT_SERVED["awaited"])
        return _AwaitedStub(self._client)


class _BlockingStub(BlockingConnection):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(self, commands: Sequence[Command], until_s: float) -> list[Any]:
        replies = []
        for command in commands:
            try:
                reply = _called(self._client, command)
            except Exception as error:  # noqa: BLE001 - what a client raises is classified
                replies.append(_raised(error))
            else:
                replies.append(_returned(reply))
        return replies

    def is_quiet(self) -> bool:
        return True

    def drop(self) -> None:
        return


class _AwaitedStub(AwaitedConnection):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def call(self, commands: Sequence[Command], until_s: float) -> list[Any]:
        replies = []
        for command in commands:
            try:
                reply = _called(self._client, command)
                if inspect.isawaitable(reply):
                    reply = await reply
            except Exception as error:  # noqa: BLE001 - what a client raises is classified
                replies.append(_raised(error))
            else:
                replies.append(_returned(reply))
        return replies

    def unhurried(self) -> AwaitedConnection:
        return self

    def is_quiet(self) -> bool:
        return True

    def drop(self) -> None:
        return


def _called(client: Any, command: Command) -> Any:
    verb, *words = command
    if verb in {b"EVALSHA", b"EVAL"} and hasattr(client, verb.decode().lower()):
        method = getattr(client, verb.decode().lower())
        return method(words[0].decode(), int(words[1]), *words[2:])
    return client.execute_command(verb.decode(), *words)


def _raised(error: Exception) -> Exception:
    """The server's error as a reply. Raises what means that there was none."""
    found = classified(error)
    if is_no_script(error) or not isinstance(found, StoreUnavailable):
        return error
    raise found from error


def _returned(reply: Any) -> Any:
    """The reply. An error that was returned and not raised is none."""
    if isinstance(reply, Exception) and not is_no_script(reply):
        raise StoreUnavailable(f"the client returned an error in place of a reply: {reply}", "broken_reply")
    return reply
