"""The one shape of an error, on every transport."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

MAX_DETAILS_BYTES = 256 * 1024
"""Of the details of one error, as JSON. They name what is wrong; a result belongs in the output, which has its own limit."""

MAX_CODE_CHARS = 128
"""Of a code. Programs compare it, and it stands in every record; tools' names have the same limit."""

MAX_RETRY_AFTER_SECONDS = 30 * 86_400
"""Thirty days. A longer wait outlives any caller, and every program that reads it can still count in it."""


class ErrorCategory(enum.StrEnum):
    """Whose fault it was, and so what a caller can do about it."""

    VALIDATION = "validation"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    CANCELLED = "cancelled"
    CONFLICT = "conflict"
    INTERNAL = "internal"
    CAPACITY = "capacity"
    TIMEOUT = "timeout"


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as data. Unset optional fields are omitted when it is encoded.

    Attributes:
        code: Stable, upper case; what programs act on.
        message: For people and models; never part of the interface.
        category: See `ErrorCategory`.
        recoverable: The caller can repair the call and try again.
        retryable: The same call may succeed later, unchanged. Implies `recoverable`.
        retry_after: Seconds to wait before trying again.
        suggested_action: One sentence on what to do.
        details: Machine-readable particulars, as JSON-shaped data.
    """

    code: str
    message: str
    category: ErrorCategory
    recoverable: bool
    retryable: bool
    retry_after: float | None = None
    suggested_action: str | None = None
    details: Mapping[str, Any] | None = None
