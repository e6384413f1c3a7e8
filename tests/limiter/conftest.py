# What the tests of the limiter share: each face in turn, and a clock that moves only when told to.

from __future__ import annotations

import pytest

from tests.limiter.faces import FACES
from tidegate.testing import ManualClock


@pytest.fixture(params=list(FACES))
def face(request):
    """A constructor of a limiter, of every kind in turn."""
    return FACES[request.param]


@pytest.fixture
def clock():
    return ManualClock()
