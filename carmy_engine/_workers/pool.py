"""The worker processes of an engine: started when they are needed, replaced when they die, killed with the engine."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import trio

from .._config.settings import Settings
from .._execution.execution import Execution
from .._model.compiled_tool import CompiledTool
from .._model.error_boundary import raise_single
from .._model.errors import AgentError, DeclarationError, StartupError
from .isolated_tool import IsolatedTool
from .loading import is_worker
from .messages import Hello, Tool
from .worker import Worker, WorkerDied

log = logging.getLogger("carmy.engine")


FIRST_WAIT_SECONDS = 1.0
"""Before a worker is replaced that has died without a call: the modules of the tools may do that to each one. It doubles with each
further one in a row, up to `MAX_WAIT_SECONDS`, so that starts do not take up the machine."""

MAX_WAIT_SECONDS = 30.0


class WorkerPool:
    """The workers of one engine.

    Each place of the pool is a task that keeps one worker alive. A place is opened when a call takes the last free worker, and closed
    when a worker fails to start. A worker that dies later is replaced at once, so that the next call need not wait for the start.

    Args:
        hello: What each worker receives first.
        settings: For limits.
        nursery: For the places.
    """

    def __init__(self, hello: Hello, settings: Settings, nursery: trio.Nursery) -> None:
        self._hello = hello
        self._max = settings.workers.max_processes
        self._start_secs = settings.startup_timeout_secs
        self._nursery = nursery
        self._places = 0
        self._give, self._free = trio.open_memory_channel[Worker | AgentError](float("inf"))

    async def start(self) -> None:
        """Start the first worker.

        Raises:
            StartupError: It cannot run the tools.
        """
        self._places += 1
        await self._nursery.start(self._keep)

    async def take(self, execution: Execution) -> Worker:
        """Wait for a free worker, first come first served.

        Raises:
            AgentError: ``EXECUTOR_UNAVAILABLE``: no worker starts.
        """
        while True:
            try:
                found = self._free.receive_nowait()
            except trio.WouldBlock:
                execution.mark_waiting()
                self._grow()
                found = await self._free.receive()
            if isinstance(found, AgentError):
                raise found
            if not found.is_dead:
                if not self._free.statistics().current_buffer_used:
                    self._grow()
                return found

    def _grow(self) -> None:
        """Open a place, unless there are as many as allowed: one worker more than calls is ready, since its start takes long."""
        if self._places < self._max:
            self._places += 1
            self._nursery.start_soon(self._keep)

    def give_back(self, worker: Worker) -> None:
        """Return a worker after its call."""
        self._give.send_nowait(worker)

    async def _keep(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a worker alive, until one fails to start."""
        starts: trio.TaskStatus[None] | None = task_status
        wait = 0.0
        while True:
            ended = await self._run(starts)
            if isinstance(ended, Worker):
                starts = None
                wait = 0.0 if ended.has_served else min(max(2 * wait, FIRST_WAIT_SECONDS), MAX_WAIT_SECONDS)
                await trio.sleep(wait)
                continue
            problems = ended
            self._places -= 1
            if starts is not None and starts is not trio.TASK_STATUS_IGNORED:
                raise StartupError([AgentError.standard("STATE_FAILED", problem) for problem in problems])
            log.error("a worker process has failed to start: %s", "; ".join(problems))
            if not self._places:
                for _ in range(self._free.statistics().tasks_waiting_receive):
                    self._give.send_nowait(
                        AgentError.standard(
                            "EXECUTOR_UNAVAILABLE",
                            "no worker process could be started; the tool was not run",
                            details={"phase": "waiting"},
                        )
                    )
            return

    async def _run(self, starts: trio.TaskStatus[None] | None) -> Worker | tuple[str, ...]:
        """Run one worker to its end; return it, or why it did not start."""
        try:
            worker = Worker.start()
        except OSError as error:
            return (f"a worker process cannot be started: {error.strerror or error}",)
        announced: list[tuple[str, ...]] = []

        def on_ready(problems: tuple[str, ...]) -> None:
            starting.deadline = float("inf")
            announced.append(problems)
            if problems:
                worker.kill()
                return
            self._give.send_nowait(worker)
            if starts is not None:
                starts.started()

        try:
            with trio.move_on_after(self._start_secs) as starting:
                with suppress(WorkerDied):
                    await worker.send(self._hello)
                await worker.relay(on_ready)
        finally:
            await worker.end()
        if starting.cancelled_caught:
            return (f"a worker process has not loaded the tools within {self._start_secs:g} s",)
        if not announced:
            return ("a worker process has died while it was loading the tools",)
        return announced[0] or worker


@asynccontextmanager
async def with_workers(tools: Iterable[CompiledTool], settings: Settings) -> AsyncIterator[list[CompiledTool]]:
    """The tools, with those that have a place running in worker processes for the length of the block. The others are unchanged.

    Raises:
        StartupError: A worker process cannot run the tools.
    """
    tools = [*tools]
    isolated = [tool for tool in tools if tool.place is not None]
    if not isolated:
        yield tools
        return
    if is_worker():
        raise DeclarationError(
            "an application with tools that run in worker processes was opened in one of these;"
            ' if its module does that when it is loaded, put it below: if __name__ == "__main__":'
        )
    most = settings.limits.max_output_bytes
    hello = Hello(
        tools=tuple(
            Tool(place=tool.place, max_output_bytes=min(tool.spec.max_output_bytes, most or tool.spec.max_output_bytes))
            for tool in isolated
            if tool.place is not None
        ),
        max_memory_bytes=settings.workers.max_memory_bytes,
        max_cpu_secs=settings.workers.max_cpu_secs,
        log_level=logging.getLogger().getEffectiveLevel(),
        expose_errors=settings.expose_errors,
    )
    try:
        async with trio.open_nursery() as nursery:
            pool = WorkerPool(hello, settings, nursery)
            await pool.start()
            numbers = {id(tool): number for number, tool in enumerate(isolated)}
            yield [
                tool
                if tool.place is None
                else dataclasses.replace(tool, runs=IsolatedTool(pool, numbers[id(tool)], tool))
                for tool in tools
            ]
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_single(group)
