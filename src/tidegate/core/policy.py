"""A policy: rules in order, and what they ask of one request.

A request meets every rule that matches it, all-or-nothing. The first matching rule of mode "deny" or
"bypass" decides without asking any limit. Which charges a request makes is a pure function of its
attributes; what they add up to is decided where the state is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidegate.core.keys import bare_key
from tidegate.core.limits import Limit
from tidegate.core.match import Attributes
from tidegate.core.outage import OnOutage, Reserve
from tidegate.core.outcome import Charge
from tidegate.core.rule import Rule, check_cost
from tidegate.errors import InvalidKey, PolicyError
from tidegate.units import MILLI, quoted

ONLY_RULE = "limit"
"""The name of the rule that is made of a limit given alone; its key is the attribute `key`."""

RULES_MOST = 1_000


class Plan(NamedTuple):
    """What a policy asks of one request: charges, or a rule that decides without any."""

    charges: list[Charge]
    decided_by: Rule | None = None


class Policy:
    """An ordered set of rules. Immutable; iterating gives the rules.

    Raises PolicyError for two rules of one name, or for what is no rule.
    """

    __slots__ = ("_named", "bare", "of_one_limit", "rules")

    rules: tuple[Rule, ...]
    of_one_limit: bool
    """Whether the policy was made of a limit alone: then a mapping without `key` is a mistake."""
    bare: bool
    """Whether no rule looks at more than a plain key, so that `hit("org-42")` makes sense."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        if isinstance(rules, Rule | Limit):
            raise PolicyError(f"a policy is a list of rules; write Policy([{rules!r}]) or Policy.of(...)")
        if not isinstance(rules, Iterable):
            raise PolicyError(f"policy is {quoted(rules)}; give a list of rules, Policy([Rule(...)])")
        self.rules = tuple(rules)
        self._named: dict[str, Rule] = {}
        for position, rule in enumerate(self.rules, 1):
            if not isinstance(rule, Rule):
                raise PolicyError(
                    f"entry {position} of the policy is {rule!r}; write Rule(name, limit, by=(...))"
                )
            if rule.name in self._named:
                raise PolicyError(
                    f"two rules are called {rule.name!r}; a name is what keeps their budgets apart"
                )
            self._named[rule.name] = rule
        if len(self.rules) > RULES_MOST:
            raise PolicyError(f"the policy has {len(self.rules)} rules; the most is {RULES_MOST}")
        self.of_one_limit = [rule.name for rule in self.rules] == [ONLY_RULE] and self.rules[0].by == ("key",)
        self.bare = all(set(rule.by) <= {"key"} and not rule.match for rule in self.rules)

    @classmethod
    def of(cls, given: Policy | Rule | Limit | Iterable[Rule]) -> Policy:
        """The policy itself, or one made of a single limit or of rules.

        A limit alone becomes a rule called "limit" with the plain key as its budget.
        """
        if isinstance(given, Policy):
            return given
        if isinstance(given, Limit):
            return cls([Rule(ONLY_RULE, given, by=("key",))])
        if isinstance(given, Rule):
            return cls([given])
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise PolicyError(
                f"policy is {given!r}; give a limit such as TokenBucket(20, '5/s'), or Policy([Rule(...)])"
            )
        rules = list(given)
        if any(isinstance(rule, Limit) for rule in rules):
            raise PolicyError(
                "several limits need names: write Policy([Rule('second', limit), Rule('day', limit)])"
            )
        return cls(rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, name: str) -> Rule:
        return self._named[name]

    def get(self, name: str) -> Rule | None:
        """The rule of that name, None if there is none."""
        return self._named.get(name)

    def __eq__(self, other: object) -> bool:
        return self.rules == other.rules if isinstance(other, Policy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rules)

    def __reduce__(self) -> tuple[type[Policy], tuple[tuple[Rule, ...]]]:
        return Policy, (self.rules,)

    def __repr__(self) -> str:
        return f"Policy({list(self.rules)!r})"

    def check_outages(self, default: OnOutage, workers: int) -> None:
        """Raise PolicyError where a strict rule would be open, or a share is less than the largest cost.

        `default` is what rules do in an outage that do not say, `workers` how many processes of a node share
        its reserve.
        """
        for rule in self.rules:
            if rule.strict and (rule.on_outage or default) == "open":
                raise PolicyError(
                    f"rule {rule.name!r}: a strict rule is a spending cap, which on_outage 'open' lifts, and "
                    "that is what rules do here that say nothing; write 'closed' or 'reserve' for this one"
                )
            if isinstance(rule.reserve, Reserve):
                rule.check_shares(rule.reserve, workers)

    def attributes(self, key: object) -> Attributes:
        """The attributes that a call's key means: a mapping as it is, a plain key as {"key": key}.

        Raises InvalidKey for an empty key, and for a plain one where some rule looks at attributes.
        """
        if type(key) is dict or (type(key) is not str and isinstance(key, Mapping)):
            if key and self.of_one_limit and "key" not in key:
                raise InvalidKey(
                    f"key is {quoted(key)}, but a limiter of a limit alone takes a plain key, such as "
                    "hit('org-42'). For attributes write Rule(name, limit, by=(...))"
                )
            return key
        if not self.bare:
            names = sorted({name for rule in self.rules for name in rule.by})
            raise InvalidKey(
                f"key is {quoted(key)}, but this policy looks at attributes; "
                f"pass a mapping, for instance {{{', '.join(f'{name!r}: ...' for name in names)}}}"
            )
        return {"key": bare_key(key)}

    def plan(self, attributes: Attributes, cost: int) -> Plan:
        """The charges of a request whose call states `cost` thousandths.

        Raises InvalidKey, CostError, and whatever a cost or override function raises.
        """
        charges: list[Charge] = []
        for rule in self.rules:
            if rule.matches is not None and not rule.matches(attributes):
                continue
            if rule.limit is None:
                return Plan([], rule)
            key = rule.key_for(attributes)
            limit = rule.limit if rule.limit_for is None else rule.limit_for(attributes, key)
            price = None if rule.price_of is None else rule.price_of(attributes)
            taken = cost if price is None else price
            if taken % MILLI:
                check_cost(limit, taken, rule.name)
            asked = (rule.name, key, limit, taken, rule.mode, rule.carry)
            charged = (*asked, price is not None, None, rule.strict, False)
            charges.append(tuple.__new__(Charge, charged))  # at half the price of its own constructor
        return Plan(charges)
