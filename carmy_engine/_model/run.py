"""The run of an agent or a graph that calls tools, set by the program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .frozen import NOTHING


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """The run that calls come from; bound with ``engine.bind(run=...)``, and never part of a request.

    Attributes:
        thread_id: The conversation, or another id that related runs share.
        run_id: The run.
        node_path: The position in the run, such as ``triage/lookup``.
        attempt: The number of the attempt at the node, from 1.
        metadata: Values of the run. They override earlier ones in the ``metadata`` of a tool's context.
        caller_id: The calling agent or node.
        services: Objects of the run, such as its transaction. Only tools in this process receive them. Objects of the whole
            application belong in `State`.
    """

    thread_id: str | None = None
    run_id: str | None = None
    node_path: str | None = None
    attempt: int | None = None
    metadata: Mapping[str, Any] = NOTHING
    caller_id: str | None = None
    services: Mapping[Any, Any] = NOTHING
