"""What a run against a store found: how much agreed, and each thing that did not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """One answer of the store that is not the right one.

    `where` names the table and case, or the trace; `steps` are what leads to it, one line each, the last
    of them the one that was answered wrongly; `expected` and `answered` are the two answers.
    """

    where: str
    steps: tuple[str, ...]
    expected: str
    answered: str
    replay: tuple[str, ...]
    """The arguments of `tidegate conformance` that repeat it, beside `--store`."""

    def __str__(self) -> str:
        return "\n".join(
            [
                self.where,
                *(f"  {step}" for step in self.steps),
                f"  expected {self.expected}",
                f"  answered {self.answered}",
            ]
        )


@dataclass(frozen=True)
class Report:
    """How many cases or traces were run, and what differed. True iff nothing did.

    `of_each` counts what agreed, and what was run, by the name of its table.
    """

    total: int
    differing: int
    differences: tuple[Difference, ...]
    of_each: tuple[tuple[str, int, int], ...] = ()

    @property
    def agreed(self) -> int:
        """How many gave the right answers throughout."""
        return self.total - self.differing

    def __bool__(self) -> bool:
        return not self.differing

    def __str__(self) -> str:
        return "\n".join([f"{self.agreed}/{self.total} agree", *(str(one) for one in self.differences)])
