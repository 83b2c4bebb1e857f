"""Tools of asyncio: in a thread of an engine under trio, and in the loop of an asyncio program."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import random
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from carmy_engine import (
    AgentContext,
    AgentError,
    App,
    DeclarationError,
    Engine,
    ExecutionCompleted,
    State,
    ToolProgress,
    aio,
    tool,
)
from tests.host.app import request

variable = contextvars.ContextVar("variable", default="unset")


class Book:
    """What the tools have done."""

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.engine: Any = None


def make_app(book: Book) -> App:
    """An application with tools of both libraries."""
    app = App("mixed").state(book)

    @app.tool(effect="none", parallel_safe=True, backend="asyncio")
    async def where(ctx: AgentContext, number: int = 0) -> list[Any]:
        """Where it runs."""
        await asyncio.sleep(0)
        return [number, threading.current_thread().name, variable.get(), ctx.principal]

    @app.tool(effect="write", parallel_safe=True, backend="asyncio")
    async def sleep(book: State[Book], ctx: AgentContext) -> None:
        """Wait to be cancelled."""
        try:
            book.started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            book.lines.append(str(ctx.cancellation.cause))

    @app.tool(effect="write", parallel_safe=True, backend="asyncio")
    async def late(book: State[Book]) -> str:
        """Return a value although it was cancelled."""
        book.started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done"

    @app.tool(effect="write", parallel_safe=True, backend="asyncio")
    async def stubborn(book: State[Book]) -> None:
        """Go on although it was cancelled."""
        book.started.set()
        while not book.go_on.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                book.lines.append("swallowed")

    @app.tool(effect="read", parallel_safe=True, backend="asyncio")
    async def parts(ctx: AgentContext, count: int, size: int) -> None:
        """Send reports and parts, some of them from tasks of its own."""
        ctx.progress.report(1, 2, "half")
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(ctx.progress.partial(str(number).ljust(size)))

    @app.tool(effect="read", parallel_safe=True, backend="asyncio")
    async def told(ctx: AgentContext, book: State[Book]) -> str:
        """Wait until it is told that it is cancelled."""

        async def watch() -> None:
            book.lines.append(await ctx.cancellation.wait())

        watcher = asyncio.create_task(watch())
        await asyncio.sleep(0)
        book.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await watcher
        return "unreachable"

    @app.tool(effect="read", parallel_safe=True, backend="asyncio")
    async def fail() -> None:
        """Fail in a declared way."""
        await asyncio.sleep(0)
        raise AgentError("MINE", "no", "conflict")

    @app.tool(effect="read", parallel_safe=True, backend="asyncio")
    async def block(seconds: float) -> str:
        """Hold the loop."""
        time.sleep(seconds)  # noqa: ASYNC251 - on purpose
        return "done"

    @app.tool(effect="read", parallel_safe=True, backend="asyncio")
    async def outer(book: State[Book]) -> Any:
        """Call another tool."""
        engine = book.engine if isinstance(book.engine, aio.BoundEngine) else aio.engine_of(book.engine)
        return await engine.call(where, number=7)

    @app.tool(effect="read", parallel_safe=True)
    async def on_trio() -> str:
        """Run under trio."""
        await trio.lowlevel.checkpoint()
        return threading.current_thread().name

    return app


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[Engine, Book]]:
    """An engine under trio; no thread is left of it."""
    book = Book()
    async with make_app(book).open() as engine:
        book.engine = engine
        try:
            yield engine, book
        finally:
            book.go_on.set()
    assert not [thread for thread in threading.enumerate() if thread.name == "carmy-asyncio"]


def error_of(result: Any) -> tuple[str, str]:
    assert result.error is not None
    return result.error.code, result.error.details["phase"]


async def test_it_runs_in_a_loop_of_the_engine() -> None:
    """Under trio a tool of asyncio runs in one thread of the engine, with the caller's context and variables."""
    async with opened() as (engine, _):
        variable.set("seen")
        ana = engine.bind(principal="ana")
        assert (await ana.execute(request("where", number=3))).data == [3, "carmy-asyncio", "seen", "ana"]
        assert (await engine.execute(request("on_trio"))).data == threading.current_thread().name
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(engine.execute, request("where"))


def test_it_runs_in_the_loop_of_the_program() -> None:
    """Under asyncio a tool of asyncio runs in the program's loop, and one of trio in the engine's thread."""

    async def main() -> None:
        book = Book()
        async with aio.open_app(make_app(book)) as engine:
            book.engine = engine
            variable.set("seen")
            here = threading.current_thread().name
            assert (await engine.execute(request("where"))).data == [0, here, "seen", None]
            assert (await engine.execute(request("on_trio"))).data == "carmy-trio"
            assert (await engine.execute(request("outer"))).data == [7, here, "seen", None]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await engine.execute(request("sleep"))
            assert book.lines == ["caller"]
            async with engine.stream(request("parts", count=3, size=1)) as events:
                assert len([event async for event in events if isinstance(event, ToolProgress)]) == 4
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main(), debug=True)


@pytest.mark.parametrize("how", ["deadline", "cancel", "leave", "shutdown"])
async def test_every_cancel_reaches_the_task(how: str) -> None:
    """The task is cancelled, its context has the cause, and its clean-up may await."""
    async with opened() as (engine, book):
        results: list[Any] = []
        scope = trio.CancelScope()

        async def call() -> None:
            wanted = request("sleep")
            with scope:
                results.append(await engine.execute(wanted))

        async with trio.open_nursery() as nursery:
            if how == "deadline":
                results.append(await engine.execute(type(request("sleep"))(tool="sleep", timeout_ms=50)))
            else:
                nursery.start_soon(call)
                await trio.to_thread.run_sync(book.started.wait)
                if how == "cancel":
                    engine.cancel(engine.running()[0])
                elif how == "leave":
                    scope.cancel()
                else:
                    await engine.shut_down(0)
        codes = {"deadline": "TIMEOUT", "cancel": "CANCELLED", "shutdown": "SHUTTING_DOWN"}
        assert [error_of(result) for result in results] == ([(codes[how], "running")] if how != "leave" else [])
        assert book.lines == [{"cancel": "caller", "leave": "caller"}.get(how, how)]
        assert engine.statistics().running == engine.statistics().stuck_tasks == 0


async def test_a_value_that_is_returned_late_counts() -> None:
    """A tool that returns a value after its cancel is answered with it."""
    async with opened() as (engine, _):
        result = await engine.execute(type(request("late"))(tool="late", timeout_ms=50))
        assert result.data == "done"


async def test_a_task_that_swallows_its_cancel_is_abandoned() -> None:
    """It is answered after the grace, counts as stuck and keeps its request_id until it ends."""
    async with opened() as (engine, book):
        wanted = type(request("stubborn"))(tool="stubborn", timeout_ms=50, request_id="one")
        assert error_of(await engine.execute(wanted)) == ("TIMEOUT", "running")
        assert book.lines[0] == "swallowed"
        assert engine.statistics().stuck_tasks == 1
        again = await engine.execute(wanted)
        assert again.error is not None
        assert again.error.details is not None
        assert again.error.details["state"] == "running"
        assert (await engine.execute(request("where"))).error is None
        book.go_on.set()
        while engine.statistics().stuck_tasks:
            await trio.lowlevel.checkpoint()


async def test_a_loop_with_a_stuck_task_does_not_hold_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """Closing waits for the grace only; the thread ends with its last task."""
    book = Book()
    async with make_app(book).open() as engine:
        await engine.execute(type(request("stubborn"))(tool="stubborn", timeout_ms=50))
    assert "asyncio tasks go on although they were cancelled" in caplog.text
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "carmy-asyncio")
    book.go_on.set()
    await trio.to_thread.run_sync(thread.join)


async def test_too_many_stuck_tasks() -> None:
    """Once as many tasks as allowed are stuck, calls are refused as overloaded."""
    from carmy_engine import LimitSettings, Settings

    book = Book()
    app = make_app(book)
    async with app.open(settings=Settings(limits=LimitSettings(max_threads=1))) as engine:
        await engine.execute(type(request("stubborn"))(tool="stubborn", timeout_ms=50))
        result = await engine.execute(request("where"))
        assert result.error is not None
        assert result.error.code == "OVERLOADED"
        book.go_on.set()


async def test_events_and_parts_from_a_task() -> None:
    """Reports and parts arrive, also more than a stream holds; a slow reader holds the tool back."""
    async with opened() as (engine, _), engine.stream(request("parts", count=40, size=20_000)) as events:
        kinds = [event.kind async for event in events]
        assert kinds.count("tool.progress") == 41
        assert kinds[-2:] == ["tool.completed", "execution.completed"]


async def test_it_can_wait_for_its_cancel() -> None:
    """`ctx.cancellation.wait()` wakes tasks of asyncio."""
    async with opened() as (engine, book):
        async with engine.stream(request("told")) as events:
            await trio.to_thread.run_sync(book.started.wait)
            engine.cancel(engine.running()[0])
            last = [event async for event in events][-1]
        assert isinstance(last, ExecutionCompleted)
        assert last.result.status == "cancelled"
        assert book.lines == ["caller"]


async def test_nested_calls() -> None:
    """A tool of asyncio calls tools of an engine under trio through `aio.engine_of`."""
    async with opened() as (engine, _):
        assert (await engine.bind(principal="ana").execute(request("outer"))).data == [
            7,
            "carmy-asyncio",
            "unset",
            None,
        ]


async def test_declared_errors() -> None:
    """An `AgentError` passes unchanged, and an output that does not fit is found."""
    async with opened() as (engine, _):
        result = await engine.execute(request("fail"))
        assert result.error is not None
        assert result.error.code == "MINE"


async def test_a_blocking_tool_holds_no_task_of_trio(caplog: pytest.LogCaptureFixture) -> None:
    """While it holds its loop, tools of trio are answered; the watchdog names it."""
    async with opened() as (engine, _), trio.open_nursery() as nursery:
        nursery.start_soon(engine.execute, request("block", seconds=1.6))
        assert (await engine.execute(request("on_trio"))).error is None
        while engine.statistics().stalls == 0:  # noqa: ASYNC110 - the watchdog is a thread
            await trio.sleep(0.01)
        assert (await engine.execute(request("on_trio"))).error is None
    assert "the tool block holds the asyncio loop" in caplog.text


@pytest.mark.parametrize("host", ["trio", "asyncio"])
def test_many_calls_with_random_cancels_leave_nothing(host: str) -> None:
    """After 200 calls at once with random cancels no execution, task or thread is left."""
    chance = random.Random(1)
    names = [chance.choice(["sleep", "where", "on_trio"]) for _ in range(200)]

    async def under_trio() -> None:
        async with opened() as (engine, _), trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in names]

            async def call(name: str, scope: trio.CancelScope) -> None:
                with scope:
                    await engine.execute(request(name))

            for name, scope in zip(names, scopes, strict=True):
                nursery.start_soon(call, name, scope)
            for scope in chance.sample(scopes, 150):
                await trio.lowlevel.checkpoint()
                scope.cancel()
            await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        assert engine.statistics().running == engine.statistics().stuck_tasks == 0

    async def under_asyncio() -> None:
        async with aio.open_app(make_app(Book())) as engine:
            tasks = [asyncio.create_task(engine.execute(request(name))) for name in names]
            for task in chance.sample(tasks, 150):
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert engine.statistics().running == engine.statistics().stuck_tasks == 0
        assert len(asyncio.all_tasks()) == 1

    if host == "trio":
        trio.run(under_trio)
    else:
        asyncio.run(under_asyncio(), debug=True)


def test_a_blocking_tool_in_the_loop_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    """The watchdog names it, too."""

    async def main() -> None:
        async with aio.open_app(make_app(Book())) as engine:
            await engine.execute(request("block", seconds=1.6))
            while engine.statistics().stalls == 0:  # noqa: ASYNC110 - the watchdog is a thread
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert "the tool block holds the program's asyncio loop" in caplog.text


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize("host", ["trio", "asyncio"])
def test_calls_that_wait_do_not_depend_on_each_other(host: str, left: int) -> None:
    """Of three calls that wait for their tools, one is left, one ends and one goes on; the last still gets its value."""
    app, gates = App("gates", backend="asyncio"), [asyncio.Event() for _ in range(3)]
    begun: queue.SimpleQueue[int] = queue.SimpleQueue()
    loops: list[asyncio.AbstractEventLoop] = []

    @app.tool(effect="read", parallel_safe=True)
    async def wait(number: int) -> int:
        """Wait for a gate."""
        loops.append(asyncio.get_running_loop())
        begun.put(number)
        await gates[number].wait()
        return number

    def open_gate(number: int) -> None:
        loops[0].call_soon_threadsafe(gates[number].set)

    first, second = (number for number in range(3) if number != left)

    async def under_trio() -> None:
        async with app.open() as engine, trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in gates]
            ended = [trio.Event() for _ in gates]
            values: dict[int, Any] = {}

            async def call(number: int) -> None:
                with scopes[number]:
                    values[number] = (await engine.execute(request("wait", number=number))).data
                ended[number].set()

            for number in range(3):
                nursery.start_soon(call, number)
                assert await trio.to_thread.run_sync(begun.get) == number
            scopes[left].cancel()
            await ended[left].wait()
            for number in (first, second):
                open_gate(number)
                await ended[number].wait()
            assert values == {first: first, second: second}

    async def under_asyncio() -> None:
        async with aio.open_app(app) as engine:
            tasks = []
            for number in range(3):
                tasks.append(asyncio.create_task(engine.execute(request("wait", number=number))))
                assert await asyncio.to_thread(begun.get) == number
            tasks[left].cancel()
            await asyncio.wait([tasks[left]])
            assert tasks[left].cancelled()
            for number in (first, second):
                open_gate(number)
                assert (await tasks[number]).data == number

    if host == "trio":
        trio.run(under_trio)
    else:
        asyncio.run(under_asyncio(), debug=True)


async def test_a_task_that_a_tool_has_left_behind_can_call() -> None:
    """Its call reaches the engine although no call of the engine waits."""
    app = App("later", backend="asyncio")
    begun, values = trio.Event(), queue.SimpleQueue[Any]()
    go_on = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    @app.tool(effect="read", parallel_safe=True)
    async def leave_behind() -> None:
        """Leave a task behind."""

        async def later() -> None:
            await go_on.wait()
            values.put(await aio.engine_of(engine).call(number))

        tasks.append(asyncio.create_task(later()))

    @app.tool(effect="read", parallel_safe=True, backend="trio")
    async def number() -> int:
        """A number."""
        begun.set()
        await trio.lowlevel.checkpoint()
        return 1

    async with app.open() as engine:
        await engine.call(leave_behind)
        await trio.testing.wait_all_tasks_blocked()
        tasks[0].get_loop().call_soon_threadsafe(go_on.set)
        await begun.wait()
        assert await trio.to_thread.run_sync(values.get) == 1


async def test_a_task_of_a_tool_that_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """`SystemExit` in a task that a tool has left behind ends neither the loop nor the process."""
    app = App("exits")

    @app.tool(effect="none", backend="asyncio")
    async def leave_behind() -> str:
        """Leave a task behind."""

        async def fail() -> None:
            raise SystemExit

        task = asyncio.create_task(fail())
        task.add_done_callback(lambda done: done.exception())
        return "left"

    @app.tool(effect="none", backend="asyncio")
    async def fine() -> str:
        """Do nothing."""
        return "fine"

    async with app.open() as engine:
        assert (await engine.execute(request("leave_behind"))).data == "left"
        assert (await engine.execute(request("fine"))).data == "fine"
    assert "a task of asyncio has failed" in caplog.text


@pytest.mark.parametrize(
    ("backend", "words"),
    [("trio", "declare the tool with @tool(..., backend='asyncio')"), ("asyncio", "leave out backend='asyncio'")],
)
async def test_the_wrong_library_is_named(backend: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    """A library of asyncio that is awaited on trio, or the reverse, is a `TOOL_PANIC`, and the log names the correction."""
    app = App("wrong")

    @app.tool(effect="none", backend=backend)
    async def sleeps() -> None:
        """Sleep."""
        await (asyncio.sleep(0.1) if backend == "trio" else trio.sleep(0.1))  # noqa: ASYNC105 - it is

    @app.tool(effect="none", backend=backend)
    async def yields() -> None:
        """Give way."""
        await (asyncio.sleep(0) if backend == "trio" else trio.lowlevel.cancel_shielded_checkpoint())  # noqa: ASYNC105 - it is

    @app.tool(effect="none", backend=backend)
    async def groups() -> None:
        """Open a group."""
        async with asyncio.TaskGroup() if backend == "trio" else trio.open_nursery():
            pass

    async with app.open() as engine:
        for name in ("sleeps", "yields", "groups"):
            caplog.clear()
            result = await engine.execute(request(name))
            assert result.error is not None
            assert result.error.code == "TOOL_PANIC"
            assert words in caplog.text, name


def test_a_host_that_closes_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    """An execution whose loop is gone ends with the engine."""
    loop = asyncio.new_event_loop()
    book = Book()
    opening = aio.open_app(make_app(book))
    engine = loop.run_until_complete(opening.__aenter__())
    task = loop.create_task(engine.execute(request("sleep")))
    while not book.started.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "carmy-trio")
    for each in asyncio.all_tasks(loop):
        each.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    thread.join()


def test_declarations() -> None:
    """A backend is one of two, for async functions."""
    with pytest.raises(DeclarationError, match="'trio', 'asyncio'"):

        @tool(effect="none", register=False, backend="gevent")  # type: ignore[arg-type]
        async def one() -> None:
            """Do nothing."""

    with pytest.raises(DeclarationError, match="a plain function runs in a worker thread"):

        @tool(effect="none", register=False, backend="asyncio")
        def two() -> None:
            """Do nothing."""

    with pytest.raises(DeclarationError, match="neither 'trio' nor 'asyncio'"):
        App("three", backend="curio")  # type: ignore[arg-type]
