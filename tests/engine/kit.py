"""What the engine's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from carmy_engine import AgentError, ExecutionRequest, ExecutionResult, tool
from carmy_engine._declare import compile_tool
from carmy_engine._engine import BoundEngine, Engine, open_engine
from carmy_engine._settings import Settings
from carmy_engine.testing import RecordingSink, Stage, compile_scripted


class Bench:
    """An engine with the scripted tools, their stage and a recording sink."""

    def __init__(self, engine: Engine, stage: Stage, sink: RecordingSink) -> None:
        self.engine = engine
        self.stage = stage
        self.sink = sink

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, on: BoundEngine | None = None, **fields: Any
    ) -> ExecutionResult:
        return await (on or self.engine).execute(request(name, arguments, **fields))

    async def code(self, name: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """The code of the error it ends with; ``ok`` for a success."""
        result = await self.call(name, arguments, **fields)
        return "ok" if result.error is None else result.error.code

    async def arrived(self, gate: str, calls: int = 1) -> None:
        await self.stage.until(lambda: self.stage.arrived(gate) >= calls)

    async def left(self, gate: str, calls: int = 1) -> None:
        await self.stage.until(lambda: self.stage.left(gate) >= calls)

    def running_id(self, name: str) -> str:
        """The id of the only running execution of a tool."""
        (found,) = [e.id for e in self.engine._pipeline.inflight.running() if e.tool == name]
        return found


@asynccontextmanager
async def bench(
    *functions: Callable[..., Any], settings: Settings | None = None, stage: Stage | None = None, **options: Any
) -> AsyncIterator[Bench]:
    """An engine over some functions declared with `tool`, and all scripted tools."""
    stage = stage or Stage()
    sink = RecordingSink()
    own = [compile_tool(function, {Stage: stage}) for function in functions]
    options["sinks"] = [*options.get("sinks", ()), sink]
    async with open_engine([*own, *compile_scripted(stage)], settings=settings, **options) as engine:
        yield Bench(engine, stage, sink)


def request(name: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> ExecutionRequest:
    return ExecutionRequest(tool=name, arguments=arguments, **fields)


def read(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a parallel-safe tool without effects."""
    return tool(effect="read", parallel_safe=True, register=False)(function)


def write(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a parallel-safe tool whose effects must not be doubled."""
    return tool(effect="write", parallel_safe=True, register=False)(function)


def told(result: ExecutionResult) -> Any:
    """The error's details."""
    assert result.error is not None
    return result.error.details


class Refuse:
    """A policy that refuses with a code, and counts how often it was asked."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.asked = 0

    def check(self, context: object, spec: object) -> None:
        self.asked += 1
        raise AgentError(self.code, "no", "permission")

    def is_listed(self, context: object, spec: object) -> bool:
        return True


async def leave(scope: trio.CancelScope, until: Callable[[], Any]) -> None:
    """Wait for something, then cancel a scope."""
    await until()
    scope.cancel()
