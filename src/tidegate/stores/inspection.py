"""What an operator may ask of a store on the network: what lies there, and whether its server can be trusted.

A store that can be inspected has `check`, `init`, `list_keys`, `show_key` and `reset_keys`. None of them is
part of deciding; each is bounded, in what it reads at a time and in what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from tidegate.core.keys import Key

Grade: TypeAlias = Literal["ok", "note", "warning", "error"]
"""An error: tidegate cannot work with this server. A warning: credit or decisions may be lost."""


class Finding(NamedTuple):
    """One thing that was looked at, how it is, and what that means."""

    grade: Grade
    about: str
    says: str


class KeyHeld(NamedTuple):
    """One key that a store holds. `state` is as core knows it, None if it cannot be read.

    `expires_after_us` is None where it does not expire; `now_us` is the instant of the store's clock.
    """

    rule: str
    key: Key
    state: Any
    now_us: int
    expires_after_us: int | None


class KeyPage(NamedTuple):
    """Some keys, and where to go on; None: that was all. A page may be empty before the end."""

    keys: Sequence[KeyHeld]
    cursor: str | None


@runtime_checkable
class Inspectable(Protocol):
    """A store that an operator can look into; blocking."""

    def check(self) -> list[Finding]:
        """Look at the server: version, clock, round trip, what it may lose. Writes nothing that stays."""

    def list_keys(
        self, rule: str | None = None, prefix: str = "", *, cursor: str | None = None, most: int = 100
    ) -> KeyPage:
        """Keys of a rule (None: of all) whose first value begins with `prefix`, about `most` at a time."""

    def show_key(self, rule: str, key: Key) -> KeyHeld | None:
        """What is held of one key; None if nothing is, which means that it is fresh."""

    def reset_keys(self, rule: str, prefix: str = "") -> int:
        """Make all such keys fresh; how many were held."""
