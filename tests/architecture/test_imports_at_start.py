"""Imports at the start of a process: what only some programs need is imported by those."""

from __future__ import annotations

import subprocess
import sys

import pytest

UNNEEDED = ("asyncio", "rich", "carmy_http", "carmy_mcp.client", "multiprocessing", "httpx2", "unittest")


@pytest.mark.parametrize(
    ("imports", "unneeded"),
    [
        ("import carmy_engine", (*UNNEEDED, "cyclopts", "carmy_mcp", "carmy_stdio")),
        ("import carmy_engine.cli", (*UNNEEDED, "carmy_mcp", "carmy_stdio")),
        ("import carmy_stdio", UNNEEDED),
        ("import carmy_mcp.server.stdio", UNNEEDED),
    ],
)
def test_what_is_imported_late(imports: str, unneeded: tuple[str, ...]) -> None:
    """A module at the start imports none of what costs a tenth of it, and only some programs use."""
    script = f"import sys\n{imports}\nprint([name for name in {unneeded!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_the_version_needs_no_parser_of_help() -> None:
    """`carmy --version` prints the version without rich."""
    script = (
        "import atexit, sys\nfrom carmy_command import main\nsys.argv = ['carmy', '--version']\n"
        "atexit.register(lambda: sys.stderr.write(str('rich' in sys.modules)))\nmain()"
    )
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stderr == "False"
