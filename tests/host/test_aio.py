"""`carmy_engine.aio`: the engine in an asyncio program."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from carmy_engine import (
    AgentError,
    App,
    ClosedError,
    ExecutionCompleted,
    ModelCall,
    StartupError,
    State,
    WrongLoopError,
    aio,
)
from tests.host.app import Book, caller, make_app, request, trio_threads


def run(main: Callable[[aio.Engine, Book], Awaitable[None]]) -> Book:
    """Run a coroutine with an open engine; nothing is left of it afterwards."""
    book = Book()

    async def opened() -> None:
        async with aio.open_app(make_app(book)) as engine:
            await main(engine, book)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(opened(), debug=True)
    assert trio_threads() == []
    return book


def test_the_whole_surface() -> None:
    """Everything that an engine offers under trio is there: calls, streams, catalog, narrower executors, models, listings."""

    async def main(engine: aio.Engine, book: Book) -> None:
        assert (await engine.execute(request("add", left=1))).unwrap() == 2
        add = next(make_app()._contents.tools()).function  # type: ignore[union-attr]
        with pytest.raises(Exception, match="another one"):
            await engine.call(add, 1)
        assert [spec.name for spec in (await engine.subset("add").catalog()).tools] == ["add"]
        ana = engine.bind(principal="ana", permissions={"confirm:clear"})
        assert (await ana.execute(request("who"))).data == ["ana", "nobody"]
        assert (await ana.bind(session="s").execute(request("clear"))).error is None
        assert ana.context.principal == "ana"
        (result,) = await ana.run_calls([ModelCall(tool="add", arguments={"left": 2}, call_id="1")])
        assert result.result.data == 3
        assert (await ana.provider("openai")).tools
        result_of_thread = await engine.execute(request("in_thread"))
        summary = ana.lookup(result_of_thread.execution_id)
        assert summary is None  # of another principal
        assert engine.lookup(result_of_thread.execution_id) is not None
        assert len(await engine.executions()) == 5
        assert (engine.name, engine.settings.timeout_secs) == ("shop", 30)
        await engine.wait_idle()
        await engine.stop()
        refused = await engine.execute(request("add", left=1))
        assert refused.error is not None
        assert refused.error.code == "SHUTTING_DOWN"
        await engine.shut_down()

    run(main)


def test_events_come_as_they_happen() -> None:
    """A stream gives every event in order, and ends after the last; the end can be asked for again."""

    async def main(engine: aio.Engine, book: Book) -> None:
        async with engine.stream(request("parts", count=2, size=1)) as events:
            seen = [event async for event in events]
            assert [event async for event in events] == []
        assert [event.kind for event in seen] == [
            "execution.started",
            "tool.started",
            "tool.progress",
            "tool.progress",
            "tool.completed",
            "execution.completed",
        ]
        assert isinstance(seen[-1], ExecutionCompleted)

    run(main)


def test_a_slow_reader_holds_the_tool_back() -> None:
    """A tool that sends more than the bounds of the stream waits until the reader takes it."""

    async def main(engine: aio.Engine, book: Book) -> None:
        async with engine.stream(request("parts", count=50, size=20_000)) as events:
            assert (await anext(events)).kind == "execution.started"
            for _ in range(3):
                await engine.execute(request("add", left=1))
            assert len(book.lines) < 40
            assert len([event async for event in events]) == 53

    run(main)


def test_cancelling_the_task_cancels_the_execution() -> None:
    """The tool cleans up before the cancel of the task goes on; the cause is the caller."""

    async def main(engine: aio.Engine, book: Book) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await engine.execute(request("sleep"))
        assert book.lines == ["cleaned up"]
        assert engine.audit.newest(1)[0].cause == "caller"
        assert engine.statistics().running == 0

    run(main)


def test_a_second_cancel_does_not_leave_the_clean_up() -> None:
    """A task that is cancelled again while its execution ends still waits for the end."""

    async def main(engine: aio.Engine, book: Book) -> None:
        task = asyncio.create_task(engine.execute(request("sleep")))
        await asyncio.to_thread(book.started.wait)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert book.lines == ["cleaned up"]

    run(main)


def test_leaving_a_stream_cancels() -> None:
    """Leaving the block of a stream cancels the execution and waits for its clean-up, also by an exception."""

    async def main(engine: aio.Engine, book: Book) -> None:
        async with engine.stream(request("sleep")) as events:
            await anext(events)
        assert book.lines == ["cleaned up"]
        with contextlib.suppress(KeyError):
            async with engine.stream(request("sleep")) as events:
                await anext(events)
                raise KeyError
        assert book.lines == ["cleaned up"] * 2
        assert [event async for event in events] == []
        assert engine.audit.newest(1)[0].cause == "caller"

    run(main)


def test_cancel_by_id() -> None:
    """`cancel` ends the execution of the same principal, and no other."""

    async def main(engine: aio.Engine, book: Book) -> None:
        ana, ben = engine.bind(principal="ana"), engine.bind(principal="ben")
        async with ana.stream(request("sleep")) as events:
            execution_id = (await anext(events)).execution_id
            assert not await ben.cancel(execution_id)
            assert ana.running() == (execution_id,)
            assert await ana.cancel(execution_id)
            last = [event async for event in events][-1]
        assert isinstance(last, ExecutionCompleted)
        assert last.result.status == "cancelled"

    run(main)


def test_context_variables_reach_the_tool() -> None:
    """A tool sees the context variables of the task that calls it; calls at once do not mix."""

    async def main(engine: aio.Engine, book: Book) -> None:
        async def call(name: str) -> None:
            caller.set(name)
            assert (await engine.execute(request("who"))).data == [None, name]

        await asyncio.gather(*(call(str(number)) for number in range(20)))
        assert (await engine.execute(request("who"))).data == [None, "nobody"]

    run(main)


def test_many_calls_with_random_cancels_leave_nothing() -> None:
    """After 200 calls, half of them cancelled at random times, no execution, task or thread is left."""

    async def main(engine: aio.Engine, book: Book) -> None:
        chance = random.Random(1)
        tasks = [
            asyncio.create_task(engine.execute(request("sleep") if chance.random() < 0.5 else request("add", left=1)))
            for _ in range(200)
        ]
        for task in chance.sample(tasks, 150):
            await asyncio.sleep(0)
            task.cancel()
        left = [task for task in tasks if not task.done()]
        await asyncio.sleep(0)
        for task in left:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) or each.data == 2 for each in results)  # type: ignore[union-attr]
        assert engine.statistics().running == 0

    run(main)


def test_the_end_of_the_block_answers_what_runs() -> None:
    """An execution that runs when the block ends is cancelled with the cause shutdown, and its caller gets the answer."""
    tasks: list[asyncio.Task[object]] = []

    async def main(engine: aio.Engine, book: Book) -> None:
        async def call() -> None:
            result = await engine.execute(request("sleep"))
            assert result.error is not None
            assert result.error.code == "SHUTTING_DOWN"

        tasks.append(asyncio.create_task(call()))
        await asyncio.to_thread(book.started.wait)

    book = Book()

    async def opened() -> None:
        async with aio.open_app(make_app(book)) as engine:
            await main(engine, book)
        await tasks[0]
        with pytest.raises(ClosedError, match="'shop' was used after its block"):
            await engine.execute(request("add", left=1))
        stream = engine.stream(request("add", left=1))
        with pytest.raises(ClosedError):
            await stream.__aenter__()

    asyncio.run(opened(), debug=True)


def test_an_exception_in_the_block_closes_the_engine() -> None:
    """The exception leaves the block as it is, and the thread has ended."""

    async def main(engine: aio.Engine, book: Book) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(main)
    assert trio_threads() == []


def test_an_application_that_cannot_start() -> None:
    """All problems are raised where the application is opened, and no thread is left."""
    app = App("broken")

    @app.tool(effect="none")
    async def needs(book: State[Book]) -> None:
        """Need state."""

    async def main() -> None:
        async with aio.open_app(app):
            pass

    with pytest.raises(StartupError, match="MISSING_STATE"):
        asyncio.run(main())
    assert trio_threads() == []


def test_a_closed_loop_closes_the_engine() -> None:
    """A program that closes its loop without leaving the block leaves no thread."""
    loop = asyncio.new_event_loop()
    opened = aio.open_app(make_app())
    engine = loop.run_until_complete(opened.__aenter__())
    loop.run_until_complete(engine.execute(request("add", left=1)))
    (thread,) = trio_threads()
    loop.close()
    thread.join()


def test_wrong_loops() -> None:
    """Opened or used in the wrong place, each interface names the one for that place."""
    app = make_app()

    async def with_app() -> None:
        async with app.open():
            pass

    async def with_aio() -> None:
        async with aio.open_app(app):
            pass

    with pytest.raises(WrongLoopError, match=r"asyncio: write async with carmy_engine\.aio\.open_app\(app\)"):
        asyncio.run(with_app())
    with pytest.raises(WrongLoopError, match=r"trio: write async with app\.open\(\)"):
        trio.run(with_aio)
    with pytest.raises(WrongLoopError, match=r"No event loop .* with carmy_engine\.blocking\.open_app\(app\)"):
        with_aio().send(None)
    with pytest.raises(WrongLoopError, match=r"No event loop .* with carmy_engine\.blocking\.open_app\(app\)"):
        with_app().send(None)


def test_an_engine_belongs_to_its_loop() -> None:
    """Calls from another loop, from trio and from no loop are refused with the remedy."""

    async def main(engine: aio.Engine, book: Book) -> None:
        async def call() -> object:
            return await engine.execute(request("add", left=1))

        with pytest.raises(WrongLoopError, match="another asyncio loop"):
            await asyncio.to_thread(asyncio.run, call())
        with pytest.raises(WrongLoopError, match="under trio"):
            await asyncio.to_thread(trio.run, call)

    run(main)


def test_errors_are_raised_as_under_trio() -> None:
    """`call` raises what the execution ended with."""
    app = App("errors")

    @app.tool(effect="none")
    async def fail() -> None:
        """Fail."""
        raise AgentError("MINE", "no", "conflict")

    async def main() -> None:
        async with aio.open_app(app) as engine:
            with pytest.raises(AgentError, match="MINE"):
                await engine.call(fail)

    asyncio.run(main())
