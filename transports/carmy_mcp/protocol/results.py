"""The result of ``tools/call`` for an outcome."""

from __future__ import annotations

from typing import Any

import msgspec

from carmy_engine import ErrorInfo, ExecutionResult, ExecutionStatus
from carmy_engine.providers import text_of

from .listing import WRAPPED


def call_result(result: ExecutionResult, *, wrapped: bool, asked: bool) -> dict[str, Any]:
    """The result of ``tools/call``.

    Args:
        result: The outcome.
        wrapped: The output is sent as ``{"result": output}``.
        asked: The caller wants to know the execution of successes as well.
    """
    if result.error is not None:
        return _failure(result.error, result, ran=True)
    meta: dict[str, Any] = {}
    if asked:
        meta.update(_execution(result))
        meta["carmy/cacheable"] = result.cacheable
        meta["carmy/duration_ms"] = result.duration_ms
    _add_circumstances(meta, result)
    answer: dict[str, Any] = {
        "content": [{"type": "text", "text": text_of(result)}],
        "structuredContent": {WRAPPED: result.data} if wrapped else result.data,
        "isError": False,
        "resultType": "complete",  # required since 2026-07-28; the SDK leaves it out for older clients
    }
    if meta:
        answer["_meta"] = meta
    return answer


def refusal(error: ErrorInfo) -> dict[str, Any]:
    """The result of a call that never became an execution."""
    return _failure(error, ExecutionResult(execution_id="", error=error), ran=False)


def error_data(error: ErrorInfo) -> dict[str, Any]:
    """The ``data`` of a JSON-RPC error."""
    return {"error": _plain(error)}


def _failure(error: ErrorInfo, result: ExecutionResult, *, ran: bool) -> dict[str, Any]:
    """What a model reads is short; everything else is for its host.

    Args:
        error: The error.
        result: What it ended.
        ran: It ended an execution.
    """
    meta: dict[str, Any] = {"carmy/error": _plain(error), "carmy/status": ExecutionStatus.FAILED.value}
    if ran:
        meta.update(_execution(result))
        meta["carmy/duration_ms"] = result.duration_ms  # 0: nothing has run
        _add_circumstances(meta, result)
    content = [{"type": "text", "text": text_of(result)}]
    return {"content": content, "isError": True, "resultType": "complete", "_meta": meta}


def _execution(result: ExecutionResult) -> dict[str, Any]:
    return {"carmy/execution_id": result.execution_id, "carmy/status": result.status.value}


def _add_circumstances(meta: dict[str, Any], result: ExecutionResult) -> None:
    if result.replayed:
        meta["carmy/replayed"] = True
    if result.next_actions:
        meta["carmy/next_actions"] = msgspec.to_builtins(result.next_actions)


def _plain(error: ErrorInfo) -> Any:
    """As JSON-shaped data; through JSON, so that what a tool put into the details is what every transport sends."""
    return msgspec.json.decode(msgspec.json.encode(error))
