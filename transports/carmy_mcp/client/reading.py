"""The resources and prompts of a server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import trio

from carmy_engine import AgentError, ErrorInfo, ExecutionResult
from carmy_engine.content import (
    MAX_COMPLETIONS,
    Completion,
    Message,
    PromptCatalog,
    PromptResult,
    PromptSpec,
    ReadResult,
    ResourceCatalog,
    ResourceContents,
    ResourceSpec,
)

from ..protocol.blocks import content_of_block
from ..protocol.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, JsonRpcError
from .results import own_error, refused


class _Resource(msgspec.Struct, rename="camel"):
    name: str
    uri: str | None = None
    uri_template: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None


class _Argument(msgspec.Struct):
    name: str
    description: str | None = None
    required: bool = False


class _Prompt(msgspec.Struct):
    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[_Argument] | None = None


class _Part(msgspec.Struct, rename="camel"):
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: bytes | None = None


class _Contents(msgspec.Struct):
    contents: list[_Part]


class _Spoken(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: dict[str, Any]


class _Messages(msgspec.Struct):
    messages: list[_Spoken]
    description: str | None = None


class _Values(msgspec.Struct, rename="camel"):
    values: list[str]
    total: int | None = None
    has_more: bool = False


class _Completed(msgspec.Struct):
    completion: _Values


def resource_catalog(resources: list[msgspec.Raw], templates: list[msgspec.Raw]) -> ResourceCatalog:
    """The catalog of what a server lists. An entry that is not valid is left out."""
    fixed = [spec for spec in map(_resource, resources) if spec is not None and spec.uri is not None]
    others = [spec for spec in map(_resource, templates) if spec is not None and spec.uri_template is not None]
    document = msgspec.json.encode({"resources": fixed, "templates": others})
    version = hashlib.sha256(document).hexdigest()
    return ResourceCatalog(resources=tuple(fixed), templates=tuple(others), document=document, version=version)


def prompt_catalog(prompts: list[msgspec.Raw]) -> PromptCatalog:
    """The catalog of what a server lists. An entry that is not valid is left out."""
    found = tuple(spec for spec in map(_prompt, prompts) if spec is not None)
    document = msgspec.json.encode({"prompts": found})
    return PromptCatalog(prompts=found, document=document, version=hashlib.sha256(document).hexdigest())


def read_result(result: msgspec.Raw, execution_id: str, started: float) -> ExecutionResult:
    """The outcome in the answer to ``resources/read``.

    Raises:
        msgspec.DecodeError: It cannot be read.
    """
    parts = msgspec.json.decode(result, type=_Contents).contents
    contents = tuple(
        ResourceContents(uri=part.uri, mime_type=part.mime_type, text=part.text, data=part.blob) for part in parts
    )
    return _completed(ReadResult(contents), execution_id, started)


def prompt_result(result: msgspec.Raw, execution_id: str, started: float) -> ExecutionResult:
    """The outcome in the answer to ``prompts/get``.

    Raises:
        msgspec.DecodeError: It cannot be read.
    """
    found = msgspec.json.decode(result, type=_Messages)
    messages = tuple(Message(content_of_block(one.content), one.role) for one in found.messages)
    return _completed(PromptResult(messages, found.description or ""), execution_id, started)


def completion(result: msgspec.Raw) -> Completion:
    """The answer to ``completion/complete``.

    Raises:
        msgspec.DecodeError: It cannot be read.
    """
    found = msgspec.json.decode(result, type=_Completed).completion
    values = tuple(found.values[:MAX_COMPLETIONS])
    total = len(found.values) if found.total is None else max(found.total, len(values))
    return Completion(values=values, total=total, has_more=found.has_more or len(found.values) > MAX_COMPLETIONS)


def read_failure(error: JsonRpcError, kind: Literal["prompt", "resource"]) -> ErrorInfo:
    """The error in a JSON-RPC error that answers the reading of a resource or a prompt."""
    own = own_error(error)
    if own is not None:
        return own
    if kind == "resource" and error.code in (RESOURCE_NOT_FOUND, INVALID_PARAMS):
        return AgentError.standard("RESOURCE_NOT_FOUND", "the server has no resource at this address").info
    return refused(error)


def _completed(value: Any, execution_id: str, started: float) -> ExecutionResult:
    duration_ms = (trio.current_time() - started) * 1000
    return ExecutionResult(execution_id=execution_id, data_json=msgspec.json.encode(value), duration_ms=duration_ms)


def _resource(entry: msgspec.Raw) -> ResourceSpec | None:
    try:
        found = msgspec.json.decode(entry, type=_Resource)
    except msgspec.DecodeError:
        return None
    return ResourceSpec(
        name=found.name,
        uri=found.uri,
        uri_template=found.uri_template,
        title=found.title,
        description=found.description or "",
        mime_type=found.mime_type,
    )


def _prompt(entry: msgspec.Raw) -> PromptSpec | None:
    try:
        found = msgspec.json.decode(entry, type=_Prompt)
    except msgspec.DecodeError:
        return None
    arguments: list[_Argument] = found.arguments or []
    schema: dict[str, Any] = {"type": "object", "properties": {one.name: _argument(one) for one in arguments}}
    required = [one.name for one in arguments if one.required]
    if required:
        schema["required"] = required
    return PromptSpec(name=found.name, title=found.title, description=found.description or "", arguments=schema)


def _argument(found: _Argument) -> Mapping[str, Any]:
    described = {} if found.description is None else {"description": found.description}
    return {"type": "string", **described}
