"""The run of an agent or a graph that calls tools, set by the program that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .frozen import NOTHING


class RunIds(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of a run.

    Attributes:
        thread_id: The conversation, or another id that related runs share.
        run_id: The run.
        node_path: The position in the run, such as ``triage/lookup``.
        attempt: The number of the attempt at the node, from 1.
        caller_id: The calling agent or node.
    """

    thread_id: str | None = None
    run_id: str | None = None
    node_path: str | None = None
    attempt: int | None = None
    caller_id: str | None = None


class CallIds(RunIds, frozen=True, kw_only=True):
    """The ids of a call in a run, in the context of a tool and in the record of the call. All are None outside of runs.

    Attributes:
        call_id: The model's own id of the call.
    """

    call_id: str | None = None


class RunContext(RunIds, frozen=True, kw_only=True):
    """The run that calls come from; bound with ``engine.bind(run=...)``, and never part of a request.

    Attributes:
        thread_id: The conversation, or another id that related runs share.
        run_id: The run.
        node_path: The position in the run, such as ``triage/lookup``.
        attempt: The number of the attempt at the node, from 1.
        caller_id: The calling agent or node.
        metadata: Values of the run. They override earlier ones in the ``metadata`` of a tool's context.
        services: Objects of the run, such as its transaction. Only tools in this process receive them. Objects of the whole
            application belong in `State`.
    """

    metadata: Mapping[str, Any] = NOTHING
    services: Mapping[Any, Any] = NOTHING
