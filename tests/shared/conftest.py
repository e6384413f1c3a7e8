from __future__ import annotations

import pytest

from tests.shared.stores import ADDRESSES, at_ease


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    """The address of each shared store in turn, empty, with a deadline that a busy machine keeps."""
    return at_ease(ADDRESSES[request.param](request))
