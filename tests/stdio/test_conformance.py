"""The executor in front of a child process behaves as the engine does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from carmy_engine.abc import Executor
from carmy_engine.testing import check_executor
from carmy_stdio import open_stdio
from tests.stdio.conftest import COMMAND

SCRIPTED = """\
from carmy_engine import App
from carmy_engine.testing import SCRIPTED_TOOLS, Stage

app = App("scripted")
app.add(*SCRIPTED_TOOLS).state(Stage())
"""


async def test_stdio(tmp_path: Path) -> None:
    """Every requirement is met, one after the other, by one and the same server process."""
    path = tmp_path / "scripted.py"
    path.write_text(SCRIPTED)
    async with open_stdio([*COMMAND, str(path)]) as client:

        @asynccontextmanager
        async def shared() -> AsyncIterator[Executor]:
            yield client

        await check_executor(shared)
