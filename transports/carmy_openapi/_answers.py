"""Answers of an API as data or as errors."""

from __future__ import annotations

import base64
import email.utils
import math
import time
from typing import Any

import msgspec

from carmy_engine import AgentError, ErrorCategory

from ._references import is_array, is_object

MAX_ERROR_BYTES = 8 * 1024
"""Size of the body of an error that its details repeat. Larger ones are pages for people."""

MAX_REASON_CHARS = 500
"""Length of the API's own reason in a message."""

DEFAULT_RETRY_SECONDS = 1.0
"""For an API that names no time."""

_CATEGORIES = {
    400: ErrorCategory.VALIDATION,
    401: ErrorCategory.PERMISSION,
    403: ErrorCategory.PERMISSION,
    404: ErrorCategory.NOT_FOUND,
    408: ErrorCategory.TIMEOUT,
    409: ErrorCategory.CONFLICT,
    410: ErrorCategory.NOT_FOUND,
    412: ErrorCategory.CONFLICT,
    413: ErrorCategory.CAPACITY,
    422: ErrorCategory.VALIDATION,
    429: ErrorCategory.CAPACITY,
    503: ErrorCategory.CAPACITY,
    504: ErrorCategory.TIMEOUT,
}

RETRYABLE = frozenset({429, 503})
"""Statuses by which an API asks to come back later."""

OUTPUT_SCHEMA: dict[str, Any] = {"description": "The answer of the API: JSON as it is, a text, or bytes in base64."}
"""Answers often differ from what a document promises, so they are not checked against it."""


def value_of(status: int, content_type: str, body: bytes, place: str) -> Any:
    """The data of an answer.

    Args:
        status: Below 300.
        content_type: As sent.
        body: The bytes.
        place: The operation, for messages.

    Raises:
        AgentError: ``INVALID_ANSWER``: it is not what its type names.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if status in (204, 205) or not body:
        return None
    try:
        if kind == "application/json" or kind.endswith("+json"):
            return msgspec.json.decode(body)
        if kind.startswith("text/") or kind in ("application/xml", "application/yaml", ""):
            return body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        message = f"the answer to {place} is not the {kind or 'text'} that it claims to be"
        raise AgentError.standard("INVALID_ANSWER", message, details={"status": status}) from None
    return {"mime_type": kind, "data": base64.b64encode(body).decode()}


def error_of(status: int, content_type: str, body: bytes, retry_after: str | None, place: str) -> AgentError:
    """The error of an answer with a status of 300 or more; its code is ``HTTP_`` and the status."""
    category = _CATEGORIES.get(status, ErrorCategory.VALIDATION if 400 <= status < 500 else ErrorCategory.INTERNAL)
    details: dict[str, Any] = {"status": status}
    reason = ""
    if len(body) <= MAX_ERROR_BYTES:
        try:
            found = value_of(status, content_type, body, place)
        except AgentError:
            found = None
        if isinstance(found, dict | list | str):
            details["body"] = found
            reason = _reason(found)
    is_retryable = status in RETRYABLE
    return AgentError(
        f"HTTP_{status}",
        f"{place} answered {status}" + (f": {reason}" if reason else ""),
        category,
        recoverable=400 <= status < 500,
        retryable=is_retryable,
        retry_after=_seconds(retry_after) if is_retryable else None,
        details=details,
    )


def _reason(found: Any) -> str:
    """The API's own reason: in the members that most interfaces use."""
    for _ in range(3):
        if is_object(found):
            named: list[Any] = [found.get(name) for name in _REASONS]
            found = next((one for one in named if one), "")
        elif is_array(found):
            found = found[0] if found else ""
        if isinstance(found, str):
            return found.strip()[:MAX_REASON_CHARS]
    return ""


_REASONS = ("detail", "message", "error_description", "error", "title", "errors", "msg")


def _seconds(text: str | None) -> float:
    """The seconds of ``Retry-After``, which has a number or a date (RFC 9110, 10.2.3)."""
    if text is None:
        return DEFAULT_RETRY_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError):
            return DEFAULT_RETRY_SECONDS
    return max(0.0, seconds) if math.isfinite(seconds) else DEFAULT_RETRY_SECONDS
