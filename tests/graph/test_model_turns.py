"""Nodes that run the calls of a model's turn."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, AgentError, App, Cause, ModelCall, tool
from carmy_engine.graph import CompiledGraph, NodeContext, NodeToolEvent, RunStatus, StateGraph


@dataclasses.dataclass(frozen=True)
class State:
    """The answers to the calls of a turn."""

    answers: tuple[str, ...] = ()


def turn(*calls: tuple[str, dict[str, Any]]) -> list[ModelCall]:
    return [ModelCall(tool=name, arguments=given, call_id=f"call_{at}") for at, (name, given) in enumerate(calls)]


def graph_of(calls: list[ModelCall], *, asks: bool = False, fails: int = 0, **options: Any) -> CompiledGraph[State]:
    """One node that runs the calls, then asks, or fails in its first attempts."""

    async def node(state: State, ctx: NodeContext) -> State:
        results = await ctx.run_calls(calls)
        assert [each.call for each in results] == calls
        if asks:
            await ctx.interrupt("well?")
        if ctx.attempt <= fails:
            raise AgentError("AGAIN", "once more", "conflict")
        return State(tuple(each.result.error.code if each.result.error else each.result.data for each in results))

    return StateGraph(State).node("agent", node, **options).compile()


async def test_a_turn_has_the_context_of_its_node_and_happens_once() -> None:
    """Calls have the ids of the run and of the model, their events are in the stream, and a retried node replays them."""
    seen: list[tuple[Any, ...]] = []

    @tool(effect="write", register=False)
    async def pay(ctx: AgentContext, cents: int) -> str:
        """Pay."""
        seen.append((cents, ctx.thread_id, ctx.node_path, ctx.attempt, ctx.call_id, ctx.metadata["tenant"]))
        return f"paid {cents}"

    unreadable = ModelCall(
        tool="pay", call_id="call_9", problem=AgentError("INVALID_ARGUMENTS", "no JSON", "validation").info
    )
    calls = [*turn(("pay", {"cents": 1}), ("pay", {"cents": 2}), ("lost", {})), unreadable]
    graph = graph_of(calls, fails=1, retries=1, backoff=0)
    async with (
        App("shop").add(pay).open() as engine,
        graph.bind(engine).stream("t", State(), metadata={"tenant": "acme"}) as events,
    ):
        found = [event async for event in events]
    assert found[-1].result.unwrap() == State(("paid 1", "paid 2", "TOOL_NOT_FOUND", "INVALID_ARGUMENTS"))  # type: ignore[attr-defined] # the last one
    assert seen == [(1, "t", "agent", 1, "call_0", "acme"), (2, "t", "agent", 1, "call_1", "acme")]
    tools = [(event.node, event.kind) for event in found if isinstance(event, NodeToolEvent)]
    assert tools == [("agent", "tool.started"), ("agent", "tool.completed")] * 2


async def test_a_turn_has_the_time_of_its_node(autojump_clock: trio.testing.MockClock) -> None:
    """Calls end at the time limit of the node or the run, with a recorded outcome that the node gets: nothing is in doubt."""

    @tool(effect="write", parallel_safe=True, register=False)
    async def wait() -> None:
        """Wait."""
        await trio.sleep_forever()

    async with App("shop", timeout=1000).add(wait).open() as engine:
        bound = graph_of(turn(("wait", {}), ("wait", {})), timeout=5).bind(engine)
        began = trio.current_time()
        run = await bound.run("t", State())
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        assert run.unwrap() == State(("TIMEOUT", "TIMEOUT"))
        assert [record.error_code for record in engine.audit.newest()] == ["TIMEOUT"] * 2
        run = await graph_of(turn(("wait", {}))).bind(engine).run("u", State(), timeout=5)
        assert run.unwrap() == State(("TIMEOUT",))  # a node that ends with a value has ended


async def test_a_turn_in_doubt_stops_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """A call of a turn with an unknown outcome stops the run, naming tool and execution; its neighbours are not repeated."""
    caplog.set_level(logging.CRITICAL, "carmy")
    effects: list[str] = []
    started = trio.Event()

    @tool(effect="write", parallel_safe=True, register=False)
    async def pay(word: str) -> str:
        """Pay; the second one is cut off."""
        effects.append(word)
        if word == "cut off":
            started.set()
            await trio.sleep_forever()
        return word

    async with App("shop").add(pay).open() as engine:
        bound = graph_of(turn(("pay", {"word": "first"}), ("pay", {"word": "cut off"}))).bind(engine)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bound.run, "t", State())
            await started.wait()
            bound.cancel("t", Cause.SHUTDOWN)
        run = await bound.resume("t")
        (doubt,) = run.doubts
        assert (run.status, doubt.node, doubt.tool) == (RunStatus.IN_DOUBT, "agent", "pay")
        assert doubt.execution_id in {record.execution_id for record in engine.audit.newest()}
    assert sorted(effects) == ["cut off", "first"]


async def test_a_turn_before_a_question() -> None:
    """The calls before a question are replayed when the answer comes."""
    effects: list[str] = []

    @tool(effect="write", register=False)
    async def pay(word: str) -> str:
        """Pay."""
        effects.append(word)
        return word

    async with App("shop").add(pay).open() as engine:
        bound = graph_of(turn(("pay", {"word": "a"}), ("pay", {"word": "b"})), asks=True).bind(engine)
        run = await bound.run("t", State())
        assert run.status is RunStatus.INTERRUPTED
        assert (await bound.resume("t", answer=1)).unwrap() == State(("a", "b"))
    assert effects == ["a", "b"]
