"""The outcome of an execution in the answer of an MCP server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from carmy_engine import AgentError, ErrorInfo, ExecutionResult, NextAction
from carmy_engine.transport import (
    DEFAULT_MAX_OUTPUT_BYTES,
    first_infinite,
    invalid_output,
    may_hide_infinite,
    output_subject,
    output_too_large,
)

from ..protocol.blocks import content_of_block
from ..protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError
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


class CallResult(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a call."""

    content: list[dict[str, Any]] = []
    structured_content: Any = msgspec.UNSET
    is_error: bool = False
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


_answer = msgspec.json.Decoder(CallResult)


def call_result(result: msgspec.Raw) -> CallResult:
    """The answer in a result.

    Raises:
        AgentError: ``INVALID_OUTPUT``: it cannot be read.
    """
    try:
        return _answer.decode(result)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise unreadable() from None


def answered(
    answer: CallResult,
    tool: FarTool | None,
    execution_id: str,
    duration_ms: float,
) -> Answered:
    """The outcome in the answer to a call.

    A success has the structured content, else the content: a single block of text as its text, another single block as its content,
    several as a list.

    Args:
        answer: The answer.
        tool: The tool; None if the server does not list it.
        execution_id: For servers that give none.
        duration_ms: Likewise.
    """
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


def error_answered(error: JsonRpcError, tool: str, *, known: bool) -> ErrorInfo:
    """The error in a JSON-RPC error that answers a call.

    Args:
        error: It.
        tool: The tool's name.
        known: The server lists the tool.
    """
    found = own_error(error)
    if found is not None:
        return found
    if not known and error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
        return AgentError.standard("TOOL_NOT_FOUND", f"the server has no tool '{tool}'", details={"tool": tool}).info
    return refused(error)


def refused(error: JsonRpcError) -> ErrorInfo:
    """The error for a JSON-RPC error that has no meaning here; the words of the server are data."""
    details = {"code": error.code, "text": cut(error.message)}
    return _with(_tool_error("the server refused the call, or failed"), details)


def own_error(error: JsonRpcError) -> ErrorInfo | None:
    """The error of a server of this package in a JSON-RPC error; None if there is none."""
    data = error.data
    return _info(cast("dict[str, Any]", data).get("error")) if isinstance(data, dict) else None


def question_answered(asked: Sequence[str], message: str) -> ErrorInfo:
    """The error of a call whose server asks for what its caller does not offer."""
    return _with(_tool_error(message), {"asked": list(asked)})


def _error_in(answer: CallResult) -> ErrorInfo:
    found = _info((answer.meta or {}).get("carmy/error"))
    if found is not None:
        return found
    words = "\n".join(block["text"] for block in answer.content if _is_text(block))
    return _with(_tool_error("the tool failed; the text in the details is its server's"), {"text": cut(words)})


def _output(answer: CallResult, tool: FarTool | None) -> tuple[bytes | None, ErrorInfo | None]:
    try:
        return _render(_value(answer, tool)), None
    except AgentError as problem:
        return None, problem.info


def _value(answer: CallResult, tool: FarTool | None) -> Any:
    if answer.structured_content is not msgspec.UNSET:
        content = answer.structured_content
        wrapped = tool is not None and tool.wrapped
        return cast("dict[str, Any]", content)[WRAPPED] if wrapped and _is_wrapping(content) else content
    if tool is not None and tool.structured:
        raise _unfit("", "has no structured content, which the server has promised")
    if not answer.content:
        return None
    if len(answer.content) == 1:
        block = answer.content[0]
        return block["text"] if _is_text(block) else content_of_block(block)
    return [content_of_block(block) for block in answer.content]


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


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


def cut(words: str) -> str:
    """Words of a server, of a bounded size."""
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"
