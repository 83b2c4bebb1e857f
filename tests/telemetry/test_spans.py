"""Spans: one for each execution, with what its record says and nothing that callers wrote."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import trio
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import carmy_http
import carmy_websocket
from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    Cause,
    DeclarationError,
    Engine,
    ExecutionRequest,
    ModelCall,
    RunContext,
    Settings,
    State,
    tool,
)
from carmy_http import application
from tests.support.websocket import Peer

RUN = RunContext(thread_id="order-1001", run_id="run-7", node_path="fulfil/reserve", attempt=2, caller_id="support")


class Recorder:
    """A tracer and the spans that it has ended, oldest first."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False, **options)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def only(self) -> ReadableSpan:
        (span,) = self.spans
        return span


def said(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span, without those that no two runs have alike."""
    attributes = dict(span.attributes or {})
    assert {type(value) for value in attributes.values()} <= {str, bool, int, float}
    assert str(attributes.pop("carmy.execution_id")).startswith("exec_")
    assert isinstance(attributes.pop("carmy.waited_ms"), float)
    return attributes


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


@tool(effect="read", idempotent=True, parallel_safe=True, register=False)
async def search(query: str) -> str:
    """Search."""
    return f"found {query}"


@tool(effect="write", register=False)
async def reserve(sku: str) -> str:
    """Fail with words that repeat what was sent."""
    raise AgentError("OUT_OF_STOCK", f"none of {sku} in stock", "conflict")


@tool(effect="none", register=False)
async def crash(word: str) -> None:
    """Crash."""
    raise ValueError(word)


@tool(effect="write", parallel_safe=True, register=False)
async def wait(begun: State[trio.Event]) -> None:
    """Wait for ever."""
    begun.set()
    await trio.sleep_forever()


@asynccontextmanager
async def opened(recorder: Recorder, *tools: object, state: object = None) -> AsyncIterator[Engine]:
    app = App("shop").add(*tools).spans(recorder.tracer)
    if state is not None:
        app.state(state)
    async with app.open() as engine:
        yield engine


async def test_a_span_says_what_the_record_says() -> None:
    """Name and attributes are those of the conventions, with the ids of the run; a success leaves the status alone."""
    recorder = Recorder()
    async with opened(recorder, search) as engine:
        await engine.bind(run=RUN).execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))
    span = recorder.only
    assert span.name == "execute_tool search"
    assert span.kind is trace.SpanKind.INTERNAL
    assert span.status.status_code is trace.StatusCode.UNSET
    assert said(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "order-1001",
        "carmy.effect": "read",
        "carmy.transport": "in_process",
        "carmy.status": "completed",
        "carmy.replayed": False,
        "carmy.run_id": "run-7",
        "carmy.node_path": "fulfil/reserve",
        "carmy.attempt": 2,
        "carmy.caller_id": "support",
    }


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("reserve", {"sku": "SECRET"}, "OUT_OF_STOCK"),
        ("crash", {"word": "SECRET"}, "TOOL_PANIC"),
        ("search", {"query": ["SECRET"]}, "INVALID_ARGUMENTS"),
        ("search", {"SECRET": 1}, "INVALID_ARGUMENTS"),
        ("SECRET", {}, "TOOL_NOT_FOUND"),
    ],
)
async def test_an_error_is_told_by_its_code_alone(name: str, arguments: dict[str, Any], code: str) -> None:
    """A failed span has the error's code; no message, exception or name in it repeats what a caller sent."""
    recorder = Recorder()
    async with opened(recorder, search, reserve, crash) as engine:
        await engine.execute(ExecutionRequest(tool=name, arguments=arguments))
    span = recorder.only
    assert span.name == ("execute_tool" if code == "TOOL_NOT_FOUND" else f"execute_tool {name}")
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, code)
    assert said(span)["error.type"] == code
    assert said(span)["carmy.status"] == "failed"
    assert span.events == ()
    assert "SECRET" not in span.to_json()


async def test_a_replay_says_so() -> None:
    """A replay has a span of its own, with the id of the execution that it repeats."""
    recorder = Recorder()
    async with opened(recorder, search) as engine:
        for _ in range(2):
            await engine.execute(ExecutionRequest(tool="search", arguments={"query": "a"}, request_id="r"))
    first, second = (dict(span.attributes or {}) for span in recorder.spans)
    assert (first["carmy.replayed"], second["carmy.replayed"]) == (False, True)
    assert first["carmy.execution_id"] == second["carmy.execution_id"]


async def test_a_model_call_has_its_own_id() -> None:
    """The id that the model gave its call is where the conventions look for it."""
    recorder = Recorder()
    async with opened(recorder, search) as engine:
        bound = engine.bind(run=RUN)
        message = {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"query": "a"}}],
        }
        await bound.run_calls(bound.provider("anthropic").parse(message))
    assert said(recorder.only)["gen_ai.tool.call.id"] == "toolu_1"


async def test_a_model_call_that_nobody_can_read_has_a_span() -> None:
    """It is refused like any other, and its span has the code."""
    recorder = Recorder()
    async with opened(recorder, search) as engine:
        function = {"name": "search", "arguments": '{"query": '}
        message = {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
        await engine.run_calls(engine.provider("openai").parse(message))
    found = said(recorder.only)
    assert (found["gen_ai.tool.call.id"], found["error.type"]) == ("call_1", "INVALID_ARGUMENTS")


async def test_a_cancelled_span_is_marked() -> None:
    """A cancel of the caller's scope ends the span as cancelled, with the cause, and without an exception in it."""
    recorder, begun = Recorder(), trio.Event()
    with trio.fail_after(5):
        async with opened(recorder, wait, state=begun) as engine, trio.open_nursery() as nursery:
            caller = engine.bind(gone=Cause.DISCONNECT)
            nursery.start_soon(caller.execute, ExecutionRequest(tool="wait"))
            await begun.wait()
            nursery.cancel_scope.cancel()
    span = recorder.only
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, "CANCELLED")
    assert (said(span)["carmy.status"], said(span)["carmy.cause"]) == ("cancelled", "disconnect")
    assert span.events == ()


async def test_a_deadline_is_marked() -> None:
    """An execution that its deadline ended is timed out, with that cause."""
    recorder = Recorder()
    with trio.fail_after(5):
        async with opened(recorder, wait, state=trio.Event()) as engine:
            await engine.execute(ExecutionRequest(tool="wait", timeout_ms=1))
    told = said(recorder.only)
    assert (told["carmy.status"], told["carmy.cause"], told["error.type"]) == ("timed_out", "deadline", "TIMEOUT")


async def test_what_a_tool_does_nests() -> None:
    """Spans made in an async tool, in a worker thread and by a call of another tool are children of the tool's span."""
    recorder = Recorder()

    @tool(effect="read", register=False)
    async def asynchronous() -> None:
        """Make a span after having waited."""
        await trio.lowlevel.checkpoint()
        recorder.tracer.start_span("inside asynchronous").end()

    @tool(effect="read", register=False)
    def threaded() -> None:
        """Make a span in a thread."""
        recorder.tracer.start_span("inside threaded").end()

    @tool(effect="read", register=False)
    async def calling(engines: State[list[Engine]]) -> None:
        """Call the others, side by side."""
        async with trio.open_nursery() as nursery:
            for name in ("asynchronous", "threaded"):
                nursery.start_soon(engines[0].execute, ExecutionRequest(tool=name))

    engines: list[Engine] = []
    app = App("shop").add(asynchronous, threaded, calling).state(engines, list[Engine]).spans(recorder.tracer)
    async with app.open() as engine:
        engines.append(engine)
        (await engine.execute(ExecutionRequest(tool="calling"))).unwrap()
        assert trace.get_current_span() is trace.INVALID_SPAN
    named = {span.name: span for span in recorder.spans}
    ids = {name: span.context.span_id for name, span in named.items()}
    assert {name: parent_of(span) for name, span in named.items()} == {
        "execute_tool calling": None,
        "execute_tool asynchronous": ids["execute_tool calling"],
        "execute_tool threaded": ids["execute_tool calling"],
        "inside asynchronous": ids["execute_tool asynchronous"],
        "inside threaded": ids["execute_tool threaded"],
    }
    assert all(said(span)["carmy.status"] == "completed" for span in recorder.spans if "execute" in span.name)


async def test_calls_nest_under_the_span_of_their_caller() -> None:
    """What is current where an executor is called is the parent: direct, streamed, and through a gateway."""
    recorder = Recorder()
    request = ExecutionRequest(tool="far.search", arguments={"query": "a"})
    async with (
        opened(recorder, search) as engine,
        App("gateway").mount(engine, prefix="far.").spans(recorder.tracer).open() as gateway,
    ):
        with recorder.tracer.start_as_current_span("agent"):
            async with gateway.stream(request) as events:
                assert [event.kind async for event in events][-1] == "execution.completed"
    far, near, agent = recorder.spans
    assert [span.name for span in recorder.spans] == ["execute_tool search", "execute_tool far.search", "agent"]
    assert (parent_of(far), parent_of(near)) == (near.context.span_id, agent.context.span_id)
    assert said(near)["carmy.status"] == said(far)["carmy.status"] == "completed"


async def test_a_tool_that_leaves_its_span_open_spoils_nothing() -> None:
    """A tool that makes a span current and never ends it changes neither its own span nor those that follow."""
    recorder = Recorder()

    @tool(effect="none", register=False)
    async def careless() -> None:
        """Forget a span."""
        context.attach(trace.set_span_in_context(recorder.tracer.start_span("forgotten")))

    async with opened(recorder, careless) as engine:
        for _ in range(2):
            await engine.execute(ExecutionRequest(tool="careless"))
    assert [(span.name, parent_of(span)) for span in recorder.spans] == [("execute_tool careless", None)] * 2
    assert all(said(span)["carmy.status"] == "completed" for span in recorder.spans)


async def test_http_requests_nest_under_the_hosts_span() -> None:
    """In an ASGI application whose middleware has a span of the request, executions are its children.

    Whether a stranger's ``traceparent`` is believed is the middleware's decision; the engine reads no such header.
    """
    recorder = Recorder()
    body = json.dumps({"tool": "search", "arguments": {"query": "a"}}).encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/agent/execute", "raw_path": b"/agent/execute", "query_string": b"", "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1"), (b"content-type", b"application/json"),
            (b"traceparent", b"00-11111111111111111111111111111111-2222222222222222-01"),
        ],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent: list[Any] = []
    received = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not received:
            await trio.sleep_forever()
        return received.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    with trio.fail_after(5):
        async with opened(recorder, search) as engine:
            app = application(engine)
            with recorder.tracer.start_as_current_span("POST /agent/execute"):
                await app(scope, receive, send)
    assert sent[0]["status"] == 200
    execution, request = recorder.spans
    assert execution.name == "execute_tool search"
    assert parent_of(execution) == request.context.span_id
    assert request.parent is None


async def test_calls_of_one_connection_do_not_share_a_span() -> None:
    """Calls that run at the same time over one connection have a trace each, with what their own tool does in it."""
    recorder = Recorder()
    arrived: list[int] = []
    everyone = trio.Event()

    @tool(effect="read", parallel_safe=True, register=False)
    async def meet(number: int) -> int:
        """Return when all are here."""
        with recorder.tracer.start_as_current_span(f"inside {number}"):
            arrived.append(number)
            if len(arrived) == 4:
                everyone.set()
            await everyone.wait()
        return number

    app = App("shop", settings=Settings(address="127.0.0.1:0")).add(meet).spans(recorder.tracer)
    with trio.fail_after(10):
        async with app.open() as engine, trio.open_nursery() as servers:
            line = await servers.start(partial(carmy_websocket.serve, engine))
            async with carmy_websocket.open_websocket(line.rpartition(" ")[2]) as client, trio.open_nursery() as calls:
                for number in range(4):
                    calls.start_soon(client.execute, ExecutionRequest(tool="meet", arguments={"number": number}))
            servers.cancel_scope.cancel()
    outside = {span.context.span_id: span for span in recorder.spans if span.name == "execute_tool meet"}
    inside = [span for span in recorder.spans if span.name.startswith("inside")]
    assert len(inside) == 4
    assert {parent_of(span) for span in inside} == set(outside)
    assert all(span.parent is None and said(span)["carmy.status"] == "completed" for span in outside.values())


async def test_what_is_not_sampled_is_not_filled_in() -> None:
    """A tracer that samples nothing costs no attribute, and calls are answered as ever."""
    recorder = Recorder(sampler=ALWAYS_OFF)
    async with opened(recorder, search) as engine:
        result = await engine.execute(ExecutionRequest(tool="search", arguments={"query": "a"}))
    assert result.unwrap() == "found a"
    assert recorder.spans == []


async def test_a_span_without_a_record_is_marked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """When an execution ends without a record, its span names the exception, without its message."""
    recorder = Recorder()

    class Lost(BaseException):
        pass

    def find(*_: object) -> None:
        raise Lost("SECRET")

    app = App("shop").add(search).spans(recorder.tracer)
    async with app.open() as engine:
        monkeypatch.setattr(engine._pipeline.registry, "find", find)
        with pytest.raises(Lost):
            await engine.execute(ExecutionRequest(tool="search", arguments={"query": "a"}))
    assert (recorder.only.status.status_code, recorder.only.status.description) == (trace.StatusCode.ERROR, "Lost")
    assert "SECRET" not in recorder.only.to_json()


async def test_the_document_lists_every_attribute() -> None:
    """The table in the document about tracing has exactly the attributes that spans of executions can have."""
    recorder, begun = Recorder(), trio.Event()
    with trio.fail_after(5):
        async with opened(recorder, wait, state=begun) as engine:
            bound = engine.bind(run=RUN)
            calls = [ModelCall(tool="wait", call_id="call_1")]
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(bound.run_calls, calls)
                    await begun.wait()
                    scope.cancel()
    page = Path(__file__).parents[2] / "docs" / "tracing.md"
    section = page.read_text().partition("## Attributes")[2].partition("\n## ")[0]
    names = "".join(re.findall(r"^\|[^|]*\|", section, re.MULTILINE))
    listed = re.findall(r"`((?:carmy|gen_ai|error)\.[a-z_.]+)`", names)
    assert sorted(listed) == sorted(recorder.only.attributes or {})


def test_spans_are_made_by_one_tracer() -> None:
    """A second one would make every span twice, so it is refused."""
    with pytest.raises(DeclarationError, match="makes spans already"):
        App("shop").spans().spans()


def test_without_the_extra_it_says_what_to_install() -> None:
    """Without OpenTelemetry everything else works, and asking for spans names the extra."""
    script = """
import sys
sys.modules["opentelemetry"] = None
from carmy_engine import App, DeclarationError
try:
    App("shop").spans()
except DeclarationError as refusal:
    print(refusal)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "spans need the package 'opentelemetry': pip install 'carmy-engine[otel]'\n"


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(("trusts", "header", "continues"), [
    (True, PARENT, True),
    (False, PARENT, False),
    (True, PARENT + "x", False),
    (True, PARENT.upper(), False),
    (True, "", False),
])  # fmt: skip
async def test_a_trace_of_a_caller_over_http(trusts: bool, header: str, continues: bool) -> None:
    """With ``trust_traceparent`` a span continues the trace that the request names; otherwise, and if it is malformed, not."""
    recorder = Recorder()
    app = App("shop", settings=Settings(address="127.0.0.1:0", trust_traceparent=trusts)).add(search)
    async with app.spans(recorder.tracer).open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(carmy_http.serve, engine))
        async with httpx2.AsyncClient() as http:
            body = {"tool": "search", "arguments": {"query": "mouse"}}
            headers = {"traceparent": header} if header else {}
            answer = await http.post(f"{line.rpartition(' ')[2]}/agent/execute", json=body, headers=headers)
        assert answer.status_code == 200
        nursery.cancel_scope.cancel()
    assert (parent_of(recorder.only) == 0xB7AD6B7169203331) == continues
    assert recorder.only.context is not None
    assert (recorder.only.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C) == continues


async def test_a_trace_that_an_authenticator_gives() -> None:
    """The span named in the trusted context is the parent, whatever the settings are; two callers have two traces."""
    recorder = Recorder()
    async with opened(recorder, search) as engine:
        bound = engine.bind(context=AgentContext(principal="gateway", traceparent=PARENT))
        await bound.execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))
        await engine.execute(ExecutionRequest(tool="search", arguments={"query": "mouse"}))
    assert [parent_of(span) for span in recorder.spans] == [0xB7AD6B7169203331, None]


async def test_a_trace_of_a_client_over_websocket() -> None:
    """With ``trust_traceparent`` all calls of a connection continue the trace that its handshake names."""
    recorder = Recorder()
    app = App("shop", settings=Settings(address="127.0.0.1:0", trust_traceparent=True)).add(search)
    async with app.spans(recorder.tracer).open() as engine, trio.open_nursery() as nursery:
        line: str = await nursery.start(partial(carmy_websocket.serve, engine))
        port = urlsplit(line.rpartition(" ")[2]).port
        assert port is not None
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            peer = Peer(stream)
            await peer.upgrade({"traceparent": PARENT})
            assert (await peer.told())["event"] == "ready"
            for number in range(2):
                assert (await peer.ask(id=number, op="call", tool="search", arguments={"query": "a"}))["ok"]
        nursery.cancel_scope.cancel()
    assert [parent_of(span) for span in recorder.spans] == [0xB7AD6B7169203331] * 2
