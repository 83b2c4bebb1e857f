"""What a caller asks for. Untrusted, whoever sent it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ExecutionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to run one tool.

    Attributes:
        tool: The tool's name.
        arguments: A mapping in process, `msgspec.Raw` JSON from a transport, None for ``{}``.
        request_id: The caller's idempotency identity, 1-256 bytes of UTF-8. Send it for anything that may be retried.
        timeout_ms: Most milliseconds to take, a positive number; it can only shorten the engine's and the tool's limit.
        metadata: Caller-defined data, part of the fingerprint.
    """

    tool: str
    arguments: Mapping[str, Any] | msgspec.Raw | None = None
    request_id: str | None = None
    timeout_ms: float | None = None
    metadata: Mapping[str, Any] | None = None
