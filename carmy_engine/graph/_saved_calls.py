"""Completed calls of a node that waits: they are replayed however long it waits.

The store of the engine keeps outcomes for its retention, which counts from their completion. An answer may come later.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .._engine.pipeline import json_arguments
from .._model.fingerprint import fingerprint
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult


class SavedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A completed call.

    Attributes:
        fingerprint: Of the request, in hexadecimal.
        execution_id: The execution.
        data: Its output.
    """

    fingerprint: str
    execution_id: str
    data: msgspec.Raw

    def replay(self, request: ExecutionRequest) -> ExecutionResult | None:
        """The result, if it is that of this request. Another request is for the engine to judge."""
        if self.fingerprint != _fingerprint(request):
            return None
        return ExecutionResult(execution_id=self.execution_id, data_json=bytes(self.data), replayed=True)


def saved_calls(calls: Mapping[str, tuple[ExecutionRequest, ExecutionResult]]) -> dict[str, SavedCall]:
    """The completed ones of some calls, by ``request_id``."""
    return {
        request_id: SavedCall(
            fingerprint=_fingerprint(request), execution_id=result.execution_id, data=msgspec.Raw(result.data_json)
        )
        for request_id, (request, result) in calls.items()
        if result.data_json is not None
    }


def _fingerprint(request: ExecutionRequest) -> str:
    return fingerprint(request.tool, json_arguments(request), request.metadata).hex()
