"""A policy in plain words: what each rule does, where its state lives, what it promises and where it is weak.

`describe` turns a policy into facts, `text` sets them for a terminal; a page shows the same facts. The
words come from the rules alone, so they cannot say what the code does not do: whatever has a number
takes it from `figures.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tidegate.core.limits import FixedWindow, LeakyQueue, Limit, SlidingLog, SlidingWindow
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.units import US_PER_S, Rate
from tidegate.words import figures
from tidegate.words.homes import Home, embedded
from tidegate.words.load import load_of
from tidegate.words.outages import outage
from tidegate.words.phrases import budget_of, costs, matching, plainly, rate_words, tokens
from tidegate.words.typeset import labelled, number, paragraph, span, table

WHO_IS_AN_ADDRESS = frozenset({"address", "ip", "client_ip", "remote_addr", "peer"})
"""Attributes that stand for a network address, as people name them."""

_ABOUT_THE_REQUEST = frozenset({"route", "method", "path", "host"})
_OVERRIDES_SHOWN = 10


@dataclass(frozen=True)
class Fact:
    """One thing that is true of a rule: what it is about, and a sentence or two."""

    about: str
    text: str


@dataclass(frozen=True)
class Most:
    """The most that can pass in some stretch of time of that length, in tokens."""

    period: str
    period_us: int
    admitted: Fraction
    leaving: Fraction
    """What of it can begin: the same, but for a queue."""


@dataclass(frozen=True)
class Figures:
    """The numbers of one limit. Amounts are tokens, exact; durations are rounded up."""

    burst: Fraction
    sustained: str
    most: tuple[Most, ...]
    refill_us: int | None
    """How long until a key that used everything is as fresh; None: never by itself."""
    fresh: str
    wait_us_most: int
    abuser_first_hour: Fraction
    abuser_next_hours: Fraction


@dataclass(frozen=True)
class RuleInWords:
    """One rule, described. `figures` is None for a rule that has no limit (deny and bypass)."""

    name: str
    mode: str
    limit: Limit | None
    summary: str
    facts: tuple[Fact, ...]
    figures: Figures | None
    load: tuple[Fact, ...]
    warnings: tuple[str, ...]

    def fact(self, about: str) -> str:
        """The text of the fact about this; KeyError if there is none."""
        return {fact.about: fact.text for fact in self.facts + self.load}[about]


def describe(
    policy: Policy,
    *,
    home: Home | None = None,
    clients: int | None = None,
    duration_us: int | None = None,
    target_us: int | None = None,
) -> list[RuleInWords]:
    """Each rule of the policy in words, in its order.

    With `clients` also what so many do together, with `duration_us` the work in flight if each request
    takes so long, with `target_us` the largest queue whose longest wait stays within it.
    """
    place = home or embedded()
    described = []
    for rule in policy:
        limit = rule.limit
        load = [] if limit is None else load_of(rule, policy, clients, duration_us, target_us)
        described.append(
            RuleInWords(
                name=rule.name,
                mode=rule.mode,
                limit=limit,
                summary=_summary(rule),
                facts=tuple(Fact(*pair) for pair in _facts(rule, place)),
                figures=None if limit is None else figures_of(limit),
                load=tuple(Fact(*pair) for pair in load),
                warnings=tuple(_warnings(rule)),
            )
        )
    return described


def figures_of(limit: Limit) -> Figures:
    """The numbers of a limit: its burst, its pace, and the most it lets pass."""
    most = tuple(
        Most(period, us, figures.most_in(limit, us), figures.most_leaving_in(limit, us))
        for period, us in figures.PERIODS
    )
    return Figures(
        burst=Fraction(limit.capacity),
        sustained=_sustained(limit),
        most=most,
        refill_us=figures.refill_us(limit),
        fresh=_fresh(limit),
        wait_us_most=figures.longest_wait_us(limit),
        abuser_first_hour=figures.most_in(limit, figures.HOUR_US),
        abuser_next_hours=figures.sustained_per_us(limit) * figures.HOUR_US,
    )


def text(described: Sequence[RuleInWords], *, width: int = 80) -> str:
    """The rules as they stand in a terminal of that width."""
    return "\n".join("\n".join(_rule_lines(rule, width)) + "\n" for rule in described)


def _rule_lines(rule: RuleInWords, width: int) -> list[str]:
    head = rule.name if rule.mode == "enforce" else f"{rule.name} ({rule.mode})"
    lines = [head, *paragraph(rule.summary, width, indent="  ")]
    for warning in rule.warnings:
        lines += ["", *paragraph(f"! {warning}", width, indent="  ", hanging="    ")]
    lines += ["", *labelled([(fact.about, fact.text) for fact in rule.facts], width, indent="  ")]
    if rule.figures is not None:
        lines += ["", *_figure_lines(rule.figures, width)]
    if rule.load:
        lines += ["", *labelled([(fact.about, fact.text) for fact in rule.load], width, indent="  ")]
    return lines


def _figure_lines(shown: Figures, width: int) -> list[str]:
    queued = any(most.leaving != most.admitted for most in shown.most)
    heads = ["burst", "sustained", *(f"most in {most.period}" for most in shown.most), "fresh in"]
    heads[3:6] = [most.period for most in shown.most[1:]]
    row = [number(shown.burst), shown.sustained, *(number(most.admitted) for most in shown.most), shown.fresh]
    if not queued:
        return table(heads, [row], width, indent="  ", left=0)
    leaving = ["", "", *(number(most.leaving) for most in shown.most), ""]
    rows = [["admitted", *row], ["leaving", *leaving]]
    return table(["", *heads], rows, width, indent="  ")


def _summary(rule: Rule) -> str:
    if rule.limit is None:
        if rule.mode == "deny":
            return "Refuses every request that it matches, without asking any limit."
        return "Lets every request that it matches pass, without asking any limit."
    only = " Reports only: it never refuses." if rule.mode == "shadow" else ""
    return f"{plainly(rule.limit)}, {budget_of(rule)}.{only}"


def _facts(rule: Rule, home: Home) -> list[tuple[str, str]]:
    limit = rule.limit
    if limit is None:
        first = "of several deny and bypass rules that match a request, the first decides"
        return [("applies to", matching(rule)), ("order", first)]
    return [
        ("limit", repr(limit)),
        ("key", _key(rule)),
        ("applies to", matching(rule)),
        *([("mode", _SHADOW)] if rule.mode == "shadow" else []),
        ("capacity", f"{tokens(limit.capacity)}{' in each window' if _is_window(limit) else ''}"),
        ("rate", _rate(limit)),
        ("costs", costs(rule)),
        *_overrides(rule),
        ("waiting", _waiting(limit)),
        ("guarantee", _guarantee(limit)),
        ("weakness", _weakness(limit)),
        ("giving back", _giving_back(rule, limit)),
        ("if changed", _CARRIED[rule.carry]),
        ("expiry", _expiry(rule, limit)),
        ("atomic", home.atomic),
        ("clock", home.clock),
        ("outage", outage(rule, home.on_outage)),
    ]


_SHADOW = "shadow: decides and reports, but never refuses, and never blocks or charges the others"

_CARRIED = {
    "strict": "state is carried over (strict): a change neither refills a key nor forgives what it used",
    "keep_level": "what was used stays used; room that is added is there at once",
    "keep_tokens": "what was left stays left",
    "proportional": "the same fraction stays left",
    "reset": "every key starts fresh, so a change can buy a second burst",
}


def _key(rule: Rule) -> str:
    who = budget_of(rule)
    if not rule.by:
        return who
    return f"{who}; requests without {'it' if len(rule.by) == 1 else 'one of them'} share a budget"


def _overrides(rule: Rule) -> list[tuple[str, str]]:
    if rule.overrides is None:
        return []
    if not isinstance(rule.overrides, Mapping):
        return [("overrides", "a function of the request may choose another limit for its key")]
    pairs: list[tuple[Any, Limit]] = list(rule.overrides.items())
    shown = [f"{_value(value)}: {_lower_first(plainly(other))}" for value, other in pairs[:_OVERRIDES_SHOWN]]
    more = len(pairs) - len(shown)
    return [("overrides", "; ".join(shown) + (f"; and {more:,} more" if more else ""))]


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _value(value: Any) -> str:
    return ", ".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _is_window(limit: Limit) -> bool:
    return limit.rate is None


def _rate(limit: Limit) -> str:
    if limit.rate is not None:
        never = "; nothing comes back by itself, only by a reset or a refund"
        return rate_words(limit.rate) + ("" if limit.rate.tokens else never)
    return f"none of its own; in the long run {_sustained(limit)}"


def _sustained(limit: Limit) -> str:
    if limit.rate is not None:
        return str(limit.rate)
    assert isinstance(limit, SlidingLog | FixedWindow | SlidingWindow)
    if figures.is_calendar(limit):
        return f"{number(Fraction(limit.capacity))}/{limit.window}"
    return str(Rate(limit.limit, limit.window))


def _waiting(limit: Limit) -> str:
    if not isinstance(limit, LeakyQueue):
        return "nobody waits: the answer comes at once"
    first = "the first job leaves one interval after it came"
    if limit.first_release == "immediate":
        first = "the first job leaves at once"
    free = f", the first {tokens(limit.delay_after)} of work ahead cost no wait" if limit.delay_after else ""
    longest = span(figures.longest_wait_us(limit))
    return f"yes, the decision says how long: {first}{free}, and no job of cost 1 waits longer than {longest}"


def _guarantee(limit: Limit) -> str:
    size = number(Fraction(limit.capacity))
    if isinstance(limit, SlidingLog):
        return f"at most {size} in any stretch of {_length(limit)}, wherever it begins; exact"
    if isinstance(limit, FixedWindow):
        zone = f" of {limit.zone}" if figures.is_calendar(limit) else ""
        return f"at most {size} in each {_window(limit)}{zone}"
    if isinstance(limit, SlidingWindow):
        return f"at most {size} in each aligned window of {_length(limit)}"
    assert limit.rate is not None
    passes = f"at most {size} plus {rate_words(limit.rate)} in any stretch of time, wherever it begins"
    if not isinstance(limit, LeakyQueue):
        return passes
    at_once = number(figures.most_leaving_in(limit, 0))
    leaves = f"at most {at_once} plus {rate_words(limit.rate)} leaves, in jobs of cost 1"
    return f"{passes}, is admitted; of it {leaves}"


def _weakness(limit: Limit) -> str:
    twice = number(2 * Fraction(limit.capacity))
    if isinstance(limit, SlidingLog):
        return (
            f"an entry for every spend, up to {number(limit.limit)} a key; and after a whole limit at once "
            f"nothing passes for {_length(limit)}"
        )
    if isinstance(limit, FixedWindow):
        return (
            f"up to twice the limit across a boundary: {twice} within a moment; and when a window begins, "
            "everybody's quota is fresh at once"
        )
    if isinstance(limit, SlidingWindow):
        return f"an estimate: in a stretch of {_length(limit)} that crosses a boundary up to {twice} can pass"
    if isinstance(limit, LeakyQueue):
        return "a burst that a bucket would serve at once has to queue"
    return f"after a rest {number(Fraction(limit.capacity))} pass at one instant, on top of the rate"


def _giving_back(rule: Rule, limit: Limit) -> str:
    size = Fraction(limit.capacity)
    back = "a refund never buys a second burst"
    if rule.give_back == "full":
        back = (
            "full: all that is still there comes back, so any stretch of time may hold the guarantee plus "
            "what was returned in it (with give_back: bounded, the guarantee alone)"
        )
    if rule.debt == 0:
        return f"{back}; settling never overdraws"
    debt = size if rule.debt is None else Fraction(rule.debt, 1_000)
    return f"{back}; settling for more than was reserved goes beyond the guarantee by {tokens(debt)} at most"


def _fresh(limit: Limit) -> str:
    refill_us = figures.refill_us(limit)
    if figures.is_calendar(limit):
        assert isinstance(limit, FixedWindow)
        return f"a {limit.window}"
    return "never" if refill_us is None else span(refill_us)


def _expiry(rule: Rule, limit: Limit) -> str:
    if figures.refill_us(limit) is None:
        return "never: a rate of 0 gives nothing back, so the state of a key stays"
    if figures.is_calendar(limit):
        assert isinstance(limit, FixedWindow)
        return f"once its {limit.window} is over, a key equals one never seen and may be forgotten"
    longest = span(figures.refill_us(limit) or 0)
    later = "" if rule.debt == 0 else " (later only if it was in debt)"
    fresh = "a key equals one never seen and may be forgotten"
    return f"at the latest {longest} after its last spend{later} {fresh}"


def _length(limit: SlidingLog | SlidingWindow) -> str:
    return span(limit.quota_window_us or 0)


def _window(limit: FixedWindow) -> str:
    if figures.is_calendar(limit):
        return f"calendar {limit.window}"
    return f"window of {span(limit.quota_window_us or US_PER_S)}, counted from 1970 in UTC"


def _warnings(rule: Rule) -> list[str]:
    names = set(rule.by)
    warnings = []
    if (
        names & WHO_IS_AN_ADDRESS
        and names <= WHO_IS_AN_ADDRESS | _ABOUT_THE_REQUEST
        and rule.limit is not None
    ):
        warnings.append(
            "By address alone: carriers, offices and schools put many people behind one address, and they "
            "share this budget. Add who is asking where you know it, or make the capacity fit a crowd."
        )
    if rule.limit is not None and rule.limit.rate is not None and not rule.limit.rate.tokens:
        warnings.append("The rate is 0: what is spent comes back only by a reset or a refund.")
    return warnings
