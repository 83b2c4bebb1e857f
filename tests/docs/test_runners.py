"""The examples of the page on testing, run by the runners that they are for."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from .pages import REPOSITORY, blocks_of

PAGE = REPOSITORY / "docs/testing.md"
RUNS = "tests/docs/test_runners.py runs it "

RUNNERS = {
    "with pytest": (["-p", "no:asyncio", "-p", "no:trio"], "", 2),
    "with pytest-asyncio": (
        ["-p", "no:trio"],
        "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n",
        1,
    ),
    "with pytest-trio": (["-p", "no:asyncio"], "trio_mode = true\n", 1),
}
"""Options, settings and the number of tests of each example."""

NOTEBOOK = "as cells of a notebook"


def examples() -> dict[str, str]:
    """The text of each example, by the comment before it."""
    found = (block for block in blocks_of(PAGE) if block.comment.startswith(RUNS))
    return {block.comment.removeprefix(RUNS): block.text for block in found}


def test_every_example_has_a_runner() -> None:
    """No example is left out, and none is missing."""
    assert examples().keys() == {*RUNNERS, NOTEBOOK}


@pytest.mark.parametrize("runner", RUNNERS)
def test_an_example_passes(runner: str, tmp_path: Path) -> None:
    """The example passes in a project of its own, with warnings as errors."""
    options, settings, tests = RUNNERS[runner]
    (tmp_path / "test_example.py").write_text(examples()[runner])
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


def test_the_cells_of_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells run one after the other in a running loop, as a kernel runs them."""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    names: dict[str, Any] = {}

    async def run_cells() -> None:
        for cell in examples()[NOTEBOOK].split("# another cell\n"):
            code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            awaitable = eval(code, names)
            if inspect.isawaitable(awaitable):
                await awaitable

    asyncio.run(run_cells())
    assert names["found"] == ["mouse", "keyboard"]
