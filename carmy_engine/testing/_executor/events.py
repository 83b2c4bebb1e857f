"""What a listening caller sees."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from ..._model.events import ExecutionCompleted, ExecutionEvent, ToolCompleted, ToolProgress
from .._probe import TIMEOUT_MS, Probe
from .suite import suite


def kinds(events: Sequence[ExecutionEvent]) -> list[str]:
    """Their kinds."""
    return [event.kind for event in events]


def last(events: Sequence[ExecutionEvent]) -> ExecutionCompleted:
    """The last event, after checking what holds for every stream."""
    assert [event.seq for event in events] == list(range(len(events)))
    assert kinds(events).count("execution.started") == 1
    assert kinds(events).count("execution.completed") == 1
    assert events[0].kind == "execution.started"
    end = events[-1]
    assert isinstance(end, ExecutionCompleted)
    return end


@suite.check("E-401")
async def success(probe: Probe) -> None:
    """A success has the events started, tool started, tool completed, completed, numbered from 0, and the last one has the result."""
    events = await probe.events("echo", {"text": "a"})
    end = last(events)
    assert kinds(events) == ["execution.started", "tool.started", "tool.completed", "execution.completed"]
    assert all(event.tool == "echo" for event in events)
    assert {event.execution_id for event in events} == {end.result.execution_id}
    assert end.result.data == "a"
    assert end.result.status == "completed"
    assert not end.result.replayed
    completed = events[2]
    assert isinstance(completed, ToolCompleted)
    assert completed.ok
    assert completed.duration_ms >= completed.waited_ms >= 0


@suite.check("E-402")
async def replay(probe: Probe) -> None:
    """A replay has only started, with an id of its own, and completed, with the first answer."""
    request_id = probe.name()
    first = await probe.call("echo", {"text": "a"}, request_id=request_id)
    events = await probe.events("echo", {"text": "a"}, request_id=request_id)
    end = last(events)
    assert kinds(events) == ["execution.started", "execution.completed"]
    assert end.result.replayed
    assert end.result.data_json == first.data_json
    assert end.result.execution_id == first.execution_id
    assert events[0].execution_id != first.execution_id


@suite.check("E-403")
async def refusal(probe: Probe) -> None:
    """A refusal has only started and completed."""
    for tool, code in (
        ("nobody", "TOOL_NOT_FOUND"),
        ("echo", "INVALID_ARGUMENTS"),
        ("destructive", "CONFIRMATION_REQUIRED"),
    ):
        events = await probe.events(tool)
        end = last(events)
        assert kinds(events) == ["execution.started", "execution.completed"]
        assert end.result.error is not None
        assert end.result.error.code == code


@suite.check("E-404")
async def failure(probe: Probe) -> None:
    """A failing tool has a tool completed event with its failure, and the error in the last event."""
    for then, code in (("error", "OUT_OF_STOCK"), ("crash", "TOOL_PANIC"), ("invalid_output", "INVALID_OUTPUT")):
        events = await probe.events("write", {"then": then})
        end = last(events)
        assert kinds(events) == ["execution.started", "tool.started", "tool.completed", "execution.completed"]
        completed = events[2]
        assert isinstance(completed, ToolCompleted)
        assert not completed.ok
        assert end.result.error is not None
        assert end.result.error.code == code


@suite.check("E-405")
async def progress(probe: Probe) -> None:
    """Reports come between tool started and tool completed, in order, the newest always; an empty message is omitted."""
    events = await probe.events("progress", {"count": 5})
    last(events)
    reports = [event for event in events if isinstance(event, ToolProgress)]
    assert kinds(events) == [
        "execution.started",
        "tool.started",
        *["tool.progress"] * len(reports),
        "tool.completed",
        "execution.completed",
    ]
    steps = [event.progress for event in reports]
    assert steps == sorted(set(steps), key=lambda step: step or 0)
    assert steps[-1] == 5
    assert all(event.total == 5 and event.message is None and event.partial is None for event in reports)
    (report,) = [
        e for e in await probe.events("progress", {"count": 1, "message": "half"}) if isinstance(e, ToolProgress)
    ]
    assert report.message == "half"


@suite.check("E-406")
async def partials(probe: Probe) -> None:
    """Parts of the result all arrive, in order, from coroutines and from threads."""
    events = await probe.events("partials", {"count": 20, "size": 50})
    last(events)
    parts = [event.partial for event in events if isinstance(event, ToolProgress)]
    assert parts == [f"{step}:".ljust(50, ".") for step in range(20)]
    events = await probe.events("thread_progress", {"count": 20})
    last(events)
    assert [e.partial for e in events if isinstance(e, ToolProgress) and e.partial_json is not None] == list(
        range(1, 21)
    )


@suite.check("E-407")
async def slow_reader(probe: Probe) -> None:
    """A reader that lags behind loses no part, however much was sent, and gets the last event."""
    count, size = 40, 20_000
    read = 0
    request = probe.request("partials", {"count": count, "size": size})
    async with probe.executor.stream(request) as channel:
        for _ in range(3):
            await channel.receive()
        for _ in range(3):  # an unread stream does not hold up other calls
            await probe.call("echo", {"text": "a"})
        read = 3
        async for event in channel:
            read += 1
            if event.kind == "execution.completed":
                assert event.seq == read - 1
    assert read == count + 4


@suite.check("E-408")
async def waiting(probe: Probe) -> None:
    """A call that waits for its turn has the event tool waiting before tool started, and the time that it waited."""
    gate = probe.gate()
    events: list[ExecutionEvent] = []
    async with trio.open_nursery() as nursery:
        probe.start(nursery, "serial_read", {"then": "wait", "gate": gate})
        await probe.arrived(gate)
        async with probe.executor.stream(probe.request("serial_read")) as channel:
            async for event in channel:
                events.append(event)
                if event.kind == "tool.waiting":
                    await probe.open(gate)
    last(events)
    assert kinds(events) == [
        "execution.started",
        "tool.waiting",
        "tool.started",
        "tool.completed",
        "execution.completed",
    ]
    completed = events[3]
    assert isinstance(completed, ToolCompleted)
    assert completed.duration_ms >= completed.waited_ms > 0


@suite.check("E-409")
async def as_they_happen(probe: Probe) -> None:
    """Events arrive while the tool runs."""
    gate = probe.gate()
    async with probe.executor.stream(probe.request("read", {"then": "wait", "gate": gate})) as channel:
        assert [(await channel.receive()).kind for _ in range(2)] == ["execution.started", "tool.started"]
        await probe.open(gate)
        assert [event.kind async for event in channel] == ["tool.completed", "execution.completed"]


@suite.check("E-410")
async def timeout(probe: Probe) -> None:
    """A tool that hits its deadline ends its stream with the timeout, also one in a thread that runs on."""
    for tool in ("read", "thread_read"):
        events = await probe.events(tool, {"then": "wait", "gate": probe.gate()}, timeout_ms=TIMEOUT_MS)
        end = last(events)
        assert kinds(events) == ["execution.started", "tool.started", "tool.completed", "execution.completed"]
        assert end.result.status == "timed_out"
        assert end.result.error is not None
        assert end.result.error.code == "TIMEOUT"


@suite.check("E-411")
async def end_of_channel(probe: Probe) -> None:
    """After the last event the channel ends, and stays ended."""
    async with probe.executor.stream(probe.request("echo", {"text": "a"})) as channel:
        while (await channel.receive()).kind != "execution.completed":
            pass
        for _ in range(2):
            try:
                await channel.receive()
            except trio.EndOfChannel:
                continue
            raise AssertionError("something follows the last event")


@suite.check("E-412")
async def apart(probe: Probe) -> None:
    """Streams at the same time do not mix."""
    results: dict[str, list[ExecutionEvent]] = {}

    async def run(text: str) -> None:
        results[text] = await probe.events("echo", {"text": text})

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(run, str(number))
    for text, events in results.items():
        assert last(events).result.data == text
        assert len({event.execution_id for event in events}) == 1


@suite.check("E-413")
async def recorded(probe: Probe) -> None:
    """A result that came through a stream is replayed to a plain call."""
    request_id = probe.name()
    end = last(await probe.events("write", {"tag": ""}, request_id=request_id))
    again = await probe.call("write", {"tag": ""}, request_id=request_id)
    assert again.replayed
    assert again.execution_id == end.result.execution_id
    assert again.data_json == end.result.data_json


@suite.check("E-414")
async def large(probe: Probe) -> None:
    """A part of the result of half a megabyte arrives whole, and so do those around it."""
    events = await probe.events("partials", {"count": 3, "size": 500_000})
    last(events)
    parts = [event.partial for event in events if isinstance(event, ToolProgress)]
    assert parts == [f"{step}:".ljust(500_000, ".") for step in range(3)]
