"""OpenAI: the Chat Completions and the Responses interface.

Rules from the API reference (function names: 64 of a-z, A-Z, 0-9, underscores and dashes), and from the guides "Function
calling" and "Structured model outputs".
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from .._execution.model_calls import ModelResult
from .._model.content import Content, File, Image, text_for
from ._base import CallStream, Provider, Spec, Written, key_in, look, many, text_in
from ._json_schema_tools import portable, with_plain_root
from ._names import NameRule
from ._strict import NotStrictError, loose_schema, strict_schema

_NAMES = NameRule(first="A-Za-z0-9_-", rest="A-Za-z0-9_-", limit=64)


class _OpenAI(Provider):
    """What both interfaces have in common."""

    rule = _NAMES

    def _function(self, spec: Spec, name: str) -> dict[str, Any]:
        """In strict mode where the arguments can be expressed in it."""
        whole = portable(spec.input_schema)
        try:
            parameters = strict_schema(whole)
        except NotStrictError as reason:
            self._not_strict[spec.name] = str(reason)
            parameters = loose_schema(with_plain_root(whole))
        else:
            self._strict[spec.name] = whole
        is_strict = spec.name in self._strict
        return {"name": name, "description": spec.description, "parameters": parameters, "strict": is_strict}


class OpenAIChat(_OpenAI):
    """Chat Completions: ``tools`` and ``messages`` of ``POST /v1/chat/completions``.

    `parse` takes a completion, or the assistant's message; of several choices the first.
    """

    format = "openai"

    def render(self, results: Iterable[ModelResult]) -> list[dict[str, Any]]:
        """See `Provider.render`: one message of role ``tool`` for each call."""
        return [
            {"role": "tool", "tool_call_id": result.call.call_id, "content": self.text(result)} for result in results
        ]

    def stream(self, *, turn: str | None = None) -> CallStream:
        """See `Provider.stream`: feed it every chunk."""
        return _ChatStream(self, turn)

    def _written(self, response: object) -> list[Written]:
        choices = many(look(response, "choices"))
        message = look(choices[0], "message") if choices else response
        if look(message, "role") != "assistant":
            raise ValueError("openai: this is neither a chat completion nor the message of an assistant")
        calls = [(look(call, "function"), look(call, "id")) for call in many(look(message, "tool_calls"))]
        return [
            Written(look(function, "name"), look(function, "arguments"), call_id)
            for function, call_id in calls
            if function is not None
        ]

    def _exported(self, spec: Spec, name: str) -> dict[str, Any]:
        return {"type": "function", "function": self._function(spec, name)}


class _ChatStream(CallStream):
    """Deltas of ``choices[0].delta.tool_calls``, distinguished by their index."""

    def __init__(self, provider: OpenAIChat, turn: str | None) -> None:
        super().__init__(provider, turn)
        self._begun: list[dict[str, Any]] = []
        self._open: dict[object, dict[str, Any]] = {}
        self._last: int | str | None = None

    def feed(self, chunk: object) -> None:
        self._response_id = look(chunk, "id") or self._response_id
        for choice in many(look(chunk, "choices"))[:1]:
            for delta in many(look(look(choice, "delta"), "tool_calls")):
                # Some servers leave the index out: then a new id begins a new call.
                key = key_in(delta, "index")
                if key is None:
                    key = key_in(delta, "id") or self._last
                self._last = key
                self._add(key, look(delta, "id"), look(delta, "function"))

    def _add(self, key: object, call_id: object, function: object) -> None:
        name = text_in(function, "name")
        slot = self._open.get(key)
        # Others give every call the same index: then a new id with a name begins one.
        if slot is None or (name and slot["name"] and call_id and slot["id"] not in (None, call_id)):
            slot = self._open[key] = {"id": None, "name": "", "arguments": ""}
            self._begun.append(slot)
        slot["id"] = slot["id"] or call_id
        slot["name"] = slot["name"] or name
        slot["arguments"] += text_in(function, "arguments")

    def _response(self) -> object:
        calls = [
            {"id": slot["id"], "function": {"name": slot["name"], "arguments": slot["arguments"]}}
            for slot in self._begun
        ]
        message = {"role": "assistant", "tool_calls": calls}
        return {"id": self._response_id, "choices": [{"message": message}]}


class OpenAIResponses(_OpenAI):
    """Responses: ``tools`` and ``input`` of ``POST /v1/responses``.

    `parse` takes a response, or the list of its output items.
    """

    format = "openai-responses"

    def render(self, results: Iterable[ModelResult]) -> list[dict[str, Any]]:
        """See `Provider.render`: one item ``function_call_output`` for each call."""
        items: list[dict[str, Any]] = []
        for result in results:
            content = self._content(result)
            output = self.text(result) if content is None else [_input(one) for one in content]
            items.append({"type": "function_call_output", "call_id": result.call.call_id, "output": output})
        return items

    def stream(self, *, turn: str | None = None) -> CallStream:
        """See `Provider.stream`: feed it every event."""
        return _ResponsesStream(self, turn)

    def _written(self, response: object) -> list[Written]:
        items = many(response) or many(look(response, "output"))
        if not items and look(response, "object") != "response" and response != []:
            raise ValueError("openai-responses: this is neither a response nor the list of its output items")
        found = [item for item in items if look(item, "type") == "function_call"]
        return [Written(look(item, "name"), look(item, "arguments"), look(item, "call_id")) for item in found]

    def _exported(self, spec: Spec, name: str) -> dict[str, Any]:
        return {"type": "function", **self._function(spec, name)}


def _input(content: Content) -> dict[str, Any]:
    """An item of an output: an image or a file as such, other content as text."""
    match content:
        case Image():
            return {"type": "input_image", "detail": "auto", "image_url": _data_url(content.data, content.mime_type)}
        case File(data=bytes(data), mime_type=str(mime_type)):
            name = content.uri.rpartition("/")[2] or content.uri
            return {"type": "input_file", "filename": name, "file_data": _data_url(data, mime_type)}
        case _:
            return {"type": "input_text", "text": text_for(content)}


def _data_url(data: bytes, mime_type: str) -> str:
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


class _ResponsesStream(CallStream):
    """Items by their place in the output; the last word on one is ``response.output_item.done``."""

    def __init__(self, provider: OpenAIResponses, turn: str | None) -> None:
        super().__init__(provider, turn)
        self._items: dict[object, dict[str, Any]] = {}

    def feed(self, chunk: object) -> None:
        kind = look(chunk, "type")
        place = key_in(chunk, "output_index")
        if kind in ("response.created", "response.completed", "response.incomplete"):
            self._response_id = look(look(chunk, "response"), "id") or self._response_id
            for index, item in enumerate(many(look(look(chunk, "response"), "output"))):
                self._take(index, item)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._take(place, look(chunk, "item"))
        elif kind == "response.function_call_arguments.delta" and place in self._items:
            self._items[place]["arguments"] += text_in(chunk, "delta")
        elif kind == "response.function_call_arguments.done" and place in self._items:
            self._items[place]["arguments"] = text_in(chunk, "arguments") or self._items[place]["arguments"]

    def _take(self, place: object, item: object) -> None:
        if look(item, "type") == "function_call":
            self._items[place] = {
                "type": "function_call",
                "call_id": look(item, "call_id"),
                "name": look(item, "name"),
                "arguments": text_in(item, "arguments"),
            }

    def _response(self) -> object:
        return {"id": self._response_id, "object": "response", "output": [*self._items.values()]}
