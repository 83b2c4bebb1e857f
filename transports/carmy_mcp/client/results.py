"""The outcome of an execution in the answer of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from carmy_engine import AgentError, ErrorInfo, ExecutionResult, NextAction
from carmy_engine.transport import (
    DEFAULT_MAX_OUTPUT_BYTES,
    first_infinite,
    invalid_output,
    may_hide_infinite,
    output_subject,
    output_too_large,
)

from ..protocol.listing import WRAPPED
from .catalog import FarTool

MAX_WORDS = 4000
"""Characters of a server's own words in an error: what a model can use, and no more than it wants to read."""

MAX_ERROR_BYTES = 256 * 1024
"""Of an error that a server of this package passes on. Its tools put particulars into it, not content."""


class Answered(NamedTuple):
    """An outcome.

    Attributes:
        result: As the caller gets it.
        ran: The tool has begun to run, according to its server.
    """

    result: ExecutionResult
    ran: bool


def answered(
    answer: types.CallToolResult | types.InputRequiredResult,
    tool: FarTool | None,
    execution_id: str,
    duration_ms: float,
) -> Answered:
    """The outcome in the answer to a call.

    A success has the structured content, else the text of a single block of text, else all blocks as they came.

    Args:
        answer: The answer.
        tool: The tool; None if the server does not list it.
        execution_id: For servers that give none.
        duration_ms: Likewise.
    """
    if isinstance(answer, types.InputRequiredResult):
        asked = sorted({str(request.method) for request in (answer.input_requests or {}).values()})
        words = "the server asks for something in the middle of the call, which this client does not support"
        asking = _with(_tool_error(words), {"asked": asked})
        return Answered(ExecutionResult(execution_id=execution_id, error=asking, duration_ms=duration_ms), ran=True)
    meta: Mapping[str, Any] = answer.meta or {}
    data, error = (None, _error_in(answer)) if answer.is_error else _output(answer, tool)
    duration = meta.get("carmy/duration_ms")
    ran = True
    if isinstance(duration, int | float):
        duration_ms = float(duration)
        ran = duration > 0 and (error is None or (error.details or {}).get("phase") != "waiting")
    execution = meta.get("carmy/execution_id")
    result = ExecutionResult(
        execution_id=execution if isinstance(execution, str) else execution_id,
        data_json=data,
        error=error,
        replayed=meta.get("carmy/replayed") is True,
        duration_ms=duration_ms,
        cacheable=error is None and tool is not None and tool.spec.idempotent and tool.spec.effect.is_safe,
        next_actions=_next_actions(meta),
    )
    return Answered(result, ran=ran)


def error_answered(error: MCPError, tool: str, *, known: bool) -> ErrorInfo:
    """The error in a JSON-RPC error that answers a call.

    Args:
        error: It.
        tool: The tool's name.
        known: The server lists the tool.
    """
    data = error.error.data
    if isinstance(data, dict) and (found := _info(cast("dict[str, Any]", data).get("error"))) is not None:
        return found
    if not known and error.code in (types.INVALID_PARAMS, types.METHOD_NOT_FOUND):
        return AgentError.standard("TOOL_NOT_FOUND", f"the server has no tool '{tool}'", details={"tool": tool}).info
    words = _cut(error.error.message)
    return _with(_tool_error("the server refused the call, or failed"), {"code": error.code, "text": words})


def _error_in(answer: types.CallToolResult) -> ErrorInfo:
    found = _info((answer.meta or {}).get("carmy/error"))
    if found is not None:
        return found
    words = "\n".join(block.text for block in answer.content if isinstance(block, types.TextContent))
    return _with(_tool_error("the tool failed; the text in the details is its server's"), {"text": _cut(words)})


def _output(answer: types.CallToolResult, tool: FarTool | None) -> tuple[bytes | None, ErrorInfo | None]:
    try:
        return _render(_value(answer, tool)), None
    except AgentError as problem:
        return None, problem.info


def _value(answer: types.CallToolResult, tool: FarTool | None) -> Any:
    if "structured_content" in answer.model_fields_set:
        content = answer.structured_content
        wrapped = tool is not None and tool.wrapped
        return cast("dict[str, Any]", content)[WRAPPED] if wrapped and _is_wrapping(content) else content
    if tool is not None and tool.structured:
        raise _unfit("", "has no structured content, which the server has promised")
    if not answer.content:
        return None
    if len(answer.content) == 1 and isinstance(answer.content[0], types.TextContent):
        return answer.content[0].text
    return [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in answer.content]


def _is_wrapping(content: Any) -> bool:
    return isinstance(content, dict) and WRAPPED in content


def _render(value: Any) -> bytes:
    try:
        data = msgspec.json.encode(value)
        infinite = first_infinite(value) if may_hide_infinite(value, data) else None
    except (TypeError, ValueError, RecursionError, OverflowError):
        raise _unfit("", "has no JSON form") from None
    if infinite is not None:
        raise _unfit(infinite, "must be a finite number")
    if len(data) > DEFAULT_MAX_OUTPUT_BYTES:
        raise output_too_large(len(data), DEFAULT_MAX_OUTPUT_BYTES)
    return data


def unreadable() -> AgentError:
    """The error for an unreadable answer: the tool has run, with an unknown outcome."""
    return _unfit("", "cannot be read")


def _unfit(path: str, said: str) -> AgentError:
    return invalid_output([{"path": path, "code": "wrong_type", "message": f"{output_subject(path)} {said}"}])


def _tool_error(message: str) -> ErrorInfo:
    return AgentError.standard("TOOL_ERROR", message).info


def _with(error: ErrorInfo, details: Mapping[str, Any]) -> ErrorInfo:
    return msgspec.structs.replace(error, details=details)


def _info(found: object) -> ErrorInfo | None:
    """An error of a server of this package; None when it is not one."""
    try:
        info = AgentError.of(msgspec.convert(found, ErrorInfo)).info
        return info if len(msgspec.json.encode(info)) <= MAX_ERROR_BYTES else None
    except (msgspec.ValidationError, TypeError):
        return None


def _next_actions(meta: Mapping[str, Any]) -> tuple[NextAction, ...]:
    try:
        return msgspec.convert(meta.get("carmy/next_actions", ()), tuple[NextAction, ...])
    except msgspec.ValidationError:
        return ()


def _cut(words: str) -> str:
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"
