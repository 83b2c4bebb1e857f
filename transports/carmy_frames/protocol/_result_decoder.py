"""Decoders of results, events and catalogs: the inverse of `carmy_engine.codec`."""

from __future__ import annotations

import hashlib

import msgspec

from carmy_engine import (
    Catalog,
    ErrorInfo,
    ExecutionCompleted,
    ExecutionEvent,
    ExecutionResult,
    ExecutionStarted,
    NextAction,
    PublicSpec,
    ToolCompleted,
    ToolLog,
    ToolProgress,
    ToolStarted,
    ToolWaiting,
)
from carmy_engine.abc import LogLevel
from carmy_engine.codec import decode

_ABSENT = msgspec.Raw(b"")


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    cacheable: bool = False
    next_actions: tuple[NextAction, ...] = ()


_NO_AGENT = _Agent()


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error: ErrorInfo | None = None
    agent: _Agent = msgspec.field(name="_agent", default=_NO_AGENT)
    replayed: bool = False
    duration_ms: float = 0.0


class _Payload(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: str
    tool: str = ""
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    level: LogLevel = "info"
    partial: msgspec.Raw = _ABSENT
    duration_ms: float = 0.0
    waited_ms: float = 0.0
    ok: bool = False


class _Tools(msgspec.Struct, frozen=True, kw_only=True):
    tools: tuple[PublicSpec, ...]


_bodies = msgspec.json.Decoder(_Body)
_payloads = msgspec.json.Decoder(_Payload)
_catalogs = msgspec.json.Decoder(_Tools)
_SIMPLE: dict[str, type[ExecutionStarted | ToolWaiting | ToolStarted]] = {
    kind.kind: kind for kind in (ExecutionStarted, ToolWaiting, ToolStarted)
}


def parse_result(body: bytes, *, replayed: bool | None = None) -> ExecutionResult:
    """Decode the result in the body of an answer.

    Args:
        body: A body as `carmy_engine.codec.answer_body` writes it.
        replayed: The flag of transports that send it outside the body; None takes the body's member.

    Raises:
        AgentError: ``INVALID_REQUEST``: the body is malformed.
    """
    found: _Body = decode(body, decoder=_bodies)
    return ExecutionResult(
        execution_id=found.execution_id,
        data_json=bytes(found.data) if found.error is None else None,
        error=found.error,
        replayed=found.replayed if replayed is None else replayed,
        duration_ms=found.duration_ms,
        cacheable=found.agent.cacheable,
        next_actions=found.agent.next_actions,
    )


def parse_event(kind: str, seq: int, body: bytes, tool: str) -> ExecutionEvent | None:
    """Decode an event; None for an unknown kind.

    Args:
        kind: The kind, such as ``tool.progress``.
        seq: Its position.
        body: A payload as `carmy_engine.codec.event_body` writes it.
        tool: The tool that was called; the last event does not repeat it.

    Raises:
        AgentError: ``INVALID_REQUEST``: the payload is malformed.
    """
    if kind == ExecutionCompleted.kind:
        result = parse_result(body)
        return ExecutionCompleted(seq=seq, execution_id=result.execution_id, tool=tool, result=result)
    if kind not in _SIMPLE and kind not in (ToolProgress.kind, ToolLog.kind, ToolCompleted.kind):
        return None
    found: _Payload = decode(body, decoder=_payloads)
    name = found.tool or tool
    if kind == ToolProgress.kind:
        return ToolProgress(
            seq=seq,
            execution_id=found.execution_id,
            tool=name,
            progress=found.progress,
            total=found.total,
            message=found.message,
            partial_json=None if found.partial is _ABSENT else bytes(found.partial),
        )
    if kind == ToolLog.kind:
        return ToolLog(
            seq=seq, execution_id=found.execution_id, tool=name, level=found.level, message=found.message or ""
        )
    if kind == ToolCompleted.kind:
        return ToolCompleted(
            seq=seq,
            execution_id=found.execution_id,
            tool=name,
            duration_ms=found.duration_ms,
            waited_ms=found.waited_ms,
            ok=found.ok,
        )
    return _SIMPLE[kind](seq=seq, execution_id=found.execution_id, tool=name)


def parse_catalog(document: bytes) -> Catalog:
    """Decode the catalog in a document.

    The document is encoded again, because a carrier may have escaped characters: equal catalogs get equal versions.

    Raises:
        AgentError: ``INVALID_REQUEST``: the document is malformed.
    """
    found: _Tools = decode(document, decoder=_catalogs)
    rendered = msgspec.json.encode({"tools": found.tools})
    return Catalog(tools=found.tools, document=rendered, version=hashlib.sha256(rendered).hexdigest())
