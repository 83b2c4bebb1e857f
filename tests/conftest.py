"""Options and profiles for the whole suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.support.leaks import no_leaks

# The machines that run this are shared and slow at times: examples have no time limit of their own, and are the same each run.
hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=5000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the soaks and load tests, which take minutes")


def pytest_configure(config: pytest.Config) -> None:
    # A job that a shell starts with "&" ignores SIGINT, and so do the programs that it starts. Tests of Ctrl-C need Python's handler.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    soaks = [item for item in items if item.get_closest_marker("long") is not None]
    config.hook.pytest_deselected(items=soaks)
    items[:] = [item for item in items if item.get_closest_marker("long") is None]


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    """Fail a test during which asyncio logs an error, such as a task that was destroyed while it was pending."""
    with no_leaks():
        yield
