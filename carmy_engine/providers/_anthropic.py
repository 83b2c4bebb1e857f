"""Anthropic: the Messages interface.

Rules from the API reference and the guide "Tool use" (names: 64 of a-z, A-Z, 0-9, underscores and dashes; ``input_schema``
is JSON Schema 2020-12 whose root is an object without unions), and from "Streaming messages".
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from .._execution.model_calls import ModelResult
from .._model.content import Content, File, Image, text_for
from ._base import CallStream, Provider, Spec, Written, key_in, look, many, parameters_of, text_in
from ._names import NameRule


class Anthropic(Provider):
    """Messages: ``tools`` and ``messages`` of ``POST /v1/messages``.

    `parse` takes a message of the assistant, or the list of its content blocks.
    """

    format = "anthropic"
    rule = NameRule(first="A-Za-z0-9_-", rest="A-Za-z0-9_-", limit=64)

    def render(self, results: Iterable[ModelResult]) -> list[dict[str, Any]]:
        """See `Provider.render`: one message with a block ``tool_result`` for each call, which must be the next one."""
        blocks: list[dict[str, Any]] = []
        for result in results:
            content = self._content(result)
            block: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": result.call.call_id,
                "content": self.text(result) if content is None else [_block(one) for one in content],
            }
            blocks.append(block if result.result.error is None else {**block, "is_error": True})
        return [{"role": "user", "content": blocks}] if blocks else []

    def stream(self, *, turn: str | None = None) -> CallStream:
        """See `Provider.stream`: feed it every event."""
        return _MessageStream(self, turn)

    def _written(self, response: object) -> list[Written]:
        blocks = many(response) or many(look(response, "content"))
        if not blocks and look(response, "role") != "assistant" and response != []:
            raise ValueError(
                "anthropic: this is neither the message of an assistant nor the list of its content blocks"
            )
        found = [block for block in blocks if look(block, "type") == "tool_use"]
        return [Written(look(block, "name"), look(block, "input"), look(block, "id")) for block in found]

    def _exported(self, spec: Spec, name: str) -> dict[str, Any]:
        return {"name": name, "description": spec.description, "input_schema": parameters_of(spec)}


def _block(content: Content) -> dict[str, Any]:
    """A block of a result: an image or a PDF file as such, other content as text."""
    match content:
        case Image(data=data, mime_type=mime_type):
            kind = "image"
        case File(data=bytes(data), mime_type="application/pdf" as mime_type):
            kind = "document"
        case _:
            return {"type": "text", "text": text_for(content)}
    source = {"type": "base64", "media_type": mime_type, "data": base64.b64encode(data).decode()}
    return {"type": kind, "source": source}


class _MessageStream(CallStream):
    """Content blocks by index, each followed by its ``input_json_delta`` events."""

    def __init__(self, provider: Anthropic, turn: str | None) -> None:
        super().__init__(provider, turn)
        self._blocks: dict[object, dict[str, Any]] = {}
        self._texts: dict[object, str] = {}

    def feed(self, chunk: object) -> None:
        kind, index = look(chunk, "type"), key_in(chunk, "index")
        if kind == "message_start":
            self._response_id = look(look(chunk, "message"), "id")
        elif kind == "content_block_start":
            block = look(chunk, "content_block")
            if look(block, "type") == "tool_use":
                self._blocks[index] = {name: look(block, name) for name in ("type", "id", "name", "input")}
        elif kind == "content_block_delta" and index in self._blocks:
            self._texts[index] = self._texts.get(index, "") + text_in(look(chunk, "delta"), "partial_json")

    def _response(self) -> object:
        content = [
            {**block, "input": self._texts[index] if self._texts.get(index) else block["input"]}
            for index, block in self._blocks.items()
        ]
        return {"id": self._response_id, "role": "assistant", "content": content}
