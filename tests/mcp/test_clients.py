"""The program of ``make mcp-clients``, with the official client that the tests have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.mcp.clients.__main__ import COMMAND, MODES, Client, FailedError, run


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The environment of the tests, where that of a client is expected."""
    (tmp_path / "venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.mark.timeout(150)
@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_calls_and_leaves(environment: Path, mode: str) -> None:
    """No exception comes out of it, the tool's clean-up runs, and no process is left."""
    run(Client("mcp", "sdk_client", ("mcp",)), environment, "stdio", mode, COMMAND)


def test_a_client_that_fails_is_reported(environment: Path) -> None:
    """What it wrote is in the reason."""
    with pytest.raises(FailedError, match=r"(?s)exit code 1; it wrote: .*KeyError: 'unknown'"):
        run(Client("mcp", "unknown", ("mcp",)), environment, "stdio", "call", COMMAND)
