# Limiter and AsyncLimiter are twins: the same methods in the same order, with the same words.

from __future__ import annotations

import inspect
import re

import pytest

from tidegate import AsyncLimiter, Limiter
from tidegate.reservation import AsyncReservation, Reservation

# Methods that ask no store, so that they are plain functions on both classes.
PLAIN = {"limit", "allowed"}


def public(cls: type, other: type) -> dict[str, object]:
    """What the class offers beyond what both inherit, in the order of its definition."""
    shared = set(cls.__mro__) & set(other.__mro__)
    return {
        name: member
        for name, member in vars(cls).items()
        if not name.startswith("_") and not any(name in vars(base) for base in shared)
    }


def shape(member: object) -> tuple[object, ...]:
    """What must be equal on both classes: kind, parameters, and what comes back, `async` aside."""
    if not callable(member):
        return (type(member).__name__,)
    signature = inspect.signature(member)
    parameters = [
        (parameter.name, parameter.kind, parameter.default, _sync(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return ("method", parameters, _sync(signature.return_annotation))


def differences(sync: type, other: type) -> list[str]:
    """How the second class departs from the first, a sentence each."""
    ours, theirs = public(sync, other), public(other, sync)
    if list(ours) != list(theirs):
        return [f"{sync.__name__} has {list(ours)}, {other.__name__} has {list(theirs)}"]
    found = []
    for name, member in ours.items():
        twin = theirs[name]
        if shape(member) != shape(twin):
            found.append(f"{name}: {shape(member)} is not {shape(twin)}")
        if inspect.getdoc(member) != inspect.getdoc(twin):
            found.append(f"{name}: the docstrings differ")
        if callable(twin) and name not in PLAIN and not inspect.iscoroutinefunction(twin):
            found.append(f"{name}: is not async on {other.__name__}")
        if callable(member) and inspect.iscoroutinefunction(member):
            found.append(f"{name}: is async on {sync.__name__}")
    return found


def _sync(annotation: object) -> object:
    return re.sub(r"\bAsync(?=[A-Z])", "", annotation) if isinstance(annotation, str) else annotation


@pytest.mark.parametrize("twins", [(Limiter, AsyncLimiter), (Reservation, AsyncReservation)])
def test_the_twins_are_equal(twins: tuple[type, type]):
    """The async class has the other's methods: order, parameters, results, docstrings; `await` aside."""
    assert differences(*twins) == []


def test_both_are_built_the_same_way():
    """Limiter and AsyncLimiter take the same arguments, and may be given another policy the same way."""
    assert shape(Limiter.__init__) == shape(AsyncLimiter.__init__)
    assert shape(Limiter.replace_policy) == shape(AsyncLimiter.replace_policy)


def test_the_methods_are_those_of_the_design():
    """The verbs of the public interface exist; a verb that is not built yet is absent, not a stub."""
    verbs = {"hit", "hit_many", "peek", "explain", "reserve", "refund", "reset", "limit"}
    assert set(public(Limiter, AsyncLimiter)) == verbs


class One:
    def hit(self, key: str, cost: int = 1) -> One:
        """Take it."""
        raise AssertionError

    def reset(self, key: str) -> None:
        """Forget it."""


class Same:
    async def hit(self, key: str, cost: int = 1) -> AsyncOne:
        """Take it."""
        raise AssertionError

    async def reset(self, key: str) -> None:
        """Forget it."""


class OtherOrder:
    reset = Same.reset
    hit = Same.hit


class OtherDefault:
    async def hit(self, key: str, cost: int = 2) -> AsyncOne:
        """Take it."""
        raise AssertionError

    reset = Same.reset


class OtherWords:
    async def hit(self, key: str, cost: int = 1) -> AsyncOne:
        """Take it soon."""
        raise AssertionError

    reset = Same.reset


class NotAsync:
    hit = One.hit
    reset = Same.reset


AsyncOne = Same


@pytest.mark.parametrize(
    ("other", "complaints"),
    [
        (Same, []),
        (OtherOrder, ["One has ['hit', 'reset'], OtherOrder has ['reset', 'hit']"]),
        (OtherDefault, ["hit: ('method'"]),
        (OtherWords, ["hit: the docstrings differ"]),
        (NotAsync, ["hit: is not async on NotAsync"]),
    ],
)
def test_a_departure_is_seen(other: type, complaints: list[str]):
    """Order, defaults, words and `async` are each compared; equal twins have no difference."""
    found = differences(One, other)

    assert len(found) == len(complaints), found
    assert all(said.startswith(complaint) for said, complaint in zip(found, complaints, strict=True))
