"""What a server asks of its client: a person's answer, a message of a model, roots. They are those of the caller behind a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from carmy_engine import AgentError
from carmy_engine.abc import Answer, ClientFeatures, Root, Sample, SampleRequest
from carmy_engine.content import Message
from carmy_engine.transport import Fault, await_foreign, call_foreign, log_fault

from ..protocol.blocks import block_of, content_of_block
from ..protocol.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError


class _Form(msgspec.Struct, rename="camel"):
    message: str
    requested_schema: dict[str, Any]
    mode: str = "form"


class _SampledMessage(msgspec.Struct):
    role: str
    content: list[Any] | dict[str, Any]


class _Hint(msgspec.Struct):
    name: str | None = None


class _Preferences(msgspec.Struct):
    hints: list[_Hint] = []


class _Sampling(msgspec.Struct, rename="camel"):
    messages: list[_SampledMessage]
    max_tokens: int = 1000
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] = []
    model_preferences: _Preferences | None = None


_NAMES = {
    "elicitation/create": "Elicitation",
    "sampling/createMessage": "Sampling",
    "roots/list": "List roots",
}


def is_question(method: str) -> bool:
    """True for a method that is answered by the caller behind a call."""
    return method in _NAMES


def offers_of(client: ClientFeatures | None) -> dict[str, Any]:
    """The capabilities to declare for a caller."""
    if client is None:
        return {}
    offers: dict[str, Any] = {}
    if call_foreign(lambda: client.can_ask):
        offers["elicitation"] = {"form": {}}
    if call_foreign(lambda: client.can_sample):
        offers["sampling"] = {}
    if call_foreign(lambda: client.has_roots):
        offers["roots"] = {}
    return offers


async def answer(method: str, params: msgspec.Raw, client: ClientFeatures | None, version: str) -> dict[str, Any]:
    """The result of a request of the server.

    Args:
        method: Its method.
        params: Its parameters.
        client: The client of the caller; None if the caller has none.
        version: The version of the protocol.

    Raises:
        JsonRpcError: The caller does not offer this, or the parameters are not valid, or the caller's client failed.
    """
    offers = offers_of(client)
    try:
        if client is not None and method == "elicitation/create" and "elicitation" in offers:
            return await _ask(client, _decoded(params, _Form))
        if client is not None and method == "sampling/createMessage" and "sampling" in offers:
            return await _sample(client, _decoded(params, _Sampling), version)
        if client is not None and method == "roots/list" and "roots" in offers:
            return await _roots(client)
    except AgentError as error:
        raise JsonRpcError(INTERNAL_ERROR, error.message) from None
    except Fault as fault:
        log_fault(f"answering {method}", fault)
        raise JsonRpcError(INTERNAL_ERROR, "the client failed") from None
    raise JsonRpcError(METHOD_NOT_FOUND, f"{_NAMES[method]} not supported")


async def _ask(client: ClientFeatures, form: _Form) -> dict[str, Any]:
    if form.mode != "form":
        raise JsonRpcError(INVALID_PARAMS, "this client shows forms only")
    found: Any = await await_foreign(call_foreign(client.ask, form.message, form.requested_schema))
    if not isinstance(found, Answer):
        raise JsonRpcError(INTERNAL_ERROR, "the client failed")
    if found.action != "accept":
        return {"action": found.action}
    return {"action": "accept", "content": {**_defaults(form.requested_schema), **(found.content or {})}}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a form, for fields that the person has left empty (SEP-1034)."""
    found: Any = schema.get("properties")
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {name: field["default"] for name, field in fields.items() if isinstance(field, dict) and "default" in field}


async def _sample(client: ClientFeatures, asked: _Sampling, version: str) -> dict[str, Any]:
    messages: list[Message] = []
    for message in asked.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        role: Any = "assistant" if message.role == "assistant" else "user"
        messages += [Message(content_of_block(block), role) for block in blocks]
    hints = [] if asked.model_preferences is None else asked.model_preferences.hints
    request = SampleRequest(
        messages=tuple(messages),
        system=asked.system_prompt,
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        stop=tuple(asked.stop_sequences),
        models=tuple(hint.name for hint in hints if hint.name is not None),
    )
    found: Any = await await_foreign(call_foreign(client.sample, request))
    if not isinstance(found, Sample) or not found.content:
        raise JsonRpcError(INTERNAL_ERROR, "the client failed")
    content: Any = [block_of(block, version) for block in found.content]
    result = {"role": "assistant", "model": found.model, "content": content[0] if len(content) == 1 else content}
    return result if found.stop_reason is None else {**result, "stopReason": found.stop_reason}


async def _roots(client: ClientFeatures) -> dict[str, Any]:
    found: Any = await await_foreign(call_foreign(client.roots))
    roots = [root for root in found if isinstance(root, Root)]
    return {"roots": [{"uri": root.uri, **({} if root.name is None else {"name": root.name})} for root in roots]}


def _decoded(params: msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(params, type=kind)
    except msgspec.DecodeError as error:
        raise JsonRpcError(INVALID_PARAMS, str(error)) from None
