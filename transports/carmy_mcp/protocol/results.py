"""The result of ``tools/call`` for an outcome, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from carmy_engine import ErrorInfo, ExecutionResult, ExecutionStatus
from carmy_engine.content import Content
from carmy_engine.providers import text_of

from .blocks import block_of
from .errors import error_data
from .params import Client

COMPLETE = b',"resultType":"complete"'
"""Required in every result since 2026-07-28."""


class ResultWriter:
    """Writes the results of calls.

    Args:
        stamp: The members of ``_meta`` in every result since 2026-07-28.
        max_text_bytes: Of the text of an output that structured content carries as a whole.
    """

    def __init__(self, stamp: dict[str, Any], max_text_bytes: int) -> None:
        self.stamp = stamp
        self._stamp_json = msgspec.json.encode(stamp)
        self._max_text = max_text_bytes

    def result(self, members: dict[str, Any], *, modern: bool) -> bytes:
        """Any result.

        Args:
            members: Its members.
            modern: The version has no ``initialize``.
        """
        if not modern:
            return msgspec.json.encode(members)
        meta = {**self.stamp, **members.get("_meta", {})}
        return msgspec.json.encode({"resultType": "complete", **members, "_meta": meta})

    def call_result(self, result: ExecutionResult, *, wrapped: bool, asked: bool, modern: bool) -> bytes:
        """The result of ``tools/call``.

        Args:
            result: The outcome.
            wrapped: The output is sent as ``{"result": output}``.
            asked: The caller wants to know the execution of successes as well.
            modern: The version has no ``initialize``.
        """
        if result.error is not None:
            return self._failure(result.error, result, ran=True, modern=modern)
        data = result.data_json or b"null"
        meta: dict[str, Any] = {}
        if asked:
            meta = {**_execution(result), "carmy/cacheable": result.cacheable, "carmy/duration_ms": result.duration_ms}
        if result.replayed or result.next_actions:
            _add_circumstances(meta, result)
        if meta:
            stamp = b',"_meta":%b' % msgspec.json.encode({**self.stamp, **meta} if modern else meta)
        else:
            stamp = b',"_meta":%b' % self._stamp_json if modern else b""
        return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b,"isError":false%b%b}' % (
            self._text(data),
            b'{"result":%b}' % data if wrapped else data,
            COMPLETE if modern else b"",
            stamp,
        )

    def content_result(self, content: Sequence[Content], result: ExecutionResult, client: Client) -> bytes:
        """The result of ``tools/call`` for a tool that returns content.

        Args:
            content: The content.
            result: The outcome.
            client: The client.
        """
        meta: dict[str, Any] = {}
        _add_circumstances(meta, result)
        members: dict[str, Any] = {"content": [block_of(one, client.version) for one in content], "isError": False}
        if meta:
            members["_meta"] = meta
        return self.result(members, modern=client.is_modern)

    def _text(self, data: bytes) -> bytes:
        """The output as the JSON of a text: a text as it is, other outputs as their JSON."""
        is_text = data.startswith(b'"')
        if len(data) <= self._max_text:
            return data if is_text else msgspec.json.encode(data.decode())
        text = msgspec.json.decode(data, type=str) if is_text else data.decode()
        kept = text.encode()[: self._max_text].decode(errors="ignore")
        left = len(text) - len(kept)
        return msgspec.json.encode(f"{kept}… ({left} more characters are in structuredContent)")

    def refusal(self, error: ErrorInfo, *, modern: bool) -> bytes:
        """The result of a call that never became an execution."""
        return self._failure(error, ExecutionResult(execution_id="", error=error), ran=False, modern=modern)

    def _failure(self, error: ErrorInfo, result: ExecutionResult, *, ran: bool, modern: bool) -> bytes:
        """What a model reads is short; everything else is for its host."""
        meta: dict[str, Any] = {"carmy/error": error_data(error)["error"], "carmy/status": ExecutionStatus.FAILED.value}
        if ran:
            meta.update(_execution(result))
            meta["carmy/duration_ms"] = result.duration_ms  # 0: nothing has run
            _add_circumstances(meta, result)
        content = [{"type": "text", "text": text_of(result)}]
        return self.result({"content": content, "isError": True, "_meta": meta}, modern=modern)


def _execution(result: ExecutionResult) -> dict[str, Any]:
    return {"carmy/execution_id": result.execution_id, "carmy/status": result.status.value}


def _add_circumstances(meta: dict[str, Any], result: ExecutionResult) -> None:
    if result.replayed:
        meta["carmy/replayed"] = True
    if result.next_actions:
        meta["carmy/next_actions"] = msgspec.to_builtins(result.next_actions)
