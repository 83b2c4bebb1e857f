"""Tools in worker processes: what is the same as in a thread, and what a process adds."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import (
    AgentContext,
    App,
    Cause,
    DeclarationError,
    ExecutionRequest,
    RunContext,
    Settings,
    StartupError,
    State,
    ToolProgress,
    WorkerSettings,
    tool,
)
from carmy_engine.errors import CODES

from . import kit
from .conftest import PATIENCE_SECONDS, children, code_of, is_alive, isolated, open_descriptors, run, until

REPOSITORY = Path(__file__).parents[2]


def in_thread(function: Any) -> Any:
    """The same tool, run in a thread of this process."""
    return dataclasses.replace(vars(function)["__carmy_tool__"], run_in=None)


async def test_a_tool_runs_in_a_process_of_its_own() -> None:
    """The worker has a group and a session of its own, and has imported the module of the tool."""
    async with isolated() as engine:
        worker, group, session, loaded_in = await engine.call(kit.process_id)
    assert worker == group == session == loaded_in != os.getpid()


async def test_arguments_and_results_are_typed() -> None:
    """Models and structs arrive as such on both sides."""
    async with isolated() as engine:
        assert await engine.call(kit.shift, kit.Point(x=1, label="a"), by=2) == kit.Point(x=3, label="a")
        span = await engine.call(kit.whole, kit.Span(start=kit.Point(x=1), length=2.5))
        assert span == kit.Span(start=kit.Point(x=1), length=5.0)
        assert len(await engine.call(kit.text, 300_000)) == 300_000
        assert await engine.call(kit.numbers, [*range(50_000)]) == [*range(50_000)]


async def test_the_schemas_are_those_of_a_thread() -> None:
    """Where a tool runs is no matter of its callers."""
    async with isolated() as engine, App("threads").add(*map(in_thread, kit.TOOLS)).open() as threads:
        assert await engine.catalog() == await threads.catalog()


async def test_bad_arguments_are_refused_here() -> None:
    """Arguments are checked before a worker gets them."""
    async with isolated() as engine:
        result = await run(engine, "shift", point={"x": "1"})
        assert result.error is not None
        assert result.error.code == "INVALID_ARGUMENTS"
        assert await code_of(engine, "numbers", items=["a"] * 50_000) == "INVALID_ARGUMENTS"


async def test_the_context_is_sent() -> None:
    """A tool sees its caller, its run and its deadline."""
    async with isolated() as engine:
        context = AgentContext(principal="ada", session="s", permissions={"a", "b"}, metadata={"tier": [1]})
        bound = engine.bind(context=context, run=RunContext(run_id="run-1"))
        result = await run(bound, "context_of", timeout_ms=20_000, key="once")
    seen = result.unwrap()
    assert 0 < seen.pop("remaining") <= 20
    assert seen.pop("execution_id") == result.execution_id
    assert seen == {
        "principal": "ada", "session": "s", "permissions": ["a", "b"], "metadata": {"tier": [1]}, "transport": "in_process",
        "run_id": "run-1", "request_id": "once", "cancelled": False, "is_listening": False,
    }  # fmt: skip


async def test_events_are_those_of_a_thread() -> None:
    """Progress, parts and log messages arrive, in order and before the end."""
    seen: list[list[Any]] = []
    request = ExecutionRequest(tool="reports", arguments={"parts": 100})
    for opened in (isolated(kit.reports), App("thread").add(in_thread(kit.reports)).open()):
        async with opened as engine, engine.stream(request) as events:
            seen.append([event async for event in events])
    with_parts = [[event.partial for event in events if getattr(event, "partial_json", None)] for events in seen]
    assert with_parts[0] == with_parts[1] == [{"part": number} for number in range(100)]
    last = [[type(event).__name__ for event in events[-4:]] for events in seen]
    assert last[0] == last[1] == ["ToolLog", "ToolProgress", "ToolCompleted", "ExecutionCompleted"]
    assert [events[-3].message for events in seen] == ["done", "done"]


@pytest.mark.parametrize(("progress", "total"), [(3, 4), (0.5, 1), (2, 10**400)])
async def test_numbers_of_reports_are_those_of_a_thread(progress: float, total: int) -> None:
    """A whole number stays one, and a total that no float can hold is left out."""
    seen: list[Any] = []
    request = ExecutionRequest(tool="counts", arguments={"progress": progress, "total": total})
    for opened in (isolated(kit.counts), App("thread").add(in_thread(kit.counts)).open()):
        async with opened as engine, engine.stream(request) as events:
            seen += [repr((event.progress, event.total)) async for event in events if isinstance(event, ToolProgress)]
    assert seen == 2 * [repr((progress, total if total < 10 else None))]


async def test_reports_without_a_reader_are_dropped() -> None:
    """A call without a listener pays for no progress."""
    async with isolated() as engine:
        assert await engine.call(kit.reports, 100) == "reported"


async def test_log_records_reach_the_logging_of_the_engine(caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    """A worker has the log of its engine, and what tools print goes to standard error."""
    caplog.set_level(logging.WARNING)
    async with isolated() as engine:
        assert await engine.call(kit.logs, "tea") == "tea"
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("kit.tools", "the word is tea")]
    assert capfd.readouterr() == ("", "printed tea\n")


@pytest.mark.parametrize("how", ["declared", "group", "panic", "exit", "interrupt", "output", "large"])
async def test_errors_are_those_of_a_thread(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every error has the same code, message and details; the traceback is in the log under the same id."""
    errors = []
    for opened in (isolated(kit.fails), App("thread").add(in_thread(kit.fails)).open()):
        caplog.clear()
        async with opened as engine:
            error = (await run(engine, "fails", how=how)).error
            assert error is not None
            details = dict(error.details or {})
            if (error_id := details.pop("error_id", None)) is not None:
                assert error_id in caplog.text
                assert "secret" not in error.message
                assert ("Odd: a secret text" in caplog.text) is (how == "panic")
            errors.append((error.code, error.message, error.category, error.recoverable, details))
    assert errors[0] == errors[1]


async def test_development_shows_what_was_raised() -> None:
    """With expose_errors, the answer has the exceptions of the worker."""
    settings = Settings(expose_errors=True, workers=WorkerSettings(max_processes=1))
    async with isolated(kit.fails, settings=settings) as engine:
        error = (await run(engine, "fails", how="panic")).error
    assert error is not None
    assert error.details is not None
    assert error.details["exceptions"] == [{"type": "Odd", "message": "a secret text"}]


async def test_a_bad_part_fails_in_the_tool() -> None:
    """A part without a JSON form is the same error as in a thread."""
    async with isolated() as engine, engine.stream(ExecutionRequest(tool="bad_part")) as events:
        results = [event.result async for event in events if hasattr(event, "result")]
    assert results[0].error is not None
    assert results[0].error.code == "INVALID_OUTPUT"


@pytest.mark.parametrize(
    ("how", "details"),
    [
        ("exit", {"exit_code": 3}),
        ("kill", {"signal": "SIGKILL"}),
        ("segfault", {"signal": "SIGSEGV"}),
        ("abort", {"signal": "SIGABRT"}),
    ],
)
async def test_a_death_is_the_end_of_one_call(how: str, details: dict[str, object]) -> None:
    """The call ends in TOOL_CRASHED, and one that runs beside it is not affected. A retry of a write gets the same answer."""
    async with isolated(processes=2) as engine, trio.open_nursery() as nursery:
        others: list[str] = []

        async def other() -> None:
            others.append(await code_of(engine, "waits", seconds=0.5))

        nursery.start_soon(other)
        first = await run(engine, "dies", how=how, key="once")
        assert first.error is not None
        assert first.error.code == "TOOL_CRASHED"
        assert first.error.details == {"phase": "running", **details}
        assert not first.error.retryable
        again = await run(engine, "dies", how=how, key="once")
        assert again.replayed
        assert again.error == first.error
        assert await code_of(engine, "shift", point={"x": 1}) == "ok"
    assert others == ["ok"]
    assert "TOOL_CRASHED" in CODES


async def test_a_forked_process_does_not_hide_a_death(marker: Path) -> None:
    """A worker that dies is noticed though a process that it has forked lives on; that one is killed with its group."""
    async with isolated() as engine:
        assert await code_of(engine, "leaves_child_and_dies", started=str(marker)) == "TOOL_CRASHED"
        await until(lambda: not is_alive(int(marker.read_text())))


async def test_a_worker_that_writes_into_its_pipe_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    """What is no message ends the worker and its call, and nothing else."""
    async with isolated(scribbles, kit.shift) as engine:
        assert await code_of(engine, "scribbles") == "TOOL_CRASHED"
        assert await code_of(engine, "shift", point={"x": 1}) == "ok"
    assert "has sent what is no message" in caplog.text


@tool(effect="none", run_in="process", register=False)
def scribbles() -> str:
    """Write into every descriptor."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b"\xff" * 100)
    time.sleep(30)
    return ""


IDLE_DEATHS = """
import os, sys, threading
from carmy_engine import App

app = App("short-lived")


@app.tool(effect="none", run_in="process")
def pid() -> int:
    return os.getpid()


if __name__ != "__main__":
    with open("starts", "a") as file:
        file.write("x")
    threading.Timer(0.3, os._exit, [1]).start()
else:
    import trio

    async def main() -> None:
        async with app.open():
            await trio.sleep(4)

    trio.run(main)
"""


async def test_workers_that_die_by_themselves_are_not_started_without_end(tmp_path: Path) -> None:
    """Between the starts of workers that die without a call, the pauses grow."""
    (tmp_path / "short_lived.py").write_text(IDLE_DEATHS)
    await trio.run_process([sys.executable, "short_lived.py"], cwd=tmp_path)
    assert 1 <= len((tmp_path / "starts").read_text()) <= 4


async def test_an_idle_worker_may_die() -> None:
    """The next call runs in another one."""
    async with isolated() as engine:
        (worker, *_) = await engine.call(kit.process_id)
        os.kill(worker, signal.SIGKILL)
        (other, *_) = await engine.call(kit.process_id)
        assert other != worker
        await until(lambda: worker not in children())


async def test_a_loop_in_c_ends_at_its_deadline(marker: Path) -> None:
    """The answer is TIMEOUT, the process is gone, and the next call has a new one."""
    async with isolated() as engine:
        await engine.call(kit.process_id)
        error = (await run(engine, "spins", started=str(marker), timeout_ms=200)).error
        assert error is not None
        assert (error.code, error.details) == ("TIMEOUT", {"phase": "running", "cause": "deadline"})
        worker = int(marker.read_text())
        await until(lambda: worker not in children())
        assert (await engine.call(kit.process_id))[0] != worker


async def test_processes_of_a_tool_end_with_it(marker: Path) -> None:
    """The whole group is killed: started and forked processes too."""
    async with isolated() as engine:
        await engine.call(kit.process_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, engine, "sleeps_with_children")
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            call = lambda: run(engine, "sleeps_with_children", started=str(marker))  # noqa: E731
            nursery.start_soon(call)
            await until(lambda: marker.exists() and marker.read_text().count(" ") == 2)
            processes = [*map(int, marker.read_text().split())]
            assert all(map(is_alive, processes))
            nursery.cancel_scope.cancel()
        await until(lambda: not any(map(is_alive, processes)))


@pytest.mark.parametrize(
    ("then", "code", "is_killed"),
    [("return", "ok", False), ("declared", "HALF_DONE", False), ("raise", "CANCELLED", False), ("panic", "CANCELLED", False), ("ignore", "CANCELLED", True)],
)  # fmt: skip
async def test_a_tool_notices_its_cancel(then: str, code: str, is_killed: bool, marker: Path) -> None:
    """A tool with a context has a moment to end: its value counts, and its worker lives. After that it is killed."""
    async with isolated() as engine:
        (worker, *_) = await engine.call(kit.process_id)
        codes: list[str] = []
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                codes.append(await code_of(engine, "polite", started=str(marker), then=then))

            nursery.start_soon(call)
            await until(marker.exists)
            (execution,) = engine.running()
            assert engine.cancel(execution, Cause.OPERATOR)
        assert codes == [code]
        assert ((await engine.call(kit.process_id))[0] != worker) is is_killed


async def test_shutdown_kills_what_runs(marker: Path) -> None:
    """The end of the engine is the end of its workers, and their calls get their answer."""
    before, descriptors, codes = children(), open_descriptors(), list[str]()
    async with trio.open_nursery() as nursery, isolated(processes=2) as engine:
        await engine.call(kit.process_id)

        async def call() -> None:
            codes.append(await code_of(engine, "spins", started=str(marker)))

        nursery.start_soon(call)
        await until(lambda: marker.exists() and marker.read_text())
        await engine.shut_down(0)
    assert codes == ["SHUTTING_DOWN"]
    assert children() == before
    assert open_descriptors() == descriptors


async def test_calls_wait_for_a_worker() -> None:
    """Without a free worker a call waits, and its deadline ends the wait: the tool was not started."""
    async with isolated() as engine, trio.open_nursery() as nursery:
        await engine.call(kit.process_id)
        nursery.start_soon(code_of_waits, engine)
        await until(lambda: engine.statistics().running == 1)
        error = (await run(engine, "shift", point={"x": 1}, timeout_ms=50)).error
        assert error is not None
        assert (error.code, error.details) == ("TIMEOUT", {"phase": "waiting", "cause": "deadline"})
        assert await code_of(engine, "shift", point={"x": 1}) == "ok"


async def code_of_waits(engine: Any) -> None:
    assert await code_of(engine, "waits", seconds=0.5) == "ok"


async def test_workers_share_the_calls() -> None:
    """Calls run side by side, one in each worker; without parallel_safe they take turns."""
    async with isolated(processes=2) as engine:
        pids: set[int] = set()

        async def call() -> None:
            pids.add(await engine.call(kit.waits, 0.2))

        while len(pids) < 2:  # the second worker starts when the first one is taken
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(call)
        assert len(pids) == 2
        assert await engine.call(kit.takes_turns) in pids


async def test_a_worker_inherits_no_socket() -> None:
    """A worker has its two pipes and the standard descriptors, whatever this process has open."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        async with isolated() as engine:
            assert await engine.call(kit.descriptors) == ["pipe", "pipe"]


async def test_memory_has_a_limit() -> None:
    """A tool that asks for too much fails, and its worker lives."""
    settings = Settings(workers=WorkerSettings(max_processes=1, max_memory_bytes=2 * 1024**3))
    async with isolated(settings=settings) as engine:
        (worker, *_) = await engine.call(kit.process_id)
        assert await engine.call(kit.allocates, 10) == 10 * 1024 * 1024
        assert await code_of(engine, "allocates", megabytes=3000) == "TOOL_PANIC"
        assert (await engine.call(kit.process_id))[0] == worker


async def test_a_memory_limit_below_the_interpreter_is_refused() -> None:
    """An application whose workers could do nothing does not start."""
    settings = Settings(workers=WorkerSettings(max_memory_bytes=1024 * 1024))
    with pytest.raises(StartupError, match="max_memory_bytes is 1048576, and a worker that has loaded its tools uses"):
        async with isolated(settings=settings):
            pass


async def test_the_processor_has_a_limit() -> None:
    """A tool that computes for too long is stopped before its deadline; the limit counts for each call anew."""
    settings = Settings(workers=WorkerSettings(max_processes=1, max_cpu_secs=1))
    async with isolated(settings=settings) as engine:
        error = (await run(engine, "spins")).error
        assert error is not None
        assert (error.code, error.details) == ("TOOL_CRASHED", {"phase": "running", "signal": "SIGXCPU"})
        assert "workers.max_cpu_secs" in error.message
        assert await code_of(engine, "shift", point={"x": 1}) == "ok"


async def test_middleware_runs_here() -> None:
    """Middleware sees the arguments and the value as JSON, and may replace the value."""
    seen: list[Any] = []

    async def doubles(call: Any, proceed: Any) -> Any:
        seen.append((os.getpid(), dict(call.arguments)))
        value = await proceed()
        seen.append(value)
        return {**value, "x": 2 * value["x"]}

    app = App("layers", settings=Settings(workers=WorkerSettings(max_processes=1))).add(kit.shift)
    app.middleware(doubles)
    async with app.open() as engine:
        assert await engine.call(kit.shift, kit.Point(x=1)) == kit.Point(x=4)
    assert seen == [(os.getpid(), {"point": {"x": 1, "label": ""}}), {"x": 2, "label": ""}]


def refused(function: Any, match: str) -> None:
    with pytest.raises(DeclarationError, match=match):
        tool(effect="none", run_in="process", register=False)(function)


async def _async_tool() -> None: ...


def _with_state(database: State[dict[str, str]]) -> None: ...


class _Holder:
    def method(self) -> None: ...


def test_what_cannot_run_in_a_process_is_refused_at_its_declaration() -> None:
    """Each refusal has the reason and what to write instead."""

    def closure() -> None: ...

    anonymous = lambda: None  # noqa: E731
    anonymous.__annotations__ = {"return": None}
    refused(
        _async_tool, "is for a plain function of a module: this one is an 'async def'. Write 'def', or leave run_in out"
    )
    refused(
        closure, "defined inside a function, and its variables cannot be sent to another process. Move it to the module"
    )
    refused(anonymous, "a lambda has no name to import. Write it as a 'def' of the module")
    refused(_Holder.method, "in the body of a class, whose objects stay in this process")
    refused(
        _with_state, "parameter 'database' asks for State, an object of this process. Make the object in the module"
    )
    with pytest.raises(DeclarationError, match="run_in='thread' is unknown\\. Write 'process', or leave it out"):
        tool(effect="none", run_in="thread", register=False)(in_thread)  # type: ignore[arg-type]


def test_a_session_without_a_file_is_refused() -> None:
    """Code of the command line or a notebook cannot be imported by another process."""
    code = (
        "from carmy_engine import tool\n"
        "try:\n"
        "    @tool(effect='none', run_in='process')\n"
        "    def echo() -> None: ...\n"
        "except TypeError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        "the module '__main__' has no file that a worker process could import. Put the tool into a file." in done.stdout
    )


PROGRAM = '''
import os, sys
from carmy_engine import App, tool

app = App("program")
imported = __name__


@app.tool(effect="none", run_in="process")
def where() -> list[str]:
    """Where this runs."""
    return [str(os.getpid()), imported, where.__module__]

{rest}
'''
MAIN = 'if __name__ == "__main__":\n    app.run()\n'


def program(tmp_path: Path, rest: str) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("{rest}", rest))
    return path


@pytest.mark.parametrize("command", [[], ["-m", "carmy_command"]], ids=["main", "target"])
async def test_tools_of_a_file_run(command: list[str], tmp_path: Path) -> None:
    """The file of a program and the target of a command are loaded by their path."""
    path = program(tmp_path, MAIN)
    words = [str(path), "call", "where"] if not command else [*command, "call", str(path), "where"]
    done = await trio.run_process([sys.executable, *words], capture_stdout=True, cwd=REPOSITORY)
    expected = b'"__carmy_main__","__carmy_main__"' if not command else b'"program","program"'
    assert expected in done.stdout.replace(b" ", b"").replace(b"\n", b"")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("app.run()", 'so put run() below: if __name__ == "__main__":'),
        ("if __name__ != '__main__':\n    del where", "AttributeError"),
        ("if __name__ != '__main__':\n    raise ZeroDivisionError('by zero')", "ZeroDivisionError: by zero"),
        ("if __name__ != '__main__':\n    os._exit(1)", "a worker process has died while it was loading the tools"),
    ],
)
async def test_a_module_that_a_worker_cannot_load_is_a_problem_of_the_start(
    rest: str, message: str, tmp_path: Path
) -> None:
    """The program does not start, and states why."""
    path = program(tmp_path, rest if rest == "app.run()" else f"{rest}\n{MAIN}")
    done = await trio.run_process(
        [sys.executable, str(path), "call", "where"],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 1
    assert message in done.stderr.decode()


VICTIM = """
import sys, trio
from carmy_engine import App, ExecutionRequest
from tests.workers import kit

async def main():
    async with App("victim").add(*kit.TOOLS).open() as engine, trio.open_nursery() as nursery:
        await engine.call(kit.process_id)
        nursery.start_soon(engine.execute, ExecutionRequest(tool="spins", arguments={"started": sys.argv[1]}))
        await trio.sleep_forever()

trio.run(main)
"""


async def test_workers_die_with_their_engine(marker: Path) -> None:
    """The engine's process is killed, and a worker that never yields is gone too."""
    process = subprocess.Popen([sys.executable, "-c", VICTIM, str(marker)], cwd=REPOSITORY)  # noqa: ASYNC220 - it starts at once
    try:
        await until(lambda: marker.exists() and marker.read_text())
    finally:
        process.kill()
        process.wait()
    worker = int(marker.read_text())
    await until(lambda: not is_alive(worker))


SPIN_SECONDS = 0.1


async def _spin(engine: Any) -> float:
    """One call that never yields, in a worker that has started before. Seconds from its deadline to the end of the process."""
    with trio.fail_after(PATIENCE_SECONDS):
        (worker, *_) = await engine.call(kit.process_id)
        deadline = trio.current_time() + SPIN_SECONDS
        error = (await run(engine, "spins", timeout_ms=SPIN_SECONDS * 1000)).error
        assert error is not None
        assert error.code == "TIMEOUT"
        await until(lambda: not is_alive(worker))
        gone = trio.current_time() - deadline
        await until(lambda: worker not in children())
        return gone


@pytest.mark.parametrize(
    "calls", [3, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])], ids=["short", "long"]
)
async def test_loops_in_c_leave_nothing_behind(calls: int) -> None:
    """A loop in C that never yields is gone a second after its deadline, again and again, with its descriptors."""
    before, descriptors = children(), open_descriptors()
    settings = Settings(workers=WorkerSettings(max_processes=1))
    async with App("loops", settings=settings).add(*kit.TOOLS).open() as engine:
        await engine.call(kit.process_id)
        ready = open_descriptors()
        seconds = sorted([await _spin(engine) for _ in range(calls)])
        await engine.call(kit.process_id)
        assert open_descriptors() == ready
        assert len(children() - before) == 1
    assert children() == before
    assert open_descriptors() == descriptors
    print(f"gone after {seconds[calls // 2]:.3f} s (median), {seconds[-1]:.3f} s (slowest of {calls})")
    if calls > 100:  # a machine that is busy may stop this process for a while
        assert seconds[int(0.99 * calls)] < 1


async def test_the_idempotency_of_a_read_lets_it_run_again() -> None:
    """A crash of a tool without an effect frees its request_id."""
    async with isolated() as engine:
        assert await code_of(engine, "allocates", megabytes=-1, key="once") == "TOOL_PANIC"
        assert (await run(engine, "allocates", megabytes=1, key="once")).error is None
