"""Private parts of other libraries are used in one module each, and not needed where their library has moved them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from carmy_engine._execution import trio_internals

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("carmy_engine", "transports") for path in sorted((ROOT / folder).rglob("*.py"))]

INTERNALS = {
    "trio": (
        r"trio\._\w|\b_cancel_status\b|\b_cancel_called\b|\b_child_nurseries\b|\b_child_finished\b|\b_registered_deadline\b",
        "carmy_engine/_execution/trio_internals.py",
    ),
}
"""By library: what only its private parts are called, and the module that may name them."""

FIRST_CALL = """
import sys, types
import trio
{moved}
import carmy_engine
from carmy_engine._execution import trio_internals

@carmy_engine.tool(effect="read", register=False)
async def echo(text: str) -> str:
    await trio.lowlevel.checkpoint()
    return text

async def main():
    async with carmy_engine.App("first").add(echo).open() as engine:
        request = carmy_engine.ExecutionRequest(tool="echo", arguments={{"text": "hello"}})
        print(trio_internals.IS_KNOWN, (await engine.execute(request)).unwrap())

trio.run(main)
"""

MOVED = {
    "nowhere": "",
    "its module": "sys.modules['trio._core._run'] = trio._core._run = None",
    "its names": "sys.modules['trio._core._run'] = trio._core._run = types.ModuleType('trio._core._run')",
    "everything": "sys.modules['trio._core'] = None",
    "its slots": "trio.CancelScope.__slots__ += ('_new',)",
    "a method": "trio.Nursery._add_exception = trio.Nursery.__dict__['_add_exc']; del trio.Nursery._add_exc",
    "a later version": "trio.__version__ = '0.99.0'",
}


@pytest.mark.parametrize("library", INTERNALS)
def test_one_module_names_the_private_parts_of_a_library(library: str) -> None:
    """Where a library moves its private parts, one module has to follow."""
    pattern, home = INTERNALS[library]
    found = {str(path.relative_to(ROOT)) for path in SOURCES if re.search(pattern, path.read_text(encoding="utf-8"))}
    assert found == {home}


def first_call(moved: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL.format(moved=moved)],
        env={**{name: value for name, value in os.environ.items() if name != trio_internals.PLAIN_TRIO}, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("what", MOVED)
def test_a_trio_that_moved_its_private_parts_serves_all_the_same(what: str) -> None:
    """The package imports, and a first call is answered, without the private parts that are not where they were."""
    assert first_call(MOVED[what]) == [str(what == "nowhere"), "hello"]


def test_plain_trio_can_be_forced() -> None:
    """An environment variable makes the engine use trio's public interface alone."""
    assert first_call("", **{trio_internals.PLAIN_TRIO: "1"}) == ["False", "hello"]


def test_no_later_trio_is_installed_than_the_known_ones() -> None:
    """The bounds in ``pyproject.toml`` are those of the versions whose private parts are known."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = trio_internals.KNOWN_MINORS
    assert f"trio>=0.{known.start},<0.{known.stop}" in project["dependencies"]
