"""Installations without some of the extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = [
    ("import carmy_websocket", "trio_websocket", "websocket"),
    ("from carmy_websocket import open_websocket", "wsproto", "websocket"),
    ("from carmy_mcp import open_mcp", "httpx2", "mcp"),
    ("from carmy_http import open_http", "httpx2", "http-client"),
    ("from carmy_engine import App; App('x').openapi({})", "httpx2", "openapi"),
    ("from carmy_engine.stores.sqlite import SqliteStore", "apsw", "sqlite"),
]

COMMANDS = [
    ("ws", "trio_websocket", "websocket"),
    ("serve --server hypercorn", "h11", "http"),
    ("serve --server hypercorn", "hypercorn", "http"),
    ("serve --server hypercorn", "hpack", "http"),
]


def without(package: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None\n{program}"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize(("program", "package", "extra"), PROGRAMS)
def test_an_import_that_needs_an_extra_names_it(program: str, package: str, extra: str) -> None:
    """The error of an import is one line that names the package and the extra, without the error that led to it."""
    done = without(package, program)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    last = done.stderr.splitlines()[-1]
    assert f"needs the package {package!r}, which is missing: pip install 'carmy-engine[{extra}]'" in last


@pytest.mark.parametrize(("command", "package", "extra"), COMMANDS)
def test_a_command_that_needs_an_extra_names_it(command: str, package: str, extra: str) -> None:
    """A command without its packages fails with one line."""
    done = without(
        package,
        f"from carmy_engine import App\nApp('shop').run({command.split()})",
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"needs the package {package!r}, which is missing: pip install 'carmy-engine[{extra}]'" in line


def test_check_needs_no_extra() -> None:
    """Without the packages of HTTP, `check` reports what it can and does not fail for an application that needs none."""
    hypercorn = "import os; os.environ['CARMY_HTTP_SERVER'] = 'hypercorn'\n"
    done = without("h11", f"{hypercorn}from carmy_engine import App\nApp('shop').run(['check'])")
    assert done.returncode == 0
    assert "whether the application could be served over HTTP was not checked" in done.stderr
    assert "pip install 'carmy-engine[http]'" in done.stderr


@pytest.mark.parametrize("name", ["hypercorn.py", "hypercorn/__init__.py"])
def test_a_module_with_the_name_of_a_package_is_pointed_out(tmp_path: Path, name: str) -> None:
    """A project's own `hypercorn` hides the server that HTTP needs: the message has its place."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    program = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.environ["CARMY_HTTP_SERVER"] = "hypercorn"
from carmy_engine import App
App("shop").run(["check"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=50, check=False
    )
    assert f"needs the package 'hypercorn', but {tmp_path / name} has its name: rename that" in done.stderr


def test_mcp_needs_no_sdk(tmp_path: Path) -> None:
    """A project's own `mcp` disturbs neither the server of MCP nor its client."""
    (tmp_path / "mcp.py").touch()
    program = """
import sys, trio
sys.path.insert(0, sys.argv[1])
from carmy_engine import App
import carmy_mcp

async def main():
    async with App("shop").open() as engine:
        async with carmy_mcp.mount(engine):
            print("served")

trio.run(main)
carmy_mcp.open_mcp
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout == "served\n"
    assert done.returncode == 0
