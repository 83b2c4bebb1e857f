"""One call to an MCP server: its parameters, and the events made from its progress, its log and its answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from carmy_engine import (
    AgentError,
    ExecutionRequest,
    ExecutionStarted,
    ToolCompleted,
    ToolLog,
    ToolProgress,
    ToolStarted,
)
from carmy_engine.abc import ClientFeatures, LogLevel
from carmy_engine.codec import decode
from carmy_engine.transport import Fault, RateLimitedLogger, call_foreign, invalid_arguments, log_fault
from carmy_frames.driver import EventChannel, call_frame
from carmy_frames.protocol import MAX_MESSAGE_BYTES

from ..protocol.params import EXECUTION_META, ON_RUNNING, REQUEST_ID, TIMEOUT_MS
from .results import Answered, cut

log = RateLimitedLogger(logging.getLogger("carmy.tools"))

MAX_LOGS = 1000
"""Log messages of one call that are passed on. A server that sends more has not a person in mind."""


class CallParams(NamedTuple):
    """The parameters of one call.

    Attributes:
        name: The tool.
        arguments: Its arguments, a JSON object.
        values: The same, decoded.
        meta: The members of ``_meta``.
    """

    name: str
    arguments: msgspec.Raw
    values: Mapping[str, Any]
    meta: dict[str, Any]

    def members(self) -> dict[str, Any]:
        """The parameters as they are sent."""
        return {"name": self.name, "arguments": self.arguments, "_meta": self.meta}


def call_params(request: ExecutionRequest) -> CallParams:
    """Return the parameters of a call. Other servers ignore the ``carmy/`` members of ``_meta``.

    Raises:
        AgentError: It cannot be sent.
    """
    frame = call_frame(request, 0, MAX_MESSAGE_BYTES, stream=False)  # the checks of every connection
    values: Any = decode(bytes(frame.arguments))
    if values is not None and not isinstance(values, dict):
        problem = {"path": "", "code": "wrong_type", "message": "the arguments must be a JSON object"}
        raise invalid_arguments([problem])
    meta: dict[str, Any] = {EXECUTION_META: True}
    if frame.request_id is not None:
        meta[REQUEST_ID] = frame.request_id
    if frame.timeout_ms is not None:
        meta[TIMEOUT_MS] = frame.timeout_ms
    if frame.on_running != "refuse":
        meta[ON_RUNNING] = frame.on_running
    arguments = msgspec.Raw(b"{}") if values is None else msgspec.Raw(frame.arguments)
    return CallParams(request.tool, arguments, values or {}, meta)


class Caller:
    """The caller of one request; see `carmy_mcp.client.session.Listener`.

    Args:
        client: The client behind the call.
    """

    wants_reports = False

    def __init__(self, client: ClientFeatures | None) -> None:
        self.client = client
        self._logs = 0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """The tool has reported."""

    async def log(self, level: LogLevel, message: str) -> None:
        """Pass a log message on: to the client behind the call, else to the listener of its events, else to the log."""
        self._logs += 1
        if self._logs > MAX_LOGS:
            return
        text = cut(message) if self._logs < MAX_LOGS else f"further messages are left out: more than {MAX_LOGS}"
        try:
            is_taken = self.client is not None and call_foreign(self.client.log, level, text) is True
        except (AgentError, Fault) as fault:
            is_taken = False
            log_fault("sending a log message to a client", fault)
        if not is_taken:
            await self.keep_log(level, text)

    async def keep_log(self, level: LogLevel, text: str) -> None:
        """Take a log message that the client behind the call does not take."""
        log.info("%s: %s", level, text)


class Narrator(Caller):
    """Makes the events of one call from progress notifications and the answer.

    Args:
        client: The client behind the call.
        events: The channel to fill.
        tool: The tool's name.
        execution_id: The id in the events. The answer may carry the server's own id.
    """

    wants_reports = True

    def __init__(self, client: ClientFeatures | None, events: EventChannel, tool: str, execution_id: str) -> None:
        super().__init__(client)
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
        text = None if not message else cut(message)
        report = ToolProgress(
            seq=0, execution_id=self._id, tool=self._tool, progress=progress, total=total, message=text
        )
        await self._events.put(report)

    async def keep_log(self, level: LogLevel, text: str) -> None:
        """The tool has logged."""
        await self.begin()
        await self._events.put(ToolLog(seq=0, execution_id=self._id, tool=self._tool, level=level, message=text))

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
