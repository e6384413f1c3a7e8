# The user's own client: what is taken from it, and that it is left alone.

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.exceptions

from tests.servers.redis_like import RedisLike
from tests.stores.redis.clients import LIBRARIES, client, close
from tests.stores.redis.faces import Face, charge
from tidegate.errors import MissingDependency, StoreError, StoreUnavailable
from tidegate.stores.redis import drivers
from tidegate.stores.redis.store import RedisStore, from_url
from tidegate.stores.redis.wire import encode_decide

Opened = Callable[..., Face]


@pytest.mark.parametrize(
    "options", [{}, {"decode_responses": True}, {"protocol": 3}, {"protocol": 2}], ids=str
)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_of_any_make(
    opened: Opened, face: str, valkey: RedisLike, library: str, options: dict[str, Any]
):
    """Its database, its protocol, its decoding: the store works, and the client is not closed with it."""
    made = client(library, face, valkey.port, db=3, **options)
    with Face(face, made) as store:
        assert [store.takes() for _ in range(11)] == [True] * 10 + [False]
    direct = client(library, "blocking", valkey.port, db=3)

    assert direct.keys() == [b"tidegate:{acme}:rule"]
    direct.close()
    if face == "blocking":
        assert made.ping()
    close(made)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_unix_socket(opened: Opened, face: str, valkey: RedisLike, library: str):
    """By URL and by client."""
    by_url = opened(valkey.unix_url)
    assert by_url.takes()
    made = type(client(library, face, 1))(unix_socket_path=str(valkey.unix_path))

    assert opened(made).decide([charge()], take=False)[0].remaining == 9


def test_the_clients_pool_is_not_used(opened: Opened, face: str, valkey: RedisLike):
    """A pool of one connection, which the user holds: decisions go on."""
    kind: Any = redis if face == "blocking" else redis.asyncio
    pool = kind.ConnectionPool(host="127.0.0.1", port=valkey.port, max_connections=1)
    made = kind.Redis(connection_pool=pool)
    if face == "blocking":
        _taken(pool)
    else:
        asyncio.run(_take_one(pool))

    assert opened(made).takes()
    if face == "blocking":
        pool.disconnect()


def test_the_clients_retries_are_not_used(opened: Opened, face: str, own_redis: Callable[..., RedisLike]):
    """A client that would try ten times more: a call is sent once, and ends by its deadline."""
    from redis.backoff import ConstantBackoff
    from redis.retry import Retry

    server = own_redis()
    kind: Any = redis if face == "blocking" else redis.asyncio
    if face == "awaited":
        from redis.asyncio.retry import Retry  # type: ignore[assignment]  # the same for asyncio
    made = kind.Redis(host="127.0.0.1", port=server.port, retry=Retry(ConstantBackoff(0.01), 10))
    store = opened(made, deadline="40ms")
    store.decide([charge()], deadline_us=5_000_000)
    server.freeze()
    assert store.cause() == "deadline"
    server.thaw()
    server.command("PING")  # whatever was sent has been carried out by now

    assert server.command("KEYS", "*") == [b"tidegate:{acme}:rule"]
    assert opened(server.url).decide([charge()], take=False)[0].remaining == 8


def test_a_client_serves_its_own_face(face: str, valkey: RedisLike):
    """The other face says what to give instead; it is a mistake, and no outage."""
    other = "awaited" if face == "blocking" else "blocking"
    made = client("redis-py", face, valkey.port)
    with Face(other, made) as store, pytest.raises(StoreError, match="give") as raised:
        store.takes()
    close(made)

    assert not isinstance(raised.value, StoreUnavailable)


@pytest.mark.parametrize(
    "given",
    [None, 7, pytest.param(object(), id="an object"), b"redis://localhost", redis.Redis, [], {}],
    ids=repr,
)
def test_what_is_no_client(given: Any):
    """It is told so at once."""
    with pytest.raises(StoreError, match="redis-py or valkey-py"):
        RedisStore(given)


def test_without_a_library(monkeypatch: pytest.MonkeyPatch):
    """A URL needs one; the message says what to install."""
    monkeypatch.setattr(drivers, "find_spec", lambda name: None)

    with pytest.raises(MissingDependency, match=r"pip install 'tidegate\[redis\]'"):
        RedisStore("redis://localhost")


def test_with_valkey_py_alone(opened: Opened, valkey: RedisLike, monkeypatch: pytest.MonkeyPatch):
    """A URL is served by it as well, whatever its scheme says."""
    monkeypatch.setattr(drivers, "find_spec", lambda name: None if name == "redis" else object())
    store = opened(valkey.url.replace("redis://", "valkey://"))

    assert store.takes()


class TestStubs:
    """C132, C143: clients that show no connections are asked by their own methods."""

    @pytest.mark.parametrize("error", [redis.exceptions.ResponseError, redis.exceptions.NoScriptError])
    def test_the_script_is_missing_by_its_code(
        self, opened: Opened, face: str, valkey: RedisLike, error: Any
    ):
        """C132: in the text of the general error; twice, right after it was loaded; the whole text goes."""
        stub = Stub(valkey, forgets=2, error=error)
        store = opened(stub if face == "blocking" else AwaitedStub(stub))

        assert [store.takes() for _ in range(3)] == [True] * 3
        assert [name for name, _ in stub.calls] == ["evalsha", "eval", "evalsha", "eval", "evalsha"]

    @pytest.mark.parametrize(
        "reply", [None, [], b"", 0, b"12", [b"1", None], ValueError("no"), {}, "12\n"], ids=repr
    )
    def test_a_reply_that_is_none(self, opened: Opened, face: str, valkey: RedisLike, reply: object):
        """C143: nothing, an error object, a truncated reply: an outage of that call, and no TypeError."""
        stub = Stub(valkey, replies={3: reply})
        store = opened(stub if face == "blocking" else AwaitedStub(stub))
        store.takes()
        causes = [store.cause() for _ in range(4)]

        assert causes == [None, "broken_reply", None, None]
        assert store.store.health.stats().unavailable == {"broken_reply": 1}

    def test_one_reply_in_a_thousand_is_cut_short(self, face: str, valkey: RedisLike):
        """C143: at any length of a reply to several requests, all of them are outages of that call."""
        requests = [[charge("one"), charge("two")], [charge("three")]]
        whole = Stub(valkey).evalsha_of(requests)
        for length in range(len(whole)):
            with Face(face, _stub(face, Stub(valkey, replies={0: whole[:length]})), deadline="1s") as store:
                answers = store.decide_many(requests)

            assert [answer.cause for answer in answers] == ["broken_reply"] * 2

    def test_errors_that_it_raises(self, opened: Opened, face: str, valkey: RedisLike):
        """Classified as those of a connection of our own."""
        errors = redis.exceptions
        raised = {
            0: errors.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
            1: errors.ConnectionError("gone"),
            2: errors.TimeoutError("slow"),
            3: ConnectionResetError(104, "reset"),
        }
        store = opened(_stub(face, Stub(valkey, raises=raised)), deadline="1s")

        assert [store.cause() for _ in range(5)] == [
            *["out_of_memory", "connection", "deadline", "connection"],
            "breaker",
        ]

    def test_a_bug_in_it_is_no_outage(self, opened: Opened, face: str, valkey: RedisLike):
        """C134: what it raises that means nothing to us is a plain StoreError, with its cause kept."""
        store = opened(_stub(face, Stub(valkey, raises={0: KeyError("bug")})))

        with pytest.raises(StoreError, match="bug") as raised:
            store.takes()
        assert not isinstance(raised.value, StoreUnavailable)


class TestCopies:
    """C129: a store of a URL can be made again elsewhere; one of a client says what to do instead."""

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_pickled(self, valkey: RedisLike, protocol: int):
        """With its options, those of the URL and those of the call; on the same keys."""
        store = RedisStore(valkey.url + "?deadline=2s", prefix="mine", max_connections=3)
        store.decide([charge()])
        again = pickle.loads(pickle.dumps(store, protocol))

        assert again.decide([charge()])[0].remaining == 8
        assert again.servers.options == store.servers.options
        store.close()
        again.close()

    def test_deeply_copied(self, valkey: RedisLike):
        """A copy has connections of its own: closing one leaves the other."""
        store = from_url(valkey.url + "?deadline=2s")
        again = copy.deepcopy(store)
        store.close()

        assert again.decide([charge()])[0].allowed
        again.close()

    def test_of_a_client(self, valkey: RedisLike):
        """It is an error that names the way out."""
        made = client("redis-py", "blocking", valkey.port)

        with pytest.raises(StoreError, match="URL"):
            pickle.dumps(RedisStore(made))
        made.close()


class Stub:
    """A client with the public methods alone, which can be made to misbehave."""

    def __init__(
        self,
        server: RedisLike,
        *,
        forgets: int = 0,
        error: type[Exception] = redis.exceptions.NoScriptError,
        replies: dict[int, Any] | None = None,
        raises: dict[int, Exception] | None = None,
    ) -> None:
        self.server = server
        self.forgets, self.error = forgets, error
        self.replies, self.raises = replies or {}, raises or {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def evalsha(self, sha: str, numkeys: int, *words: Any) -> Any:
        return self._answer("evalsha", sha, numkeys, *words)

    def eval(self, script: str, numkeys: int, *words: Any) -> Any:
        return self._answer("eval", script, numkeys, *words)

    def evalsha_of(self, requests: Any) -> bytes:
        """The whole reply to these requests, which charges them."""
        from tidegate.stores.redis.names import Names
        from tidegate.stores.redis.scripts import DECIDE

        keys, args = encode_decide(requests, Names(), take=False)
        return bytes(self.server.command("EVAL", DECIDE.text, len(keys), *keys, *args))

    def _answer(self, name: str, *words: Any) -> Any:
        number = len(self.calls)
        self.calls.append((name, words))
        if number in self.raises:
            raise self.raises[number]
        if number in self.replies:
            return self.replies[number]
        if name == "evalsha" and self.forgets:
            self.forgets -= 1
            raise self.error("NOSCRIPT No matching script. Please use EVAL.")
        try:
            return self.server.command(name.upper(), *words)
        except Exception as error:
            raise redis.exceptions.ResponseError(str(error)) from error


class AwaitedStub:
    """The same, awaited."""

    def __init__(self, stub: Stub) -> None:
        self._stub = stub

    async def evalsha(self, *words: Any) -> Any:
        return self._stub.evalsha(*words)

    async def eval(self, *words: Any) -> Any:
        return self._stub.eval(*words)


def _stub(face: str, stub: Stub) -> Any:
    return stub if face == "blocking" else AwaitedStub(stub)


async def _take_one(pool: Any) -> None:
    connection = await _taken(pool)
    await connection.disconnect()


def _taken(pool: Any) -> Any:
    """A connection of the pool, which older libraries give for a command by its name."""
    try:
        return pool.get_connection()
    except TypeError:
        return pool.get_connection("PING")
