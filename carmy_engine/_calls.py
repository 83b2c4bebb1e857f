"""The calls of a model's turn: what they are, how they are told apart for ever, and how they run side by side."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from ._crash import raise_single
from ._ids import MAX_REQUEST_ID_BYTES
from ._model.error import ErrorInfo
from ._model.request import ExecutionRequest
from ._result import ExecutionResult


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
    """The request that a call stands for."""
    return ExecutionRequest(tool=call.tool, arguments=call.arguments, request_id=request_id)


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
