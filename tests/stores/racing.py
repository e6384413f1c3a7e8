# Races with real threads: they change as often as the interpreter lets them.

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def racing() -> Iterator[None]:
    """Within it the interpreter changes threads every microsecond, as far as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def together(works: Sequence[Callable[..., object]]) -> list[Any]:
    """What the works return, each in a thread of its own, all begun at the same moment."""
    start = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        start.wait()
        try:
            results[place] = works[place]()
        except BaseException as error:  # noqa: BLE001  # handed on to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    with racing():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return results
