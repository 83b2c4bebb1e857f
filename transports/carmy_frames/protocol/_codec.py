"""The codec of frames: decoding with its error messages, and encoding."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from carmy_engine import AgentError, ErrorInfo
from carmy_engine.codec import (
    UniqueNames,
    check_json,
    check_timeout_ms,
    duplicate_key,
    invalid_request,
    no_pulse,
    one_line,
    refuse_undecodable,
)
from carmy_engine.transport import unknown_name_message

from ._errors import RemoteProtocolError
from ._frames import (
    Call,
    Cancel,
    Complete,
    Describe,
    ErrorFrame,
    Event,
    Help,
    Id,
    Limits,
    Ping,
    Prompt,
    Prompts,
    Read,
    Ready,
    Request,
    Resources,
    ResultFrame,
    ServerFrame,
    Tools,
)

PROTOCOL = "carmy-frames/1"

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Limit of one message to a server. Four times the limit of HTTP: a line cannot be split over several requests."""

_OPS: dict[str, type[Request]] = {
    "call": Call,
    "cancel": Cancel,
    "tools": Tools,
    "describe": Describe,
    "resources": Resources,
    "read": Read,
    "prompts": Prompts,
    "prompt": Prompt,
    "complete": Complete,
    "ping": Ping,
    "help": Help,
}
_DOES = {
    "call": "run a tool; with stream, events come before the answer",
    "cancel": "cancel a call of this connection (target) or any execution of yours (execution_id)",
    "tools": "the catalog",
    "describe": "one entry of the catalog",
    "resources": "the resources and templates",
    "read": "read a resource",
    "prompts": "the prompts",
    "prompt": "render a prompt",
    "complete": "values for an argument of a prompt or of a template of resources",
    "ping": "an empty answer",
    "help": "this",
}
HELP_RESULT = msgspec.json.encode(
    {
        "protocol": PROTOCOL,
        "ops": [
            {"op": op, "fields": list(frame.__struct_fields__[1:]), "does": _DOES[op]} for op, frame in _OPS.items()
        ],
    }
)
"""The result of ``help``, JSON."""

_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_UNIQUE = UniqueNames({name for frame in _OPS.values() for name in (*frame.__struct_fields__, "op")})
_HEAD_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*("(?:[^"\\\x00-\x1f]){0,256}"|-?[0-9]{1,20})\s*,')


def encode(frame: Request | ServerFrame) -> bytes:
    """Encode a frame, without characters that some readers take for the end of a line."""
    return one_line(msgspec.json.encode(frame))


def decode_request(message: bytes, pulse: Callable[[], None] = no_pulse) -> Request:
    """Decode and check the request in one message.

    Args:
        message: The message.
        pulse: Called after each piece of a long message.

    Raises:
        RemoteProtocolError: The message is no valid request. The reply has its id if that can be read.
    """
    try:
        check_json(message, pulse=pulse)
        request = _requests.decode(message)
        _check(request, message, pulse)
    except AgentError as error:
        raise _refused(message, error, pulse) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _refused(message, _explained(message, error), pulse) from None
    return request


def too_large(message: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> RemoteProtocolError:
    """The error for a message over the limit. Only its beginning is read, for the id."""
    error = AgentError.standard(
        "PAYLOAD_TOO_LARGE",
        f"the message is larger than {max_bytes} bytes and was skipped",
        details={"max_message_bytes": max_bytes},
    )
    head = _HEAD_ID.match(message[:512])
    return _refusal(None if head is None else msgspec.json.decode(head[1]), error)


def refused(request_id: Id | None, error: AgentError) -> RemoteProtocolError:
    """The error for a valid request that is not allowed now."""
    return _refusal(request_id, error)


def _check(request: Request, message: bytes, pulse: Callable[[], None]) -> None:
    _UNIQUE.check(message, (b'"arguments"', request.arguments) if isinstance(request, Call) else None, pulse=pulse)
    if isinstance(request, Call | Read | Prompt):
        if request.timeout_ms is not None:
            check_timeout_ms(request.timeout_ms)
    elif isinstance(request, Cancel) and (request.target is None) == (request.execution_id is None):
        raise invalid_request("cancel needs either 'target' or 'execution_id'")
    elif isinstance(request, Cancel) and request.gone and request.target is None:
        raise invalid_request("'gone' goes with 'target'")


class _Probe(msgspec.Struct):
    """The fields of a bad request that its answer needs."""

    id: Any = msgspec.UNSET
    op: Any = msgspec.UNSET


_probe = msgspec.json.Decoder(_Probe)


def _read_id(message: bytes, pulse: Callable[[], None]) -> Id | None:
    """The id of an invalid request; None if it is missing, ambiguous or no id."""
    try:
        found = _probe.decode(message).id
        if isinstance(found, bool) or not isinstance(found, str | int) or duplicate_key(message, pulse) == "id":
            return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError):
        return None
    return found


def _explained(message: bytes, error: Exception) -> AgentError:
    """Explain a decoding error, in terms of this protocol where those of msgspec are unclear."""
    try:
        op = _probe.decode(message).op
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        op = None
    if op is msgspec.UNSET:
        return invalid_request("the field 'op' is missing")
    if isinstance(op, str) and op not in _OPS:
        told = unknown_name_message("this op", op, [*_OPS], "ops")
        return AgentError.standard("UNKNOWN_OP", told, details={"ops": [*_OPS]})
    try:
        fields = ("op", *_OPS[op].__struct_encode_fields__) if isinstance(op, str) else ()
        refuse_undecodable(error, message, fields)
    except AgentError as refusal:
        return refusal


def _refused(message: bytes, error: AgentError, pulse: Callable[[], None]) -> RemoteProtocolError:
    return _refusal(_read_id(message, pulse), error)


def _refusal(request_id: Id | None, error: AgentError) -> RemoteProtocolError:
    return RemoteProtocolError(error, encode(ErrorFrame(id=request_id, error=error.info)))


_ABSENT = msgspec.Raw(b"")


class _FromServer(msgspec.Struct, kw_only=True):
    """Any frame of a server. Unknown fields of a newer server are ignored."""

    id: Id | None = None
    event: str | None = None
    seq: int = 0
    data: msgspec.Raw = _ABSENT
    ok: bool | None = None
    result: msgspec.Raw = _ABSENT
    error: ErrorInfo | None = None
    protocol: str = ""
    server: str = ""
    tools: int = 0
    tools_version: str = ""
    limits: Limits = Limits(max_message_bytes=MAX_MESSAGE_BYTES, max_calls=1)


_server_frames = msgspec.json.Decoder(_FromServer)


def decode_server_frame(message: bytes) -> ServerFrame:
    """Decode the server's frame in one message.

    Raises:
        RemoteProtocolError: The message is no frame of a server.
    """
    try:
        check_json(message, any_depth=True)
        frame = _server_frames.decode(message)
    except AgentError as error:
        raise RemoteProtocolError(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(invalid_request(f"not a frame of {PROTOCOL}: {error}")) from None
    if frame.event == "ready" and frame.id is None:
        return Ready(
            protocol=frame.protocol,
            server=frame.server,
            tools=frame.tools,
            tools_version=frame.tools_version,
            limits=frame.limits,
        )
    if frame.id is not None and frame.event is not None and frame.data is not _ABSENT:
        return Event(id=frame.id, event=frame.event, seq=frame.seq, data=frame.data.copy())
    if frame.id is not None and frame.ok is True and frame.result is not _ABSENT:
        return ResultFrame(id=frame.id, result=frame.result.copy())
    if frame.ok is False and frame.error is not None:
        return ErrorFrame(id=frame.id, error=frame.error)
    raise RemoteProtocolError(invalid_request(f"not a frame of {PROTOCOL}: neither event nor answer"))
