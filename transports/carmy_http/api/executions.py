"""``/agent/executions`` lists all executions, for callers with the permission; ``/{id}`` shows or cancels one of the caller's own."""

from __future__ import annotations

import msgspec

from carmy_engine import BoundEngine, Cause, ExecutionSummary, ListedExecution
from carmy_engine.codec import answer_body
from carmy_engine.errors import AgentError

from ..message import JSON_TYPE, NO_STORE, Request, Response

EXECUTIONS_PATH = "/agent/executions"
EXECUTIONS_PREFIX = EXECUTIONS_PATH + "/"


class ShownExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of the caller."""

    execution_id: str
    tool: str
    state: str
    started_at: float
    request_id: str | None = None
    result: msgspec.Raw | None = None


class ExecutionListing(msgspec.Struct, frozen=True):
    """The executions of all callers."""

    executions: list[ListedExecution]


class CancelledExecution(msgspec.Struct, frozen=True):
    """The answer to a cancellation; `cancelled` is false when the execution had already ended."""

    execution_id: str
    cancelled: bool


def _find(request: Request, engine: BoundEngine) -> ExecutionSummary:
    execution_id = request.head.path.removeprefix(EXECUTIONS_PREFIX)
    summary = engine.lookup(execution_id)
    if summary is None:
        raise AgentError.standard(
            "EXECUTION_NOT_FOUND",
            "there is no running or recently finished execution of this caller with that id",
            suggested_action="Send the request again with its request_id to learn the outcome.",
        )
    return summary


async def list_all(_request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET`` on the list: the executions of all callers, newest first.

    Raises:
        AgentError: ``FORBIDDEN`` without the permission; ``STORE_ERROR``.
    """
    return Response(200, (JSON_TYPE, NO_STORE), msgspec.json.encode(ExecutionListing(await engine.executions())))


async def show(request: Request, engine: BoundEngine) -> Response:
    """Answer ``GET``: the state and, once finished, the result as the caller got it.

    Raises:
        AgentError: ``EXECUTION_NOT_FOUND``, also for executions of others.
    """
    found = _find(request, engine)
    body = msgspec.json.encode(
        ShownExecution(
            execution_id=found.execution_id,
            tool=found.tool,
            state=found.state,
            started_at=found.started_at,
            request_id=found.request_id,
            result=None if found.result is None else msgspec.Raw(answer_body(found.result)),
        )
    )
    return Response(200, (JSON_TYPE, NO_STORE), body)


async def cancel(request: Request, engine: BoundEngine) -> Response:
    """Answer ``DELETE``: 202, with ``cancelled`` false when it had already finished.

    The call itself still gets its own answer; this handler does not wait for it.

    Raises:
        AgentError: ``EXECUTION_NOT_FOUND``, also for executions of others.
    """
    found = _find(request, engine)
    cancelled = engine.cancel(found.execution_id, Cause.CALLER)
    body = msgspec.json.encode(CancelledExecution(found.execution_id, cancelled))
    return Response(202, (JSON_TYPE, NO_STORE), body)
