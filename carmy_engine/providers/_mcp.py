"""Model Context Protocol: the messages ``tools/list`` and ``tools/call``, as the specification "Tools" has them.

For programs that speak the protocol themselves, or hand the tools of an engine to something that does.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from .._execution.model_calls import ModelCall, ModelResult
from .._model.content import Content, File, has_content
from .._model.effect import Effect
from .._model.spec import Catalog
from ._base import CallStream, Provider, Spec, Written, look, many
from ._json_schema_tools import Schema, inlined
from ._names import NameRule

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


class Mcp(Provider):
    """Tools, requests and results of the protocol. Ids count within one connection: make one for each.

    Args:
        tools: See `Provider`.
        hidden: See `Provider`.
    """

    format = "mcp"
    rule = NameRule(first="A-Za-z0-9_.-", rest="A-Za-z0-9_.-", limit=128)

    def __init__(self, tools: Catalog | Iterable[Spec], hidden: Iterable[str] = ()) -> None:
        super().__init__(tools, hidden)
        self._connection = secrets.token_hex(8)

    def parse(self, response: object, *, turn: str | None = None) -> list[ModelCall]:
        """See `Provider.parse`. Takes a request ``tools/call``, or a list of messages; others are ignored.

        ``call_id`` is the id of the request as text.
        """
        return super().parse(response, turn=self._connection if turn is None else turn)

    def render(self, results: Iterable[ModelResult]) -> list[dict[str, Any]]:
        """See `Provider.render`: the response to each request."""
        return [
            {"jsonrpc": "2.0", "id": _id_of_text(result.call.call_id), "result": self._result(result)}
            for result in results
        ]

    def _result(self, result: ModelResult) -> dict[str, Any]:
        content = self._content(result)
        if content is not None:
            return {"content": [_block(one) for one in content], "isError": False}
        made: dict[str, Any] = {
            "content": [{"type": "text", "text": self.text(result)}],
            "isError": result.result.error is not None,
        }
        spec = self._specs.get(result.call.tool)
        if result.result.error is None and spec is not None and _is_object(spec.output_schema):
            made["structuredContent"] = result.result.data
        return made

    def stream(self, *, turn: str | None = None) -> CallStream:
        """See `Provider.stream`: feed it every message."""
        return _Messages(self, turn)

    def _written(self, response: object) -> list[Written]:
        messages = many(response) or ([] if response == [] else [response])
        if any(look(message, "jsonrpc") is None and look(message, "method") is None for message in messages):
            raise ValueError("mcp: this is no message of JSON-RPC")
        calls = [
            (look(message, "params"), look(message, "id"))
            for message in messages
            if look(message, "method") == "tools/call"
        ]
        return [Written(look(params, "name"), look(params, "arguments"), _text_of_id(given)) for params, given in calls]

    def _exported(self, spec: Spec, name: str) -> dict[str, Any]:
        parameters = inlined(spec.input_schema)
        safe = spec.effect in (Effect.NONE, Effect.READ)
        annotations: dict[str, Any] = {"readOnlyHint": safe, "openWorldHint": spec.effect is Effect.EXTERNAL_WRITE}
        if not safe:
            annotations["destructiveHint"] = spec.effect is Effect.DESTRUCTIVE
            annotations["idempotentHint"] = spec.idempotent
        made = {"name": name, "description": spec.description, "inputSchema": parameters, "annotations": annotations}
        if _is_object(spec.output_schema) and not has_content(spec.output_schema):
            made["outputSchema"] = inlined(spec.output_schema)
        return made


def _block(content: Content) -> dict[str, Any]:
    """Content as the specification has it: in camel case, and a file as an embedded resource."""
    made: dict[str, Any] = msgspec.to_builtins(content)
    if "mime_type" in made:
        made["mimeType"] = made.pop("mime_type")
    if isinstance(content, File):
        del made["type"]
        if "data" in made:
            made["blob"] = made.pop("data")
        return {"type": "resource", "resource": made}
    return made


class _Messages(CallStream):
    """Messages come whole."""

    def __init__(self, provider: Mcp, turn: str | None) -> None:
        super().__init__(provider, turn)
        self._messages: list[object] = []

    def feed(self, chunk: object) -> None:
        self._messages.append(chunk)

    def _response(self) -> object:
        return self._messages


def _is_object(schema: Any) -> bool:
    """The output is an object whatever it is; only then the protocol has a place for it."""
    plain: Schema = inlined(schema)
    return plain.get("type") == "object" and not {"anyOf", "oneOf", "allOf", "$ref"} & plain.keys()


def _text_of_id(given: object) -> str | None:
    """An id as text from which `_id_of_text` makes the same id again: texts that look like something else are quoted."""
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    if isinstance(given, str):
        return json.dumps(given) if given.startswith('"') or _INTEGER.fullmatch(given) or not given else given
    return None


def _id_of_text(text: str) -> str | int:
    if _INTEGER.fullmatch(text):
        return int(text)
    if text.startswith('"'):
        found: str = json.loads(text)
        return found
    return text
