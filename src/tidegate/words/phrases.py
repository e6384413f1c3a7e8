"""The phrases of which descriptions are made: who shares a budget, which requests, what they cost.

Each is a pure function from a part of a rule to words without a full stop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Any

from tidegate.core.limits import FixedWindow, LeakyQueue, Limit, SlidingLog
from tidegate.core.rule import Rule
from tidegate.units import MILLI, Rate, decimal_text, div_ceil, duration_text, duration_us
from tidegate.words import figures
from tidegate.words.typeset import listed, number, span

_UNIT_NAMES = {"1us": "microsecond", "1ms": "millisecond", "1s": "second", "1min": "minute", "1h": "hour"}
_UNIT_NAMES |= {"1 day": "day", "1 week": "week"}
_PACES_US = tuple((duration_us(text), _UNIT_NAMES[text]) for text in ("1s", "1min", "1h", "1 day", "1 week"))
_A_WEEK_MOST = 1_000
_ROUTES_SHOWN = 12
_VALUES_SHOWN = 12


def tokens(amount: Fraction | int) -> str:
    """An amount of tokens: "1 token", "20 tokens", "0.5 tokens"."""
    return f"{number(Fraction(amount))} token{'' if amount == 1 else 's'}"


def rate_words(rate: Rate) -> str:
    """A rate as one says it: "5 a second", "300 per 5 min"."""
    amount = number(rate.tokens) if rate.tokens * MILLI % 1 == 0 else decimal_text(rate.tokens)
    unit = _UNIT_NAMES.get(duration_text(rate.per_us))
    return f"{amount} per {span(rate.per_us)}" if unit is None else f"{amount} {_article(unit)} {unit}"


def pace_words(per_us: Fraction) -> str:
    """What passes in a microsecond, more than nothing, in the unit in which it can be read: "1 an hour".

    That is the shortest in which it is at least 1 and can be written exactly, though nobody counts thousands
    a week; or else the shortest in which it is at least 1, or how long one takes.
    """
    paces = [(per_us * unit_us, unit) for unit_us, unit in _PACES_US]
    plain = [(amount, unit) for amount, unit in paces if amount >= 1]
    exact = [
        (amount, unit)
        for amount, unit in plain
        if amount * MILLI % 1 == 0 and (unit != "week" or amount < _A_WEEK_MOST)
    ]
    for amount, unit in (*exact[:1], *plain[:1]):
        about = "" if exact else "about "
        return f"{about}{number(amount)} {_article(unit)} {unit}"
    return f"1 per {span(div_ceil(per_us.denominator, per_us.numerator))}"


def plainly(limit: Limit) -> str:
    """A limit in a few words, a sentence's beginning: "Up to 20 at once, then 5 a second"."""
    size = number(Fraction(limit.capacity))
    if isinstance(limit, FixedWindow):
        of_zone = f" ({limit.zone})" if figures.is_calendar(limit) else ""
        window = (
            limit.window if figures.is_calendar(limit) else f"window of {span(limit.quota_window_us or 0)}"
        )
        return f"Up to {size} in each {window}{of_zone}"
    if limit.rate is None:
        about = "" if isinstance(limit, SlidingLog) else " (an estimate)"
        return f"Up to {size} in any {span(limit.quota_window_us or 0)}{about}"
    if isinstance(limit, LeakyQueue):
        return f"A waiting line of {size} places, of which {rate_words(limit.rate)} leave"
    return f"Up to {size} at once, then {rate_words(limit.rate)}"


def budget_of(rule: Rule) -> str:
    """Who shares a budget: "one budget for each org"."""
    if not rule.by:
        return "one budget for all together"
    if len(rule.by) == 1:
        return f"one budget for each {rule.by[0]}"
    return f"one budget for each combination of {listed(rule.by)}"


def matching(rule: Rule) -> str:
    """Which requests the rule speaks of: "requests with method GET or HEAD, and plan free"."""
    if not rule.match:
        return "every request"
    tests = [_test(name, pattern) for name, pattern in rule.match.items()]
    return f"requests with {listed(tests)}"


def costs(rule: Rule) -> str:
    """What a request costs in this rule."""
    cost = rule.cost
    size = Fraction(rule.limit.capacity) if rule.limit is not None else Fraction(0)
    if cost is None:
        return "what the call says, 1 token unless it says otherwise"
    if isinstance(cost, Mapping):
        table: list[tuple[str, Any]] = list(cost.items())
        shown = [_priced(route, price, size) for route, price in table[:_ROUTES_SHOWN]]
        more = f"; and {len(table) - len(shown):,} more routes" if len(table) > len(shown) else ""
        return f"{'; '.join(shown)}{more}; any other request what the call says, 1 token by default"
    if callable(cost):
        return "a function of the request decides each time"
    price = _amount(cost)
    return f"always {tokens(price)}, whatever the call says{_in_a_burst(price, size)}"


def _article(unit: str) -> str:
    return "an" if unit == "hour" else "a"


def _priced(route: str, price: Any, size: Fraction) -> str:
    amount = _amount(price)
    return f"{route} {tokens(amount) if amount else 'nothing'}{_in_a_burst(amount, size)}"


def _in_a_burst(price: Fraction, size: Fraction) -> str:
    return f" ({number(Fraction(size // price))} in one burst)" if price not in (0, 1) else ""


def _amount(price: Any) -> Fraction:
    return Fraction(repr(price)) if isinstance(price, float) else Fraction(price)


def _test(name: str, pattern: Any) -> str:
    several = isinstance(pattern, Collection) and not isinstance(pattern, str | bytes)
    values = [_value(one) for one in (pattern if several else [pattern])]
    shown = values[:_VALUES_SHOWN]
    if len(values) > len(shown):
        shown.append(f"{len(values) - len(shown):,} more")
    return f"{name} {listed(shown, 'or')}"


def _value(one: Any) -> str:
    if one is None:
        return "absent"
    written = str(one)
    return f"beginning with {written[:-1]}" if written.endswith("*") and len(written) > 1 else written
