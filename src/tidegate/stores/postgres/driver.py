"""psycopg, as far as it is used: the only file that imports it.

psycopg's own calls cannot promise a deadline, for cancelling one waits for the server. So a connection is
driven here by `psycopg.pq`, its documented interface to libpq: everything is sent and read without
blocking, and in between one waits for the socket with what is left of the deadline. A connection on which
anything went wrong is dropped and never used again; one whose reply is late, not before that has been read to
its end. So a late reply is never taken for another one's.

A pool of the user's (psycopg_pool) lends its connections for one call each. They must be idle: a
transaction of the user's is never touched, and no setting of theirs is changed.
"""

from __future__ import annotations

import inspect
import os
import select
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from tidegate.errors import MissingDependency, StoreError
from tidegate.stores.postgres.causes import NOT_PREPARED, PREPARED_ALREADY, Lost, Refused, TimeUp
from tidegate.stores.postgres.ports import Port

try:
    import psycopg
    from psycopg import pq
except ImportError as _error:  # also where libpq itself is missing
    raise MissingDependency(
        f"a PostgreSQL store needs psycopg ({_error}): pip install 'tidegate[postgres]'"
    ) from _error

Row: TypeAlias = tuple[bytes | None, ...]


class Statement(NamedTuple):
    """What is asked, and the types of its parameters; a `name` if it is worth preparing."""

    text: bytes
    types: tuple[int, ...] = ()
    name: bytes = b""


_BEGIN = Statement(b"BEGIN ISOLATION LEVEL READ COMMITTED")
_COMMIT = Statement(b"COMMIT")
_ROLLBACK = Statement(b"ROLLBACK")
_BINARY = [int(pq.Format.BINARY)] * 8
_FINE = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)


class Link:
    """One connection, used by one caller at a time. Every call ends by its deadline.

    Raises Refused where the server answered with an error, and Lost or TimeUp where it did not answer; then
    the link is to be dropped.
    """

    def __init__(self, raw: Any, *, prepares: bool) -> None:
        self._raw = raw
        self._poller: Any = None
        self._prepares = prepares
        self._prepared: set[bytes] = set()
        self.owner: Any = None
        """The psycopg connection, while a pool of the user's lends it."""
        self.allowed_ms = 0
        """How long the server lets a call of ours take; 0 where that was not told to the session."""

    @classmethod
    async def opened(cls, conninfo: bytes, port: Port, until_s: float, *, prepares: bool) -> Link:
        """A new connection."""
        raw = pq.PGconn.connect_start(conninfo)
        try:
            while (polled := _polled(raw)) != pq.PollingStatus.OK:
                await port.ready(raw.socket, until_s, to_write=polled == pq.PollingStatus.WRITING)
            raw.nonblocking = 1
        except psycopg.Error as error:
            raw.finish()
            raise Lost(str(error)) from error
        except BaseException:
            raw.finish()
            raise
        return cls(raw, prepares=prepares)

    @property
    def is_idle(self) -> bool:
        """Whether it is in no transaction, and nothing is under way."""
        raw = self._raw
        return bool(
            raw.transaction_status == pq.TransactionStatus.IDLE
            and raw.pipeline_status == pq.PipelineStatus.OFF
        )

    @property
    def is_good(self) -> bool:
        """Whether it can be used for another call, as far as is known."""
        return bool(self._raw.status == pq.ConnStatus.OK) and self.is_idle

    @property
    def is_late(self) -> bool:
        """Whether all that is wrong with it is that a reply has not come yet."""
        raw = self._raw
        return bool(
            raw.status == pq.ConnStatus.OK
            and raw.transaction_status == pq.TransactionStatus.ACTIVE
            and raw.pipeline_status == pq.PipelineStatus.OFF
        )

    def is_quiet(self) -> bool:
        """Whether nothing has come that nobody asked for, which mostly is its end. It was good before."""
        if self._poller is None and hasattr(select, "poll"):
            self._poller = select.poll()
            self._poller.register(self._raw.socket, select.POLLIN)
        if self._poller is None:
            return not select.select([self._raw.socket], [], [], 0)[0]
        return not self._poller.poll(0)

    async def ask(
        self,
        port: Port,
        statement: Statement,
        parameters: Sequence[bytes | None],
        until_s: float,
        *,
        in_transaction: bool = False,
    ) -> list[Row]:
        """The rows of one statement, whose parameters and results are in binary.

        `in_transaction` puts it into one of our own, at READ COMMITTED, for a session that has another level.
        """
        try:
            if in_transaction:
                return await self._in_transaction(port, statement, parameters, until_s)
            if self._prepares and statement.name and statement.name not in self._prepared:
                await self._prepare(port, statement, until_s)
            self._send(statement, parameters)
            return _rows(await self._results(port, until_s))
        except Refused as error:
            if error.state == NOT_PREPARED:
                self._prepared.discard(statement.name)
            raise
        except psycopg.Error as error:
            raise Lost(_said(self._raw) or str(error)) from error

    async def run(self, port: Port, script: bytes, until_s: float) -> list[Row]:
        """The rows, as text, of the last of several statements: all are carried out, or none."""
        try:
            self._raw.send_query(script)
            return _rows(await self._results(port, until_s))
        except psycopg.Error as error:
            raise Lost(_said(self._raw) or str(error)) from error

    async def heard(self, port: Port, until_s: float) -> None:
        """The server has said what it was asked before, or that it is there. Raises Lost or TimeUp if not."""
        if not self.is_late:
            await self.run(port, b"SELECT 1", until_s)
            return
        try:
            await self._results(port, until_s)  # nobody learns what it was
        except psycopg.Error as error:
            raise Lost(_said(self._raw) or str(error)) from error

    async def allow(self, port: Port, until_s: float) -> None:
        """The server lets this call, and those that come after it, take as long as this deadline allows."""
        allowed_ms = int((until_s - port.now_s()) * 1_000) + 1
        script = "; ".join(f"SET {name}={ms}" for name, ms in timeouts_ms(allowed_ms).items())
        await self.run(port, script.encode(), until_s)
        self.allowed_ms = allowed_ms

    def drop(self) -> None:
        """Close it. May be said twice; a pool that has lent it finds it closed."""
        self._raw.finish()

    def forget(self) -> None:
        """In a forked child: let go of the socket without a word, for it is the parent's."""
        with suppress(psycopg.Error, OSError):
            os.close(self._raw.socket)

    async def _in_transaction(
        self, port: Port, statement: Statement, parameters: Sequence[bytes | None], until_s: float
    ) -> list[Row]:
        """The same inside a transaction of our own, still in one round trip."""
        raw = self._raw
        raw.enter_pipeline_mode()
        self._send(_BEGIN, ())
        self._send(statement._replace(name=b""), parameters)
        self._send(_COMMIT, ())
        raw.pipeline_sync()
        results = await self._results(port, until_s, pipeline=True)
        raw.exit_pipeline_mode()
        try:
            _rows(results)
        except Refused:
            if not self.is_idle:
                self._send(_ROLLBACK, ())
                await self._results(port, until_s)
            raise
        return _rows(results[1:2])

    async def _prepare(self, port: Port, statement: Statement, until_s: float) -> None:
        """The session knows the statement by its name, which nothing else has."""
        self._raw.send_prepare(statement.name, statement.text, statement.types)
        try:
            _rows(await self._results(port, until_s))
        except Refused as error:
            if error.state != PREPARED_ALREADY:  # by another store, to which the same pool lends
                raise
        self._prepared.add(statement.name)

    def _send(self, statement: Statement, parameters: Sequence[bytes | None]) -> None:
        formats = _BINARY[: len(parameters)]
        if statement.name in self._prepared:
            self._raw.send_query_prepared(statement.name, parameters, formats, 1)
        else:
            self._raw.send_query_params(statement.text, parameters, statement.types, formats, 1)

    async def _results(self, port: Port, until_s: float, *, pipeline: bool = False) -> list[Any]:
        """All results of what was sent."""
        raw = self._raw
        while raw.flush():
            await port.ready(raw.socket, until_s, to_write=True)
            raw.consume_input()
        results: list[Any] = []
        while True:
            while raw.is_busy():
                await port.ready(raw.socket, until_s)
                raw.consume_input()
            result = raw.get_result()
            if result is None:
                if not pipeline:
                    return results
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                return results
            else:
                results.append(result)


def _polled(raw: Any) -> Any:
    """What connecting waits for now. Raises Lost if it has failed."""
    polled = pq.PollingStatus.FAILED if raw.status == pq.ConnStatus.BAD else raw.connect_poll()
    if polled == pq.PollingStatus.FAILED:
        raise Lost(_said(raw))
    return polled


def _rows(results: Sequence[Any]) -> list[Row]:
    """The rows of the last result. Raises Refused or Lost if any is an error."""
    for result in results:
        if result.status not in _FINE:
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
            if state is None:
                raise Lost(text.decode("utf-8", "replace"))
            raise Refused(state.decode("ascii", "replace"), text.decode("utf-8", "replace"))
    if not results:
        raise Lost("the server sent nothing")
    last = results[-1]
    columns = range(last.nfields)
    return [tuple(last.get_value(row, column) for column in columns) for row in range(last.ntuples)]


def _said(raw: Any) -> str:
    """What libpq says is wrong. It names hosts, users and databases, and no passwords."""
    return str(raw.error_message.decode("utf-8", "replace")).strip()


def timeouts_ms(allowed_ms: int) -> dict[str, int]:
    """When the server gives a call up, so that its answer, that it has, still comes in time."""
    return {"statement_timeout": max(1, allowed_ms * 4 // 5), "lock_timeout": lock_timeout_ms(allowed_ms)}


def lock_timeout_ms(allowed_ms: int) -> int:
    """How long a call waits for a row. For others that wait for it too it may wait as long once more."""
    return max(1, allowed_ms * 3 // 5)


# --- addresses ---


def read_conninfo(text: str) -> dict[str, str]:
    """The parameters in a URL or a connection string. Raises StoreError, which does not repeat it."""
    try:
        return {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(text).items()}
    except psycopg.Error:
        raise StoreError(
            "the store's URL cannot be read; write one such as postgresql://user:password@host:5432/app, "
            "with %XX for what is special in a name or password"
        ) from None


def write_conninfo(parameters: dict[str, str]) -> bytes:
    """A connection string of these parameters."""
    return psycopg.conninfo.make_conninfo("", **parameters).encode()


def parameter_names() -> frozenset[str]:
    """What libpq knows as a parameter."""
    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())


def default_of(name: str) -> str:
    """What libpq takes for a parameter that is not given: from the environment, or built in."""
    for option in pq.Conninfo.get_defaults():
        if option.keyword.decode() == name:
            return (option.val or b"").decode()
    return ""


# --- pools of the user's ---


def kind_of_pool(target: object) -> str:
    """Which face a pool of psycopg_pool serves, "awaited" or "blocking"; empty for anything else."""
    lends, takes_back = getattr(target, "getconn", None), getattr(target, "putconn", None)
    if not (callable(lends) and callable(takes_back)):
        return ""
    return "awaited" if inspect.iscoroutinefunction(lends) else "blocking"


def address_of_pool(target: object) -> dict[str, str] | None:
    """The parameters that a pool connects with; None if it does not show them."""
    text, more = getattr(target, "conninfo", None), getattr(target, "kwargs", None)
    if not isinstance(text, str) or not isinstance(more, Mapping | None):
        return None
    known = parameter_names()
    return {
        **read_conninfo(text),
        **{name: str(value) for name, value in (more or {}).items() if name in known},
    }


def why_not_lent(error: Exception) -> Exception:
    """What it means that a pool did not lend a connection."""
    name = type(error).__name__
    if name == "PoolTimeout":
        return TimeUp("the pool had no connection in time")
    if name == "PoolClosed":
        return StoreError(f"the pool is not open: {error}")
    return Lost(str(error))


def lent_link(owner: Any, known: Link | None) -> Link:
    """The link of a connection that was lent, the same as before. Raises StoreError if it is in use."""
    link = known or Link(owner.pgconn, prepares=owner.prepare_threshold is not None)
    if not owner.closed and not link.is_idle:
        raise StoreError(
            "the pool lent a connection that is in a transaction; give the store a pool whose connections "
            "come back idle"
        )
    return link
