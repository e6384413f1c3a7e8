"""What the tests of the Redis store share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.stores.redis.faces import FACES, Face


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    """Blocking and awaited, in turn."""
    return str(request.param)


@pytest.fixture
def opened(face: str) -> Iterator[Callable[..., Face]]:
    """Open a store on a URL or a client: `opened(server.url, deadline="20ms")`; closed after the test."""
    with ExitStack() as stack:
        yield lambda target, **options: stack.enter_context(Face(face, target, **options))
