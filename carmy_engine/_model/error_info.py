"""The data of an error, the same on every transport."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

MAX_DETAILS_BYTES = 256 * 1024
"""Size of the details of one error, as JSON. A result belongs in the output, which has its own limit."""

MAX_CODE_CHARS = 128
"""Length of a code, which every record repeats. Names of tools have the same limit."""

MAX_RETRY_AFTER_SECONDS = 30 * 86_400
"""Thirty days. No caller waits longer, and every language can represent the number."""


class ErrorCategory(enum.StrEnum):
    """The kind of failure. It decides what a caller can do about it."""

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
        code: Stable, upper case, for programs.
        message: Text for people and models; not part of the interface.
        category: See `ErrorCategory`.
        recoverable: The caller can repair the call and try again.
        retryable: The same call may succeed later, unchanged. Implies `recoverable`.
        retry_after: Seconds to wait before trying again.
        suggested_action: One sentence of advice.
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
