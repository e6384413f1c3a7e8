"""Functions that users hand in: which kind each is of, whatever it is wrapped in."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable


def is_of_kind(kind: Callable[[object], bool], function: object) -> bool:
    """Whether a function is of a kind, or what a partial or callable object stands for."""
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or (
        not inspect.isroutine(function)
        and not inspect.isclass(function)
        and kind(getattr(type(function), "__call__", None))  # noqa: B004  # its kind is what is asked
    )


def is_async(function: object) -> bool:
    """Whether calling it gives something to await."""
    return is_of_kind(inspect.iscoroutinefunction, function)
