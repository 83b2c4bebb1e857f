"""The events of one execution: order, bounds, and nothing after the last."""

from __future__ import annotations

import math
import os
import threading
from decimal import Decimal
from fractions import Fraction
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from carmy_engine import AgentContext, AgentError, ExecutionCompleted, Settings, ToolProgress
from carmy_engine._execution.event_stream import PROGRESS_BYTES
from carmy_engine.codec import event_body
from tests.engine.kit import bench, code, read, request


def kinds(events):
    return [event.kind.rpartition(".")[2] if event.kind != "execution.completed" else "end" for event in events]


async def test_reports_merge_while_nobody_reads():
    """A reader that lags behind gets the newest report only, numbered without a gap, and costs no memory."""

    @read
    async def chatty(ctx: AgentContext) -> None:
        for step in range(10_000):
            ctx.progress.report(step, 10_000, f"step {step}")

    async with bench(chatty) as b:
        events = await b.events("chatty")
    assert kinds(events) == ["started", "started", "progress", "completed", "end"]
    assert [event.seq for event in events] == [0, 1, 2, 3, 4]
    report = events[2]
    assert isinstance(report, ToolProgress)
    assert (report.progress, report.total, report.message) == (9999, 10_000, "step 9999")


async def test_reports_do_not_merge_over_parts():
    """A report never moves past a part of the result: each part has at most one report before it."""

    @read
    async def mixed(ctx: AgentContext) -> None:
        for step in range(3):
            for sub in range(5):
                ctx.progress.report(step * 10 + sub)
            await ctx.progress.partial(step)
        ctx.progress.report(99)

    async with bench(mixed) as b:
        events = [event for event in await b.events("mixed") if isinstance(event, ToolProgress)]
    assert [event.partial if event.partial_json else event.progress for event in events] == [4, 0, 14, 1, 24, 2, 99]


async def test_parts_wait_for_a_slow_reader():
    """A tool that sends parts to a reader that does not read waits, after a bounded number of bytes; no part is lost."""
    sent = []

    @read
    async def eager(ctx: AgentContext) -> None:
        for step in range(100):
            await ctx.progress.partial("x" * 10_000)
            sent.append(step)

    async with bench(eager) as b, b.engine.stream(request("eager")) as channel:
        await wait_all_tasks_blocked()
        assert len(sent) == Settings().limits.max_event_bytes // (10_002 + PROGRESS_BYTES)
        parts = [event async for event in channel if isinstance(event, ToolProgress)]
        assert len(parts) == 100


@pytest.mark.parametrize("message", [None, "m" * 1000])
async def test_many_short_parts_wait_for_a_slow_reader(message: str | None) -> None:
    """Short parts, and what is reported between them, count with all they take; none is lost."""
    sent = []

    @read
    async def talkative(ctx: AgentContext) -> None:
        for step in range(3000):
            await ctx.progress.partial("x")
            if message is not None:
                ctx.progress.report(step, message=message)
                ctx.progress.report(step + 1, message=message)
            sent.append(step)

    async with bench(talkative) as b, b.engine.stream(request("talkative")) as channel:
        await wait_all_tasks_blocked()
        with trio.fail_after(10):
            each = len(b'"x"') + PROGRESS_BYTES + (0 if message is None else PROGRESS_BYTES + len(message))
            assert (
                Settings().limits.max_event_bytes // each - 1
                <= len(sent)
                <= Settings().limits.max_event_bytes // each + 1
            )
            events = [event async for event in channel if isinstance(event, ToolProgress)]
    assert [event.partial for event in events if event.partial_json] == ["x"] * 3000
    assert sum(event.partial_json is None for event in events) == (0 if message is None else 3000)


async def test_parts_of_two_tasks_wait_for_a_slow_reader():
    """Two tasks of a tool may both wait for the reader: each goes on when there is room, and no part is lost."""

    @read
    async def eager(ctx: AgentContext) -> None:
        async def send() -> None:
            for _ in range(3):
                await ctx.progress.partial("x" * 200_000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            nursery.start_soon(send)

    with trio.fail_after(5):
        async with bench(eager) as b, b.engine.stream(request("eager")) as channel:
            await wait_all_tasks_blocked()
            events = [event async for event in channel]
    assert len([event for event in events if isinstance(event, ToolProgress)]) == 6
    last = events[-1]
    assert isinstance(last, ExecutionCompleted)
    assert last.result.error is None


async def test_one_large_part_gets_through():
    """A part that is larger than the bound is sent alone rather than never."""

    @read
    async def large(ctx: AgentContext) -> None:
        await ctx.progress.partial("x" * (2 * Settings().limits.max_event_bytes))
        await ctx.progress.partial("y")

    async with bench(large) as b:
        parts = [event.partial for event in await b.events("large") if isinstance(event, ToolProgress)]
    assert [len(part) for part in parts] == [2 * Settings().limits.max_event_bytes, 1]


async def test_waiting_for_a_reader_counts_towards_the_deadline(autojump_clock):
    """A reader that never reads cannot hold a tool beyond its deadline; the last event is there all the same."""

    @read
    async def eager(ctx: AgentContext) -> None:
        while True:
            await ctx.progress.partial("x" * 100_000)

    async with bench(eager) as b, b.engine.stream(request("eager", timeout_ms=1000)) as channel:
        await trio.sleep(5)
        assert b.running == 0
        *_, end = [event async for event in channel]
        assert isinstance(end, ExecutionCompleted)
        assert code(end.result) == "TIMEOUT"


async def test_a_closed_reader_holds_nothing_up():
    """A reader that closes its end lets the tool run on without events; leaving the block cancels it."""

    @read
    async def eager(ctx: AgentContext) -> str:
        for _ in range(100):
            await ctx.progress.partial("x" * 10_000)
            ctx.progress.report(1)
        return "done"

    async with bench(eager) as b:
        async with b.engine.stream(request("eager")) as channel:
            await wait_all_tasks_blocked()
            await channel.aclose()
            with pytest.raises(trio.ClosedResourceError):
                await channel.receive()
            await wait_all_tasks_blocked()
        (record,) = b.sink.of("eager")
        assert record.status == "completed"


async def test_nothing_follows_the_tools_end():
    """Reports of a forgotten thread, or of a task that kept the context, are dropped after the tool's end."""
    kept: list[AgentContext] = []

    @read
    async def leaky(ctx: AgentContext) -> None:
        kept.append(ctx)

    async with bench(leaky) as b, b.engine.stream(request("leaky")) as channel:
        await wait_all_tasks_blocked()
        kept[0].progress.report(1, message="late")
        with pytest.raises(AgentError, match="CANCELLED"):
            await kept[0].progress.partial("late")
        assert kinds([event async for event in channel]) == ["started", "started", "completed", "end"]
        kept[0].progress.report(2)
        with pytest.raises(trio.EndOfChannel):
            await channel.receive()


async def test_an_abandoned_thread_is_silent(mock_clock):
    """What a thread reports after its deadline reaches no caller."""

    @read
    def slow(ctx: AgentContext, gate: str) -> None:
        b.stage.pass_gate_in_thread(gate)
        for step in range(100):
            ctx.progress.report(step)
        b.stage.effect("reported")

    async with bench(slow) as b:
        gate = b.gate()
        async with b.engine.stream(request("slow", {"gate": gate}, timeout_ms=1000)) as channel:
            await b.arrived(gate)
            mock_clock.jump(2)
            while b.running:
                await trio.lowlevel.checkpoint()
            await b.open(gate)
            await b.effects("reported", 1)
            assert kinds([event async for event in channel]) == ["started", "started", "completed", "end"]


async def test_reports_from_a_thread_arrive_before_its_end():
    """The last report of a thread comes before tool completed, and reports from threads are bounded too."""

    @read
    def chatty(ctx: AgentContext) -> None:
        for step in range(10_000):
            ctx.progress.report(step)

    async with bench(chatty) as b:
        events = await b.events("chatty")
    reports = [event.progress or 0 for event in events if isinstance(event, ToolProgress)]
    assert reports[-1] == 9999
    assert reports == sorted(reports)
    assert kinds(events)[-2:] == ["completed", "end"]
    assert kinds(events)[:2] == ["started", "started"]


@pytest.mark.parametrize(
    ("progress", "total"), [(math.nan, math.inf), (10**400, -(10**400)), (Decimal("NaN"), -math.inf)]
)
async def test_numbers_that_are_not_finite_are_left_out(progress, total):
    """A report of NaN or Infinity has no number, since JSON has none; nor of an integer that no float can hold."""

    @read
    async def odd(ctx: AgentContext) -> None:
        ctx.progress.report(progress, total, "")
        await ctx.progress.partial(1)

    async with bench(odd) as b:
        report = next(event for event in await b.events("odd") if isinstance(event, ToolProgress))
    assert (report.progress, report.total, report.message) == (None, None, None)


async def test_numbers_of_other_classes_can_be_sent():
    """What is a number to Python is one in an event."""

    @read
    async def odd(ctx: AgentContext) -> None:
        ctx.progress.report(Fraction(1, 2), Decimal(3))  # type: ignore[arg-type]
        await ctx.progress.partial(1)
        ctx.progress.report(2**70)

    async with bench(odd) as b:
        events = [event for event in await b.events("odd") if isinstance(event, ToolProgress)]
    assert [(event.progress, event.total) for event in events] == [(0.5, 3.0), (None, None), (2**70, None)]
    assert all(event_body(event) for event in events)


async def test_a_message_that_is_no_unicode_can_still_be_sent():
    """The name of a file may hold a lone surrogate; it becomes a question mark, and the call goes on."""

    @read
    async def names(ctx: AgentContext) -> str:
        ctx.progress.report(1, message=os.fsdecode(b"caf\xe9 \xc3\xa9"))
        return "good"

    async with bench(names) as b:
        events = await b.events("names")
    assert [event.message for event in events if isinstance(event, ToolProgress)] == ["caf? é"]
    assert events[-1].result.unwrap() == "good"
    assert all(event_body(event) for event in events)


async def test_a_part_that_is_no_json_is_an_error_of_the_tool():
    """A part that cannot be written as JSON raises ``INVALID_OUTPUT`` in the tool."""

    @read
    async def odd(ctx: AgentContext) -> None:
        await ctx.progress.partial(object())

    async with bench(odd) as b:
        *_, end = await b.events("odd")
    assert code(end.result) == "INVALID_OUTPUT"


async def test_progress_for_nobody_is_harmless():
    """Without a listener, reports and parts go nowhere, at once, and the tool can ask."""
    seen = []

    @read
    async def chatty(ctx: AgentContext) -> None:
        seen.append(ctx.progress.is_listening)
        ctx.progress.report(1)
        await ctx.progress.partial(object())

    @read
    def thread(ctx: AgentContext) -> None:
        ctx.progress.report(1)
        ctx.progress.partial_from_thread(1)

    async with bench(chatty, thread) as b:
        assert await b.code("chatty") == "ok"
        assert await b.code("thread") == "ok"
    assert seen == [False]


async def test_leaving_the_block_waits_for_the_clean_up():
    """When the block of a stream is left, the execution is over: cleaned up, recorded, not running."""
    async with bench() as b:
        gate = b.gate()
        arguments = {"tag": "t", "then": "wait_and_clean_up", "gate": gate}
        async with b.engine.stream(request("write", arguments, request_id="r")) as channel:
            await channel.receive()
            await b.arrived(gate)
        assert await b.effects("t:cleaned") == 1
        assert b.running == 0
        assert await b.state("r") == "interrupted"
        (record,) = b.sink
        assert record.cause == "caller"


async def test_an_exception_of_the_block_is_not_wrapped():
    """What the block of a stream raises leaves it as it is, with its own context, also beside a failing tool."""
    async with bench() as b:
        for then in ("wait", "crash"):
            error = LookupError("mine")
            with pytest.raises(LookupError) as caught:  # noqa: PT012 - the block is what is tested
                async with b.engine.stream(request("read", {"then": then, "gate": b.gate()})):
                    await wait_all_tasks_blocked()
                    raise error
            assert caught.value is error
            assert error.__context__ is None


async def test_reading_is_cancellable_and_loses_nothing():
    """A reader whose receive is cancelled gets every event later."""
    async with bench() as b:
        gate = b.gate()
        async with b.engine.stream(request("read", {"then": "wait", "gate": gate})) as channel:
            for _ in range(2):
                await channel.receive()
            with trio.CancelScope() as scope:
                scope.cancel()
                await channel.receive()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.receive)
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await b.open(gate)
            assert kinds([event async for event in channel]) == ["completed", "end"]


async def test_two_streams_of_one_request():
    """The second stream of a running request ends at once with ``EXECUTION_UNCERTAIN``, and leaving it cancels nothing."""
    async with bench() as b:
        gate = b.gate()
        wanted = request("write", {"tag": "t", "then": "wait", "gate": gate}, request_id="r")
        async with b.engine.stream(wanted) as first:
            await b.arrived(gate)
            async with b.engine.stream(wanted) as second:
                *_, end = [event async for event in second]
            assert isinstance(end, ExecutionCompleted)
            assert code(end.result) == "EXECUTION_UNCERTAIN"
            await b.open(gate)
            *_, end = [event async for event in first]
            assert isinstance(end, ExecutionCompleted)
            assert code(end.result) == "ok"


async def test_an_event_of_waiting_for_a_thread(mock_clock):
    """A call that waits for a worker thread sends an event, like one that waits for a turn."""

    async with bench() as b, trio.open_nursery() as nursery:
        gate = b.gate()
        for _ in range(Settings().limits.max_threads):
            b.start(nursery, "thread_read", {"then": "wait", "gate": gate})
        await b.arrived(gate, Settings().limits.max_threads)
        call = await b.start_waiting(nursery, "thread_read")
        await b.open(gate)
        assert code(await call.wait()) == "ok"


async def test_a_thread_that_is_abandoned_as_it_begins(mock_clock):
    """When the deadline passes in the moment in which a thread begins, the events are in order and the reader sees the end."""
    began = threading.Event()

    @read
    def slow(gate: str) -> None:
        began.set()
        b.stage.pass_gate_in_thread(gate)

    async with bench(slow) as b:
        for _ in range(20):  # the loop takes what happened at the same time in any order
            gate = b.gate()
            began.clear()
            async with b.engine.stream(request("slow", {"gate": gate}, timeout_ms=1000)) as channel:
                while not began.wait(0.02):  # not letting the loop run between the beginning and the deadline
                    await trio.lowlevel.checkpoint()
                mock_clock.jump(2)
                events = [event async for event in channel]
            assert kinds(events) == ["started", "started", "completed", "end"]
            assert isinstance(events[-1], ExecutionCompleted)
            assert events[-1].result.error is not None
            assert events[-1].result.error.details == {"phase": "running", "cause": "deadline"}
            await b.open(gate)


async def test_a_report_that_is_delivered_before_the_threads_beginning():
    """The event loop may come to a thread's report first; the tool has begun all the same, and that is reported first and once."""
    from carmy_engine._execution.event_stream import EventStream, StreamListener
    from carmy_engine._execution.execution import Caller, Execution

    execution = Execution("exec_1", "t", None, Caller(context=AgentContext()), None, trio.current_time)
    stream = EventStream()
    listener = StreamListener(stream)
    progress = listener.progress(execution)

    # The order in which the loop comes to them; the thread has told of them in the other one.
    for told in (partial(progress.report, 1), partial(listener.tool_started, execution)):
        await trio.to_thread.run_sync(told)
        await wait_all_tasks_blocked()
    assert [(await stream.receive()).kind for _ in range(2)] == ["tool.started", "tool.progress"]
    assert not stream._events
