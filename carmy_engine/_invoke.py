"""Run one tool under its scope. The only place that catches whatever a tool may raise."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

import msgspec
import trio

from ._compiled import CompiledTool
from ._crash import as_agent_error, leaves, sendable
from ._execution import Execution
from ._grace import guide
from ._model.cause import Cause
from ._threads import Threads
from .errors import AgentError


class Ending(msgspec.Struct, eq=False):
    """How an attempt ended: with `data_json` or with `error`.

    Attributes:
        data_json: The rendered output.
        error: Why there is none.
        exception: What was raised, for in-process callers.
        crashed: The tool raised something undeclared.
        cause: Why it was cut off, None when it ended by itself.
    """

    data_json: bytes | None = None
    error: AgentError | None = None
    exception: BaseException | None = None
    crashed: bool = False
    cause: Cause | None = None


class Invoker:
    """Runs tools: coroutines in the caller's task, plain functions in the engine's threads."""

    def __init__(self, threads: Threads, *, expose_errors: bool) -> None:
        self._threads = threads
        self.expose = expose_errors
        """Tell callers type and message of unexpected exceptions (development)."""

    async def invoke(self, tool: CompiledTool, arguments: dict[str, Any], execution: Execution) -> Ending:
        """Run the tool and render its output. The caller has entered `execution.scope`.

        Raises:
            trio.Cancelled: The scope, or one further out, was cancelled and the tool gave in. `execution` holds the
                cause, and the thread if one was left behind.
        """
        try:
            if tool.context_parameter is not None:
                arguments[tool.context_parameter] = execution.context()
            if tool.relayed:
                assert execution.scope is not None
                # It begins when the executor that runs it says so.
                relay: Coroutine[Any, Any, Ending] = tool.function(execution=execution, **arguments)
                return await guide(relay, execution.scope, execution.notice_cancel)
            if tool.is_async:
                assert execution.scope is not None
                execution.starts()
                value = await guide(tool.function(**arguments), execution.scope, execution.notice_cancel)
            else:
                value = await self._in_thread(tool, arguments, execution)
            data = tool.render(value)
            if execution.returned is not None:
                execution.returned(value)
            return Ending(data)
        except GeneratorExit:
            raise  # this coroutine is being thrown away; nothing may be awaited or returned
        except trio.Cancelled:
            execution.notice_cancel()
            raise
        except AgentError as error:
            return Ending(error=sendable(error), exception=error)
        except BaseException as error:  # the boundary round the tool; SystemExit and the like end this call only
            if not any(True for _ in leaves(error)):
                execution.notice_cancel()
                raise  # a group of nothing but Cancelled
            told, origin = as_agent_error(error, f"the tool {tool.spec.name}", expose=self.expose)
            return Ending(error=sendable(told), exception=origin, crashed=told is not origin)

    def _in_thread(
        self, tool: CompiledTool, arguments: dict[str, Any], execution: Execution
    ) -> Coroutine[Any, Any, Any]:
        """A plain function, in a worker thread."""
        execution.thread = thread = self._threads.prepare(partial(tool.function, **arguments), execution.starts)
        if self._threads.busy:
            execution.waits()
        execution.arm()
        return self._threads.run(thread)
