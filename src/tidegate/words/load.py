"""What a rule means for the backend behind it: an abuser, a crowd, work in flight, the longest useful queue.

Each answer is a label and a sentence. Amounts are tokens of cost 1, so a token is a request.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from tidegate.core.limits import LeakyQueue, Limit
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.words import figures
from tidegate.words.typeset import number, span


def load_of(
    rule: Rule, policy: Policy, clients: int | None, duration_us: int | None, target_us: int | None
) -> list[tuple[str, str]]:
    """What is asked about the load behind a rule that has a limit, as labels and sentences."""
    limit = rule.limit
    assert limit is not None
    said = [("an abuser", abuser(limit, shared=not rule.by))]
    if clients is not None:
        said.append((f"{clients:,} client{'' if clients == 1 else 's'}", crowd(rule, policy, clients)))
    if duration_us is not None:
        said.append(("in flight", flight(limit, duration_us, shared=not rule.by)))
    if target_us is not None:
        said.append(("queue", queue_within(limit, target_us)))
    return said


def abuser(limit: Limit, *, shared: bool = False) -> str:
    """What somebody who stays exactly at the limit gets."""
    first = number(figures.most_in(limit, figures.HOUR_US))
    then = figures.sustained_per_us(limit) * figures.HOUR_US
    day = number(figures.most_in(limit, figures.DAY_US))
    keys = "" if shared else "; with ten keys, ten times that"
    if limit.rate is None and figures.shortest_window_us(limit) > figures.HOUR_US:
        return f"who stays exactly at the limit gets {first} within an hour, {day} within a day{keys}"
    if first == number(then):
        return f"who stays exactly at the limit gets {first} an hour, {day} a day{keys}"
    return (
        f"who stays exactly at the limit gets {first} in the first hour and {number(then)} in each one after "
        f"it, {day} in the first day{keys}"
    )


def crowd(rule: Rule, policy: Policy, clients: int) -> str:
    """What so many clients with a budget each do if they burst at one instant, and which rule bounds it."""
    limit = rule.limit
    assert limit is not None
    one = Fraction(limit.capacity)
    if not rule.by:
        return f"share this one budget: together they send at most {number(one)} at one instant"
    together = clients * one
    twice = " (twice that across a boundary)" if limit.algorithm == "fixed_window" else ""
    said = f"that burst together send {number(together)} at one instant{twice}"
    if isinstance(limit, LeakyQueue):
        leaving = number(clients * figures.most_leaving_in(limit, 0))
        said = f"that burst together get {number(together)} admitted at one instant, {leaving} leave then"
    if rule.mode == "shadow":
        return f"{said}, for this rule only reports"
    return f"{said}. {_bounded(rule, policy, together)}"


def flight(limit: Limit, duration_us: int, *, shared: bool = False) -> str:
    """Work in flight per key by Little's law, and at worst."""
    who = "all together have" if shared else "one key at the limit has"
    average, worst = figures.in_flight(limit, duration_us)
    return (
        f"if a request takes {span(duration_us)}, {who} {_about(average)} in flight "
        f"on average (rate x duration) and at most {number(Fraction(floor(worst)))} just after a burst"
    )


def queue_within(limit: Limit, target_us: int) -> str:
    """The largest queue at this rate whose longest wait is within the target."""
    rate = limit.rate
    if rate is None or not rate.tokens:
        return "a waiting line needs a rate at which it drains, and this limit has none"
    free = Fraction(limit.delay_after) if isinstance(limit, LeakyQueue) else Fraction(0)
    at_once = figures.places_within(rate, target_us, interval=False, free=free)
    after = figures.places_within(rate, target_us, interval=True, free=free)
    said = (
        f"to wait at most {span(target_us)} at {rate}, a LeakyQueue has {_places(at_once)} if the first job "
        f"leaves at once, {_places(after)} with first_release interval"
    )
    if isinstance(limit, LeakyQueue):
        longest_us = figures.longest_wait_us(limit)
        verdict = "within it" if longest_us <= target_us else "too long for it"
        said += f". This one waits up to {span(longest_us)}: {verdict}"
    return said


def _about(average: Fraction) -> str:
    return number(average) if average == 0 or average * 1_000 >= 1 else "less than 0.001"


def _places(count: int) -> str:
    return f"{count:,} place{'' if count == 1 else 's'}" if count else "no place"


def _bounded(rule: Rule, policy: Policy, together: Fraction) -> str:
    """Which shared rule bounds the crowd of this one: the tightest that speaks of all its requests."""
    shared = [
        (Fraction(other.limit.capacity), other)
        for other in policy
        if other.limit is not None and not other.by and other.mode == "enforce"
    ]
    sure = [(size, other) for size, other in shared if not other.match or other.match == rule.match]
    if sure:
        size, tightest = min(sure, key=lambda pair: pair[0])
        if size < together:
            own = "" if tightest.cost == rule.cost else ", counted by its own costs"
            return f"The shared rule {tightest.name} bounds that to {number(size)}{own}"
        return f"The shared rule {tightest.name} would allow {number(size)}, so it does not bound that"
    if shared:
        names = ", ".join(other.name for _, other in shared)
        return f"No shared rule speaks of all of them ({names}: only of what matches)"
    return "Nothing bounds that: a shared rule (by: []) beside this one would"
