"""The run of an agent or a graph that calls tools: who counts where, told by the program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .frozen import NOTHING


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """The run that calls come from; bound with ``engine.bind(run=...)``, and never part of a request.

    Attributes:
        thread_id: The conversation, or whatever the runs of one matter have in common.
        run_id: The run.
        node_path: Where in the run, such as ``triage/lookup``.
        attempt: Which attempt of the node, from 1.
        metadata: Values of the run. Tools find them in their context's ``metadata``, over those bound before.
        caller_id: Which agent or node calls.
        services: Objects of the run, such as its transaction. They are handed on to tools in process and nowhere else. What
            the whole application shares belongs in `State`.
    """

    thread_id: str | None = None
    run_id: str | None = None
    node_path: str | None = None
    attempt: int | None = None
    metadata: Mapping[str, Any] = NOTHING
    caller_id: str | None = None
    services: Mapping[Any, Any] = NOTHING
