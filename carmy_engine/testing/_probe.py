"""How a check talks to an executor that serves the scripted tools: through calls alone."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from .._execution.grace import grace
from .._model.events import ExecutionEvent
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult

TIMEOUT_MS = 150
"""Of calls that are meant to time out: long enough to start on a busy machine, short enough not to be noticed."""

_TIDY_SECONDS = 5.0


class Pending:
    """A call that goes on in the background.

    Attributes:
        scope: Cancel it to go away from the call.
        done: Set when the call has returned, or was left.
        result: What it returned; None as long as it goes on, or if it was left.
    """

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.result: ExecutionResult | None = None

    async def wait(self) -> ExecutionResult:
        """Wait for the result of a call that is not left."""
        await self.done.wait()
        assert self.result is not None, "the call was left"
        return self.result

    async def leave(self) -> None:
        """Go away from the call, and wait until that is done."""
        self.scope.cancel()
        await self.done.wait()
        assert self.result is None, "the call had an answer already"


class Probe:
    """An executor under test, and unique names on it.

    Names are unique for each probe, so that many checks can share one executor, also at the same time.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._prefix = secrets.token_hex(6)
        self._count = 0
        self._gates: list[str] = []

    def name(self) -> str:
        """A new name, for a tag or a request_id."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def gate(self) -> str:
        """A new name for a gate; it is opened when the check is over, so that no call stays behind."""
        gate = self.name()
        self._gates.append(gate)
        return gate

    def request(self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> ExecutionRequest:
        """A request."""
        return ExecutionRequest(tool=tool, arguments=arguments, **fields)

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any) -> ExecutionResult:
        """Run a request to its end; `fields` are those of `ExecutionRequest`."""
        return await self.executor.execute(self.request(tool, arguments, **fields))

    async def refused(
        self, code: str, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> ExecutionResult:
        """Run a request that has to end with this code."""
        result = await self.call(tool, arguments, **fields)
        assert result.error is not None, f"expected {code}, not success"
        assert result.error.code == code, f"expected {code}, not {result.error}"
        assert result.data is None
        return result

    async def events(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> list[ExecutionEvent]:
        """Run a request and collect all of its events."""
        async with self.executor.stream(self.request(tool, arguments, **fields)) as channel:
            return [event async for event in channel]

    def start(
        self, nursery: trio.Nursery, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> Pending:
        """Run a request in the background."""
        pending = Pending()

        async def run() -> None:
            try:
                with pending.scope:
                    pending.result = await self.call(tool, arguments, **fields)
            finally:
                pending.done.set()

        nursery.start_soon(run)
        return pending

    async def start_waiting(
        self, nursery: trio.Nursery, tool: str, arguments: Mapping[str, Any] | None = None, **fields: Any
    ) -> Pending:
        """Run a request in the background; return when it waits for its turn."""
        pending = Pending()
        waiting = trio.Event()

        async def run() -> None:
            try:
                with pending.scope:
                    async with self.executor.stream(self.request(tool, arguments, **fields)) as channel:
                        async for event in channel:
                            if event.kind == "tool.waiting":
                                waiting.set()
                            elif event.kind == "execution.completed":
                                pending.result = event.result  # type: ignore[attr-defined] # the kind has one
            finally:
                pending.done.set()

        nursery.start_soon(run)
        await waiting.wait()
        return pending

    async def arrived(self, gate: str, calls: int = 1) -> None:
        """Wait until calls have come to a gate."""
        (await self.call("arrived", {"gate": gate, "calls": calls})).unwrap()

    async def left(self, gate: str, calls: int = 1) -> None:
        """Wait until calls have left a gate."""
        (await self.call("left", {"gate": gate, "calls": calls})).unwrap()

    async def open(self, gate: str) -> None:
        """Open a gate."""
        (await self.call("open_gate", {"gate": gate})).unwrap()

    async def effects(self, tag: str, at_least: int = 0) -> int:
        """Wait until an effect has happened so often; how often it did."""
        count: int = (await self.call("effects", {"tag": tag, "at_least": at_least})).unwrap()
        return count

    async def until_settled(self, tool: str, arguments: Mapping[str, Any], request_id: str) -> ExecutionResult:
        """Ask again until the first attempt no longer runs: its end reaches the store shortly after the tool's."""
        while True:
            result = await self.call(tool, arguments, request_id=request_id)
            if result.error is None or (result.error.details or {}).get("state") != "running":
                return result
            await trio.lowlevel.checkpoint()

    async def tidy(self) -> None:
        """Open every gate."""
        with grace(_TIDY_SECONDS):
            for gate in self._gates:
                await self.call("open_gate", {"gate": gate})


@asynccontextmanager
async def probing(executor: Executor) -> AsyncIterator[Probe]:
    """A probe for the length of a block."""
    probe = Probe(executor)
    try:
        yield probe
    finally:
        await probe.tidy()
