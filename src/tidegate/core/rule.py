"""A rule: a limit bound to the attributes of a request.

A rule is checked when it is made, and compiled to plain functions: whether it speaks of a request, what
the request costs, which limit its key has. Only what a caller's own functions return (a cost, an
override) is checked as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from tidegate.core.carry import WAYS, Carry
from tidegate.core.hooks import is_async
from tidegate.core.keys import Key, key_of, keys_by, present
from tidegate.core.law import EXACT
from tidegate.core.limits import Limit, SlidingLog
from tidegate.core.match import Attributes, Pattern, matcher, route_table
from tidegate.core.outage import ON_OUTAGE, OnOutage, Reserve, check_share
from tidegate.core.outcome import Mode
from tidegate.errors import CostError, CostTooLarge, InvalidKey, PolicyError
from tidegate.units import MILLI, Number, decimal_text, milli, quoted, shown

CostOf: TypeAlias = Number | Mapping[str, Number] | Callable[[Attributes], Number]
LimitOf: TypeAlias = Mapping[Any, Limit] | Callable[[Attributes], Limit | None]

_KEYWORDS = (
    *("match", "cost", "mode", "overrides", "strict", "max_debt", "give_back", "carry"),
    *("on_outage", "reserve", "outage_limit"),
)
_MODES = get_args(Mode)
_NAME_BYTES_MOST = 200


@dataclass(frozen=True)
class Rule:
    """A limit bound to the attributes of a request. Immutable.

    Args:
        name: what errors, headers and metrics call it; unique in a policy.
        limit: the limit; None only for the modes "deny" and "bypass".
        by: the attributes whose values make the key; () is one budget for all. An attribute that is
            missing, empty or blank is one shared "absent" value.
        match: which requests the rule speaks of, for instance
            {"route": "POST /users/{id}", "method": ["GET", "HEAD"], "path": "/api/*"}. None: all.
        cost: what a request costs here. None: what the call says. A number: always that. A table
            {"POST /exports": 5}: by route, other routes cost what the call says. A function of the
            attributes: what it returns.
        mode: "enforce"; "shadow" decides and reports but never refuses, and never blocks or charges the
            others; "deny" refuses what matches; "bypass" lets it pass all rules. Of several deny and bypass
            rules that match, the first decides.
        overrides: other limits for some keys: {"acme": limit} by the value of `by` (a tuple where `by` has
            several), or a function of the attributes that returns a limit or None.
        strict: a spending cap: settling never overdraws.
        max_debt: how far settling may overdraw, in tokens; by default the capacity, 0 if strict.
        give_back: "bounded" (a refund never buys a second burst) or "full" (all that is still there comes
            back; in any interval capacity + rate * d + what was returned in it may pass).
        carry: how state is taken over when the limit changes; see `core/carry.py` for the bound of each.
        on_outage: what happens while a store on the network gives no answer: "closed" refuses, "open" admits
            without counting, "reserve" admits what this node's own share has. None: as the limiter says. A
            strict rule is never open, and a shadow rule never refuses.
        reserve: that share, for "reserve": {"share": "20%", "nodes": 8, "index": 0}. It is spent always,
            first, and the store holds the rest of the limit; see `core/outage.py`.
        outage_limit: for "open": what each process admits of a key meanwhile, as a limit of its own.

    Raises:
        PolicyError: the parts contradict each other; the message names the rule and the way out.
        CostError: a cost that stands here is no cost. CostTooLarge: it is above the capacity.
    """

    name: str
    limit: Limit | None = None
    by: tuple[str, ...] = ()
    match: Mapping[str, Pattern] | None = field(default=None, kw_only=True, hash=False)
    cost: CostOf | None = field(default=None, kw_only=True, hash=False)
    mode: Mode = field(default="enforce", kw_only=True)
    overrides: LimitOf | None = field(default=None, kw_only=True, hash=False)
    strict: bool = field(default=False, kw_only=True)
    max_debt: Number | None = field(default=None, kw_only=True)
    give_back: Literal["bounded", "full"] = field(default="bounded", kw_only=True)
    carry: Carry = field(default="strict", kw_only=True)
    on_outage: OnOutage | None = field(default=None, kw_only=True)
    reserve: Reserve | Mapping[str, Any] | None = field(default=None, kw_only=True)
    outage_limit: Limit | None = field(default=None, kw_only=True)

    key_for: Callable[[Attributes], Key] = field(init=False, repr=False, compare=False)
    """The key of a request: the values of `by`."""
    matches: Callable[[Attributes], bool] | None = field(init=False, repr=False, compare=False)
    """Whether the rule speaks of a request; None: of every one."""
    limit_for: Callable[[Attributes, Key], Limit] | None = field(init=False, repr=False, compare=False)
    """The limit of one key, if the rule has overrides; None: always the rule's."""
    price_of: Callable[[Attributes], int | None] | None = field(init=False, repr=False, compare=False)
    """What the rule says a request costs, in thousandths, if it says so; None: it never does."""
    debt: int | None = field(init=False, repr=False, compare=False)
    """How far settling may overdraw, in thousandths; None: as far as the capacity of the limit."""

    def __post_init__(self) -> None:
        self._check()
        keep = partial(object.__setattr__, self)
        keep("by", self._attribute_names())
        keep("key_for", keys_by(self.by))
        keep("matches", matcher(self.match, self.name) if self.match else None)
        keep("price_of", self._compiled_price())
        keep("limit_for", self._compiled_limit())
        keep("debt", self._compiled_debt())
        keep("reserve", self._compiled_reserve())

    def _check(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name.strip() or not _fits_a_name(name):
            raise PolicyError(f"rule name is {quoted(name)}; write a text of 1 to {_NAME_BYTES_MOST} bytes")
        if self.mode not in _MODES:
            raise self._error(f"mode is {self.mode!r}; write one of {', '.join(_MODES)}")
        if self.mode in ("deny", "bypass"):
            for part in ("limit", "cost", "overrides", "max_debt", "on_outage", "reserve", "outage_limit"):
                if getattr(self, part) is not None:
                    raise self._error(f"mode {self.mode!r} asks no limit; leave the {part} out")
        elif not isinstance(self.limit, Limit):
            raise self._error(f"limit is {self.limit!r}; give one limit, for instance TokenBucket(20, '5/s')")
        if not isinstance(self.strict, bool):
            raise self._error(f"strict is {self.strict!r}; write True or False")
        if self.carry not in WAYS:
            raise self._error(f"carry is {self.carry!r}; write one of {', '.join(WAYS)}")
        if self.give_back not in ("bounded", "full"):
            raise self._error(f"give_back is {self.give_back!r}; write 'bounded' or 'full'")
        self._check_outage()
        if self.match is not None and not isinstance(self.match, Mapping):
            raise self._error(
                f"match is {self.match!r}; write a mapping of attributes, such as {{'method': 'POST'}}"
            )
        for hook in (self.cost, self.overrides):
            if is_async(hook):
                raise self._error(
                    "cost and overrides are asked inside the decision; give plain functions, not async ones"
                )

    def _check_outage(self) -> None:
        how = self.on_outage
        if how is not None and how not in ON_OUTAGE:
            raise self._error(f"on_outage is {quoted(how)}; write one of {', '.join(ON_OUTAGE)}")
        if self.strict and how == "open":
            raise self._error(
                "a strict rule is a spending cap, which on_outage 'open' lifts; use 'closed' or 'reserve'"
            )
        if self.reserve is not None and how != "reserve":
            raise self._error("a reserve is there for on_outage 'reserve'; write that too, or leave it out")
        if how == "reserve" and self.reserve is None:
            raise self._error(
                "on_outage is 'reserve'; say which, for instance reserve: {share: 20%, nodes: 8, index: 0}"
            )
        if self.outage_limit is None:
            return
        if how != "open":
            raise self._error("an outage_limit bounds what on_outage 'open' admits; write that too")
        if not isinstance(self.outage_limit, Limit):
            raise self._error(
                f"outage_limit is {quoted(self.outage_limit)}; give one limit, such as TokenBucket(5, '1/s')"
            )

    def _attribute_names(self) -> tuple[str, ...]:
        names = self.by
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise self._error(
                f"by is {names!r}; write a list of attributes, such as [{str(names)!r}], or [] for one budget"
            )
        for name in names:
            if not isinstance(name, str) or not name:
                raise self._error(f"by names {name!r}; an attribute is a text")
        if len(set(names)) < len(names):
            raise self._error(f"by is {list(names)}; each attribute counts once")
        return tuple(names)

    def _compiled_price(self) -> Callable[[Attributes], int | None] | None:
        cost = self.cost
        if cost is None:
            return None
        if isinstance(cost, Mapping):
            costs = {route: self._constant(of_route) for route, of_route in cost.items()}
            route_of = route_table(list(cost), self.name)

            def of_table(attributes: Attributes) -> int | None:
                route = route_of(attributes)
                return None if route is None else costs[route]

            return of_table
        if callable(cost):
            return lambda attributes: milli(cost(attributes), f"cost of rule {self.name!r}")
        constant = self._constant(cost)
        return lambda attributes: constant

    def _constant(self, cost: Number) -> int:
        """A cost that stands in the rule: one that could never pass is an error here and not at a request."""
        try:
            thousandths = milli(cost)
        except CostError as error:
            raise self._error(str(error)) from None
        for limit in self._limits_known():
            check_constant(limit, thousandths, self.name)
        if self.outage_limit is not None:
            check_constant(self.outage_limit, thousandths, f"{self.name}, outage_limit")
        return thousandths

    def _limits_known(self) -> list[Limit]:
        """The limit, and the overrides that stand in a table."""
        overrides = list(self.overrides.values()) if isinstance(self.overrides, Mapping) else []
        return [limit for limit in (self.limit, *overrides) if isinstance(limit, Limit)]

    def _compiled_limit(self) -> Callable[[Attributes, Key], Limit] | None:
        limit, overrides = self.limit, self.overrides
        if limit is None or overrides is None:
            return None
        if isinstance(overrides, Mapping):
            table: dict[Key, Limit] = {}
            for value, other in overrides.items():
                key = self._override_key(value)
                if key in table:
                    raise self._error(f"overrides names {value!r} twice, by another spelling; leave one out")
                table[key] = self._override(other)
            return lambda attributes, key: table.get(key, limit)
        if not callable(overrides):
            raise self._error(f"overrides is {overrides!r}; write a mapping from key to limit, or a function")

        def found(attributes: Attributes, key: Key) -> Limit:
            other = overrides(attributes)
            return limit if other is None else self._override(other)

        return found

    def _override_key(self, value: object) -> Key:
        values = value if isinstance(value, tuple) else (value,)
        if not self.by or len(values) != len(self.by):
            raise self._error(f"overrides names {value!r}; write one value for each of by={list(self.by)}")
        try:
            return key_of(tuple([present(one) for one in values]))
        except InvalidKey as error:
            raise self._error(f"overrides names {quoted(value)}: {error}") from None

    def _override(self, limit: object) -> Limit:
        if not isinstance(limit, Limit):
            raise self._error(f"override is {limit!r}; give a limit, for instance TokenBucket(100, '50/s')")
        return limit

    def _compiled_debt(self) -> int | None:
        if self.strict and self.max_debt:
            raise self._error("a strict rule is never overdrawn; leave max_debt out")
        if self.strict or self.max_debt is None:
            return 0 if self.strict else None
        try:
            debt = milli(self.max_debt, "max_debt")
        except CostError as error:
            raise self._error(str(error)) from None
        for limit in self._limits_known():
            if 2 * (limit.law.capacity + debt) * limit.law.grain >= EXACT:
                raise self._error(
                    f"max_debt is {shown(self.max_debt)}; with {limit!r} it does not fit the exact integers"
                )
        return debt

    def _compiled_reserve(self) -> Reserve | None:
        if self.reserve is None:
            return None
        try:
            reserve = Reserve.of(self.reserve)
        except PolicyError as error:
            raise self._error(str(error)) from None
        self.check_shares(reserve)
        return reserve

    def check_shares(self, reserve: Reserve, workers: int = 1) -> None:
        """Raise PolicyError where a share of a limit that is known is less than the largest cost known."""
        for limit in self._limits_known():
            try:
                check_share(limit, reserve, self.largest_cost, workers)
            except PolicyError as error:
                raise self._error(str(error)) from None

    @property
    def largest_cost(self) -> int:
        """The largest cost that is known beforehand, in thousandths: 1 token where the call states it."""
        if isinstance(self.cost, Mapping):
            return max(MILLI, *(milli(cost) for cost in self.cost.values()))
        return MILLI if self.cost is None or callable(self.cost) else milli(self.cost)

    def __reduce__(self) -> tuple[Any, ...]:
        given = {name: getattr(self, name) for name in _KEYWORDS}
        return partial(Rule, self.name, self.limit, self.by, **given), ()

    def _error(self, text: str) -> PolicyError:
        return PolicyError(f"rule {self.name!r}: {text}")


def _fits_a_name(name: str) -> bool:
    """Whether a text is short enough, and text: half a surrogate pair has no place in metrics and headers."""
    try:
        return len(name.encode()) <= _NAME_BYTES_MOST
    except UnicodeEncodeError:
        return False


def check_cost(limit: Limit, cost: int, rule: str) -> None:
    """Raise CostError if the limit cannot count a cost of so many thousandths."""
    if cost % MILLI and isinstance(limit, SlidingLog):
        raise CostError(
            f"rule {rule!r}: cost {decimal_text(Fraction(cost, MILLI))}; a sliding log counts whole tokens"
        )


def check_constant(limit: Limit, cost: int, rule: str) -> None:
    """Raise CostError for a cost, in thousandths, that is known beforehand and could never pass."""
    check_cost(limit, cost, rule)
    if cost > limit.law.capacity:
        capacity = decimal_text(Fraction(limit.capacity))
        raise CostTooLarge(
            f"rule {rule!r}: cost {decimal_text(Fraction(cost, MILLI))} is above the capacity {capacity} "
            "and could never pass; raise the capacity or lower the cost"
        )
