"""``GET /agent/openapi.json``: the endpoints as an OpenAPI 3.1 document, with the inputs of the caller's tools."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from carmy_engine import BoundEngine, Engine, ErrorInfo, ExecutionStatus, ListedExecution, NextAction, PublicSpec
from carmy_engine.content import Completion, PromptSpec, ResourceSpec

from ..message import Request, Response
from .confirmations import CONFIRMATIONS_PATH, CONFIRMATIONS_PREFIX, ConfirmationAnswer
from .discovery import (
    CATALOG_PATH,
    COMPLETE_PATH,
    DISCOVERY_PATH,
    EXECUTE_PATH,
    PROMPTS_PATH,
    PROTOCOL,
    RESOURCES_PATH,
    DiscoveryDocument,
    cached,
)
from .executions import EXECUTIONS_PATH, EXECUTIONS_PREFIX, CancelledExecution, ExecutionListing, ShownExecution
from .health import HEALTH_PATH, READY_PATH, ReadyAnswer
from .reading import GET_PATH, READ_PATH, CompleteBody, GetBody, ReadBody

OPENAPI_PATH = "/agent/openapi.json"

MAX_CACHED_DOCUMENTS = 64
"""Rendered documents that are kept; each has about the size of its catalog and 40 KB."""

Schema: TypeAlias = dict[str, Any]

_REF = "#/components/schemas/"
_BEARER = "bearer"


def _ref(name: str) -> Schema:
    return {"$ref": _REF + name}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def _list(name: str) -> Schema:
    return {"type": "array", "items": _ref(name)}


_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_TIMEOUT: Schema = {"type": ["number", "null"], "exclusiveMinimum": 0}
_AGENT = _object({"cacheable": {"type": "boolean"}, "next_actions": _list("NextAction")})
_REFUSED = _ref("Refused")
_FAILED_OR_REFUSED: Schema = {"oneOf": [_ref("Failed"), _REFUSED]}

_MODELS: Sequence[type] = (
    DiscoveryDocument,
    PublicSpec,
    ResourceSpec,
    PromptSpec,
    NextAction,
    ErrorInfo,
    ExecutionStatus,
    ReadBody,
    GetBody,
    CompleteBody,
    Completion,
    ListedExecution,
    ExecutionListing,
    ShownExecution,
    CancelledExecution,
    ConfirmationAnswer,
    ReadyAnswer,
)
"""Structs whose schemas are generated. Bodies that are written as bytes have a schema in `_WRITTEN`."""

_WRITTEN: Mapping[str, Schema] = {
    "CallBody": {
        **_object(
            {"tool": _TEXT},
            {
                "arguments": {"type": ["object", "null"]},
                "request_id": {
                    "type": ["string", "null"],
                    "minLength": 1,
                    "maxLength": 256,
                    "description": (
                        "1-256 bytes of UTF-8. The header Idempotency-Key is another way to send it; if both are sent, they are equal."
                    ),
                },
                "timeout_ms": _TIMEOUT,
                "on_running": {"enum": ["refuse", "wait"], "default": "refuse"},
            },
        ),
        "additionalProperties": False,
    },
    "Refused": {**_object({"error": _ref("ErrorInfo")}), "additionalProperties": False},
    "Completed": _object(
        {"execution_id": _TEXT, "status": {"const": "completed"}, "data": {}, "_agent": _AGENT},
    ),
    "Failed": _object(
        {
            "execution_id": _TEXT,
            "status": {"enum": [each.value for each in ExecutionStatus if each is not ExecutionStatus.COMPLETED]},
            "error": _ref("ErrorInfo"),
            "_agent": _AGENT,
        },
    ),
    "Catalog": _object({"tools": _list("PublicSpec")}),
    "ResourceCatalog": _object({"resources": _list("ResourceSpec"), "templates": _list("ResourceSpec")}),
    "PromptCatalog": _object({"prompts": _list("PromptSpec")}),
    "OpenConfirmation": _object(
        {
            "confirmation_id": _TEXT,
            "state": {"enum": ["approved", "denied", "pending"]},
            "tool": _TEXT,
            "effect": _TEXT,
            "arguments": {"type": "object"},
            "transport": _TEXT,
            "asked_at": _NUMBER,
            "expires_at": _NUMBER,
            "expires_in": {"type": "integer", "minimum": 0},
        },
        {"principal": _TEXT, "session": _TEXT, "answered_at": _NUMBER, "answered_by": _TEXT},
    ),
    "Confirmations": _object({"confirmations": _list("OpenConfirmation")}),
    "Health": _object({"ok": {"const": True}}),
    "OpenApi": _object({"openapi": _TEXT, "info": {"type": "object"}, "paths": {"type": "object"}}),
}


class Operation(NamedTuple):
    """One method of one address.

    Attributes:
        method: The method, in lower case.
        path: The address.
        summary: One sentence.
        answer: The name of the schema of a successful answer.
        body: The name of the schema of the body, None without a body.
        refusals: Statuses of refusals besides those that every address has.
        failures: Statuses of an execution that has failed.
        status: The status of a successful answer.
        is_cached: The answer has an entity tag.
        is_open: No credentials are needed.
    """

    method: str
    path: str
    summary: str
    answer: str
    body: str | None = None
    refusals: Sequence[int] = ()
    failures: Sequence[int] = ()
    status: int = 200
    is_cached: bool = False
    is_open: bool = False


_OF_BODY = (408, 413)
_OF_CALL = (400, 403, 404, 408, 409, 500, 503, 504)
_EXECUTION = EXECUTIONS_PREFIX + "{execution_id}"

OPERATIONS: Sequence[Operation] = (
    Operation("get", DISCOVERY_PATH, "Discover the addresses.", "DiscoveryDocument", is_cached=True),
    Operation("get", CATALOG_PATH, "List the tools that the caller may use.", "Catalog", is_cached=True),
    Operation("get", OPENAPI_PATH, "Describe the endpoints: this document.", "OpenApi", is_cached=True),
    Operation("post", EXECUTE_PATH, "Run a tool.", "Completed", "Call", _OF_BODY, _OF_CALL),
    Operation("get", EXECUTIONS_PATH, "List the executions of all callers.", "ExecutionListing"),
    Operation("get", _EXECUTION, "Show an execution of the caller.", "ShownExecution", refusals=(404,)),
    Operation(
        "delete", _EXECUTION, "Cancel an execution of the caller.", "CancelledExecution", refusals=(404,), status=202
    ),
    Operation("get", RESOURCES_PATH, "List the resources that the caller may read.", "ResourceCatalog", is_cached=True),
    Operation("post", READ_PATH, "Read a resource.", "Completed", "ReadBody", _OF_BODY, _OF_CALL),
    Operation("get", PROMPTS_PATH, "List the prompts that the caller may get.", "PromptCatalog", is_cached=True),
    Operation("post", GET_PATH, "Render a prompt.", "Completed", "GetBody", _OF_BODY, _OF_CALL),
    Operation("post", COMPLETE_PATH, "Complete an argument.", "Completion", "CompleteBody", (404, 409, 504, *_OF_BODY)),
    Operation("get", CONFIRMATIONS_PATH, "List the calls that wait for a person.", "Confirmations"),
    Operation(
        "post",
        CONFIRMATIONS_PREFIX + "{confirmation_id}",
        "Approve or deny a call.",
        "OpenConfirmation",
        "ConfirmationAnswer",
        (404, *_OF_BODY),
    ),
    Operation("get", HEALTH_PATH, "Check that the process serves.", "Health", is_open=True),
    Operation("get", READY_PATH, "Check that the server is ready.", "ReadyAnswer", is_open=True),
)
"""The documented endpoints. MCP and the metadata of OAuth have documents of their own."""

_ANSWERS = {
    304: "The client has this document already.",
    400: "The request is invalid.",
    401: "The credentials are missing or wrong.",
    403: "The caller may not do this, or the Host or Origin is not allowed.",
    404: "Not found.",
    408: "The execution was cancelled, or the body did not arrive in time.",
    409: "The request conflicts with another one.",
    413: "The body is too large.",
    500: "The tool, the store or the server failed.",
    503: "The server or the tool has no capacity, or is stopping.",
    504: "The deadline passed.",
}


async def describe(engine: Engine, request: Request, caller: BoundEngine) -> Response:
    """Answer ``GET /agent/openapi.json``: the endpoints, with the inputs of the tools that this caller may use."""
    settings = engine.settings
    body, etag = _document(
        settings.title or settings.name,
        settings.version or PROTOCOL,
        request.head.root,
        engine.challenge.action if engine.authenticator is not None else None,
        (await caller.catalog()).document,
    )
    return cached(request, body, etag)


@functools.lru_cache(MAX_CACHED_DOCUMENTS)
def _document(title: str, version: str, root: str, action: str | None, catalog: bytes) -> tuple[bytes, bytes]:
    """The document and its entity tag.

    Args:
        title: The server's name.
        version: The application's version.
        root: What the addresses begin with.
        action: How a caller authenticates; None where no credentials are needed.
        catalog: The catalog as JSON.
    """
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, secured=action is not None)
    components: Schema = {"schemas": {**_shared(), **_calls(msgspec.json.decode(catalog)["tools"])}}
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": components,
    }
    if action is not None:
        components["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer", "description": action}}
        document["security"] = [{_BEARER: []}]
    body = msgspec.json.encode(document)
    return body, b'"%b"' % hashlib.sha256(body).hexdigest().encode()


@functools.cache
def _shared() -> dict[str, Schema]:
    """The schemas that do not depend on the caller."""
    _, found = msgspec.json.schema_components(_MODELS, ref_template=_REF + "{name}")
    for schema in found.values():
        # Docstrings continue with a list of attributes, for readers of the code.
        if "description" in schema:
            schema["description"] = schema["description"].partition("\n")[0]
        fields: Schema = schema.get("properties", {})
        if "timeout_ms" in fields:
            fields["timeout_ms"] = _TIMEOUT
    assert not found.keys() & _WRITTEN.keys()
    return {**found, **_WRITTEN}


def _calls(tools: Iterable[Schema]) -> dict[str, Schema]:
    """The body of a call: one schema for each tool, and the choice between them."""
    fields = _shared()["CallBody"]["properties"]
    schemas: dict[str, Schema] = {}
    names: dict[str, str] = {}
    for tool in tools:
        name: str = tool["name"]
        given = tool["input_schema"]
        arguments = _ref(f"Input.{name}")
        needs_arguments = bool(given.get("required"))
        schemas[f"Input.{name}"] = given if "$id" in given else _rebased(given, f"{_REF}Input.{name}")
        schemas[f"Call.{name}"] = {
            "type": "object",
            "description": tool["description"],
            "properties": {
                **fields,
                "tool": {"const": name},
                "arguments": arguments if needs_arguments else {"anyOf": [arguments, {"type": "null"}]},
            },
            "required": ["tool", "arguments"] if needs_arguments else ["tool"],
            "additionalProperties": False,
        }
        names[name] = f"{_REF}Call.{name}"
    if not names:
        return {"Call": _ref("CallBody")}
    choice = [{"$ref": each} for each in names.values()]
    return {"Call": {"oneOf": choice, "discriminator": {"propertyName": "tool", "mapping": names}}, **schemas}


_Json: TypeAlias = dict[str, Any] | list[Any] | str | float | bool | None

_DATA = frozenset({"const", "enum", "default", "examples", "example"})
"""Keywords whose values are data, in which ``$ref`` means nothing."""


def _rebased(value: _Json, base: str) -> Any:
    """The schema with its local references resolved from the root of the document instead of the schema's own."""
    if isinstance(value, list):
        return [_rebased(item, base) for item in value]
    if not isinstance(value, dict):
        return value
    found: Schema = {}
    for key, item in value.items():
        if key == "$ref" and isinstance(item, str) and (item == "#" or item.startswith("#/")):
            found[key] = base + item[1:]
        else:
            # A member of `properties` may have the name of such a keyword; then its value is a mapping, which data seldom is.
            rebased = _rebased(item, base)
            found[key] = rebased if key not in _DATA or isinstance(item, dict) else item
    return found


def _operation(operation: Operation, *, secured: bool) -> Schema:
    secured = secured and not operation.is_open
    refusals = {400, 403, 500, *operation.refusals}
    if not operation.is_open:
        refusals.add(503)
    if secured:
        refusals.add(401)
    responses: Schema = {str(operation.status): _success(operation)}
    if operation.is_cached:
        responses["304"] = {"description": _ANSWERS[304], "headers": _headers("ETag", "Cache-Control")}
    for status in sorted({*refusals, *operation.failures}):
        if status not in operation.failures:
            schema = _REFUSED
        elif status in refusals or status in _OF_BODY:
            schema = _FAILED_OR_REFUSED
        else:
            schema = _ref("Failed")
        responses[str(status)] = _response(_ANSWERS[status], schema)
    if operation.path == READY_PATH:
        responses["503"] = _response("The server is not ready; the checks that failed.", _ref(operation.answer))
    if secured:
        responses["401"]["headers"] = _headers("WWW-Authenticate")
    for late in {"503", "409", "400", "500", "504"} & responses.keys():
        responses[late]["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 0}}}
    found: Schema = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "responses": responses,
    }
    if parameters := _parameters(operation):
        found["parameters"] = parameters
    if operation.body is not None:
        content = {"application/json": {"schema": _ref(operation.body)}}
        found["requestBody"] = {"required": True, "content": content}
    if operation.is_open:
        found["security"] = []
    return found


def _operation_id(operation: Operation) -> str:
    words = operation.path.replace("{", "").replace("}", "").replace(".", "_").strip("/_").split("/")
    return "_".join((operation.method, *(word.strip("_") for word in words)))


def _parameters(operation: Operation) -> list[Schema]:
    found: list[Schema] = []
    _, brace, rest = operation.path.partition("{")
    if brace:
        found.append({"name": rest.rstrip("}"), "in": "path", "required": True, "schema": {"type": "string"}})
    if operation.is_cached:
        found.append({"name": "If-None-Match", "in": "header", "schema": {"type": "string"}})
    return found


def _success(operation: Operation) -> Schema:
    found = _response("The answer.", _ref(operation.answer))
    if operation.is_cached:
        found["headers"] = _headers("ETag", "Cache-Control")
    if operation.answer == "Completed":
        found["headers"] = {"Idempotent-Replayed": {"schema": {"const": "true"}}}
    if operation.path == EXECUTE_PATH:
        found["description"] = (
            "The tool's output, in `data`. With `Accept: text/event-stream`, the events of the execution, whatever its outcome."
        )
        found["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return found


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _headers(*names: str) -> Schema:
    return {name: {"required": True, "schema": {"type": "string"}} for name in names}
