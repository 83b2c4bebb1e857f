"""The two agents: one may look, the other may also reserve."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "two_agents.py"


def test_two_agents(capsys: pytest.CaptureFixture[str]) -> None:
    """Triage cannot reserve whatever it tries; fulfilment repairs its call from the words of the refusals."""
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    told = [line.removeprefix("tool: ") for line in capsys.readouterr().out.splitlines() if line.startswith("tool: ")]
    assert told == [
        "7",
        "0",
        "not permitted for this agent",
        "handed over: AB-12 is in stock",
        "invalid arguments: argument 'count' is missing",
        "the tool failed: only 7 x AB-12 in stock",
        "reserved 2 x AB-12 for acme",
    ]
