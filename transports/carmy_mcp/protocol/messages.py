"""The codec of JSON-RPC messages, to and from the SDK's types."""

from __future__ import annotations

from typing import Any, Literal

import mcp_types as types
import msgspec
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    UNSUPPORTED_PROTOCOL_VERSION,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from carmy_engine import AgentError
from carmy_engine.codec import UniqueNames, check_json, decode, duplicate_key, invalid_request, one_line
from carmy_engine.transport import shortened
from carmy_frames.protocol import MAX_MESSAGE_BYTES

from .request_state import Exchange
from .results import error_data

Id = str | int

_NO_ARGUMENTS: dict[str, Any] = {}


class MessageError(Exception):
    """Not a message that can be acted on. Holds the one answer that it gets.

    Attributes:
        request_id: The id of the request that it was meant to be; None when it has none that can be read, and for responses.
        reply: The bytes of the answer, under that id.
        anonymous: The same under a null id.
    """

    def __init__(self, request_id: Id | None, code: int, error: AgentError) -> None:
        super().__init__()
        self.request_id = request_id
        self._code = code
        self._error = error

    @property
    def reply(self) -> bytes:
        """The error response with the id of the request."""
        return error_reply(self.request_id, self._code, self._error)

    @property
    def anonymous(self) -> bytes:
        """The error response with a null id."""
        return error_reply(None, self._code, self._error)


class _Message(msgspec.Struct):
    """Any message. Members that we do not know are left to newer versions of the protocol."""

    jsonrpc: Literal["2.0"]
    id: Id | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    error: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class _Probe(msgspec.Struct):
    """As much of a bad message as an answer needs."""

    id: Any = None
    method: Any = msgspec.UNSET


_message = msgspec.json.Decoder(_Message)
_params = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENVELOPE = UniqueNames(("id", "method", "params"), "member")
_CALL = UniqueNames(("name", "arguments", "_meta"), "member")
_META = UniqueNames(("carmy/request_id", "carmy/timeout_ms", "progressToken"), "member")
_probe = msgspec.json.Decoder(_Probe)


def read(data: bytes) -> tuple[JSONRPCMessage, Exchange]:
    """One message, and what is to be known of it while it is handled.

    The arguments of a call are not read here: they go on as they were sent, so that they mean the same on every transport.

    Raises:
        MessageError: It is none.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        error = AgentError.standard(
            "PAYLOAD_TOO_LARGE",
            f"the message is larger than {MAX_MESSAGE_BYTES} bytes and was skipped",
            details={"max_message_bytes": MAX_MESSAGE_BYTES},
        )
        raise MessageError(None, types.INVALID_REQUEST, error)
    try:
        check_json(data)
        found: _Message = decode(data, decoder=_message)
        _ENVELOPE.check(data, None if isinstance(found.params, msgspec.UnsetType) else (b'"params"', found.params))
        return _understood(found)
    except AgentError as error:
        raise MessageError(_read_id(data), _code_for(data), error) from None


def _understood(found: _Message) -> tuple[JSONRPCMessage, Exchange]:
    if found.method is not msgspec.UNSET:
        fields: dict[str, Any] = {"jsonrpc": "2.0", "method": found.method}
        exchange = Exchange()
        if found.params is not msgspec.UNSET and bytes(found.params) != b"null":
            fields["params"] = _read_params(found.method, found.params, exchange)
        if found.id is msgspec.UNSET:
            return JSONRPCNotification.model_construct(**fields), exchange
        if found.id is None:
            raise invalid_request("'id' must be a string or an integer")
        return JSONRPCRequest.model_construct(id=found.id, **fields), exchange
    if isinstance(found.id, msgspec.UnsetType):
        raise invalid_request("it has neither 'method' nor 'id'")
    if found.result is not msgspec.UNSET and found.id is not None:
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=found.id, result=found.result), Exchange()
    if found.error is not msgspec.UNSET:
        error = types.ErrorData.model_construct(
            code=_integer(found.error.get("code")),
            message=str(found.error.get("message", "")),
            data=found.error.get("data"),
        )
        return JSONRPCError.model_construct(jsonrpc="2.0", id=found.id, error=error), Exchange()
    raise invalid_request("it has neither 'method' nor 'result' nor 'error'")


def _read_params(method: str, params: msgspec.Raw, exchange: Exchange) -> dict[str, Any]:
    data = bytes(params)
    raw: dict[str, msgspec.Raw] = decode(data, decoder=_params)
    if method == "tools/call":
        meta = bytes(raw.get("_meta", b""))
        _CALL.check(data, (b'"arguments"', raw["arguments"]) if "arguments" in raw else None, inner=meta)
        if meta[:1] == b"{":
            _META.check(meta)
        if "arguments" in raw:
            # A copy: the other would keep the whole message.
            exchange.arguments = raw.pop("arguments").copy()
    values = {name: msgspec.json.decode(value) for name, value in raw.items()}
    if exchange.arguments is not None:
        values["arguments"] = _NO_ARGUMENTS
    return values


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _code_for(data: bytes) -> int:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return types.PARSE_ERROR
    return types.INVALID_REQUEST


def _read_id(data: bytes) -> Id | None:
    """The id of a bad request; None for a response, whose id is that of a request of ours, and where it cannot be read."""
    try:
        probe = _probe.decode(data)
        found = probe.id
        if (
            probe.method is msgspec.UNSET
            or isinstance(found, bool)
            or not isinstance(found, str | int)
            or duplicate_key(data) == "id"
        ):
            return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        return None
    return found


def error_reply(request_id: Id | None, code: int, error: AgentError) -> bytes:
    """The bytes of an error that answers a message which never got as far as the SDK."""
    body = {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": code, "message": error.message, "data": error_data(error.info)},
    }
    return one_line(msgspec.json.encode(body))


def unsupported_version(request_id: Id | None, requested: str) -> bytes:
    """The bytes of an error for a version of the protocol that is not spoken here (MCP 2026-07-28, "Versioning")."""
    supported = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]
    error = {
        "code": UNSUPPORTED_PROTOCOL_VERSION,
        "message": f"the version of the header MCP-Protocol-Version is not supported; there are {', '.join(supported)}",
        "data": {"supported": supported, "requested": shortened(requested)},
    }
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error}))


def misnamed_task(request_id: Id) -> bytes:
    """The bytes of an error for a header ``Mcp-Name`` that is not the task's id (SEP-2663, "Streamable HTTP")."""
    error = {"code": HEADER_MISMATCH, "message": "the header Mcp-Name does not match 'taskId' of the request"}
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error}))


def result_reply(request_id: Id, result: dict[str, Any]) -> bytes:
    """The bytes of an answer, on one line."""
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": result}))


def write(message: JSONRPCMessage) -> bytes:
    """The bytes of a message, on one line."""
    body: dict[str, Any] = {"jsonrpc": "2.0"}
    if not isinstance(message, JSONRPCNotification):
        body["id"] = message.id
    if isinstance(message, JSONRPCRequest | JSONRPCNotification):
        body["method"] = message.method
        if message.params is not None:
            body["params"] = message.params
    elif isinstance(message, JSONRPCResponse):
        body["result"] = message.result
    else:
        body["error"] = message.error.model_dump(mode="json", by_alias=True, exclude_none=True)
    return one_line(msgspec.json.encode(body))
