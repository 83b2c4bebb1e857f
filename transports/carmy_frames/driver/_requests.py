"""Conversion of execution requests to frames and back, with the checks that a server would make."""

from __future__ import annotations

import math

import msgspec
import trio

from carmy_engine import AgentError, ExecutionRequest
from carmy_engine.codec import check_json, decode, invalid_request
from carmy_engine.transport import encode_arguments, may_join

from ..protocol import NO_ARGUMENTS, Call, Id, encode


def request_of(call: Call) -> ExecutionRequest:
    """Return the execution request in a call frame."""
    return ExecutionRequest(
        tool=call.tool,
        arguments=call.arguments,
        request_id=call.request_id,
        timeout_ms=call.timeout_ms,
        on_running=call.on_running,
    )


def call_frame(request: ExecutionRequest, call: Id, limit: int, *, stream: bool) -> Call:
    """Return the call frame of a request, after the checks that a server would make.

    The remaining time of the caller's scope becomes ``timeout_ms`` if it is shorter than the request's limit.

    Args:
        request: The request.
        call: The id of the call.
        limit: Bytes of a message that the server accepts.
        stream: Ask for events.

    Raises:
        AgentError: ``INVALID_REQUEST`` or ``PAYLOAD_TOO_LARGE``.
    """
    arguments = request.arguments
    if isinstance(arguments, msgspec.Raw):
        raw = bytes(arguments)
        check_json(raw)
        decode(raw)
    elif arguments is not None:
        arguments = msgspec.Raw(encode_arguments(arguments))
    if request.timeout_ms is not None:
        _check_timeout(request.timeout_ms)
    may_join(request.on_running)
    if request.metadata is not None:
        raise invalid_request("metadata cannot be sent over a connection; put it into the arguments")
    frame = Call(
        id=call,
        tool=request.tool,
        arguments=NO_ARGUMENTS if arguments is None else arguments,
        request_id=request.request_id,
        timeout_ms=_timeout_ms(request),
        on_running=request.on_running,
        stream=stream,
    )
    try:
        size = len(encode(frame))
    except (TypeError, UnicodeEncodeError) as error:
        raise invalid_request(f"it cannot be written as JSON: {error}") from None
    if size > limit:
        raise AgentError.standard(
            "PAYLOAD_TOO_LARGE",
            f"the call has {size} bytes; the server takes {limit}",
            details={"max_message_bytes": limit},
        )
    return frame


def _check_timeout(timeout_ms: object) -> None:
    """What the engine requires of it. Infinity and NaN would be written as null, which means something else."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not 0 < timeout_ms < math.inf:
        raise invalid_request("timeout_ms must be a positive number of milliseconds")


def _timeout_ms(request: ExecutionRequest) -> float | None:
    """The request's own limit, or what is left of the caller's scope, whichever is shorter."""
    remaining = trio.current_effective_deadline() - trio.current_time()
    if math.isinf(remaining):
        return request.timeout_ms
    # Never 0, which is not a limit: the scope itself ends the call in a moment.
    remaining_ms = max(remaining * 1000, 1.0)
    return remaining_ms if request.timeout_ms is None else min(request.timeout_ms, remaining_ms)
