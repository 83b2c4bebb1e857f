"""What a client decides, without a loop: what it sends, what an answer says, and whether to try again."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

import msgspec

from carmy_engine import AgentError, ClosedError, ErrorInfo, ExecutionRequest, ExecutionResult
from carmy_engine.codec import check_json, decode, invalid_request
from carmy_engine.transport import OnRunning, encode_arguments, may_join
from carmy_frames.protocol import parse_result

from ..message import MAX_BODY_BYTES

MAX_ATTEMPTS = 4
"""Of one request. With the waits below, a server may be away for about a second and a half."""

FIRST_WAIT_SECONDS = 0.2
"""Before the second attempt; doubled before each later one."""

MAX_WAIT_SECONDS = 10.0
"""A wait that a server asks for and that is longer is left to the caller, who knows better whether to wait."""

_NO_ARGUMENTS = msgspec.Raw(b"null")
"""Means ``{}``, as a missing field does; this very object is left out."""

_OVERLOADED = {429, 502, 503, 504}


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    def of(cls, request: ExecutionRequest) -> Question:
        """The question that a request puts.

        Raises:
            AgentError: It cannot be sent: what a server would say of it, said here.
        """
        arguments = request.arguments
        if arguments is None:
            arguments = _NO_ARGUMENTS
        elif isinstance(arguments, msgspec.Raw):
            raw = bytes(arguments)
            check_json(raw)
            decode(raw)
        else:
            arguments = msgspec.Raw(encode_arguments(arguments))
        if request.metadata is not None:
            raise invalid_request("metadata cannot be sent over a connection; put it into the arguments")
        timeout_ms = request.timeout_ms
        if timeout_ms is not None:
            _check_timeout(timeout_ms)
        may_join(request.on_running)
        found = cls(
            tool=request.tool,
            arguments=arguments,
            request_id=request.request_id,
            timeout_ms=timeout_ms,
            on_running=request.on_running,
        )
        try:
            size = len(found.body(math.inf))
        except (TypeError, UnicodeEncodeError) as error:
            raise invalid_request(f"it cannot be written as JSON: {error}") from None
        if size > MAX_BODY_BYTES:
            raise AgentError.standard(
                "PAYLOAD_TOO_LARGE",
                f"the request has {size} bytes; a server takes {MAX_BODY_BYTES}",
                suggested_action="Send large content by reference, for example as a URL or a path.",
                details={"limit_bytes": MAX_BODY_BYTES},
            )
        return found

    def seconds(self, remaining: float) -> float:
        """How long the server may take: the request's own limit, or what is left, whichever is shorter.

        Args:
            remaining: Seconds that the caller has left, infinite if it has no deadline.
        """
        own = math.inf if self.timeout_ms is None else self.timeout_ms / 1000
        # Never 0, which is not a limit: the caller's own scope ends the call in a moment.
        return min(own, max(remaining, 0.001))

    def body(self, remaining: float) -> bytes:
        """The JSON to send; see `seconds`."""
        seconds = self.seconds(remaining)
        timeout_ms = None if math.isinf(seconds) else seconds * 1000
        return msgspec.json.encode(msgspec.structs.replace(self, timeout_ms=timeout_ms))


def _check_timeout(timeout_ms: object) -> None:
    """What the engine requires of it. Infinity and NaN would be written as null, which means something else."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not 0 < timeout_ms < math.inf:
        raise invalid_request("timeout_ms must be a positive number of milliseconds")


class Failure(enum.Enum):
    """Why an attempt gave no answer of the server."""

    NOT_SENT = "not sent"
    """There was no connection: nothing has run."""
    LOST = "lost"
    """The connection broke after sending, or something between answered instead of the server."""


class Lost(Exception):  # noqa: N818 - a signal, turned into what the caller gets
    """An attempt that gave no answer of the server.

    Args:
        failure: How far it came.
        why: For a message.
        wait: Seconds that whoever answered asks to wait.
    """

    def __init__(self, failure: Failure, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.failure = failure
        self.why = why
        self.wait = wait


def next_wait(attempt: int, failure: Failure, *, repeatable: bool, asked: float | None = None) -> float | None:
    """Seconds until the next attempt; None if there must be none.

    Args:
        attempt: How many there have been.
        failure: How the last one failed.
        repeatable: Sending it twice is harmless: it has a request_id, or only reads the catalog.
        asked: The wait that the server asks for.
    """
    if attempt >= MAX_ATTEMPTS or (failure is Failure.LOST and not repeatable):
        return None
    wait = FIRST_WAIT_SECONDS * 2 ** (attempt - 1) if asked is None else asked
    return wait if wait <= MAX_WAIT_SECONDS else None


def runs_still(result: ExecutionResult) -> float | None:
    """Of the answer to a repeated request: seconds to wait, if the attempt that was cut off is still being cancelled."""
    error = result.error
    if error is None or error.code != "EXECUTION_UNCERTAIN" or (error.details or {}).get("state") != "running":
        return None
    return error.retry_after or FIRST_WAIT_SECONDS


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
        Lost: It is not this server's, but of something in between that may or may not have passed the request on.
        ClosedError: It is not this protocol's.
    """
    try:
        return parse_result(body, replayed=headers.get("idempotent-replayed") == "true")
    except AgentError:
        return ExecutionResult(execution_id="", error=read_error(url, status, headers, body))


def read_error(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """The error in an answer to something that was no valid request; see `read_answer`."""
    try:
        return msgspec.json.decode(body, type=_Error).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # A success with an object that cannot be read (too deep, say) may well be the answer of an execution.
        if status in _OVERLOADED or status >= 500 or (status == 200 and body.startswith(b"{")):
            raise Lost(Failure.LOST, f"{url} answered {status}, and not as a server", _wait(headers)) from None
        raise ClosedError(f"{url} answered {status}, and not as a server of carmy/1 does; nothing has run") from None


def _wait(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "").strip()
    return float(value) if value.isascii() and value.isdigit() else None
