"""Google Gemini: ``generateContent``.

Rules from the Gemini API reference (``FunctionDeclaration``, ``Schema``, ``FunctionCall``, ``FunctionResponse``) and the guide
"Function calling". Of the several editions of the rule for names the narrowest is kept: a letter or an underscore, then
letters, digits, underscores and dashes, 63 in all.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from .._execution.model_calls import ModelResult
from .._model.content import Audio, Image
from ._base import CallStream, Provider, Spec, Written, look, many, parameters_of
from ._gemini_schema import json_schema, openapi_schema
from ._names import NameRule
from ._streamed_args import whole_calls


class Gemini(Provider):
    """``tools`` and ``contents`` of ``generateContent``; `tools` are function declarations.

    `parse` takes a response, a content, or the list of its parts; of several candidates the first.
    """

    format = "gemini"
    rule = NameRule(first="A-Za-z_", rest="A-Za-z0-9_-", limit=63)

    def render(self, results: Iterable[ModelResult]) -> list[dict[str, Any]]:
        """See `Provider.render`: one content with a part ``functionResponse`` for each call."""
        parts: list[dict[str, Any]] = []
        for result in results:
            call = result.call
            content = self._content(result)
            if content is not None:
                answer = {"output": self.text(result)}
            else:
                answer = {"output": result.result.data} if result.result.error is None else {"error": self.text(result)}
            named: dict[str, Any] = {"name": call.name or self.name_for(call.tool), "response": answer}
            if blobs := [_blob(one) for one in content or () if isinstance(one, Image | Audio)]:
                named["parts"] = blobs
            parts.append({"functionResponse": named if call.generated else {"id": call.call_id, **named}})
        return [{"role": "user", "parts": parts}] if parts else []

    def stream(self, *, turn: str | None = None) -> CallStream:
        """See `Provider.stream`: feed it every response. Calls come whole, or in pieces; see `_streamed_args`."""
        return _ContentStream(self, turn)

    def _written(self, response: object) -> list[Written]:
        candidates = many(look(response, "candidates"))
        content = look(candidates[0], "content") if candidates else response
        parts = many(content) or many(look(content, "parts"))
        if not parts and not candidates and look(content, "role") != "model" and response != []:
            raise ValueError("gemini: this is neither a response, nor a model's content, nor the list of its parts")
        found = [call for part in parts if (call := look(part, "functionCall", "function_call")) is not None]
        return [Written(look(call, "name"), look(call, "args"), look(call, "id")) for call in whole_calls(found)]

    def _exported(self, spec: Spec, name: str) -> dict[str, Any]:
        parameters = parameters_of(spec)
        declaration: dict[str, Any] = {"name": name, "description": spec.description}
        if not parameters["properties"] and not parameters.get("additionalProperties", False):
            return declaration
        openapi = openapi_schema(parameters)
        if openapi is not None:
            return {**declaration, "parameters": openapi}
        return {**declaration, "parametersJsonSchema": json_schema(parameters)}


def _blob(content: Image | Audio) -> dict[str, Any]:
    data = base64.b64encode(content.data).decode()
    return {"inlineData": {"mimeType": content.mime_type, "data": data}}


class _ContentStream(CallStream):
    """The parts of all responses of a stream."""

    def __init__(self, provider: Gemini, turn: str | None) -> None:
        super().__init__(provider, turn)
        self._parts: list[Any] = []

    def feed(self, chunk: object) -> None:
        self._response_id = look(chunk, "responseId", "response_id") or self._response_id
        for candidate in many(look(chunk, "candidates"))[:1]:
            self._parts += many(look(look(candidate, "content"), "parts"))

    def _response(self) -> object:
        content = {"role": "model", "parts": self._parts}
        return {"candidates": [{"content": content}], "responseId": self._response_id}
