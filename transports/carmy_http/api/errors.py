"""Errors as HTTP answers: one table of status codes and the one JSON shape."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from carmy_engine import ErrorCategory, ErrorInfo
from carmy_engine.errors import AgentError
from carmy_engine.transport import log_traceback

from ..message import JSON_TYPE, NO_STORE, Response

log = logging.getLogger("carmy.http")

STATUS_OF_CATEGORY: Mapping[ErrorCategory, int] = {
    ErrorCategory.VALIDATION: 400,
    ErrorCategory.PERMISSION: 403,
    ErrorCategory.NOT_FOUND: 404,
    ErrorCategory.CANCELLED: 408,
    ErrorCategory.CONFLICT: 409,
    ErrorCategory.INTERNAL: 500,
    ErrorCategory.CAPACITY: 503,
    ErrorCategory.TIMEOUT: 504,
}
"""The status of an execution that ended with an error."""

_STATUS_OF_REFUSAL = {"PAYLOAD_TOO_LARGE": 413, "UNAUTHENTICATED": 401, "METHOD_NOT_ALLOWED": 405}
"""Refusals of this transport whose status depends on the code instead of the category."""


def retry_after(error: ErrorInfo) -> tuple[tuple[bytes, bytes], ...]:
    """The ``Retry-After`` header of an error that names a wait: whole seconds, rounded up."""
    if error.retry_after is None or not math.isfinite(error.retry_after):
        return ()
    return ((b"retry-after", b"%d" % max(0, math.ceil(error.retry_after))),)


def error_body(error: ErrorInfo) -> bytes:
    """``{"error": …}``: the body of an answer to something that was no valid request."""
    return b'{"error":%b}' % msgspec.json.encode(error)


def error_response(
    error: AgentError, *, status: int | None = None, headers: Iterable[tuple[bytes, bytes]] = ()
) -> Response:
    """The answer to a request that never became an execution."""
    info = error.info
    if status is None:
        status = _STATUS_OF_REFUSAL.get(info.code) or STATUS_OF_CATEGORY[info.category]
    return Response(status, (JSON_TYPE, NO_STORE, *retry_after(info), *headers), error_body(info))


def fault_response(what: str, fault: BaseException) -> Response:
    """The answer to a fault of the server or of the host's code.

    The answer contains an error id. The log contains the exception, under that id.
    """
    error_id = uuid.uuid4().hex
    log_traceback(log, fault, "%s (error id %s)", what, error_id)
    error = AgentError.standard(
        "INTERNAL_ERROR",
        "the server failed to handle the request; its log has the details under the error id",
        details={"error_id": error_id},
    )
    return error_response(error)
