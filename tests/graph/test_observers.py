"""Spans, metrics and observers of runs and nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan

from carmy_engine import AgentContext, AgentError, App, ExecutionRequest, tool
from carmy_engine.graph import CompiledGraph, NodeContext, ObservedRun, RunStatus, StateGraph, merge_fields
from tests.telemetry.test_spans import Recorder

PAGE = Path(__file__).parents[2] / "docs" / "tracing.md"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclasses.dataclass(frozen=True)
class State:
    """What the branches have found."""

    left: str = ""
    right: str = ""
    answer: str = ""


@tool(effect="write", parallel_safe=True, register=False)
async def look(ctx: AgentContext, word: str) -> str:
    """Look."""
    if word == "fail":
        raise AgentError("GONE", f"no {word}", "not_found")
    return f"{word} {ctx.traceparent}"


def two_ways(recorder: Recorder | None = None, *, asks: bool = False) -> CompiledGraph[State]:
    """A node that fans out to an async and a plain node, and a last one."""

    def start(state: State) -> None:
        """Leave the state as it is."""

    async def left(state: State, ctx: NodeContext) -> State:
        if ctx.attempt == 1:
            await ctx.step("first").call(look, word="fail")
        return dataclasses.replace(state, left=await ctx.call(look, word="left"))

    def right(state: State) -> State:
        if recorder is not None:
            with recorder.tracer.start_as_current_span("in a thread"):
                pass
        return dataclasses.replace(state, right="right")

    async def last(state: State, ctx: NodeContext) -> State:
        return dataclasses.replace(state, answer=await ctx.interrupt("well?")) if asks else state

    return (
        StateGraph(State, name="two ways")
        .node("start", start)
        .node("left", left, retries=1, backoff=0)
        .node("right", right)
        .node("last", last)
        .fan_out("start", ["left", "right"], merge=merge_fields, then="last")
        .compile()
    )


def by_name(recorder: Recorder) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in recorder.spans:
        found.setdefault(span.name, []).append(span)
    return found


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and parent.context is not None and span.parent.span_id == parent.context.span_id


async def test_spans_of_runs_nodes_and_tools_nest() -> None:
    """A run has a span, its attempts have spans below it, and tools and the node's own spans are below the attempt."""
    recorder = Recorder()
    async with App("shop").add(look).spans(recorder.tracer).open() as engine:
        run = await two_ways(recorder).bind(engine).run("order-1", State())
    assert run.unwrap() == State("left None", "right")
    spans = by_name(recorder)
    (whole,) = spans["invoke_workflow two ways"]
    assert whole.parent is None
    nodes = [span for name, found in spans.items() if name.startswith("node ") for span in found]
    assert sorted(span.name for span in nodes) == ["node last", "node left", "node left", "node right", "node start"]
    assert all(is_below(span, whole) for span in nodes)
    (thread,) = spans["in a thread"]
    assert is_below(thread, spans["node right"][0])
    first, second = spans["node left"]
    failed, *others = spans["execute_tool look"]
    assert [is_below(span, first) for span in (failed, *others)] == [True, False]
    assert [is_below(span, second) for span in (failed, *others)] == [False, True]
    assert (first.status.status_code.name, first.status.description) == ("ERROR", "GONE")
    assert (second.status.status_code.name, second.status.description) == ("UNSET", None)
    assert dict(second.attributes or {}) == {
        "gen_ai.agent.name": "two ways",
        "gen_ai.conversation.id": "order-1",
        "carmy.run_id": run.run_id,
        "carmy.node_path": "left",
        "carmy.attempt": 2,
        "carmy.status": "completed",
    }


async def test_a_span_has_how_the_run_stopped() -> None:
    """A stopped run is no error, a resumed one has a span of its own, and one that is cut off is marked."""
    recorder = Recorder()
    async with App("shop").add(look).spans(recorder.tracer).open() as engine:
        bound = two_ways(asks=True).bind(engine)
        assert (await bound.run("t", State())).status is RunStatus.INTERRUPTED
        (stopped,), (asked,) = by_name(recorder)["invoke_workflow two ways"], by_name(recorder)["node last"]
        assert [
            (dict(span.attributes or {})["carmy.status"], span.status.status_code.name) for span in (stopped, asked)
        ] == [
            ("interrupted", "UNSET"),
            ("interrupted", "UNSET"),
        ]
        await bound.resume("t", answer="yes")
        resumed = by_name(recorder)["invoke_workflow two ways"][-1]
        assert (resumed.attributes or {})["carmy.resumed"] is True
        with trio.CancelScope() as scope:
            scope.cancel()
            await bound.run("u", State())
        cut_off = by_name(recorder)["invoke_workflow two ways"][-1]
        assert ((cut_off.attributes or {})["carmy.status"], cut_off.status.description) == ("cancelled", "CANCELLED")
        assert trace.get_current_span() is trace.INVALID_SPAN


async def test_the_parent_of_a_run() -> None:
    """It is the caller's span, and that of the call if the graph is a tool; tools stay below their nodes."""
    recorder = Recorder()
    graph = two_ways()
    app = App("shop").add(look, graph.as_tool("go", effect="write")).spans(recorder.tracer)
    async with app.open() as engine:
        caller = engine.bind(context=AgentContext(traceparent=CALLER))
        assert (await graph.bind(caller).run("t", State())).state.left == "left None"
        (whole,) = by_name(recorder)["invoke_workflow two ways"]
        assert whole.parent is not None
        assert f"{whole.parent.span_id:016x}" == CALLER.split("-")[2]
        (await caller.execute(ExecutionRequest(tool="go"))).unwrap()
        (call,) = by_name(recorder)["execute_tool go"]
        assert is_below(by_name(recorder)["invoke_workflow two ways"][-1], call)
        assert is_below(by_name(recorder)["execute_tool look"][-1], by_name(recorder)["node left"][-1])
    async with App("shop").add(look, graph.as_tool("go", effect="write")).open() as engine:
        caller = engine.bind(context=AgentContext(traceparent=CALLER))
        assert (await caller.execute(ExecutionRequest(tool="go"))).unwrap()["left"] == f"left {CALLER}"


async def test_the_document_lists_every_attribute() -> None:
    """The table about graphs in the document about tracing has exactly the attributes that spans of graphs can have."""
    recorder = Recorder()
    async with App("shop").add(look).spans(recorder.tracer).open() as engine:
        await two_ways().bind(engine).run("t", State())
    section = PAGE.read_text().partition("## Graphs")[2].partition("\n## ")[0]
    names = "".join(re.findall(r"^\|[^|]*\|", section, re.MULTILINE))
    listed = re.findall(r"`((?:carmy|gen_ai|error)\.[a-z_.]+)`", names)
    made = {name for span in recorder.spans if not span.name.startswith("execute") for name in span.attributes or {}}
    assert sorted(listed) == sorted(made)


async def test_metrics() -> None:
    """Runs and attempts are counted by status and code and timed, in Prometheus' format and by OpenTelemetry."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("test")
    async with App("shop").add(look).metrics(meter).open() as engine:
        bound = two_ways(asks=True).bind(engine)
        await bound.run("t", State())
        await bound.resume("t", answer="yes")
        with trio.CancelScope() as scope:
            scope.cancel()
            await bound.run("u", State())
        text = engine.engine.prometheus()
        exported = reader.get_metrics_data()
    for line in (
        'carmy_graph_runs_total{graph="two ways",status="interrupted",code=""} 1',
        'carmy_graph_runs_total{graph="two ways",status="completed",code=""} 1',
        'carmy_graph_runs_total{graph="two ways",status="cancelled",code="CANCELLED"} 1',
        'carmy_graph_nodes_total{graph="two ways",node="left",status="failed",code="GONE"} 1',
        'carmy_graph_nodes_total{graph="two ways",node="left",status="completed",code=""} 1',
        'carmy_graph_nodes_total{graph="two ways",node="last",status="interrupted",code=""} 1',
        'carmy_graph_run_duration_seconds_count{graph="two ways"} 3',
        'carmy_graph_node_duration_seconds_count{graph="two ways",node="last"} 2',
        "carmy_graph_runs_running 0",
    ):
        assert f"{line}\n" in text
    assert exported is not None
    points = {
        metric.name: metric.data.data_points
        for resource in exported.resource_metrics
        for scope_metrics in resource.scope_metrics
        for metric in scope_metrics.metrics
    }
    durations = {point.attributes["node"]: point.count for point in points["carmy.graph.node.duration"]}  # type: ignore[union-attr, index] # a histogram
    assert durations["left"] == 2
    assert {point.attributes["status"] for point in points["carmy.graph.runs"]} == {  # type: ignore[index] # it has some
        "interrupted",
        "completed",
        "cancelled",
    }


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    @contextlib.contextmanager
    def run(self, run: ObservedRun, /) -> Iterator[Callable[[str, str | None], object]]:
        """Note a run."""
        self.lines.append(("run", run.graph, run.thread_id, run.is_resumed, run.context.principal))
        yield lambda status, code: self.lines.append(("run", status, code))
        self.lines.append("left the run")

    @contextlib.contextmanager
    def node(self, run: ObservedRun, node: str, attempt: int, /) -> Iterator[Callable[[str, str | None], object]]:
        """Note an attempt."""
        self.lines.append((node, attempt))
        yield lambda status, code: self.lines.append((node, status, code))


class Broken:
    """An observer that raises everywhere."""

    def run(self, run: ObservedRun, /) -> Any:
        """Fail."""
        raise ValueError("run")

    @contextlib.contextmanager
    def node(self, run: ObservedRun, node: str, attempt: int, /) -> Iterator[Any]:
        """Return what cannot be called, and fail at the end."""
        yield None
        raise ValueError("node")


async def test_observers(caplog: pytest.LogCaptureFixture) -> None:
    """An observer is entered around the run and each attempt, and gets each outcome once; one that raises is only logged."""

    async def asks(state: State, ctx: NodeContext) -> None:
        await ctx.interrupt("well?")

    async def fails(state: State) -> None:
        raise AgentError("NO", "no", "conflict")

    graph = StateGraph(State).node("a", asks).node("b", fails, retries=1, backoff=0).edge("a", "b").compile()
    notes = Notes()
    async with App("shop").open() as engine:
        bound = graph.bind(engine.bind(principal="ana"), observers=[Broken(), notes])
        with caplog.at_level(logging.ERROR, "carmy.engine"):
            await bound.run("t", State())
            run = await bound.resume("t", answer=1)
    assert run.status is RunStatus.FAILED
    assert notes.lines == [
        ("run", "State", "t", False, "ana"),
        ("a", 1),
        ("a", "interrupted", None),
        ("run", "interrupted", None),
        "left the run",
        ("run", "State", "t", True, "ana"),
        ("a", 1),
        ("a", "completed", None),
        ("b", 1),
        ("b", "failed", "NO"),
        ("b", 2),
        ("b", "failed", "NO"),
        ("run", "failed", "NO"),
        "left the run",
    ]
    assert "an observer of graphs" in caplog.text
