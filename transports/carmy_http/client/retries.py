"""The client's decisions, without I/O: the body of a request, the meaning of an answer, and whether to try again."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

import msgspec

from carmy_engine import AgentError, ClosedError, ErrorInfo, ExecutionRequest, ExecutionResult
from carmy_engine.codec import invalid_request
from carmy_engine.transport import OnRunning, encode_remote_arguments
from carmy_frames.protocol import parse_result

from .limits import DEFAULT_LIMITS, HttpClientLimits

_NO_ARGUMENTS = msgspec.Raw(b"null")
"""Means ``{}``, as a missing field does; the encoder omits this object."""

_OVERLOADED = {429, 502, 503, 504}


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a request to execute.

    Attributes:
        tool: The tool's name.
        arguments: JSON.
        request_id: The idempotency identity.
        timeout_ms: Most milliseconds to take.
        on_running: Whether to wait for a running attempt.
    """

    tool: str
    arguments: msgspec.Raw = _NO_ARGUMENTS
    request_id: str | None = None
    timeout_ms: float | None = None
    on_running: OnRunning = "refuse"

    @classmethod
    def of(cls, request: ExecutionRequest, max_bytes: int = DEFAULT_LIMITS.max_request_bytes) -> RequestBody:
        """The body for a request, of at most `max_bytes`.

        Raises:
            AgentError: The request cannot be sent: the error that a server would return.
        """
        arguments = encode_remote_arguments(request)
        found = cls(
            tool=request.tool,
            arguments=_NO_ARGUMENTS if arguments is None else arguments,
            request_id=request.request_id,
            timeout_ms=request.timeout_ms,
            on_running=request.on_running,
        )
        try:
            size = len(found.body(math.inf))
        except (TypeError, UnicodeEncodeError) as error:
            raise invalid_request(f"it cannot be written as JSON: {error}") from None
        if size > max_bytes:
            raise AgentError.standard(
                "PAYLOAD_TOO_LARGE",
                f"the request has {size} bytes; a server takes {max_bytes}",
                suggested_action="Send large content by reference, for example as a URL or a path.",
                details={"limit_bytes": max_bytes},
            )
        return found

    def seconds(self, remaining: float) -> float:
        """Seconds that the server may take: the request's own limit or the remaining time, whichever is shorter.

        Args:
            remaining: Seconds that the caller has left, infinite if it has no deadline.
        """
        own = math.inf if self.timeout_ms is None else self.timeout_ms / 1000
        # Never 0, which is not a limit. The caller's own scope ends the call in a moment.
        return min(own, max(remaining, 0.001))

    def body(self, remaining: float) -> bytes:
        """The JSON to send; see `seconds`."""
        seconds = self.seconds(remaining)
        timeout_ms = None if math.isinf(seconds) else seconds * 1000
        return msgspec.json.encode(msgspec.structs.replace(self, timeout_ms=timeout_ms))


class Failure(enum.Enum):
    """The reason why an attempt got no answer of the server."""

    NOT_SENT = "not sent"
    """There was no connection: nothing has run."""
    LOST = "lost"
    """The connection broke after sending, or an intermediary answered instead of the server."""


class Lost(Exception):  # noqa: N818 - a signal, turned into what the caller gets
    """An attempt that got no answer of the server.

    Args:
        failure: Whether the request may have been received.
        why: For a message.
        wait: Seconds that the answer asks to wait.
    """

    def __init__(self, failure: Failure, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.failure = failure
        self.why = why
        self.wait = wait


def next_wait(
    attempt: int,
    failure: Failure,
    *,
    repeatable: bool,
    asked: float | None = None,
    limits: HttpClientLimits = DEFAULT_LIMITS,
) -> float | None:
    """Seconds until the next attempt; None if there must be none.

    Args:
        attempt: The number of attempts so far.
        failure: Of the last attempt.
        repeatable: Sending it twice is harmless: it has a request_id, or only reads the catalog.
        asked: The wait that the server asks for, in seconds.
        limits: The number of attempts and the lengths of waits.
    """
    if attempt >= limits.max_attempts or (failure is Failure.LOST and not repeatable):
        return None
    wait = limits.first_wait_secs * 2 ** (attempt - 1) if asked is None else asked
    return wait if wait <= limits.max_wait_secs else None


def wait_for_running(result: ExecutionResult, limits: HttpClientLimits = DEFAULT_LIMITS) -> float | None:
    """Seconds to wait before asking again, if a repeated request met its own earlier attempt; None otherwise."""
    error = result.error
    if error is None or error.code != "EXECUTION_UNCERTAIN" or (error.details or {}).get("state") != "running":
        return None
    return error.retry_after or limits.first_wait_secs


class _Error(msgspec.Struct):
    error: ErrorInfo


def read_answer(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ExecutionResult:
    """The result in an answer to ``POST /agent/execute``. A refusal of the request gives one without an execution_id.

    Args:
        url: Of the server, for messages.
        status: The status code.
        headers: Lower-case names.
        body: The body.

    Raises:
        Lost: An intermediary answered, which may have passed the request on.
        ClosedError: The answer is not one of this protocol; nothing has run.
    """
    try:
        return parse_result(body, replayed=headers.get("idempotent-replayed") == "true")
    except AgentError:
        return ExecutionResult(execution_id="", error=read_error(url, status, headers, body))


def read_error(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """The error in the answer to an invalid request; see `read_answer`."""
    try:
        return msgspec.json.decode(body, type=_Error).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A status 200 with an unreadable object, for example one nested too deeply, may be the answer of an execution.
        if status in _OVERLOADED or status >= 500 or (status == 200 and body.startswith(b"{")):
            raise Lost(Failure.LOST, f"{url} answered {status}, and not as a server", _wait(headers)) from None
        raise ClosedError(f"{url} answered {status}, and not as a server of carmy/1 does; nothing has run") from None


def _wait(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() else None
