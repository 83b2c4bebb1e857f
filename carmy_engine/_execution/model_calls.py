"""The calls of a model's turn: what they are, how they are told apart for ever, and how they run side by side."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from .._model.cause import Cause
from .._model.error import ErrorInfo
from .._model.error_boundary import raise_single
from .._model.errors import AgentError, ClosedError, OutcomeUnknownError
from .._model.execution_result import ExecutionResult
from .._model.ids import MAX_REQUEST_ID_BYTES, new_execution_id
from .._model.protocols import Executor
from .._model.request import ExecutionRequest
from .._model.run import RunContext


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call that a model asks for.

    Attributes:
        tool: The tool's own name, or what the model wrote if no tool is called like that.
        arguments: As the model wrote them, or a mapping; None for none.
        call_id: The model's id of the call, or one made up for it.
        generated: `call_id` was made up: the model gave none, and is told none.
        turn: Which turn of the conversation it belongs to. For models whose ids are unique within a turn only.
        name: The name that the model wrote.
        problem: Why the arguments cannot be read; such a call is answered without running.
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
        result: What became of it.
    """

    call: ModelCall
    result: ExecutionResult


def request_id_of(call: ModelCall, *, thread_id: str | None, run_id: str | None, repeated: int = 0) -> str:
    """The idempotency identity of a call: the run and the model's id of the call.

    Node and attempt are no part of it: a node that is tried again with the same turn of the model must not repeat an effect.

    Args:
        call: The call.
        thread_id: Of the caller's run.
        run_id: Of the caller's run.
        repeated: How many calls of the same turn before this one have the same id.
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
    """The request that a call stands for. A turn that is run again while it runs waits for its end: it wants the answer."""
    return ExecutionRequest(tool=call.tool, arguments=call.arguments, request_id=request_id, on_running="wait")


async def run_side_by_side(
    calls: Sequence[ModelCall],
    run_one: Callable[[ModelCall, int], Awaitable[ExecutionResult]],
    takes_turns: Callable[[str], bool],
) -> list[ModelResult]:
    """Run calls together and give one result for each, in their order.

    Calls to a tool whose calls take turns run one after the other, in the order of the model: it may count on that, and
    a queue would not keep it.

    Args:
        calls: Those of one turn of the model.
        run_one: Runs one; also gets how many before it have the same id.
        takes_turns: Whether the calls to the tool of this name take turns.

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
    """Run the calls of a model's turn together, in any executor; each gets exactly one result, in their order.

    ::

        async with open_http(url) as shop:
            openai = provider("openai", await shop.catalog())
            ...
            conversation += openai.render(await run_calls(shop, openai.parse(response), run=run))

    The identity of a call is the run and its ``call_id``, as in `Engine.run_calls`, which also tells the tool and the record of
    both: what a client sends holds no context. A call whose connection broke has a result as well: ``EXECUTOR_UNAVAILABLE`` if
    the tool has not run, and ``EXECUTION_UNCERTAIN`` if it may have.

    Args:
        executor: A client, a gateway, or an engine.
        calls: From a `carmy_engine.providers` format's ``parse``.
        run: Whose turn it is. Without a ``run_id`` or ``thread_id``, the ids of the model alone are the identity.

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
    """The tools whose order among these calls matters. A turn with one call for each tool asks nobody."""
    repeated = {tool for tool, count in Counter(call.tool for call in calls).items() if count > 1}
    if not repeated:
        return repeated
    try:
        catalog = await executor.catalog()
    except ClosedError:
        return repeated  # the calls will find that out, each for itself
    return repeated - {spec.name for spec in catalog.tools if spec.parallel_safe}


def _lost(call: ModelCall, problem: ClosedError | OutcomeUnknownError) -> ExecutionResult:
    """The result of a call whose executor went away. What the exception says is for people: it may name addresses."""
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
