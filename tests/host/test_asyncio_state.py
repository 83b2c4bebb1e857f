"""State, middleware and hooks of asyncio applications: in the loop of their tools, and in one task for each call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from carmy_engine import AgentContext, AgentError, App, ExecutionRequest, StartupError, State
from carmy_engine.abc import ToolCall
from tests.host.app import request
from tests.host.drive import HOSTS, drive, timed


class Pool:
    """State of an application."""


class Session:
    """State of an execution."""


class Plain:
    """State of a plain factory."""


Log = list[Any]


def in_worker() -> bool:
    """The thread runs no event loop."""
    return threading.current_thread().name not in ("MainThread", "carmy-trio", "carmy-asyncio")


def make_app(log: Log) -> App:
    """An asyncio application with all kinds of layers, which write down the task and the thread that they run in."""
    app = App("layers", backend="asyncio")

    def note(what: str) -> None:
        log.append((what, asyncio.current_task()))

    @app.on_start
    async def start(pool: State[Pool]) -> None:
        note("start")

    @app.on_stop
    async def stop(pool: State[Pool]) -> None:
        note("stop")

    async def pool() -> AsyncIterator[Pool]:
        note("pool")
        async with asyncio.timeout(60):
            yield Pool()
        note("pool left")

    async def session(pool: State[Pool], ctx: AgentContext) -> AsyncIterator[Session]:
        note("session")
        try:
            async with asyncio.timeout(60):
                yield Session()
        except BaseException as error:
            note(f"session {type(error).__name__}")
            raise
        note("session left")

    def plain(session: State[Session]) -> Iterator[Plain]:
        log.append(("plain", in_worker()))
        yield Plain()
        log.append(("plain left", in_worker()))

    app.provide(pool).provide(session, scope="execution").provide(plain, scope="execution")

    @app.middleware
    async def around(call: ToolCall, proceed: Callable[[], Awaitable[Any]]) -> Any:
        note("around")
        async with asyncio.timeout(60):
            value = await proceed()
        note("around left")
        return value

    @app.tool(effect="write", parallel_safe=True)
    async def tool(session: State[Session], plain: State[Plain], number: int) -> int:
        """Return the number."""
        note("tool")
        return number

    @app.tool(effect="write", parallel_safe=True)
    async def fail(session: State[Session]) -> None:
        """Fail."""
        await asyncio.sleep(0)
        raise AgentError("MINE", "no", "conflict")

    @app.tool(effect="write", parallel_safe=True)
    async def sleep(session: State[Session]) -> None:
        """Wait to be cancelled."""
        await asyncio.Event().wait()

    @app.tool(effect="write", parallel_safe=True)
    def function(session: State[Session], plain: State[Plain]) -> bool:
        """Run in a worker thread."""
        return in_worker()

    @app.tool(effect="write", parallel_safe=True)
    def wait_in_thread(ctx: AgentContext, session: State[Session]) -> None:
        """Wait in a worker thread to be cancelled."""
        while not ctx.cancellation.cancelled:
            threading.Event().wait(0.01)

    @app.tool(effect="write", parallel_safe=True, backend="trio")
    async def under_trio(session: State[Session]) -> str:
        """Run under trio."""
        try:
            await trio.sleep(0.01)
        finally:
            await trio.lowlevel.checkpoint()
            log.append(("under trio left", None))
        return threading.current_thread().name

    @app.tool(effect="write", parallel_safe=True, backend="trio")
    async def sleep_under_trio(session: State[Session]) -> None:
        """Wait under trio to be cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            await trio.sleep(0.01)
            log.append(("cleaned up", None))

    return app


def words(log: Log) -> list[str]:
    return [what for what, _ in log]


@pytest.mark.parametrize("host", HOSTS)
def test_the_layers_of_a_call_share_one_task(host: str) -> None:
    """Middleware, state and tool run in the same task; state of the application is entered and left in one of its own."""
    log: Log = []

    async def main(engine: Any) -> None:
        assert (await engine.execute(request("tool", number=3))).data == 3

    drive(host, make_app(log), main)
    assert words(log) == [
        *("pool", "start", "around", "session", "plain", "tool", "plain left", "session left", "around left"),
        *("stop", "pool left"),
    ]
    tasks = dict(log)
    assert tasks["plain"] is tasks["plain left"] is True
    shared = {tasks[name] for name in ("around", "session", "tool", "session left", "around left")}
    assert len(shared) == 1
    assert tasks["pool"] is tasks["pool left"]
    assert tasks["pool"] not in shared


@pytest.mark.parametrize("host", HOSTS)
def test_state_sees_how_a_call_ends(host: str) -> None:
    """A context manager of asyncio sees the error of a tool, and the cancel of a deadline."""
    log: Log = []

    async def main(engine: Any) -> None:
        for name, code in (("fail", "MINE"), ("sleep", "TIMEOUT"), ("wait_in_thread", "TIMEOUT")):
            result = await engine.execute(timed(name, 100))
            assert result.error is not None
            assert result.error.code == code
        assert [line for line in words(log) if line.startswith("session ")] == [
            "session AgentError",
            "session CancelledError",
            "session CancelledError",
        ]

    drive(host, make_app(log), main)


@pytest.mark.parametrize("host", HOSTS)
def test_other_tools_inside_the_layers(host: str) -> None:
    """Plain tools run in worker threads and tools of trio under trio, inside the same layers; a cancel reaches them, with its grace."""
    log: Log = []

    async def main(engine: Any) -> None:
        assert (await engine.execute(request("function"))).data is True
        assert (await engine.execute(request("under_trio"))).error is None
        result = await engine.execute(timed("sleep_under_trio", 50))
        assert result.error is not None
        assert result.error.code == "TIMEOUT"
        assert "cleaned up" in words(log)
        assert words(log)[-1] == "session CancelledError"

    drive(host, make_app(log), main)


@pytest.mark.parametrize("host", HOSTS)
def test_a_failing_start(host: str) -> None:
    """A factory of asyncio that fails, or is not ready in time, is ``STATE_FAILED``; what had been entered is left."""
    log: Log = []
    app = App("fails", backend="asyncio")

    async def first() -> AsyncIterator[Pool]:
        yield Pool()
        log.append("left")

    async def second(pool: State[Pool]) -> Session:
        await asyncio.sleep(0)
        raise ConnectionError("no database")

    app.provide(first).provide(second)

    async def main(engine: Any) -> None:
        raise AssertionError("it has started")

    with pytest.raises(StartupError, match=r"STATE_FAILED.*ConnectionError: no database"):
        drive(host, app, main)
    assert log == ["left"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_cancelled_error_from_nowhere(host: str) -> None:
    """`CancelledError` that no cancel has caused is a `TOOL_PANIC`, from a tool, its state, and middleware."""
    app = App("nowhere", backend="asyncio")
    where: list[str] = []

    async def session() -> AsyncIterator[Session]:
        if where == ["state"]:
            raise asyncio.CancelledError
        yield Session()

    @app.middleware
    async def around(call: ToolCall, proceed: Callable[[], Awaitable[Any]]) -> Any:
        if where == ["middleware"]:
            raise asyncio.CancelledError
        return await proceed()

    @app.tool(effect="none")
    async def tool(session: State[Session]) -> str:
        """Await a future that is cancelled."""
        if where == ["tool"]:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return "fine"

    app.provide(session, scope="execution")

    async def main(engine: Any) -> None:
        for place in ("tool", "state", "middleware"):
            where[:] = [place]
            result = await engine.execute(request("tool"))
            assert result.error is not None
            assert result.error.code == "TOOL_PANIC", place
            where.clear()
            assert (await engine.execute(request("tool"))).data == "fine"

    drive(host, app, main)


async def test_readiness_and_authentication() -> None:
    """Async readiness checks and the authenticator of an asyncio application run in its loop."""
    app = App("ready", backend="asyncio")

    async def check() -> bool:
        await asyncio.sleep(0)
        return True

    async def authenticate(credentials: Any) -> AgentContext:
        await asyncio.sleep(0)
        return AgentContext(principal="ana")

    async with app.ready("database", check).authenticate(authenticate).open() as engine:
        made: Any = engine.ready_checks["database"]()
        assert await made is True
        assert engine.authenticator is not None
        found: Any = engine.authenticator({})  # type: ignore[arg-type]
        assert (await found).principal == "ana"


async def test_an_override_needs_no_loop_of_its_own() -> None:
    """`override` replaces a factory of asyncio as any other."""
    app = App("override", backend="asyncio")

    async def pool() -> Pool:
        raise ConnectionError

    class Fake(Pool):
        pass

    @app.provide(pool).tool(effect="none")
    async def name(pool: State[Pool]) -> str:
        """Name the pool."""
        return type(pool).__name__

    with app.override(Pool, Fake()):
        async with app.open() as engine:
            assert (await engine.execute(ExecutionRequest(tool="name"))).data == "Fake"
