"""What a test has left behind is found before the next one begins."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collected(leaks: None) -> Iterator[None]:
    """Collect garbage after each test, so that a coroutine, task or transport that it has dropped is its own error."""
    yield
    gc.collect()
