"""Invocation of one tool in its scope. Every result or exception becomes an `Ending`."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine
from functools import partial
from typing import Any

import msgspec

from .._model.cause import Cause
from .._model.compiled_tool import CheckOutput, CompiledTool, TakesLong
from .._model.error_boundary import as_agent_error, declared_error, is_cancel, is_ctrl_c, json_safe, log_fault
from .._model.errors import AgentError
from .._model.task_cancel import is_task_cancelled
from .execution import Execution
from .grace import GRACE_SECONDS, grace, run_with_grace
from .threads import Threads


class Ending(msgspec.Struct, eq=False):
    """Ending of an attempt: `data_json` or `error`.

    Attributes:
        data_json: The rendered output.
        error: The error, if there is no output.
        exception: The exception that was raised, for in-process callers.
        crashed: The tool raised something undeclared.
        cause: Cause of the cancellation; None if the tool ended by itself.
        confirmable: The engine refused the call, which only lacks a person's confirmation.
    """

    data_json: bytes | None = None
    error: AgentError | None = None
    exception: BaseException | None = None
    crashed: bool = False
    cause: Cause | None = None
    confirmable: bool = False


class Invoker:
    """Runs tools: coroutines in the caller's task, plain functions in the engine's threads."""

    def __init__(self, threads: Threads, check_output: CheckOutput, *, expose_errors: bool) -> None:
        self._threads = threads
        self._check_output = check_output
        self.expose = expose_errors
        """Send callers the type and message of unexpected exceptions. For development."""

    async def invoke(self, tool: CompiledTool, arguments: dict[str, Any], execution: Execution) -> Ending | None:
        """Run the tool and render its output. The caller has entered `execution.scope`.

        Returns:
            The ending; None if the tool was cancelled and raised an undeclared exception.

        Raises:
            trio.Cancelled: The scope, or one further out, was cancelled and the tool gave in. `execution` holds the
                cause, and the thread if one was left behind.
        """
        try:
            if tool.context_parameter is not None:
                arguments[tool.context_parameter] = execution.context()
            if tool.runs is not None:
                assert execution.scope is not None
                return await run_with_grace(tool.runs(execution, arguments), execution.scope, execution.notice_cancel)
            if tool.is_async:
                assert execution.scope is not None
                execution.mark_started()
                value = await run_with_grace(tool.function(**arguments), execution.scope, execution.notice_cancel)
            else:
                value = await self._in_thread(tool, arguments, execution)
        except GeneratorExit:
            raise  # this coroutine is being closed: `run_with_grace` raises no other `GeneratorExit`
        except BaseException as error:  # noqa: BLE001 - the boundary round the tool
            return self._failed(tool, execution, error)
        try:
            data = tool.render(value)
        except TakesLong as taken:
            long = taken.with_traceback(None)  # its frames, this one among them, would keep the output
        except BaseException as error:  # noqa: BLE001 - the boundary round serialisers and properties
            return self.unfit(tool, execution, error)
        else:
            return _returned(value, data, execution)
        return await self._checked(tool, value, long, execution)  # outside the handler: errors have no context

    async def _checked(self, tool: CompiledTool, value: Any, long: TakesLong, execution: Execution) -> Ending | None:
        """The ending of a tool whose output takes long to check.

        The deadline or a cancel ends the check; the outcome is that of a tool that was cancelled while it ran. An output counts
        even if the tool returned it after a cancel or late, so the check has `GRACE_SECONDS` in any case.

        Returns:
            The ending; None at the end of the grace.

        Raises:
            trio.Cancelled: See `invoke`.
        """
        execution.start_deadline()
        try:
            shelter: contextlib.AbstractContextManager[object]
            if execution.is_cut_off():
                shelter = grace()
            else:
                assert execution.scope is not None
                execution.scope.deadline = max(execution.deadline, execution.now() + GRACE_SECONDS)
                shelter = contextlib.nullcontext()
            with shelter:
                data = await self._check_output(long)
                return _returned(value, data, execution)
        except BaseException as error:
            if is_cancel(error) and is_task_cancelled():
                execution.notice_cancel()
                raise
            return self.unfit(tool, execution, error)
        return None

    def _failed(self, tool: CompiledTool, execution: Execution, error: BaseException) -> Ending | None:
        """Ending of a tool that raised. None if the tool was cancelled and its error is not a declared one.

        Raises:
            trio.Cancelled: It is a cancel of the execution's scope.
            KeyboardInterrupt: It is a Ctrl-C.
        """
        is_cut_off = execution.is_cut_off()
        if is_ctrl_c(error):
            raise error
        if is_cancel(error) and (is_cut_off or is_task_cancelled()):
            execution.notice_cancel()
            raise error
        declared = declared_error(error)
        if declared is not None and not (is_cut_off and declared.info.code == "CANCELLED"):
            return Ending(error=json_safe(declared), exception=declared)
        if is_cut_off:
            if declared is None:
                log_fault(f"the tool {tool.spec.name}, while it was being cut off,", error)
            return None
        told, origin = as_agent_error(error, f"the tool {tool.spec.name}", expose=self.expose)
        return Ending(error=told, exception=origin, crashed=True)

    def unfit(self, tool: CompiledTool, execution: Execution, error: BaseException) -> Ending:
        """Ending of a tool whose output cannot be written.

        Raises:
            KeyboardInterrupt: It is a Ctrl-C.
        """
        if is_ctrl_c(error):
            raise error
        told, origin, crashed = output_error(tool.spec.name, error, expose=self.expose)
        return Ending(error=told, exception=origin, crashed=crashed)

    def _in_thread(
        self, tool: CompiledTool, arguments: dict[str, Any], execution: Execution
    ) -> Coroutine[Any, Any, Any]:
        """Run a plain function in a worker thread."""
        execution.thread = thread = self._threads.prepare(partial(tool.function, **arguments), execution.mark_started)
        if self._threads.busy:
            execution.mark_waiting()
        execution.start_deadline()
        return self._threads.run(thread)


def output_error(name: str, error: BaseException, *, expose: bool) -> tuple[AgentError, BaseException, bool]:
    """The error for an output that cannot be written. The reason is logged.

    Args:
        name: Of the tool.
        error: What `CompiledTool.render` raised.
        expose: See `as_agent_error`.

    Returns:
        The error, the exception behind it, and whether code of the tool's author raised something undeclared.
    """
    declared = declared_error(error)
    if declared is None:
        told, origin = as_agent_error(error, f"writing the output of the tool {name}", expose=expose)
        return told, origin, True
    cause = declared.__cause__
    info = declared.info
    error_id = log_fault(f"the output of the tool {name} ({info.code}: {info.message})", cause)
    info = msgspec.structs.replace(info, details={**(info.details or {}), "error_id": error_id})
    return json_safe(AgentError.of(info)), declared if cause is None else cause, False


def _returned(value: Any, data: bytes, execution: Execution) -> Ending:
    if execution.returned is not None:
        execution.returned(value)
    return Ending(data)
