"""`carmy_engine.blocking`: the engine in a program without an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from carmy_engine import (
    App,
    ClosedError,
    ExecutionCompleted,
    ExecutionRequest,
    ModelCall,
    StartupError,
    State,
    WrongLoopError,
    blocking,
)
from tests.host.app import Book, caller, make_app, request, trio_threads


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def engine(book: Book) -> Iterator[blocking.OpenEngine]:
    with blocking.open_app(make_app(book)) as opened:
        yield opened
    assert trio_threads() == []


def test_the_whole_surface(engine: blocking.OpenEngine) -> None:
    """Everything that an engine offers under trio is there: calls, streams, catalog, narrower executors, models, listings."""
    assert engine.execute(request("add", left=1)).unwrap() == 2
    assert [spec.name for spec in engine.subset("add").catalog().tools] == ["add"]
    ana = engine.bind(principal="ana", permissions={"confirm:clear"})
    token = caller.set("tom")
    assert ana.execute(request("who")).data == ["ana", "tom"]
    caller.reset(token)
    (result,) = ana.run_calls([ModelCall(tool="add", arguments={"left": 2}, call_id="1")])
    assert result.result.data == 3
    assert ana.provider("openai").tools
    assert len(engine.executions()) == 3
    with engine.stream(request("parts", count=2, size=1)) as events:
        assert [event.kind for event in events][-2:] == ["tool.completed", "execution.completed"]
        assert list(events) == []
    engine.wait_idle()
    engine.stop()
    engine.shut_down()


def test_typed_calls() -> None:
    """`call` takes the function, and raises what the execution ended with."""
    app = App("typed")

    @app.tool(effect="none")
    async def double(number: int) -> int:
        """Double."""
        return 2 * number

    with blocking.open_app(app) as engine:
        assert engine.call(double, 2) == 4


def test_many_threads_at_once(engine: blocking.OpenEngine) -> None:
    """Threads call the same engine at the same time, and each gets its own answer."""
    with ThreadPoolExecutor(32) as pool:
        answers = pool.map(lambda number: engine.execute(request("add", left=number)).data, range(500))
        assert list(answers) == list(range(1, 501))


def test_a_stream_is_left(engine: blocking.OpenEngine, book: Book) -> None:
    """Leaving the block cancels the execution and waits for its clean-up."""
    with engine.stream(request("sleep")) as events:
        next(events)
    assert book.lines == ["cleaned up"]
    assert engine.audit.newest(1)[0].cause == "caller"
    assert list(events) == []


def test_a_stream_is_closed_in_another_thread(engine: blocking.OpenEngine, book: Book) -> None:
    """`close` ends the wait of a reader in another thread."""
    with engine.stream(request("sleep")) as events, ThreadPoolExecutor(1) as pool:
        reader = pool.submit(list, events)
        book.started.wait()
        events.close()
        assert len(reader.result()) <= 2
    assert book.lines == ["cleaned up"]


def test_cancel_by_id(engine: blocking.OpenEngine, book: Book) -> None:
    """Another thread cancels an execution by its id; its caller gets the answer."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(engine.execute, request("sleep"))
        book.started.wait()
        (execution_id,) = engine.running()
        assert engine.cancel(execution_id)
        assert answer.result().status == "cancelled"


def test_closing_answers_what_runs(engine: blocking.OpenEngine, book: Book) -> None:
    """Closing cancels executions with the cause shutdown; later calls are refused, and closing again does nothing."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(engine.execute, request("sleep"))
        book.started.wait()
        engine.close()
        error = answer.result().error
    assert error is not None
    assert error.code == "SHUTTING_DOWN"
    with pytest.raises(ClosedError, match="'shop' was used after its block"):
        engine.execute(request("add", left=1))
    engine.close()


def test_an_application_that_cannot_start() -> None:
    """All problems are raised where the application is opened, and no thread is left."""
    app = App("broken")

    @app.tool(effect="none")
    async def needs(book: State[Book]) -> None:
        """Need state."""

    with pytest.raises(StartupError, match="MISSING_STATE"):
        blocking.open_app(app)
    assert trio_threads() == []


def test_a_loop_is_not_blocked(engine: blocking.OpenEngine) -> None:
    """In a thread that runs a loop, opening and calling are refused with the interface to use."""

    async def call() -> None:
        engine.execute(request("add", left=1))

    async def open_one() -> None:
        blocking.open_app(make_app())

    for attempt in (call, open_one):
        with pytest.raises(WrongLoopError, match=r"asyncio: write async with carmy_engine\.aio\.open_app\(app\)"):
            asyncio.run(attempt())
        with pytest.raises(WrongLoopError, match=r"trio: write async with app\.open\(\)"):
            trio.run(attempt)


def test_a_notebook_may_block_its_loop(engine: blocking.OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of a notebook's kernel runs its cells, which may call."""
    monkeypatch.setitem(sys.modules, "ipykernel", sys)

    async def cell() -> object:
        return engine.execute(request("add", left=1)).data

    assert asyncio.run(cell()) == 2


def test_a_tool_cannot_wait_for_its_own_engine() -> None:
    """A tool that calls its engine through `blocking` fails at once, instead of waiting for itself for ever."""
    app = App("own")
    engines: list[blocking.OpenEngine] = []

    @app.tool(effect="none")
    async def inner() -> int:
        """Return one."""
        return 1

    @app.tool(effect="none")
    async def outer() -> int:
        """Call another tool."""
        return engines[0].call(inner)

    @app.tool(effect="none")
    def from_thread() -> int:
        """Call another tool, from a worker thread."""
        return engines[0].call(inner)

    with blocking.open_app(app) as engine:
        engines.append(engine)
        result = engine.execute(ExecutionRequest(tool="outer"))
        assert isinstance(result.exception, WrongLoopError)
        assert engine.call(from_thread) == 1


PROGRAM = """
import os, signal, sys, threading
from carmy_engine import blocking
from tests.host.app import Book, make_app, request

book = Book()
engine = blocking.open_app(make_app(book))
"""


def python(program: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program that has an open engine."""
    command = [sys.executable, "-W", "error", "-c", before + PROGRAM + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


def test_ctrl_c_cancels_the_execution() -> None:
    """A KeyboardInterrupt ends a blocking call after the clean-up of its tool, with the cause caller."""
    ended = python("""
def press():
    book.started.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press).start()
try:
    engine.execute(request("sleep"))
except KeyboardInterrupt:
    print(book.lines, engine.audit.newest(1)[0].cause, engine.statistics().running)
engine.close()
""")
    assert (ended.stdout, ended.stderr) == ("['cleaned up'] caller 0\n", "")


def test_the_end_of_the_program_closes_the_engine() -> None:
    """A program that closes nothing still ends, and its executions are shut down."""
    ended = python(
        """
threading.Thread(target=engine.execute, args=[request("sleep")], daemon=True).start()
book.started.wait()
""",
        # What is registered first is called last.
        before="import atexit; atexit.register(lambda: print(book.lines, engine.audit.newest(1)[0].cause))",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "['cleaned up'] shutdown\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_no_engine() -> None:
    """In a process that was forked while an engine was open, its calls are refused; a new engine works."""
    ended = python("""
import warnings
warnings.simplefilter("ignore")  # newer Pythons warn of a fork with threads
pid = os.fork()
if pid == 0:
    try:
        engine.execute(request("add", left=1))
    except Exception as error:
        print(error)
    with blocking.open_app(make_app()) as other:
        print(other.execute(request("add", left=1)).data, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(engine.execute(request("add", left=1)).data)
engine.close()
""")
    assert "open one in each process" in ended.stdout.splitlines()[0]
    assert (ended.stdout.splitlines()[1:], ended.stderr) == (["2", "2"], "")


def test_the_last_event_ends_a_stream(engine: blocking.OpenEngine) -> None:
    """The last event of a stream has the result."""
    with engine.stream(request("add", left=1)) as events:
        *_, last = events
    assert isinstance(last, ExecutionCompleted)
    assert last.result.data == 2


def test_streams_are_read_by_several_threads(engine: blocking.OpenEngine) -> None:
    """Two readers of one stream share its events."""
    with engine.stream(request("parts", count=50, size=100)) as events:
        seen: list[str] = []
        readers = [threading.Thread(target=lambda: seen.extend(e.kind for e in events)) for _ in range(2)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert len(seen) == 54
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
