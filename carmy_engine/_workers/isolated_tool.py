"""A tool in a worker process: its call there, and the meaning of its end here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
import trio

from .._execution.execution import Execution
from .._execution.grace import grace
from .._execution.invoke import Ending
from .._model.codec import decode
from .._model.compiled_tool import CompiledTool
from .._model.context import AgentContext
from .._model.errors import AgentError
from .messages import (
    Call,
    CallContext,
    Cancel,
    Part,
    PartTaken,
    Raised,
    Report,
    Returned,
    Started,
    ToolLine,
)
from .worker import Worker, WorkerDied

CLEAN_UP_SECONDS = 0.5
"""Time between a cancel and the kill, for a tool that takes an `AgentContext` and so can notice the cancel. With the time that a kill
takes, the process is gone within a second."""

MAX_DEATHS = 3
"""Workers that one call tries, if each has died before the tool began: the kernel, short of memory, may kill idle ones."""


class Workers(Protocol):
    """A pool; see `WorkerPool`."""

    async def take(self, execution: Execution) -> Worker:
        """Wait for a free worker."""
        ...

    def give_back(self, worker: Worker) -> None:
        """Return a worker after its call."""
        ...


class IsolatedTool:
    """A tool whose function runs in a worker process; `CompiledTool.runs` of the tool.

    Args:
        workers: The pool.
        number: Of the tool, in the pool.
        tool: The tool.
    """

    def __init__(self, workers: Workers, number: int, tool: CompiledTool) -> None:
        self._workers = workers
        self._number = number
        self._tool = tool

    async def __call__(self, execution: Execution, arguments: Mapping[str, Any]) -> Ending:
        """Run one call to its end. After a cancel, the worker is killed unless the tool ends by itself within `CLEAN_UP_SECONDS`.

        Args:
            execution: The execution; it receives the tool's progress.
            arguments: The JSON of them, as ``arguments``.

        Raises:
            trio.Cancelled: The execution was cancelled. Nothing of the tool runs any more.
            AgentError: ``EXECUTOR_UNAVAILABLE``: the tool was not run.
        """
        execution.start_deadline()
        for _ in range(MAX_DEATHS):
            worker = await self._workers.take(execution)
            call = _IsolatedCall(worker, self._tool, execution)
            ending = await self._in(worker, call, arguments["arguments"])
            if ending is not None:
                return ending
        raise AgentError.standard(
            "EXECUTOR_UNAVAILABLE",
            f"{MAX_DEATHS} worker processes have died before {self._tool.spec.name} began; the tool was not run",
            details={"phase": "waiting"},
        )

    async def _in(self, worker: Worker, call: _IsolatedCall, arguments: bytes) -> Ending | None:
        """Run a call in a worker; None if the worker died before the tool began."""
        is_worker_free = False
        try:
            ending = await call.run(self._number, arguments)
            is_worker_free = True
            return ending
        except trio.Cancelled:
            late = None if self._tool.context_parameter is None else await call.wait_for_end()
            is_worker_free = late is not None
            if late is None or _is_of_cancel(late):
                raise
            return late
        except WorkerDied:
            await worker.ended.wait()
            return call.crash()
        finally:
            call.close()
            if is_worker_free:
                self._workers.give_back(worker)
            else:
                worker.kill()


class _IsolatedCall:
    """One call in one worker."""

    def __init__(self, worker: Worker, tool: CompiledTool, execution: Execution) -> None:
        self._worker = worker
        self._tool = tool
        self._execution = execution
        self._context = execution.context()
        self._id, self._messages = worker.begin()
        self._is_sent = self._has_begun = False

    async def run(self, number: int, arguments: bytes) -> Ending:
        """Send the call and follow it to its end.

        Raises:
            WorkerDied: The process has ended.
        """
        remaining = self._execution.deadline - self._execution.now()
        await self._worker.send(
            Call(
                id=self._id,
                tool=number,
                arguments=msgspec.Raw(arguments),
                context=_sent_context(self._context),
                remaining=None if math.isinf(remaining) else remaining,
                is_listening=self._context.progress.is_listening,
            )
        )
        self._is_sent = True
        return await self._follow()

    async def wait_for_end(self) -> Ending | None:
        """After a cancel: the end of the tool, if it comes in time."""
        cause = self._execution.cancellation.cause
        if not self._is_sent or cause is None:
            return None
        with grace(CLEAN_UP_SECONDS):
            try:
                await self._worker.send(Cancel(id=self._id, cause=cause))
                return await self._follow()
            except WorkerDied:
                return None
        return None

    async def _follow(self) -> Ending:
        progress = self._context.progress
        async for message in self._messages:
            match message:
                case Started():
                    self._has_begun = True
                    self._execution.mark_started()
                case Report(progress=done, total=total, message=text):
                    progress.report(math.nan if done is None else done, total, text)
                case Part(data=data):
                    await progress.partial(decode(bytes(data)))
                    await self._worker.send(PartTaken(id=self._id))
                case ToolLine(level=level, message=text):
                    self._context.log(level, text)
                case Returned(data=data):
                    return Ending(bytes(data))
                case Raised(error=info, crashed=crashed):
                    error = AgentError.of(info)
                    return Ending(error=error, exception=error, crashed=crashed)
        raise WorkerDied

    def close(self) -> None:
        """Take no more messages."""
        self._messages.close()

    def crash(self) -> Ending | None:
        """The ending after the death of the worker; None if the tool had not begun."""
        if not self._has_begun:
            return None
        how = self._worker.exit()
        name = self._tool.spec.name
        happened = f"the process that ran {name} died"
        if how.get("signal") == "SIGXCPU":
            happened = f"{name} was stopped: it used more of the processor than workers.max_cpu_secs allows"
        elif how:
            happened += f" ({' '.join(str(part) for part in next(iter(how.items()))).replace('_', ' ')})"
        if not self._tool.spec.effect.is_safe:
            happened += "; its effects may exist"
        error = AgentError.standard("TOOL_CRASHED", happened, details={"phase": "running", **how})
        return Ending(error=error, exception=error, crashed=True)


def _is_of_cancel(ending: Ending) -> bool:
    """True if a tool has given in to its cancel, or has failed on the way."""
    return ending.error is not None and (ending.crashed or ending.error.code == "CANCELLED")


def _sent_context(context: AgentContext) -> CallContext:
    return CallContext(**{name: getattr(context, name) for name in CallContext.__struct_fields__})
