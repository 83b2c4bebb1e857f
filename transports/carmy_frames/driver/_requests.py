"""Conversion of execution requests to frames and back, with the checks that a server would make."""

from __future__ import annotations

import math

import trio

from carmy_engine import AgentError, ExecutionRequest
from carmy_engine.codec import invalid_request
from carmy_engine.transport import encode_remote_arguments

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
    arguments = encode_remote_arguments(request)
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


def _timeout_ms(request: ExecutionRequest) -> float | None:
    """The request's own limit, or what is left of the caller's scope, whichever is shorter."""
    remaining = trio.current_effective_deadline() - trio.current_time()
    if math.isinf(remaining):
        return request.timeout_ms
    # Never 0, which is not a limit: the scope itself ends the call in a moment.
    remaining_ms = max(remaining * 1000, 1.0)
    return remaining_ms if request.timeout_ms is None else min(request.timeout_ms, remaining_ms)
