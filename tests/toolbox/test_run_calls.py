"""The calls of a model's turn in any executor: the same as in an engine, and a result for each whatever breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

import carmy_http
import carmy_websocket
from carmy_engine import (
    App,
    Catalog,
    ClosedError,
    Engine,
    ExecutionRequest,
    ExecutionResult,
    ModelCall,
    OutcomeUnknownError,
    RunContext,
    Settings,
    run_calls,
    tool,
)
from carmy_engine.abc import Executor
from carmy_engine.providers import provider
from tests.toolbox.inventory import InventoryTools, search

RUN = RunContext(thread_id="order-1001", run_id="run-7")


@asynccontextmanager
async def reached(way: str, engine: Engine) -> AsyncIterator[Executor]:
    """The engine as an executor: itself, a client of a server, or what a gateway makes of it."""
    if way == "engine":
        yield engine
    elif way == "gateway":
        async with App("gateway").mount(engine).open() as gateway:
            yield gateway
    else:
        transport: Any
        opener: Any
        if way == "http":
            transport, opener = carmy_http.serve, carmy_http.open_http
        else:
            transport, opener = carmy_websocket.serve, carmy_websocket.open_websocket
        async with trio.open_nursery() as servers:
            line: str = await servers.start(partial(transport, engine))
            async with opener(line.rpartition(" ")[2]) as client:
                yield client
            servers.cancel_scope.cancel()


@asynccontextmanager
async def shop(way: str, *tools: object) -> AsyncIterator[tuple[Engine, Executor]]:
    app = App("shop", settings=Settings(address="127.0.0.1:0")).add(*tools)
    with trio.fail_after(20):
        async with app.open() as engine, reached(way, engine) as executor:
            yield engine, executor


def turn(*calls: tuple[str, str]) -> dict[str, Any]:
    """A turn of a model, in the format of chat completions."""
    return {
        "role": "assistant",
        "tool_calls": [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(calls)
        ],
    }


@pytest.mark.parametrize("way", ["engine", "gateway", "http", "websocket"])
async def test_a_turn_goes_through_every_executor(way: str) -> None:
    """Calls run, problems come back in words, and a turn that is run again repeats no effect, near and far."""
    stock = {"AB-12": 7}
    message = turn(
        ("inventory_reserve", '{"sku": "AB-12", "count": 2}'),
        ("search", '{"query": "mouse", "limit": 1}'),
        ("inventory_reserve", '{"sku": "AB-12"}'),
        ("inventory_reserve", '{"sku": "AB-'),
        ("restock", "{}"),
    )
    async with shop(way, InventoryTools(stock), search) as (_, executor):
        openai = provider("openai", await executor.catalog())
        told = [openai.render(await run_calls(executor, openai.parse(message), run=RUN)) for _ in range(2)]
    assert told[0] == told[1]
    assert [answer["tool_call_id"] for answer in told[0]] == [f"call_{place}" for place in range(5)]
    said = [answer["content"] for answer in told[0]]
    assert said[:3] == [
        "reserved 2 x AB-12 for (no tenant)",
        '["mouse 0"]',
        "invalid arguments: argument 'count' is missing",
    ]
    assert said[3].startswith("invalid arguments: the arguments are not valid JSON")
    assert said[4].startswith("no such tool")
    assert stock == {"AB-12": 5}


async def test_the_identity_is_that_of_the_engines_own() -> None:
    """A turn that was run with one is a replay with the other; another run, or none, is another call."""
    stock = {"AB-12": 7}
    calls = [ModelCall(tool="inventory.reserve", arguments={"sku": "AB-12", "count": 1}, call_id="call_1")]
    async with shop("engine", InventoryTools(stock)) as (engine, executor):
        ran = [
            await engine.bind(run=RUN).run_calls(calls),
            await run_calls(executor, calls, run=RUN),
            await run_calls(executor, calls),
            await run_calls(executor, calls, run=RunContext(run_id="run-8")),
        ]
    assert [results[0].result.replayed for results in ran] == [False, True, False, False]
    assert stock == {"AB-12": 4}


@pytest.mark.parametrize("way", ["engine", "websocket"])
async def test_a_turn_that_is_run_twice_at_once_has_one_effect(way: str) -> None:
    """Run again while it still runs, a turn waits for the end of the first, and both get its answer."""
    began, go_on = trio.Event(), trio.Event()
    effects: list[int] = []
    answers: list[tuple[Any, bool]] = []

    @tool(effect="write", parallel_safe=True, register=False)
    async def act(number: int) -> int:
        """Act once."""
        began.set()
        await go_on.wait()
        effects.append(number)
        return number

    calls = [ModelCall(tool="act", arguments={"number": 7}, call_id="call_1")]
    async with shop(way, act) as (engine, executor), trio.open_nursery() as nursery:

        async def run() -> None:
            (found,) = await run_calls(executor, calls, run=RUN)
            answers.append((found.result.unwrap(), found.result.replayed))

        nursery.start_soon(run)
        await began.wait()
        nursery.start_soon(run)
        while engine.statistics().running < 2:
            await trio.lowlevel.checkpoint()
        go_on.set()
    assert effects == [7]
    assert sorted(answers) == [(7, False), (7, True)]


async def test_the_models_order_is_kept_far_away() -> None:
    """Calls to one tool that takes turns run in the order of the model, also through a client."""
    order: list[int] = []

    @tool(effect="write", register=False)
    async def append(number: int) -> int:
        """Keep the order."""
        order.append(number)
        return number

    calls = [ModelCall(tool="append", arguments={"number": n}, call_id=f"a{n}") for n in range(16)]
    async with shop("websocket", append) as (_, executor):
        results = await run_calls(executor, calls, run=RUN)
    assert order == [*range(16)]
    assert [result.result.unwrap() for result in results] == order


class Scripted:
    """An executor whose calls end as their tool is named; counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.calls: list[str] = []

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        self.calls.append(request.tool)
        if request.tool == "unsent":
            raise ClosedError("http://10.0.0.1 cannot be reached")
        if request.tool == "unknown":
            raise OutcomeUnknownError("http://10.0.0.1 went away")
        await trio.lowlevel.checkpoint()
        return ExecutionResult(execution_id="exec_1", data_json=b"1")

    def stream(self, request: ExecutionRequest) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def catalog(self) -> Catalog:
        self.asked += 1
        raise ClosedError("http://10.0.0.1 cannot be reached")


async def test_each_call_has_a_result_whatever_breaks() -> None:
    """A lost connection is the result of the calls that it met, by whether they may have run, and of no other."""
    executor = Scripted()
    calls = [ModelCall(tool=name, call_id=name) for name in ("unsent", "fine", "unknown")]
    unsent, fine, unknown = [one.result for one in await run_calls(executor, calls)]
    assert fine.unwrap() == 1
    assert unsent.error is not None
    assert unknown.error is not None
    assert (unsent.error.code, unsent.error.retryable) == ("EXECUTOR_UNAVAILABLE", True)
    assert (unknown.error.code, unknown.error.retryable) == ("EXECUTION_UNCERTAIN", False)
    assert isinstance(unknown.exception, OutcomeUnknownError)
    openai = provider("openai", ())
    said = [answer["content"] for answer in openai.render(await run_calls(executor, calls))]
    assert said[2] == (
        "the connection was lost while unknown ran; its effects may or may not exist. "
        "Find out whether the effect exists before you call it again."
    )
    assert not any("10.0.0.1" in words for words in said)


async def test_nobody_is_asked_about_order_without_need() -> None:
    """A turn with one call for each tool costs no catalog; with two it is asked for, and its loss is no failure."""
    executor = Scripted()
    assert await run_calls(executor, []) == []
    await run_calls(executor, [ModelCall(tool=name, call_id=name) for name in "ab"])
    assert executor.asked == 0
    results = await run_calls(executor, [ModelCall(tool="a", call_id=name) for name in "ab"])
    assert executor.asked == 1
    assert [result.result.unwrap() for result in results] == [1, 1]


async def test_what_cannot_be_read_is_not_sent() -> None:
    """Arguments that are no JSON are answered here."""
    executor = Scripted()
    openai = provider("openai", ())
    (result,) = await run_calls(executor, openai.parse(turn(("fine", "{"))))
    assert result.result.error is not None
    assert result.result.error.code == "INVALID_ARGUMENTS"
    assert executor.calls == []
