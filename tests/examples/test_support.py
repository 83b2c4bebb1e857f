"""Customer support: a run that waits for a person, and goes on in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "support.py"


def run(directory: Path, *words: str) -> list[str]:
    """The lines that one process prints."""
    command = [sys.executable, str(EXAMPLE), *words]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_refund_that_a_person_approves(tmp_path: Path) -> None:
    """The first process ends with the question; the second one pays once and answers."""
    assert run(tmp_path, "start", "") == ["interrupted refund order-1001?"]
    reply = "refund of order-1001, approved by ana"
    assert run(tmp_path, "approve", "ana") == [
        "refunding 1999 cents of order-1001",
        f"mail: {reply}",
        f"completed {reply}",
    ]
