"""The request of a caller: untrusted data from any source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

OnRunning: TypeAlias = Literal["refuse", "wait"]
"""The behaviour of a request while another one with the same ``request_id`` is running."""


class ExecutionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request to run one tool.

    Attributes:
        tool: The tool's name.
        arguments: A mapping in process, `msgspec.Raw` JSON from a transport, None for ``{}``.
        request_id: The caller's idempotency identity, 1-256 bytes of UTF-8. Send it for anything that may be retried.
        timeout_ms: Time limit in milliseconds, a positive number; it can only shorten the limits of the engine and the tool.
        metadata: Caller-defined data, part of the fingerprint.
        on_running: While another attempt with this ``request_id`` is running: ``refuse`` is ``EXECUTION_UNCERTAIN`` at once,
            ``wait`` waits for its end, within this request's own limit, and returns its answer as a replay.
    """

    tool: str
    arguments: Mapping[str, Any] | msgspec.Raw | None = None
    request_id: str | None = None
    timeout_ms: float | None = None
    metadata: Mapping[str, Any] | None = None
    on_running: OnRunning = "refuse"
