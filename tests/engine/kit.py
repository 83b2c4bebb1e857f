"""What the engine's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from carmy_engine import AgentError, Engine, ExecutionRequest, Settings, ToolSpec, open_engine, tool
from carmy_engine.abc import Executor, Identity, Reservation
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.testing import Probe, RecordingSink, Stage, compile_scripted, compile_tool


class Bench(Probe):
    """An engine with the scripted tools, reached directly: control costs no executions."""

    def __init__(self, engine: Engine, stage: Stage, sink: RecordingSink, store: Any, executor: Executor) -> None:
        super().__init__(executor)
        self.engine = engine
        self.stage = stage
        self.sink = sink
        self.store = store

    def on(self, executor: Executor) -> Bench:
        """The same, calling through a bound executor."""
        return Bench(self.engine, self.stage, self.sink, self.store, executor)

    # Results are looked into in many ways, so the tests take them as they come.

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        return await super().call(tool, arguments, **fields)

    async def refused(self, code: str, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        return await super().refused(code, tool, arguments, **fields)

    async def events(self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        return await super().events(tool, arguments, **fields)

    def start(self, nursery: trio.Nursery, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        return super().start(nursery, tool, arguments, **fields)

    async def start_waiting(
        self, nursery: trio.Nursery, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> Any:
        return await super().start_waiting(nursery, tool, arguments, **fields)

    def of(self, **who: Any) -> Bench:
        """The same, on somebody's behalf; see `BoundEngine.bind`."""
        return self.on(self.engine.bind(**who))

    async def code(self, name: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """The code of the error it ends with; ``ok`` for a success."""
        return code(await self.call(name, arguments, **fields))

    async def arrived(self, gate: str, calls: int = 1) -> None:
        await self.stage.until(lambda: self.stage.arrived(gate) >= calls)

    async def left(self, gate: str, calls: int = 1) -> None:
        await self.stage.until(lambda: self.stage.left(gate) >= calls)

    async def open(self, gate: str) -> None:
        self.stage.open(gate)

    async def effects(self, tag: str, at_least: int = 0) -> int:
        await self.stage.until(lambda: self.stage.effects(tag) >= at_least)
        return self.stage.effects(tag)

    async def entry(self, request_id: str, scope: str = "in_process") -> Reservation | None:
        """What the store holds under an anonymous caller's request_id."""
        found: Reservation | None = await self.store.get(
            Identity(principal=None, session=None, scope=scope, request_id=request_id)
        )
        return found

    async def state(self, request_id: str) -> str:
        """The state of that entry; ``free`` without one."""
        entry = await self.entry(request_id)
        return "free" if entry is None else entry.state.value

    def running_id(self, name: str) -> str:
        """The id of the only running execution of a tool."""
        (found,) = [e.id for e in self.engine._pipeline.inflight.running() if e.tool == name]
        return found

    @property
    def running(self) -> int:
        return self.engine.statistics().running


@asynccontextmanager
async def bench(
    *functions: Callable[..., Any],
    settings: Settings | None = None,
    stage: Stage | None = None,
    store: Any = None,
    **options: Any,
) -> AsyncIterator[Bench]:
    """An engine over some functions declared with `tool`, and all scripted tools. All gates are open afterwards."""
    stage = stage or Stage()
    sink = RecordingSink()
    own = [compile_tool(function, {Stage: stage}) for function in functions]
    options["sinks"] = [*options.get("sinks", ()), sink]
    store = MemoryStore() if store is None else store
    async with open_engine([*own, *compile_scripted(stage)], settings=settings, store=store, **options) as engine:
        made = Bench(engine, stage, sink, store, engine)
        try:
            yield made
        finally:
            for gate in [*made._gates, *stage._arrived]:
                stage.open(gate)


def request(name: str, arguments: Any = None, **fields: Any) -> ExecutionRequest:
    return ExecutionRequest(tool=name, arguments=arguments, **fields)


def read(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a parallel-safe tool without effects."""
    return tool(effect="read", parallel_safe=True, register=False)(function)


def write(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a parallel-safe tool whose effects must not be doubled."""
    return tool(effect="write", parallel_safe=True, register=False)(function)


def code(result: Any) -> str:
    """The code of the error; ``ok`` for a success."""
    return "ok" if result.error is None else str(result.error.code)


def told(result: Any) -> Any:
    """The error's details."""
    assert result.error is not None
    return result.error.details


class Refuse:
    """A policy that refuses with a code, and keeps which tools it was asked about."""

    def __init__(self, code: str = "NO") -> None:
        self.code = code
        self.asked: list[str] = []

    def check(self, context: object, spec: ToolSpec) -> None:
        self.asked.append(spec.name)
        raise AgentError(self.code, "no", "permission")
