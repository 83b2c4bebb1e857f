"""Runs that were killed, interrupted or left in doubt, and what resuming them does."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
import trio

from carmy_engine import AgentError, App, BoundEngine, ExecutionRequest, tool
from carmy_engine.abc import Identity, Outcome
from carmy_engine.graph import CompiledGraph, MemoryCheckpoints, NodeContext, RunStatus, StateGraph
from carmy_engine.stores.memory import MemoryStore
from carmy_engine.stores.sqlite import SqliteStore
from tests.graph.victim import Order, Orders, Report

Follow = Callable[[Orders], Report]

STATE = dataclasses.asdict(
    Order(
        reserved="did reserve", charged="did charge", approved_by="ana", shipped="did ship, did label", log=("planned",)
    )
)
EFFECTS = ["charge", "label", "reserve", "ship"]

SHORT = 4
"""Steps at which a run is killed by default; ``--long`` takes all of them."""


@pytest.fixture(scope="module")
def follow() -> Iterator[Follow]:
    """A process that forks children which follow orders."""
    command = [sys.executable, "-m", "tests.graph.victim"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(orders: Orders) -> Report:
            stdin.write(msgspec.json.encode(orders) + b"\n")
            stdin.flush()
            return msgspec.json.decode(stdout.readline(), type=Report)

        yield ask
        stdin.close()


def effects(directory: Path) -> list[str]:
    path = directory / "effects"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def steps_to_die_at(follow: Follow, directory: Path, *, is_long: bool, **options: Any) -> Iterator[tuple[int, Path]]:
    """Numbers of steps, each with a directory of its own."""
    (directory / "whole").mkdir()
    whole = follow(Orders(directory=str(directory / "whole"), **options))
    assert whole.status == "completed"
    assert whole.state == {**STATE, "log": ["planned"]}
    assert effects(directory / "whole") == EFFECTS
    stride = 1 if is_long else max(1, whole.steps // SHORT)
    for step in range(1, whole.steps + 1, stride):
        here = directory / str(step)
        here.mkdir()
        yield step, here


def test_killed_at_every_step_with_tools_that_reconcile(
    follow: Follow, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Wherever the process is killed, resuming gives the same state, and each effect has happened once."""
    is_long = bool(request.config.getoption("--long"))
    for step, here in steps_to_die_at(follow, tmp_path, is_long=is_long):
        first = follow(Orders(directory=str(here), die_at=step))
        report = follow(Orders(directory=str(here))) if first.died else first
        assert (report.status, report.state) == ("completed", {**STATE, "log": ["planned"]}), step
        assert effects(here) == EFFECTS, step


def test_killed_at_every_step_with_tools_that_may_be_repeated(
    follow: Follow, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Idempotent tools run again, and the run simply goes on."""
    options = {"reconciles": False, "repeatable": True}
    is_long = bool(request.config.getoption("--long"))
    for step, here in steps_to_die_at(follow, tmp_path, is_long=is_long, **options):
        first = follow(Orders(directory=str(here), die_at=step, **options))
        report = follow(Orders(directory=str(here), **options)) if first.died else first
        assert (report.status, report.state) == ("completed", {**STATE, "log": ["planned"]}), step
        assert effects(here) == EFFECTS, step


async def settle(directory: Path, execution_id: str, doubt: tuple[str, str, str | None]) -> None:
    """What an operator does: look for the effect, and settle the execution."""
    store = SqliteStore(directory / "state.db")
    entry = await store.find_execution(execution_id)
    assert entry is not None
    assert entry.tool == doubt[1]
    lines = effects(directory)
    # The tool `ship` has two calls in one order: `ship`, then `label`.
    word = "label" if entry.tool == "ship" and entry.identity.request_id.endswith("/2") else entry.tool
    if word in lines:
        outcome = Outcome(execution_id=execution_id, data_json=msgspec.json.encode(f"did {word}"))
        assert await store.complete(entry.identity, execution_id, outcome, time.time())
    else:
        assert await store.release(entry.identity, execution_id)
    await store.aclose()


def test_killed_at_every_step_with_an_operator(follow: Follow, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What is in doubt stops the run, naming node, tool and execution; settled, it goes on. No effect happens twice."""
    options = {"reconciles": False}
    doubted = 0
    is_long = bool(request.config.getoption("--long"))
    for step, here in steps_to_die_at(follow, tmp_path, is_long=is_long, **options):
        report = follow(Orders(directory=str(here), die_at=step, **options))
        for _ in range(4):
            if report.died or report.status == "in_doubt":
                for doubt in report.doubts:
                    doubted += 1
                    node, name, execution_id = doubt
                    assert node == name
                    assert execution_id is not None
                    trio.run(settle, here, execution_id, doubt)
                report = follow(Orders(directory=str(here), **options))
        assert (report.status, report.state) == ("completed", {**STATE, "log": ["planned"]}), step
        assert effects(here) == EFFECTS, step
    assert doubted > 0


@dataclasses.dataclass(frozen=True)
class State:
    """Answers and receipts."""

    answers: tuple[str, ...] = ()
    receipt: str = ""


async def test_interrupts_and_answers() -> None:
    """A question ends the run; the answer goes on where it was asked, and what had happened before is replayed."""
    effects: list[str] = []

    @tool(effect="write", register=False)
    async def pay() -> str:
        """Pay."""
        effects.append("paid")
        return "r1"

    async def node(state: State, ctx: NodeContext) -> State:
        receipt = await ctx.call(pay)
        first = await ctx.interrupt({"question": "name?"})
        second = await ctx.interrupt("sure?")
        return State((first, second), receipt)

    graph = StateGraph(State).node("a", node).compile()
    async with App("shop").add(pay).open() as engine:
        bound = graph.bind(engine)
        run = await bound.run("t", State())
        assert (run.status, run.question) == (RunStatus.INTERRUPTED, {"question": "name?"})
        with pytest.raises(AgentError, match="RUN_INTERRUPTED"):
            run.unwrap()
        assert (await bound.resume("t")).question == {"question": "name?"}
        assert (await bound.history("t"))[0].questions == run.questions
        run = await bound.resume("t", answer="ana")
        assert run.question == "sure?"
        run = await bound.resume("t", answer="yes")
        assert run.unwrap() == State(("ana", "yes"), "r1")
        assert (await bound.resume("t")).unwrap() == run.state
    assert effects == ["paid"]


async def test_an_answer_after_the_retention_of_the_store() -> None:
    """What a node had done before its question is replayed however late the answer comes, unless the node calls something else."""
    effects: list[str] = []
    words = ["first"]
    now = 1000.0

    @tool(effect="write", register=False)
    async def pay(word: str) -> str:
        """Pay."""
        effects.append(word)
        return f"paid {word}"

    async def asks(state: State, ctx: NodeContext) -> State:
        first = await ctx.call(pay, word=words[-1])
        answers = await ctx.interrupt("well?"), await ctx.interrupt("sure?")
        return State(answers, f"{first}, {await ctx.call(pay, word='last')}")

    graph = StateGraph(State).node("a", asks).compile()
    store = MemoryStore(retention=10.0, clock=lambda: now)
    async with App("shop").add(pay).store(store).open() as engine:
        bound = graph.bind(engine)
        await bound.run("t", State())
        now += 1000
        await bound.resume("t", answer="ana")
        now += 1000
        run = await bound.resume("t", answer="yes")
        assert run.unwrap() == State(("ana", "yes"), "paid first, paid last")
        assert effects == ["first", "last"]
        await bound.run("u", State())
        words.append("other")
        run = await bound.resume("u", answer="ana")
        assert (run.status, run.error and run.error.code) == (RunStatus.FAILED, "IDEMPOTENCY_CONFLICT")


async def test_several_questions() -> None:
    """Branches that ask wait together; each answer names its node."""

    async def left(state: State, ctx: NodeContext) -> State:
        return dataclasses.replace(state, receipt=await ctx.interrupt("left?"))

    async def right(state: State, ctx: NodeContext) -> State:
        return dataclasses.replace(state, answers=(await ctx.interrupt("right?"),))

    def start(state: State) -> None:
        """Change nothing."""

    def merge(before: State, after: Any) -> State:
        return State(after["r"].answers, after["l"].receipt)

    graph = StateGraph(State).node("s", start).node("l", left).node("r", right)
    async with App("shop").open() as engine:
        bound = graph.fan_out("s", ["l", "r"], merge=merge).compile().bind(engine)
        run = await bound.run("t", State())
        assert sorted((each.node, each.value) for each in run.questions) == [("l", "left?"), ("r", "right?")]
        with pytest.raises(TypeError, match="choose one with node="):
            await bound.resume("t", answer=1)
        run = await bound.resume("t", answer="R", node="r")
        assert (run.status, run.question) == (RunStatus.INTERRUPTED, "left?")
        run = await bound.resume("t", answer="L")
        assert run.unwrap() == State(("R",), "L")


async def test_doubt_that_a_node_cannot_catch() -> None:
    """A call with an unknown outcome stops the run whatever the node does; settled as completed, its value is replayed."""
    effects: list[str] = []

    @tool(effect="write", register=False)
    async def pay() -> str:
        """Pay."""
        effects.append("paid")
        await trio.sleep_forever()
        return "never"

    async def node(state: State, ctx: NodeContext) -> State:
        try:
            return State((), await ctx.call(pay))
        except BaseException:
            if not effects:
                return State(("caught",))
            raise

    graph = StateGraph(State).node("a", node, retries=2).compile()
    app = App("shop", timeout=1000).add(pay)
    async with app.open() as engine:
        bound = graph.bind(engine)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bound.run, "t", State())
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        run = await bound.resume("t")
        assert run.status is RunStatus.IN_DOUBT
        (doubt,) = run.doubts
        assert (doubt.node, doubt.tool, doubt.state) == ("a", "pay", "interrupted")
        with pytest.raises(
            AgentError, match=f"the node a called pay, and the outcome of {doubt.execution_id} is not known"
        ):
            run.unwrap()
        assert (await bound.resume("t")).doubts == run.doubts
        store = engine.engine.checkpoints
        identity = Identity(principal=None, session=None, scope="in_process", request_id=doubt.request_id)
        outcome = Outcome(execution_id=doubt.execution_id or "", data_json=b'"r7"')
        assert await store.complete(identity, doubt.execution_id, outcome, time.time())  # type: ignore[union-attr] # the store in memory
        assert (await bound.resume("t")).unwrap() == State((), "r7")
    assert effects == ["paid"]


async def test_another_version_of_the_graph() -> None:
    """A checkpoint of another version is refused, with what differs."""

    async def asks(state: State, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    store = MemoryCheckpoints()
    old = StateGraph(State).node("a", asks).node("b", asks).edge("a", "b").compile()
    new = StateGraph(State).node("a", asks).node("c", asks).edge("a", "c").compile()
    async with App("shop").open() as engine:
        await old.bind(engine, checkpoints=store).run("t", State())
        with pytest.raises(AgentError, match="GRAPH_CHANGED") as raised:
            await new.bind(engine, checkpoints=store).resume("t", answer=1)
    assert raised.value.details == {
        "differences": ["removed: edge a -> b", "removed: node b", "added: edge a -> c", "added: node c"]
    }


async def test_the_order_of_nodes_is_no_version() -> None:
    """Nodes may be declared in another order, and have other functions, timeouts and retries."""

    async def asks(state: State, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    async def ends(state: State) -> State:
        return State(("ended",))

    store = MemoryCheckpoints()
    old = StateGraph(State).node("a", asks).node("b", asks).node("c", asks).edge("a", "b").edge("b", "c").compile()
    new = (
        StateGraph(State)
        .node("a", asks)
        .node("c", ends)
        .node("b", ends, timeout=5, retries=1)
        .edge("b", "c")
        .edge("a", "b")
    )
    async with App("shop").open() as engine:
        await old.bind(engine, checkpoints=store).run("t", State())
        run = await new.compile().bind(engine, checkpoints=store).resume("t", answer=1)
    assert run.unwrap() == State(("ended",))


async def test_another_version_of_the_state() -> None:
    """A state with other fields is refused, naming them; one with other texts and defaults is not."""

    async def asks(state: Any, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    def version(**fields: Any) -> CompiledGraph[Any]:
        made = pydantic.create_model("Ticket", **fields)
        return StateGraph(made, name="tickets").node("a", asks).compile()

    old = version(subject=(str, "old"), title=(str, ""), size=(int, 1))
    same = version(
        subject=(str, pydantic.Field("new", description="What it is about.")), title=(str, ""), size=(int, 2)
    )
    new = version(subject=(str, "old"), size=(str, ""), priority=(int, 1))
    store = MemoryCheckpoints()
    async with App("shop").open() as engine:
        await old.bind(engine, checkpoints=store).run("t", old.form.type())
        with pytest.raises(AgentError, match="GRAPH_CHANGED") as raised:
            await new.bind(engine, checkpoints=store).resume("t", answer=1)
        differences = (raised.value.details or {})["differences"]
        assert [line.rpartition(" ")[0] for line in differences] == [
            "removed: field size",
            "removed: field title",
            "added: field priority",
            "added: field size",
        ]
        assert (await same.bind(engine, checkpoints=store).resume("t", answer=1)).status is RunStatus.COMPLETED


async def test_a_run_belongs_to_its_caller() -> None:
    """Another principal, or an anonymous caller of another transport, cannot resume a run: its calls would happen again."""

    async def asks(state: State, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    graph = StateGraph(State).node("a", asks).compile()
    async with App("shop").open() as engine:
        ana: BoundEngine = engine.bind(principal="ana")
        await graph.bind(ana).run("t", State())
        with pytest.raises(AgentError, match="FORBIDDEN"):
            await graph.bind(engine.bind(principal="ben")).resume("t", answer=1)
        assert (await graph.bind(ana).resume("t", answer=1)).status is RunStatus.COMPLETED
        await graph.bind(engine).run("u", State())
        with pytest.raises(AgentError, match="FORBIDDEN"):
            await graph.bind(engine.bind(transport="http")).resume("u", answer=1)
        assert (
            await graph.bind(engine.bind(transport="in_process")).resume("u", answer=1)
        ).status is RunStatus.COMPLETED


async def test_the_metadata_of_a_run_lasts() -> None:
    """A resumed run has the metadata that it was started with."""

    async def asks(state: State, ctx: NodeContext) -> State:
        await ctx.interrupt("well?")
        return State((ctx.metadata["tenant"],))

    graph = StateGraph(State).node("a", asks).compile()
    async with App("shop").open() as engine:
        await graph.bind(engine).run("t", State(), metadata={"tenant": "acme"})
        assert (await graph.bind(engine).resume("t", answer=1)).state == State(("acme",))


async def test_a_graph_tool_outlives_a_cut_off_call() -> None:
    """A call of a graph tool whose caller went away continues the run when it is sent again."""
    effects: list[str] = []

    @tool(effect="write", register=False)
    async def pay() -> str:
        """Pay."""
        effects.append("paid")
        return "r1"

    async def waits_once(state: State) -> None:
        if len(effects) == 1 and "waited" not in effects:
            effects.append("waited")
            await trio.sleep_forever()

    async def pays(state: State, ctx: NodeContext) -> State:
        return State((), await ctx.call(pay))

    graph = StateGraph(State).node("a", pays).node("b", waits_once).edge("a", "b").compile()
    async with App("shop", timeout=1000).add(pay, graph.as_tool("checkout", effect="write")).open() as engine:
        request = ExecutionRequest(tool="checkout", request_id="r1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.execute, request)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        again = await engine.execute(request)
    assert again.unwrap() == {"answers": [], "receipt": "r1"}
    assert effects == ["paid", "waited"]


async def test_a_graph_tool_in_doubt() -> None:
    """A call of a graph tool whose run is in doubt names what to settle; sent again after that, it continues the run."""
    effects: list[str] = []
    started = trio.Event()

    @tool(effect="write", register=False)
    async def pay() -> str:
        """Pay, and never answer."""
        effects.append("paid")
        started.set()
        await trio.sleep_forever()
        return ""

    async def pays(state: State, ctx: NodeContext) -> State:
        return State((), await ctx.call(pay))

    graph = StateGraph(State).node("a", pays).compile()
    store = MemoryStore()
    async with App("shop").add(pay, graph.as_tool("checkout", effect="write")).store(store).open() as engine:
        request = ExecutionRequest(tool="checkout", request_id="r1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.execute, request)
            await started.wait()
            nursery.cancel_scope.cancel()
        (entry,) = await store.entries(tool="pay")
        for _ in range(2):
            error = (await engine.execute(request)).error
            assert error is not None
            assert (error.code, error.retryable) == ("EXECUTION_UNCERTAIN", True)
            assert (error.details or {})["execution_id"] == entry.execution_id
        outcome = Outcome(execution_id=entry.execution_id, data_json=b'"r7"')
        assert await store.complete(entry.identity, entry.execution_id, outcome, time.time())
        assert (await engine.execute(request)).unwrap() == {"answers": [], "receipt": "r7"}
    assert effects == ["paid"]
