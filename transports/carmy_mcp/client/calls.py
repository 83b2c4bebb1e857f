"""One call to an MCP server: its parameters, and the events made from its progress and answer."""

from __future__ import annotations

from typing import Any, cast

import mcp_types as types

from carmy_engine import (
    ExecutionRequest,
    ExecutionStarted,
    ToolCompleted,
    ToolProgress,
    ToolStarted,
)
from carmy_engine.codec import decode
from carmy_engine.transport import invalid_arguments
from carmy_frames.driver import EventChannel, call_frame
from carmy_frames.protocol import MAX_MESSAGE_BYTES

from ..protocol.params import EXECUTION_META, ON_RUNNING, REQUEST_ID, TIMEOUT_MS
from .results import Answered


def call_params(request: ExecutionRequest) -> types.CallToolRequestParams:
    """Return the parameters of a call. Other servers ignore the ``carmy/`` members of ``_meta``.

    Raises:
        AgentError: It cannot be sent.
    """
    frame = call_frame(request, 0, MAX_MESSAGE_BYTES, stream=False)  # the checks of every connection
    arguments: Any = decode(bytes(frame.arguments))
    if arguments is not None and not isinstance(arguments, dict):
        problem = {"path": "", "code": "wrong_type", "message": "the arguments must be a JSON object"}
        raise invalid_arguments([problem])
    meta: dict[str, Any] = {EXECUTION_META: True}
    if frame.request_id is not None:
        meta[REQUEST_ID] = frame.request_id
    if frame.timeout_ms is not None:
        meta[TIMEOUT_MS] = frame.timeout_ms
    if frame.on_running != "refuse":
        meta[ON_RUNNING] = frame.on_running
    return types.CallToolRequestParams(
        name=request.tool,
        arguments=cast("dict[str, Any]", arguments or {}),
        _meta=cast("types.RequestParamsMeta", meta),
    )


class Narrator:
    """Makes the events of one call from progress notifications and the answer.

    Args:
        events: The channel to fill.
        tool: The tool's name.
        execution_id: The id in the events. The answer may carry the server's own id.
    """

    def __init__(self, events: EventChannel, tool: str, execution_id: str) -> None:
        self._events = events
        self._tool = tool
        self._id = execution_id
        self._has_begun = False

    async def start(self) -> None:
        """The call begins."""
        await self._events.put(ExecutionStarted(seq=0, execution_id=self._id, tool=self._tool))

    async def begin(self) -> None:
        """The tool runs."""
        if not self._has_begun:
            self._has_begun = True
            await self._events.put(ToolStarted(seq=0, execution_id=self._id, tool=self._tool))

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """The tool has reported. Never waits: reports merge."""
        await self.begin()
        report = ToolProgress(
            seq=0, execution_id=self._id, tool=self._tool, progress=progress, total=total, message=message or None
        )
        await self._events.put(report)

    async def end(self, outcome: Answered) -> None:
        """There is an answer."""
        result = outcome.result
        if outcome.ran:
            await self.begin()
        if self._has_begun:
            completed = ToolCompleted(
                seq=0,
                execution_id=self._id,
                tool=self._tool,
                duration_ms=result.duration_ms,
                waited_ms=0.0,
                ok=result.error is None,
            )
            await self._events.put(completed)
        await self._events.put_result(self._tool, result)
