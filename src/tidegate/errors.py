"""The errors that tidegate raises on purpose, in one tree (misused types are TypeErrors, as in Python).

    TidegateError
    ├── LimitError (ValueError)         a limit whose numbers cannot be kept
    │   └── RateError                   a rate or duration that cannot be read
    ├── PolicyError (ValueError)        a rule or policy that contradicts itself
    ├── ConfigError (ValueError)        a configuration file with problems, all of them listed
    ├── CostError (ValueError)          a cost that is not a cost
    │   └── CostTooLarge                a cost that can never pass, in a rule or where one would wait
    ├── InvalidKey (ValueError)         a key that cannot name anybody
    ├── StoreError                      a store that cannot be opened, or answers what no store may
    │   └── StoreUnavailable            one that gave no usable answer in time: the outage rule decides
    ├── MissingDependency (ImportError) an optional library that is not installed
    └── RateLimited                     a refusal, where a call cannot return a decision

A denial is an answer, not an error: `RateLimited` is raised only by the decorator, by context
managers and by transports. Every message names the bad value and the way out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.core.decision import Decision


class TidegateError(Exception):
    """Everything below is one of these."""


class LimitError(TidegateError, ValueError):
    """A limit cannot be built from these numbers."""


class RateError(LimitError):
    """A rate or a duration cannot be read."""


class PolicyError(TidegateError, ValueError):
    """A rule or a policy contradicts itself."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration file, and where."""

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigError(TidegateError, ValueError):
    """A configuration file cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[Problem, ...]]]:
        return (ConfigError, (self.problems,))


class CostError(TidegateError, ValueError):
    """A cost is not a number of tokens, is negative, or is finer than a thousandth."""


class CostTooLarge(CostError):
    """A cost could never pass, however long one waits."""


class InvalidKey(TidegateError, ValueError):
    """A key is empty, too long, of a type that has no encoding, or not what the policy looks at."""


class StoreError(TidegateError):
    """A store cannot be opened, or does not answer as a store must: a mistake, and never an outage."""


class StoreUnavailable(StoreError):
    """A store gave no usable answer in time, so that each rule's outage rule decides.

    `cause` is one of `CAUSES`. What was asked may still have been carried out; it is never asked twice.
    """

    CAUSES = (
        *("deadline", "connection", "breaker", "loading", "read_only", "out_of_memory"),
        *("authentication", "cluster_down", "busy", "broken_reply"),
    )

    def __init__(self, message: str, cause: str) -> None:
        assert cause in self.CAUSES, cause
        self.cause = cause
        super().__init__(message)

    def __reduce__(self) -> tuple[type[StoreUnavailable], tuple[str, str]]:
        return (StoreUnavailable, (str(self), self.cause))


class MissingDependency(TidegateError, ImportError):
    """An optional library is not installed."""


class RateLimited(TidegateError):
    """A refusal, raised where a call cannot return its decision.

    `decision` is what `hit` would have returned; `retry_after` is its exact hint in seconds, None
    if it can never pass.
    """

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(str(decision))

    def __reduce__(self) -> tuple[type[RateLimited], tuple[Decision]]:
        return (RateLimited, (self.decision,))

    @property
    def retry_after(self) -> float | None:
        """Seconds until a lone caller passes; None if it can never pass."""
        return self.decision.retry_after
