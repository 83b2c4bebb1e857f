"""Who may import whom, and what a first import costs others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

OPTIONAL = [
    "apsw",
    "carmy_engine.cli",
    "carmy_http",
    "cyclopts",
    "h11",
    "h2",
    "hypercorn",
    "jsonschema",
    "mcp",
    "opentelemetry",
    "rich",
    "trio_websocket",
]


def test_imports_follow_the_layers() -> None:
    """Every import points down, and every module has a layer (the contracts are in pyproject.toml)."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_core_imports_nothing_optional() -> None:
    """Importing carmy_engine brings no transport, no command line and no library of an extra."""
    script = "import sys, carmy_engine; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [name for name in OPTIONAL if name in done.stdout.split()] == []


def test_the_command_without_its_extra() -> None:
    """Without cyclopts the command names what to install and ends with 1."""
    script = "import sys; sys.modules['cyclopts'] = None; from carmy_engine.cli import main; main(['tools'])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "carmy: the command line needs the package 'cyclopts': pip install 'carmy-engine[cli]'\n"
