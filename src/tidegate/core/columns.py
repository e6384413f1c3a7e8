"""Many decisions as columns: `hit_many` takes columns of keys and costs and gives columns back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.core.decision import Decision


class Decisions:
    """Independent decisions in the order of their keys. A column is computed when it is read.

    Indexing and iterating give single decisions. As a whole it is neither true nor false.
    """

    __slots__ = ("_decisions",)

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self._decisions = tuple(decisions)

    @property
    def allowed(self) -> list[bool]:
        """Whether each request may run."""
        return [decision.allowed for decision in self._decisions]

    @property
    def remaining(self) -> list[int | None]:
        """Whole tokens left in each binding limit; None where none took part."""
        return [decision.remaining for decision in self._decisions]

    @property
    def retry_after(self) -> list[float | None]:
        """Seconds until a lone caller passes: 0 where allowed, None where never."""
        return [decision.retry_after for decision in self._decisions]

    @property
    def reset_after(self) -> list[float | None]:
        """Seconds until each binding key is as fresh; None where never by itself."""
        return [decision.reset_after for decision in self._decisions]

    @property
    def wait(self) -> list[float]:
        """Seconds for which admitted work is to be held."""
        return [decision.wait for decision in self._decisions]

    @property
    def rule(self) -> list[str]:
        """The rule that binds each request."""
        return [decision.rule for decision in self._decisions]

    def __len__(self) -> int:
        return len(self._decisions)

    def __getitem__(self, index: int) -> Decision:
        return self._decisions[index]

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    def __bool__(self) -> bool:
        raise TypeError("many decisions are neither true nor false; use all(d.allowed) or any(d.allowed)")

    def __reduce__(self) -> tuple[Any, ...]:
        return Decisions, (self._decisions,)

    def __repr__(self) -> str:
        return f"<Decisions: {sum(self.allowed)} of {len(self)} allowed>"
