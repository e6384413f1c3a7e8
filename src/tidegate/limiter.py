"""Limiter and AsyncLimiter: thin twins over the same flows, one line a method, in the same order.

Both may be shared by any number of threads and event loops; neither starts a thread or a task. What a
method does is written in its flow, and what decides is the store.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from functools import wraps
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast

from tidegate.clock import Clock
from tidegate.core.columns import Decisions
from tidegate.core.decision import Decision
from tidegate.core.explain import Explanation
from tidegate.core.keys import CallKey
from tidegate.core.limits import Limit
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.core.ticket import TicketDesk
from tidegate.decorate import guard
from tidegate.drive import run_blocking
from tidegate.errors import StoreError
from tidegate.flows.ask import ask, ask_many, explain, reset, with_costs
from tidegate.flows.give_back import refund
from tidegate.flows.outage import Outages, Tally
from tidegate.flows.port import Setting
from tidegate.manner import checked_manner
from tidegate.own import own
from tidegate.ports import is_remote, is_store, port_of
from tidegate.reservation import AsyncReservation, Reservation
from tidegate.stores.base import AwaitedStore, Store
from tidegate.stores.hot import Compiled, compiled
from tidegate.stores.memory import MemoryStore
from tidegate.stores.opening import open_store
from tidegate.units import Duration, Number

AnyStore: TypeAlias = Store | AwaitedStore
"""A store whose calls block, or the awaited face of one on the network."""

F = TypeVar("F", bound=Callable[..., Any])


class _LimiterBase:
    """What the twins share: policy, store, clock and tickets, and what happens in an outage."""

    store: Store
    _setting: Setting
    _compiled: Compiled | None
    _awaits: bool

    def __init__(
        self,
        policy_or_limit: Policy | Rule | Limit | Iterable[Rule],
        *,
        store: AnyStore | str | None = None,
        clock: Clock | None = None,
        tier: Literal["direct"] = "direct",
        on_outage: Literal["closed", "open"] = "closed",
        deadline: Duration | None = None,
        workers: int = 1,
    ) -> None:
        if clock is not None and (isinstance(clock, type) or not hasattr(clock, "now_us")):
            raise StoreError(f"clock is {clock!r}; give one with now_us(), for instance ManualClock()")
        self._manner = checked_manner(tier, on_outage, deadline, workers)
        self._given_clock = clock
        self._owns_store = store is None or isinstance(store, str)
        self._uses_store_clock = store is None or clock is None
        self.store = MemoryStore(clock=clock) if store is None else _opened(store)
        self._port = port_of(self.store, self._manner.deadline_us, awaited=self._awaits)
        self._own = own(self.store, clock)
        self._tally = Tally()
        # A signal handler or finalizer may come in while its own thread holds one of these: hence reentrant.
        self._locks = threading.RLock(), threading.RLock()
        self._desk = TicketDesk(lock=self._locks[0])
        self._compiled = None
        _limiters.add(self)
        try:
            self.replace_policy(policy_or_limit)
        except BaseException:
            self.close()
            raise

    @property
    def policy(self) -> Policy:
        """The rules that decide."""
        return self._setting.policy

    @property
    def on_outage(self) -> Literal["closed", "open"]:
        """What rules that do not say do while a store on the network gives no answer."""
        return self._manner.on_outage

    def replace_policy(self, policy_or_limit: Policy | Rule | Limit | Iterable[Rule]) -> None:
        """Decide by another policy from now on; state is carried over as each rule's `carry` says."""
        policy = Policy.of(policy_or_limit)
        clock = None if self._uses_store_clock or self._given_clock is None else self._given_clock.now_us
        outages = Outages(
            policy,
            self._manner.on_outage,
            self._manner.workers,
            shares=self._own.shares if is_remote(self.store) else None,
            bounds=self._own.bounds,
            now_us=self._own.clock.now_us,
            tally=self._tally,
        )
        setting = Setting(policy, self._port, self._desk, clock, self._locks[1], outages)
        fast, retired = self._compile(policy), self._compiled
        before = getattr(self, "_setting", None)
        self._use(setting, fast)
        if retired is not None:
            retired.retire()
        if before is not None:
            before.outages.retire(outages)

    def _use(self, setting: Setting, fast: Compiled | None) -> None:
        self._setting, self._compiled = setting, fast

    def _compile(self, policy: Policy) -> Compiled | None:
        return compiled(policy, self.store, self._desk, self._slow_hit) if self._uses_store_clock else None

    def _slow_hit(self, key: CallKey, cost: Number = 1, *, caller: Hashable = None) -> Decision:
        """What the compiled path does not know; where there is one, the port never suspends."""
        return run_blocking(ask(self._setting, key, cost, caller=caller))

    def close(self) -> None:
        """Let go of the store, if it was this limiter that opened it; where it is awaited, see `aclose`."""
        if self._owns_store:
            self.store.close()

    async def aclose(self) -> None:
        """Let go of the store, if it was this limiter that opened it, in the event loop that used it."""
        if self._owns_store:
            await self._port.close()
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _after_fork(self) -> None:
        for lock in self._locks:
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # not in the type stubs

    def __reduce__(self) -> tuple[Any, ...]:
        how = {**self._manner._asdict(), "store": self.store, "clock": self._given_clock}
        return _same_kind, (type(self), self.policy, how, self._owns_store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.policy!r}, store={self.store!r})"


class Limiter(_LimiterBase):
    """Decides whether work may run now. Every call returns at once; a `Decision` is true iff allowed.

    Args:
        policy_or_limit: a limit, whose budgets are the keys that calls name; or a policy of rules, whose
            budgets are made of the attributes that calls pass.
        store: where state lives: None (in this process), a URL such as "memory://", or a store.
        clock: another source of instants, for tests (`tidegate.testing.ManualClock`).
        tier: "direct", where every decision asks the store.
        on_outage: "closed" or "open": what rules that do not say do while a store on the network gives no
            answer.
        deadline: how long a decision by such a store may take, "1ms" to "60s"; None: as the store itself
            says, which is 50 ms unless told otherwise.
        workers: how many processes of this node share what it owns of limits with a reserve.
    """

    _awaits = False

    def hit(self, key: CallKey, cost: Number = 1, *, caller: Hashable = None) -> Decision:
        """Take the cost now or be told no; never sleeps. For a `LeakyQueue`, hold the work for its `wait`.

        `caller` tells apart those who share a key, so that each refused one keeps its own ticket.
        Raises InvalidKey or CostError. A cost that can never pass is refused with `retry_after` None.
        """
        return self._slow_hit(key, cost, caller=caller)

    def hit_many(self, keys: Iterable[CallKey], costs: Number | Sequence[Number] = 1) -> Decisions:
        """Decide many independent requests in one call: columns of keys and costs in, columns out.

        Costs are checked before anything is taken; a key that is no key raises InvalidKey on its turn.
        """
        if self._compiled is not None:
            return self._compiled.hit_many(with_costs(keys, costs))
        return run_blocking(ask_many(lambda: self._setting, keys, costs))

    def peek(self, key: CallKey, cost: Number = 1) -> Decision:
        """The verdict that `hit` would give now, and what is left now; nothing is taken, so `wait` is 0."""
        return run_blocking(ask(self._setting, key, cost, take=False))

    def explain(self, key: CallKey, cost: Number = 1) -> Explanation:
        """What each rule holds of the key, and why this cost would pass or not; changes nothing."""
        return run_blocking(explain(self._setting, key, cost))

    def reserve(self, key: CallKey, cost: Number, *, caller: Hashable = None) -> Reservation:
        """Take an estimated cost now, to be settled or cancelled later; true iff it was admitted."""
        return Reservation(self, self.hit(key, cost, caller=caller))

    def refund(self, decision: Decision, cost: Number | None = None) -> Fraction:
        """Give back all or part of what a decision took; what came back, in tokens.

        A late refund returns less, so that it cannot buy a second burst. Raises CostError.
        """
        return run_blocking(refund(self._setting, decision, cost))

    def reset(self, key: CallKey) -> None:
        """Make a key fresh in every rule that it names somebody in, whatever else those rules match.

        A key that is the empty mapping names the budgets that all share.
        """
        run_blocking(reset(self._setting, key))

    def limit(
        self, key: CallKey | Callable[..., CallKey] = None, cost: Number | Callable[..., Number] = 1
    ) -> Callable[[F], F]:
        """Decorate a function so that each call is charged first, and raises RateLimited if refused.

        `key` and `cost` are constants or functions of the call's arguments; without a key the function has
        one budget of its own (what is defined again and again at one place shares it). Works on functions,
        methods, generators and coroutines, and keeps signature and type. What cannot be guarded is a
        PolicyError at decoration, a wrong constant an InvalidKey, CostError or CostTooLarge.
        """
        return guard(self._hit_now, self.policy, key, cost, blocking=True)

    def _hit_now(self, key: CallKey, cost: Number) -> Decision:
        """What `hit` is at the moment: a reload may have compiled another."""
        return self.hit(key, cost)

    def _use(self, setting: Setting, fast: Compiled | None) -> None:
        super()._use(setting, fast)
        if fast is not None and type(self).hit is Limiter.hit:
            slow = Limiter.hit.__get__(self)  # its twin, behind which it stands
            self.__dict__["hit"] = wraps(slow)(fast.hit)
        else:
            self.__dict__.pop("hit", None)


class AsyncLimiter(_LimiterBase):
    """Decides whether work may run now, on asyncio. The twin of `Limiter`: the same methods, awaited.

    Args:
        policy_or_limit: a limit, whose budgets are the keys that calls name; or a policy of rules, whose
            budgets are made of the attributes that calls pass.
        store: where state lives: None (in this process), a URL such as "memory://", or a store.
        clock: another source of instants, for tests (`tidegate.testing.ManualClock`).
        tier: "direct", where every decision asks the store.
        on_outage: "closed" or "open": what rules that do not say do while a store on the network gives no
            answer.
        deadline: how long a decision by such a store may take, "1ms" to "60s"; None: as the store itself
            says, which is 50 ms unless told otherwise.
        workers: how many processes of this node share what it owns of limits with a reserve.
    """

    _awaits = True

    async def hit(self, key: CallKey, cost: Number = 1, *, caller: Hashable = None) -> Decision:
        """Take the cost now or be told no; never sleeps. For a `LeakyQueue`, hold the work for its `wait`.

        `caller` tells apart those who share a key, so that each refused one keeps its own ticket.
        Raises InvalidKey or CostError. A cost that can never pass is refused with `retry_after` None.
        """
        fast = self._compiled
        return (
            await ask(self._setting, key, cost, caller=caller)
            if fast is None
            else fast.hit(key, cost, caller=caller)
        )

    async def hit_many(self, keys: Iterable[CallKey], costs: Number | Sequence[Number] = 1) -> Decisions:
        """Decide many independent requests in one call: columns of keys and costs in, columns out.

        Costs are checked before anything is taken; a key that is no key raises InvalidKey on its turn.
        """
        fast = self._compiled
        return (
            await ask_many(lambda: self._setting, keys, costs)
            if fast is None
            else fast.hit_many(with_costs(keys, costs))
        )

    async def peek(self, key: CallKey, cost: Number = 1) -> Decision:
        """The verdict that `hit` would give now, and what is left now; nothing is taken, so `wait` is 0."""
        return await ask(self._setting, key, cost, take=False)

    async def explain(self, key: CallKey, cost: Number = 1) -> Explanation:
        """What each rule holds of the key, and why this cost would pass or not; changes nothing."""
        return await explain(self._setting, key, cost)

    async def reserve(self, key: CallKey, cost: Number, *, caller: Hashable = None) -> AsyncReservation:
        """Take an estimated cost now, to be settled or cancelled later; true iff it was admitted."""
        return AsyncReservation(self, await self.hit(key, cost, caller=caller))

    async def refund(self, decision: Decision, cost: Number | None = None) -> Fraction:
        """Give back all or part of what a decision took; what came back, in tokens.

        A late refund returns less, so that it cannot buy a second burst. Raises CostError.
        """
        return await refund(self._setting, decision, cost)

    async def reset(self, key: CallKey) -> None:
        """Make a key fresh in every rule that it names somebody in, whatever else those rules match.

        A key that is the empty mapping names the budgets that all share.
        """
        await reset(self._setting, key)

    def limit(
        self, key: CallKey | Callable[..., CallKey] = None, cost: Number | Callable[..., Number] = 1
    ) -> Callable[[F], F]:
        """Decorate a function so that each call is charged first, and raises RateLimited if refused.

        `key` and `cost` are constants or functions of the call's arguments; without a key the function has
        one budget of its own (what is defined again and again at one place shares it). Works on functions,
        methods, generators and coroutines, and keeps signature and type. What cannot be guarded is a
        PolicyError at decoration, a wrong constant an InvalidKey, CostError or CostTooLarge.
        """
        return guard(self.hit, self.policy, key, cost, blocking=False)


_limiters: weakref.WeakSet[_LimiterBase] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: nobody there could release a lock that another thread held at the fork."""
    for limiter in list(_limiters):
        limiter._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _opened(store: object) -> Store:
    if isinstance(store, str):
        return open_store(store)
    if hasattr(store, "execute_command"):
        raise StoreError(
            f"store is a client, {type(store).__name__}; give RedisStore(client), "
            "from tidegate.stores.redis.store"
        )
    if not is_store(store):
        raise StoreError(f"store is {store!r}; give a URL such as 'memory://', or a store")
    return cast(Store, store)


def _same_kind(kind: type[_LimiterBase], policy: Policy, how: dict[str, Any], owns: bool) -> _LimiterBase:
    limiter = kind(policy, **how)
    limiter._owns_store = owns
    return limiter
