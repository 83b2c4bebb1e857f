"""The examples as modules, and an engine over a fresh workspace."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from carmy_engine import BoundEngine, Engine, ExecutionRequest, ExecutionResult

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def example(name: str) -> ModuleType:
    """An example, imported as `carmy serve` does it: with the files beside it in reach."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


@pytest.fixture
def workspace() -> ModuleType:
    """The module `workspace`."""
    return example("workspace")


@pytest.fixture
def shop() -> ModuleType:
    """The module `shop`."""
    return example("shop")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace's directory; what is beside it is outside."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
async def engine(workspace: ModuleType, root: Path) -> AsyncIterator[Engine]:
    """An engine over `root`."""
    ws = example("workspace_files").Workspace(root)
    try:
        async with workspace.make_app(ws).open() as engine:
            yield engine
    finally:
        ws.close()


class Caller:
    """Calls tools in fewer words."""

    def __init__(self, executor: BoundEngine) -> None:
        self.executor = executor

    async def result(self, tool: str, /, *, request_id: str | None = None, **arguments: Any) -> ExecutionResult:
        return await self.executor.execute(ExecutionRequest(tool=tool, arguments=arguments, request_id=request_id))

    async def data(self, tool: str, /, **arguments: Any) -> Any:
        return (await self.result(tool, **arguments)).unwrap()

    async def code(self, tool: str, /, **arguments: Any) -> str:
        """The code of the error that the call ends with."""
        error = (await self.result(tool, **arguments)).error
        assert error is not None, "the call was meant to fail"
        return error.code


@pytest.fixture
def owner(engine: Engine) -> Caller:
    """Somebody who may do everything."""
    return Caller(engine.bind(principal="owner", permissions={"confirm:delete_file", "confirm:run_command"}))


@pytest.fixture
def anonymous(engine: Engine) -> Caller:
    """Somebody who came over a network without credentials."""
    return Caller(engine.bind(transport="http"))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that small files reach."""
    module = example("workspace")
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 20)
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
    monkeypatch.setattr(module, "MAX_SEARCHED_BYTES", 1000)
    monkeypatch.setattr(module, "MAX_VISITED", 5)
