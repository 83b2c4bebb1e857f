"""JSON-RPC 2.0: messages, and their bytes.

Members that are not known are left to newer versions of the protocol. Parameters and results stay bytes: arguments reach the engine
as they were sent, and mean the same on every transport.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import msgspec

from carmy_engine import AgentError
from carmy_engine.codec import (
    UniqueNames,
    check_json,
    duplicate_key,
    invalid_request,
    no_pulse,
    one_line,
    read_in_pieces,
)
from carmy_engine.codec import decode as decode_json
from carmy_frames.protocol import MAX_MESSAGE_BYTES

from .errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, JsonRpcError, RemoteProtocolError

Id: TypeAlias = str | int

NO_PARAMS = msgspec.Raw(b"{}")
"""The parameters of a message that has none."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """A request.

    Attributes:
        id: Its id.
        method: Its method.
        params: Its parameters, an object.
    """

    id: Id
    method: str
    params: msgspec.Raw = NO_PARAMS


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A notification.

    Attributes:
        method: Its method.
        params: Its parameters, an object.
    """

    method: str
    params: msgspec.Raw = NO_PARAMS


class Response(msgspec.Struct, frozen=True, gc=False):
    """A response with a result.

    Attributes:
        id: The id of the request.
        result: The result, any JSON.
    """

    id: Id
    result: msgspec.Raw


class ErrorObject(msgspec.Struct, frozen=True):
    """The error of a response.

    Attributes:
        code: See `errors`.
        message: Words of the peer.
        data: Any JSON.
    """

    code: float = INTERNAL_ERROR
    message: str = ""
    data: Any = None


class ErrorResponse(msgspec.Struct, frozen=True):
    """A response with an error.

    Attributes:
        id: The id of the request; None if the peer could not read it.
        error: The error.
    """

    id: Id | None
    error: ErrorObject


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class _Envelope(msgspec.Struct, gc=False):
    jsonrpc: Literal["2.0"]
    id: Id | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Probe(msgspec.Struct):
    """As much of a bad message as its reply needs."""

    id: Any = None
    method: Any = msgspec.UNSET


_UNSET = msgspec.UNSET
_envelope = msgspec.json.Decoder(_Envelope)
_probe = msgspec.json.Decoder(_Probe)
_error = msgspec.json.Decoder(ErrorObject)
_skip = msgspec.json.Decoder(msgspec.Raw)
"""Checks the syntax, and makes nothing."""
_UNIQUE = UniqueNames(("id", "method", "params"), "member")
_OBJECT = ord("{")


def decode(data: bytes, pulse: Callable[[], None] = no_pulse, *, max_bytes: int = MAX_MESSAGE_BYTES) -> Message:
    """Decode one message.

    Args:
        data: Its bytes.
        pulse: Called after each piece of a long message.
        max_bytes: A larger message was cut by the carrier, and is refused.

    Raises:
        RemoteProtocolError: The bytes are no message.
    """
    if len(data) > max_bytes:
        error = AgentError.standard(
            "PAYLOAD_TOO_LARGE",
            f"the message is larger than {max_bytes} bytes and was skipped",
            details={"max_message_bytes": max_bytes},
        )
        raise RemoteProtocolError(None, JsonRpcError.of(error))
    try:
        check_json(data, pulse=pulse)
        found: _Envelope = decode_json(data, decoder=_envelope)
        params = found.params
        if params is _UNSET:
            _UNIQUE.check(data, pulse=pulse)
            return _message(found, NO_PARAMS)
        _UNIQUE.check(data, (b'"params"', params), pulse=pulse)
        first = memoryview(params)[0]
        if first != _OBJECT:
            if bytes(params) != b"null":
                raise invalid_request("'params' must be an object")
            params = NO_PARAMS
        return _message(found, params)
    except AgentError as error:
        raise RemoteProtocolError(_readable_id(data, pulse), JsonRpcError.of(error, _code_for(data, pulse))) from None


def _message(found: _Envelope, params: msgspec.Raw) -> Message:
    given = found.id
    if found.method is not _UNSET:
        if given is _UNSET:
            return Notification(found.method, params)
        if given is None:
            raise invalid_request("'id' must be a string or an integer")
        return Request(given, found.method, params)
    if given is _UNSET:
        raise invalid_request("it has neither 'method' nor 'id'")
    if found.result is not _UNSET and given is not None:
        return Response(given, found.result)
    if found.error is _UNSET:
        raise invalid_request("it has neither 'method' nor 'result' nor 'error'")
    return ErrorResponse(given, decode_json(bytes(found.error), decoder=_error))


class _Lenient(msgspec.Struct, gc=False):
    id: Id | None = None
    method: str | None = None
    params: msgspec.Raw = NO_PARAMS
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: ErrorObject | None = None


_lenient = msgspec.json.Decoder(_Lenient)


def decode_leniently(data: bytes) -> Message | None:
    """Decode a message of a server. None if the bytes are none; servers of all makers are read as far as possible."""
    try:
        found = _lenient.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if found.method is not None:
        params = found.params if memoryview(found.params)[0] == _OBJECT else NO_PARAMS
        if found.id is None:
            return Notification(found.method, params)
        return Request(found.id, found.method, params)
    if found.id is not None and found.result is not _UNSET and memoryview(found.result)[0] == _OBJECT:
        return Response(found.id, found.result)
    return None if found.error is None else ErrorResponse(found.id, found.error)


def id_in_unreadable(data: bytes) -> Id | None:
    """The id in bytes that are no message, such as an answer with NaN: its caller must not wait for another answer."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    given: Any = cast("dict[str, Any]", found).get("id") if isinstance(found, dict) else None
    return given if isinstance(given, str | int) else None


def _code_for(data: bytes, pulse: Callable[[], None]) -> int:
    try:
        _skip.decode(data)
        read_in_pieces(data, decode_json, pulse)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, AgentError):
        return PARSE_ERROR
    return INVALID_REQUEST


def _readable_id(data: bytes, pulse: Callable[[], None]) -> Id | None:
    """The id of a bad request. None for a response, whose id is that of a request of this side, and where it cannot be read."""
    try:
        probe = _probe.decode(data)
        found = probe.id
        if (
            probe.method is _UNSET
            or isinstance(found, bool)
            or not isinstance(found, str | int)
            or duplicate_key(data, pulse) == "id"
        ):
            return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        return None
    return found


def encode_request(request_id: Id, method: str, params: Any = None) -> bytes:
    """The bytes of a request, on one line."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params is not None:
        body["params"] = params
    return one_line(msgspec.json.encode(body))


def encode_notification(method: str, params: Any = None) -> bytes:
    """The bytes of a notification, on one line."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        body["params"] = params
    return one_line(msgspec.json.encode(body))


def encode_result(request_id: Id, result: bytes) -> bytes:
    """The bytes of a response, on one line.

    Args:
        request_id: The id of the request.
        result: The result as JSON.
    """
    given = b"%d" % request_id if isinstance(request_id, int) else msgspec.json.encode(request_id)
    return one_line(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (given, result))


def encode_error(request_id: Id | None, error: JsonRpcError) -> bytes:
    """The bytes of an error response, on one line."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": body}))
