"""Calls of one model turn: their types, their idempotency identities, and their concurrent execution."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from .._model.cause import Cause
from .._model.error_boundary import raise_single
from .._model.error_info import ErrorInfo
from .._model.errors import AgentError, ClosedError, OutcomeUnknownError
from .._model.ids import MAX_REQUEST_ID_BYTES
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .._model.result import ExecutionResult
from .._model.run import RunContext
from .execution import new_execution_id


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a model asks for.

    Attributes:
        tool: Name of the tool; the name that the model wrote if no tool has it.
        arguments: As the model wrote them, or a mapping; None for none.
        call_id: The model's id of the call, or a generated one.
        generated: `call_id` was generated, because the model sent none. It is not sent back to the model.
        turn: Id of the turn, for models whose call ids are unique within a turn only.
        name: The name that the model wrote.
        problem: Error of unreadable arguments; such a call is answered without running.
    """

    tool: str
    arguments: msgspec.Raw | Mapping[str, Any] | None = None
    call_id: str
    generated: bool = False
    turn: str | None = None
    name: str = ""
    problem: ErrorInfo | None = None


class ModelResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The result of one call of a model.

    Attributes:
        call: The call.
        result: Its result.
    """

    call: ModelCall
    result: ExecutionResult


def request_id_of(call: ModelCall, *, thread_id: str | None, run_id: str | None, repeated: int = 0) -> str:
    """The idempotency identity of a call: the run and the model's id of the call.

    Node and attempt are not included: a retried node with the same turn of the model must not repeat an effect.

    Args:
        call: The call.
        thread_id: Thread id of the caller's run.
        run_id: Run id of the caller's run.
        repeated: Number of earlier calls of the same turn with the same id.
    """
    parts = [thread_id, run_id, call.turn, call.call_id]
    readable = "/".join("" if part is None else quote(part, safe=":.,@+=", errors="surrogatepass") for part in parts)
    if repeated:
        readable += f"/{repeated}"
    whole = f"call:{readable}"
    if len(whole) <= MAX_REQUEST_ID_BYTES:
        return whole
    return f"call:sha256:{hashlib.sha256(whole.encode()).hexdigest()}"


def request_of(call: ModelCall, request_id: str) -> ExecutionRequest:
    """Request for a call. If the same turn already runs, the request waits for its answer."""
    return ExecutionRequest(tool=call.tool, arguments=call.arguments, request_id=request_id, on_running="wait")


async def run_side_by_side(
    calls: Sequence[ModelCall],
    run_one: Callable[[ModelCall, int], Awaitable[ExecutionResult]],
    takes_turns: Callable[[str], bool],
) -> list[ModelResult]:
    """Run calls concurrently and return one result for each, in their order.

    Calls to a tool that is not parallel-safe run one after the other, in the order of the model. The tool's queue alone would
    not keep this order.

    Args:
        calls: The calls of one turn of the model.
        run_one: Runs one call; the second argument is the number of earlier calls with the same id.
        takes_turns: Returns True if the tool of this name is not parallel-safe.

    Raises:
        trio.Cancelled: The caller's scope was cancelled; so were all calls.
    """
    results: dict[int, ExecutionResult] = {}
    seen: Counter[tuple[str | None, str]] = Counter()
    lanes: dict[object, list[tuple[int, ModelCall, int]]] = {}
    for place, call in enumerate(calls):
        lanes.setdefault(call.tool if takes_turns(call.tool) else place, []).append(
            (place, call, seen[call.turn, call.call_id])
        )
        seen[call.turn, call.call_id] += 1

    async def run_lane(lane: list[tuple[int, ModelCall, int]]) -> None:
        for place, call, repeated in lane:
            results[place] = await run_one(call, repeated)

    if len(lanes) == 1:
        await run_lane(*lanes.values())
    elif lanes:
        try:
            async with trio.open_nursery() as nursery:
                for lane in lanes.values():
                    nursery.start_soon(run_lane, lane)
        except BaseExceptionGroup as group:
            raise_single(group)
    return [ModelResult(call=call, result=results[place]) for place, call in enumerate(calls)]


async def run_calls(
    executor: Executor, calls: Iterable[ModelCall], *, run: RunContext | None = None
) -> list[ModelResult]:
    """Run the calls of one model turn concurrently in any executor; return one result for each, in their order.

    ::

        async with open_http(url) as shop:
            openai = provider("openai", await shop.catalog())
            ...
            conversation += openai.render(await run_calls(shop, openai.parse(response), run=run))

    The identity of a call is the run and its ``call_id``, as in `Engine.run_calls`. Unlike there, the tool and the record do not
    receive these ids, since a client sends no context. A call whose connection broke has a result as well:
    ``EXECUTOR_UNAVAILABLE`` if the tool has not run, and ``EXECUTION_UNCERTAIN`` if it may have.

    Args:
        executor: A client, a gateway, or an engine.
        calls: From a `carmy_engine.providers` format's ``parse``.
        run: The run that the turn belongs to. Without a ``run_id`` or ``thread_id``, the ids of the model alone are the identity.

    Raises:
        trio.Cancelled: The caller's own scope was cancelled; so were all calls.
    """
    asked = [*calls]
    thread_id, run_id = (None, None) if run is None else (run.thread_id, run.run_id)
    taking_turns = await _taking_turns(executor, asked)

    async def run_one(call: ModelCall, repeated: int) -> ExecutionResult:
        if call.problem is not None:
            return ExecutionResult(execution_id=new_execution_id(), error=call.problem)
        request_id = request_id_of(call, thread_id=thread_id, run_id=run_id, repeated=repeated)
        try:
            return await executor.execute(request_of(call, request_id))
        except (ClosedError, OutcomeUnknownError) as problem:
            return _lost(call, problem)

    return await run_side_by_side(asked, run_one, taking_turns.__contains__)


async def _taking_turns(executor: Executor, calls: Sequence[ModelCall]) -> set[str]:
    """Names of the tools whose calls must keep their order. Requests the catalog only if a tool is called twice."""
    repeated = {tool for tool, count in Counter(call.tool for call in calls).items() if count > 1}
    if not repeated:
        return repeated
    try:
        catalog = await executor.catalog()
    except ClosedError:
        return repeated  # each call reports this itself
    return repeated - {spec.name for spec in catalog.tools if spec.parallel_safe}


def _lost(call: ModelCall, problem: ClosedError | OutcomeUnknownError) -> ExecutionResult:
    """Result of a call whose executor is gone. It omits the exception's message, which may contain addresses."""
    if isinstance(problem, ClosedError):
        error = AgentError.standard(
            "EXECUTOR_UNAVAILABLE",
            f"the executor of {call.tool} cannot be reached; the tool was not run",
            details={"phase": "waiting"},
        )
    else:
        error = AgentError.standard(
            "EXECUTION_UNCERTAIN",
            f"the connection was lost while {call.tool} ran; its effects may or may not exist",
            suggested_action="Find out whether the effect exists before you call it again.",
            details={"state": "interrupted", "cause": Cause.DISCONNECT.value},
        )
    return ExecutionResult(execution_id="", error=error.info, exception=problem)
