"""tidegate: rate limiting that is exact.

from tidegate import Limiter, TokenBucket

limiter = Limiter(TokenBucket(capacity=20, rate="5/s"))
decision = limiter.hit("org-42")
if not decision:
    ...  # refused: come back in decision.retry_after seconds
"""

from tidegate.core.decision import Decision
from tidegate.core.limits import FixedWindow, LeakyBucket, LeakyQueue, SlidingLog, SlidingWindow, TokenBucket
from tidegate.core.policy import Policy
from tidegate.core.rule import Rule
from tidegate.errors import (
    ConfigError,
    CostError,
    CostTooLarge,
    InvalidKey,
    LimitError,
    MissingDependency,
    PolicyError,
    RateError,
    RateLimited,
    StoreError,
    StoreUnavailable,
    TidegateError,
)
from tidegate.limiter import AsyncLimiter, Limiter
from tidegate.stores.opening import open_store
from tidegate.units import Rate

__version__ = "0.1.0"

__impl__ = "python"
"""Which twin decides: "python", the whole one."""

__all__ = [
    "AsyncLimiter",
    "ConfigError",
    "CostError",
    "CostTooLarge",
    "Decision",
    "FixedWindow",
    "InvalidKey",
    "LeakyBucket",
    "LeakyQueue",
    "LimitError",
    "Limiter",
    "MissingDependency",
    "Policy",
    "PolicyError",
    "Rate",
    "RateError",
    "RateLimited",
    "Rule",
    "SlidingLog",
    "SlidingWindow",
    "StoreError",
    "StoreUnavailable",
    "TidegateError",
    "TokenBucket",
    "__impl__",
    "__version__",
    "open_store",
]
