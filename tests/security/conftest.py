"""The front ends of HTTP, for tests that name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from tests.support.http import front_end


@pytest.fixture(params=["hypercorn", "native"])
def server(request: pytest.FixtureRequest) -> Iterator[Literal["hypercorn", "native"]]:
    """The name of the front end."""
    token = front_end.set(request.param)
    yield request.param
    front_end.reset(token)
