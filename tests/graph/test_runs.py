"""Runs: ways through a graph, retries, limits, errors, events, cancellation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio

from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    BoundEngine,
    Cause,
    ClosedError,
    DeclarationError,
    ExecutionRequest,
    tool,
)
from carmy_engine.abc import Checkpoint
from carmy_engine.graph import (
    END,
    BoundGraph,
    MemoryCheckpoints,
    NodeCompleted,
    NodeContext,
    RunCompleted,
    RunStatus,
    StateGraph,
    merge_fields,
)


@dataclasses.dataclass(frozen=True)
class State:
    """A trace of the nodes, and two results."""

    trace: tuple[str, ...] = ()
    left: int = 0
    right: int = 0


def mark(name: str) -> Any:
    """A node that adds its name to the trace."""

    async def node(state: State) -> State:
        return dataclasses.replace(state, trace=(*state.trace, name))

    return node


def both(before: State, after: Any) -> State:
    """A merge that takes the fields of the branches, and their traces in the order of their names."""
    new = [name for branch in sorted(after) for name in after[branch].trace[len(before.trace) :]]
    return State((*before.trace, *new), max(s.left for s in after.values()), max(s.right for s in after.values()))


async def outcome(graph: StateGraph[State], *tools: Any, **options: Any) -> Any:
    async with App("empty").add(*tools).open() as engine:
        return await graph.compile().bind(engine).run("t", State(), **options)


async def test_branches_loops_and_conditions() -> None:
    """Choices lead on by label, a loop goes on up to its limit, and a node with a false condition is skipped."""
    graph = (
        StateGraph(State)
        .node("a", mark("a"), max_visits=3)
        .node("skipped", mark("skipped"), when=lambda state: len(state.trace) > 100)
        .node("end", mark("end"))
        .edge("a", "skipped")
        .branch("skipped", lambda state: "again" if len(state.trace) < 3 else "on", {"again": "a", "on": "end"})
    )
    run = await outcome(graph)
    assert run.unwrap().trace == ("a", "a", "a", "end")


async def test_a_loop_beyond_its_limit() -> None:
    """One visit more than allowed fails the run, or takes the error edge of the node."""

    def endless() -> StateGraph[State]:
        graph = StateGraph(State).node("a", mark("a"), max_visits=2).node("sorry", mark("sorry"))
        return graph.branch("a", lambda state: "a", ["a", "sorry"])

    run = await outcome(endless())
    assert (run.status, run.error.code) == (RunStatus.FAILED, "LOOP_LIMIT")
    assert "the node a was to be visited more than 2 times" in run.error.message
    run = await outcome(endless().on_error("a", "sorry"))
    assert run.unwrap().trace == ("a", "a", "sorry")


async def test_fan_out_runs_at_once_and_merges(autojump_clock: trio.testing.MockClock) -> None:
    """Branches of several nodes run side by side, each with a state of its own; the merge makes one of them."""

    async def left(state: State) -> State:
        await trio.sleep(3)
        return dataclasses.replace(state, left=1)

    async def right(state: State) -> State:
        await trio.sleep(2)
        return dataclasses.replace(state, right=2)

    graph = (
        StateGraph(State)
        .node("plan", mark("plan"))
        .node("left", left)
        .node("right", right)
        .node("right2", right)
        .node("sum", mark("sum"))
        .edge("right", "right2")
        .fan_out("plan", ["left", "right"], merge=merge_fields, then="sum")
    )
    began = trio.current_time()
    run = await outcome(graph)
    assert run.unwrap() == State(("plan", "sum"), 1, 2)
    assert trio.current_time() - began == pytest.approx(4)


async def test_a_merge_by_fields_refuses_a_conflict() -> None:
    """Two branches that change one field need a merge that decides."""
    graph = StateGraph(State).node("a", mark("a")).node("b", mark("b")).node("c", mark("c"))
    run = await outcome(graph.fan_out("a", ["b", "c"], merge=merge_fields))
    assert run.status is RunStatus.FAILED
    assert "the branches b and c have both changed the field 'trace'" in run.error.message


async def test_nested_fan_outs_and_subgraphs() -> None:
    """A branch may be a graph with branches of its own."""
    inner = StateGraph(State, name="inner").node("p", mark("p")).node("q", mark("q")).node("r", mark("r"))
    inner.fan_out("p", ["q", "r"], merge=both)
    graph = (
        StateGraph(State)
        .node("a", mark("a"))
        .node("b", inner)
        .node("c", mark("c"))
        .node("d", mark("d"))
        .fan_out("a", ["b", "c"], merge=both, then="d")
    )
    run = await outcome(graph)
    assert run.unwrap().trace == ("a", "p", "q", "r", "c", "d")


async def test_retries_with_back_off(autojump_clock: trio.testing.MockClock) -> None:
    """A failed node is tried again after waits that double; the last failure counts. A node sees its attempt."""
    attempts: list[tuple[int, float]] = []

    async def flaky(state: State, ctx: NodeContext) -> State:
        attempts.append((ctx.attempt, trio.current_time()))
        if ctx.attempt < 4:
            raise OSError("no route")
        return state

    began = trio.current_time()
    run = await outcome(StateGraph(State).node("flaky", flaky, retries=3, backoff=1))
    assert run.status is RunStatus.COMPLETED
    assert [(number, at - began) for number, at in attempts] == [(1, 0), (2, 1), (3, 3), (4, 7)]
    attempts.clear()
    run = await outcome(StateGraph(State).node("flaky", flaky, retries=1, backoff=1))
    assert run.error.code == "NODE_PANIC"
    assert "no route" not in run.error.message
    assert isinstance(run.exception, OSError)


async def test_a_retry_replays_what_had_happened() -> None:
    """Calls of a retried node have the identities of the first attempt: nothing happens twice."""
    effects: list[str] = []

    @tool(effect="write", register=False)
    async def pay(amount: int) -> str:
        """Pay."""
        effects.append(f"paid {amount}")
        return f"receipt {len(effects)}"

    receipts: list[str] = []

    async def node(state: State, ctx: NodeContext) -> None:
        receipts.append(await ctx.call(pay, amount=3))
        receipts.append((await ctx.execute(ExecutionRequest(tool="pay", arguments={"amount": 4}))).unwrap())
        if ctx.attempt == 1:
            raise OSError

    run = await outcome(StateGraph(State).node("node", node, retries=1, backoff=0), pay)
    assert run.status is RunStatus.COMPLETED
    assert effects == ["paid 3", "paid 4"]
    assert receipts == ["receipt 1", "receipt 2"] * 2


async def test_calls_at_once_have_names() -> None:
    """Calls that run at the same time have identities of their own by their steps, whatever their order."""
    effects: list[int] = []

    @tool(effect="write", parallel_safe=True, register=False)
    async def pay(amount: int) -> int:
        """Pay."""
        await trio.lowlevel.checkpoint()
        effects.append(amount)
        return amount

    async def node(state: State, ctx: NodeContext) -> None:
        async def one(amount: int) -> None:
            assert await ctx.step(f"p{amount}").call(pay, amount=amount) == amount

        async with trio.open_nursery() as nursery:
            for amount in range(8) if ctx.attempt == 1 else reversed(range(8)):
                nursery.start_soon(one, amount)
        if ctx.attempt < 5:
            raise OSError

    run = await outcome(StateGraph(State).node("node", node, retries=4, backoff=0), pay)
    assert run.status is RunStatus.COMPLETED
    assert sorted(effects) == [*range(8)]


async def test_an_error_edge() -> None:
    """A fallible node hands the state before it, and its error, to another node."""

    async def breaks(state: State) -> State:
        raise AgentError("OUT_OF_STOCK", "none left", "conflict")

    async def repair(state: State, ctx: NodeContext) -> State:
        assert ctx.error is not None
        return dataclasses.replace(state, trace=(*state.trace, ctx.error.code))

    graph = StateGraph(State).node("a", mark("a")).node("b", breaks).node("repair", repair)
    run = await outcome(graph.edge("a", "b").on_error("b", "repair"))
    assert run.unwrap().trace == ("a", "OUT_OF_STOCK")
    inner = StateGraph(State).node("b", breaks)
    graph = StateGraph(State).node("sub", inner).node("repair", repair).on_error("sub", "repair")
    assert (await outcome(graph)).unwrap().trace == ("OUT_OF_STOCK",)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError("x"), BaseException])
async def test_a_node_is_foreign_code(error: Any) -> None:
    """Whatever a node, a condition, a choice or a merge raises fails its run and nothing else."""

    def breaks(*args: Any) -> Any:
        raise error

    async def waits(state: State) -> State:
        await trio.lowlevel.checkpoint()
        raise error

    async def leaves_a_scope_open(state: State) -> State:
        trio.CancelScope().__enter__()
        return state

    def returns_seven(state: State) -> int:
        return 7

    step = mark("a")
    graphs = [
        StateGraph(State).node("a", breaks),
        StateGraph(State).node("a", waits),
        StateGraph(State).node("a", leaves_a_scope_open),
        StateGraph(State).node("a", step, when=breaks),
        StateGraph(State).node("a", step).node("b", step).branch("a", breaks, ["b", END]),
        StateGraph(State).node("a", step).node("b", step).node("c", step).fan_out("a", ["b", "c"], merge=breaks),
        StateGraph(State).node("a", returns_seven),
    ]
    codes: list[str] = []
    for graph in graphs:
        run = await outcome(graph)
        assert run.status is RunStatus.FAILED
        codes.append(run.error.code)
    assert codes == [*["NODE_PANIC"] * 6, "INVALID_STATE"]


async def test_a_choice_without_a_target() -> None:
    """A label that leads nowhere fails the run, naming the labels."""
    graph = StateGraph(State).node("a", mark("a")).node("b", mark("b")).branch("a", lambda state: "x", ["b", END])
    run = await outcome(graph)
    assert run.error.message == "the choice after the node a returned no label of b, __end__"


async def test_the_deadline_of_the_run_reaches_every_tool(autojump_clock: trio.testing.MockClock) -> None:
    """Tools end at the run's deadline, the run is timed out, and `resume` goes on."""
    seen: list[float] = []

    @tool(effect="read", parallel_safe=True, register=False)
    async def look(ctx: AgentContext) -> None:
        """Look."""
        seen.append(ctx.remaining())
        await trio.sleep(4)

    async def node(state: State, ctx: NodeContext) -> None:
        assert ctx.remaining() <= 6
        await ctx.call(look)

    graph = StateGraph(State).node("a", node).node("b", node).edge("a", "b").compile()
    async with App("shop").add(look).open() as engine:
        bound = graph.bind(engine)
        run = await bound.run("t", State(), timeout=6)
        assert (run.status, run.cause, seen) == (RunStatus.TIMED_OUT, Cause.DEADLINE, [6, 2])
        assert run.error is not None
        assert run.error.code == "TIMEOUT"
        assert (await bound.resume("t", deadline=trio.current_time() + 5)).status is RunStatus.COMPLETED


async def test_cancelling_a_run_has_a_cause(autojump_clock: trio.testing.MockClock) -> None:
    """The cause reaches the tools; a write that was cancelled has a recorded outcome, so nothing is in doubt."""
    causes: list[Cause | None] = []

    @tool(effect="write", register=False)
    async def slow(ctx: AgentContext) -> None:
        """Wait."""
        try:
            await trio.sleep_forever()
        finally:
            causes.append(ctx.cancellation.cause)

    async def node(state: State, ctx: NodeContext) -> None:
        await ctx.call(slow)

    graph = StateGraph(State).node("a", node).compile()
    async with App("shop", timeout=1000).add(slow).open() as engine:
        bound = graph.bind(engine)
        assert bound.cancel("t") is False
        runs: list[Any] = []

        async def run() -> None:
            runs.append(await bound.run("t", State()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            assert bound.cancel("t", Cause.OPERATOR) is True
        assert (runs[0].status, runs[0].cause, causes) == (RunStatus.CANCELLED, Cause.OPERATOR, [Cause.OPERATOR])
        assert runs[0].error.code == "CANCELLED"
        again: Any = await bound.resume("t")
        assert (again.status, again.error.code, len(causes)) == (RunStatus.FAILED, "CANCELLED", 1)


async def test_events() -> None:
    """A stream has the events of the run, its nodes, their tools and its checkpoints, in order; leaving it cancels."""

    @tool(effect="read", register=False)
    async def look() -> int:
        """Look."""
        return 7

    async def node(state: State, ctx: NodeContext) -> State:
        return dataclasses.replace(state, left=await ctx.call(look))

    graph = StateGraph(State).node("a", node).node("b", mark("b")).edge("a", "b").compile()
    async with App("shop").add(look).open() as engine:
        bound = graph.bind(engine)
        async with bound.stream("t", State()) as events:
            found = [event async for event in events]
        async with bound.stream("u", State()) as events:
            async for event in events:
                if isinstance(event, NodeCompleted):
                    break
        rest = await bound.resume("u")
    assert [event.kind for event in found] == [
        "run.started",
        "checkpoint.saved",
        *("node.started", "tool.started", "tool.completed", "node.completed", "checkpoint.saved"),
        *("node.started", "node.completed", "checkpoint.saved"),
        "checkpoint.saved",
        "run.completed",
    ]
    assert [event.seq for event in found] == [*range(len(found))]
    last = found[-1]
    assert isinstance(last, RunCompleted)
    assert last.result.state == State(("b",), 7)
    assert rest.state == State(("b",), 7)


async def test_a_stream_raises_what_a_run_raises() -> None:
    """A refusal reaches the reader of a stream; a run that is not continued has its first and its last event."""

    async def asks(trace: State, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    graph = StateGraph(State).node("a", asks).compile()
    async with App("empty").open() as engine:
        bound = graph.bind(engine)

        async def resumed() -> list[Any]:
            async with bound.stream_resume("t") as events:
                return [event async for event in events]

        for _ in range(20):  # the order in which the reader and the run end is not fixed
            with pytest.raises(AgentError, match="THREAD_NOT_FOUND"):
                await resumed()
        await bound.run("t", State())
        found = await resumed()
    assert [(event.seq, event.kind) for event in found] == [(0, "run.started"), (1, "run.completed")]
    assert isinstance(found[-1], RunCompleted)
    assert found[-1].result.question == "well?"


async def test_one_run_on_a_thread() -> None:
    """A thread whose run has not ended takes no second one, and a run that goes on elsewhere stops this one."""

    async def asks(state: State, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    graph = StateGraph(State).node("a", asks).compile()
    store = MemoryCheckpoints()
    async with App("empty").open() as engine:
        bound = graph.bind(engine, checkpoints=store)
        assert (await bound.run("t", State())).status is RunStatus.INTERRUPTED
        with pytest.raises(AgentError, match=r"THREAD_BUSY: the run run_.* has not ended \(interrupted\)"):
            await bound.run("t", State())
        with pytest.raises(AgentError, match="THREAD_NOT_FOUND"):
            await bound.resume("unknown")
        with pytest.raises(DeclarationError, match="nodes that have asked: a"):
            await bound.resume("t", answer=1, node="b")

        async def overtaken(state: State) -> None:
            latest = await store.latest_checkpoint("State", "u")
            assert latest is not None
            assert await store.save_checkpoint(
                Checkpoint(
                    graph="State",
                    thread_id="u",
                    number=latest.number + 1,
                    run_id=latest.run_id,
                    status=latest.status,
                    node=None,
                    saved_at=0,
                    document=latest.document,
                )
            )

        other: BoundGraph[State] = StateGraph(State).node("a", overtaken).compile().bind(engine, checkpoints=store)
        run = await other.run("u", State())
        assert run.error is not None
        assert (run.status, run.error.code) == (RunStatus.FAILED, "THREAD_BUSY")


async def test_history() -> None:
    """The history has each checkpoint, newest first, with the node that ended, the next one and the state."""
    graph = StateGraph(State).node("a", mark("a")).node("b", mark("b")).edge("a", "b").compile()
    async with App("empty").open() as engine:
        bound = graph.bind(engine)
        await bound.run("t", State())
        found = await bound.history("t")
        assert await bound.history("unknown") == []
        assert len(await bound.history("t", limit=2)) == 2
    assert [(each.node, each.next, each.state.trace, each.status.value) for each in found] == [
        (None, (), ("a", "b"), "completed"),
        ("b", (), ("a", "b"), "running"),
        ("a", ("b",), ("a",), "running"),
        (None, ("a",), (), "running"),
    ]


class BrokenStore(MemoryCheckpoints):
    """A store that fails at its second checkpoint."""

    async def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.number == 1:
            raise OSError("disk on fire")
        return await super().save_checkpoint(checkpoint)


async def test_a_store_that_fails() -> None:
    """A checkpoint that cannot be saved fails the run, without the text of the exception."""
    run = await outcome(StateGraph(State).node("a", mark("a")), checkpoints=BrokenStore())
    assert (run.status, run.error.code) == (RunStatus.FAILED, "STORE_ERROR")
    assert "fire" not in run.error.message


async def test_a_graph_is_a_tool() -> None:
    """A graph in an application runs for each call, with the caller's context; a call that is sent again is replayed."""
    principals: list[str | None] = []

    @tool(effect="write", register=False)
    async def pay(ctx: AgentContext) -> int:
        """Pay."""
        principals.append(ctx.principal)
        return len(principals)

    async def node(state: State, ctx: NodeContext) -> State:
        return dataclasses.replace(state, left=await ctx.call(pay))

    graph = StateGraph(State).node("a", node).compile()
    app = App("shop").add(pay, graph.as_tool("checkout", effect="write"))
    async with app.open() as engine:
        caller: BoundEngine = engine.bind(principal="ana")
        spec = {spec.name: spec for spec in (await caller.catalog()).tools}["checkout"]
        assert (spec.description, spec.effect.value) == ("Run the graph State.", "write")
        request = ExecutionRequest(tool="checkout", arguments={"right": 5}, request_id="r1")
        first = await caller.execute(request)
        assert first.unwrap() == {"trace": [], "left": 1, "right": 5}
        again = await caller.execute(request)
        assert (again.unwrap(), again.replayed) == (first.data, True)
        bad = await caller.execute(ExecutionRequest(tool="checkout", arguments={"wrong": 5}))
        assert bad.error is not None
        assert bad.error.code == "INVALID_ARGUMENTS"
    assert principals == ["ana"]


async def test_a_graph_tool_that_asks() -> None:
    """A run that waits answers RUN_INTERRUPTED with its thread; after the answer, the same call gets the result."""

    async def asks(state: State, ctx: NodeContext) -> State:
        return dataclasses.replace(state, left=await ctx.interrupt({"amount": 3}))

    graph = StateGraph(State).node("a", asks).compile()
    async with App("shop").add(graph.as_tool("approve", effect="write")).open() as engine:
        request = ExecutionRequest(tool="approve", request_id="r1")
        first = await engine.execute(request)
        assert first.error is not None
        assert first.error.code == "RUN_INTERRUPTED"
        details = first.error.details or {}
        assert details["questions"] == [{"node": "a", "value": {"amount": 3}}]
        run = await graph.bind(engine).resume(details["thread_id"], answer=9)
        assert run.state.left == 9
        assert (await engine.execute(request)).unwrap()["left"] == 9


async def test_a_context_ends_with_its_node() -> None:
    """A context that is kept cannot be used when its node has ended: its calls would belong to no run."""
    effects: list[str] = []
    kept: list[NodeContext] = []

    @tool(effect="write", register=False)
    async def pay() -> None:
        """Pay."""
        effects.append("paid")

    async def keeps(state: State, ctx: NodeContext) -> None:
        kept.append(ctx)

    graph = StateGraph(State).node("a", keeps).compile()
    async with App("shop").add(pay).open() as engine:
        await graph.bind(engine).run("t", State())
        for use in (lambda: kept[0].call(pay), lambda: kept[0].dispatch("pay"), lambda: kept[0].interrupt("well?")):
            with pytest.raises(ClosedError, match="the context of the node a was used after the node had ended"):
                await use()
    assert effects == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"thread_id": ""}, "a thread_id is a text of 1-256 bytes"),
        ({"thread_id": "x" * 257}, "a thread_id is a text of 1-256 bytes"),
        ({"thread_id": 5}, "a thread_id is a text of 1-256 bytes, not 5"),
        ({"metadata": {"a": object()}}, "the metadata has no JSON form"),
        ({"timeout": 0}, "timeout is a number of seconds above 0"),
    ],
)
async def test_what_is_not_valid_runs_nothing(wrong: dict[str, Any], told: str) -> None:
    """A wrong argument of `run` is refused before anything is saved."""
    graph = StateGraph(State).node("a", mark("a")).compile()
    arguments: dict[str, Any] = {"thread_id": "t", "initial": State(), **wrong}
    async with App("empty").open() as engine:
        bound = graph.bind(engine)
        with pytest.raises(DeclarationError, match=told):
            await bound.run(**arguments)
        assert await bound.history("t") == []


async def test_an_answer_and_a_question_are_json() -> None:
    """A question without a JSON form fails its node; such an answer is refused, and the run waits on."""

    async def asks(state: State, ctx: NodeContext) -> None:
        await ctx.interrupt(object() if state.left else "well?")

    graph = StateGraph(State).node("a", asks).compile()
    async with App("empty").open() as engine:
        bound = graph.bind(engine)
        run = await bound.run("t", State(left=1))
        assert (run.status, run.error and run.error.code) == (RunStatus.FAILED, "NODE_PANIC")
        await bound.run("u", State())
        with pytest.raises(DeclarationError, match="the answer has no JSON form"):
            await bound.resume("u", answer=object())
        assert (await bound.resume("u", answer=1)).status is RunStatus.COMPLETED
