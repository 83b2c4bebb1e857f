"""Serving processes: the line that says where, calls over the network, signals and the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import App, Engine
from carmy_engine._app.serve import serve
from carmy_engine.transport import descendants

from .conftest import running_server

CARMY = (sys.executable, "-c", "from carmy_engine.cli import main; main()")


async def carmy(*words: str) -> tuple[int, Any]:
    done = await trio.run_process([*CARMY, *words], capture_stdout=True, capture_stderr=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()


@pytest.fixture
def told(directory: Path) -> Path:
    """A named pipe through which a tool of `slow.py` tells that it runs."""
    os.mkfifo(directory / "told")
    return directory / "told"


async def word(told: Path) -> str:
    return await trio.to_thread.run_sync(told.read_text, abandon_on_cancel=True)


@pytest.mark.usefixtures("directory")
async def test_serve_call_and_stop() -> None:
    """serve reports its address, call --url gets an answer from it, and SIGTERM ends it with 0."""
    with trio.fail_after(30):
        async with running_server(*CARMY, "serve", "slow.py", "--address", "127.0.0.1:0") as server:
            assert server.url.startswith("http://127.0.0.1:")
            code, answer = await carmy("call", "sleep", '{"seconds": 0}', "--url", server.url, "--request-id", "a")
            assert (code, answer["data"]) == (0, "slept")
            assert await carmy(
                *("call", "sleep", '{"seconds": 0}', "--url", server.url, "--request-id", "a", "--on-running", "wait")
            ) == (code, answer)
            code, answer = await carmy("call", "sleep", '{"seconds": "soon"}', "--url", server.url)
            assert (code, answer["error"]["code"]) == (1, "INVALID_ARGUMENTS")
            server.process.send_signal(signal.SIGTERM)
            assert await server.process.wait() == 0


GUARDED = """
from carmy_engine import AgentContext, App, BearerTokens
app = App("guarded").authenticate(BearerTokens({"t-ana": AgentContext(principal="ana")}))
@app.tool(effect="none")
async def whoami(ctx: AgentContext) -> str | None:
    "Say who calls."
    return ctx.principal
"""


COUNTED = """
import gc
from carmy_engine import App
app = App("counted")
@app.tool(effect="none")
async def spared() -> int:
    "Count what the garbage collector does not look at."
    return gc.get_freeze_count()
"""


async def test_what_is_there_from_the_beginning_is_no_garbage(directory: Path) -> None:
    """Once a server listens, the collector leaves alone what has been imported: to search it would hold up all calls."""
    (directory / "counted.py").write_text(COUNTED)
    with trio.fail_after(30):
        async with running_server(*CARMY, "serve", "counted.py", "--address", "127.0.0.1:0") as server:
            code, answer = await carmy("call", "spared", "--url", server.url)
            assert code == 0
            assert answer["data"] > 10_000


async def test_calling_a_server_that_wants_credentials(directory: Path) -> None:
    """--token is what the server is shown; without it, or with a wrong one, nothing runs."""
    (directory / "guarded.py").write_text(GUARDED)
    with trio.fail_after(30):
        async with running_server(*CARMY, "serve", "guarded.py", "--address", "127.0.0.1:0") as server:
            code, answer = await carmy("call", "whoami", "--url", server.url, "--token", "t-ana")
            assert (code, answer["data"]) == (0, "ana")
            for words in ((), ("--token", "t-bob")):
                code, answer = await carmy("call", "whoami", "--url", server.url, *words)
                assert (code, answer["error"]["code"]) == (1, "UNAUTHENTICATED")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_running_calls_are_finished_first(told: Path, number: signal.Signals) -> None:
    """The first signal lets a running call end; its caller gets the answer, and the process ends with 0."""
    with trio.fail_after(30):
        async with (
            running_server(sys.executable, "slow.py", "serve", "--address", "127.0.0.1:0") as server,
            trio.open_nursery() as nursery,
        ):
            answers: list[Any] = []

            async def call() -> None:
                answers.append(await carmy("call", "sleep", '{"seconds": 1}', "--url", server.url))

            nursery.start_soon(call)
            assert await word(told) == "sleeping"
            server.process.send_signal(number)
            assert await server.process.wait() == 0
    ((code, answer),) = answers
    assert (code, answer["data"]) == (0, "slept")


async def test_the_second_signal_ends_everything_at_once(told: Path) -> None:
    """A second signal ends the process and its children although a tool holds the event loop."""
    with trio.fail_after(30):
        async with (
            running_server(*CARMY, "slow.py", "--address", "127.0.0.1:0") as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(carmy, "call", "spin", "--url", server.url)
            child = int(await word(told))
            # Two different ones: equal signals become one when the process has not seen the first yet.
            server.process.send_signal(signal.SIGINT)
            server.process.send_signal(signal.SIGTERM)
            assert await server.process.wait() == 128 + signal.SIGTERM
    assert not _is_running(child)


@pytest.mark.usefixtures("directory")
async def test_a_signal_that_is_ignored_stays_so() -> None:
    """Under `nohup`, the end of the terminal stops no server."""
    ignoring = [
        "bash",
        "-c",
        'trap "" HUP; exec "$0" "$@"',
        sys.executable,
        "slow.py",
        "serve",
        "--address",
        "127.0.0.1:0",
    ]
    with trio.fail_after(30):
        async with running_server(*ignoring) as server:
            server.process.send_signal(signal.SIGHUP)
            code, answer = await carmy("call", "sleep", '{"seconds": 0}', "--url", server.url)
            assert (code, answer["data"]) == (0, "slept")
            server.process.send_signal(signal.SIGTERM)
            assert await server.process.wait() == 0


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("tool", ["sleep", "block"])
async def test_a_call_can_be_interrupted(told: Path, number: signal.Signals, tool: str) -> None:
    """A signal cancels a call in process, also one that blocks a thread, and ends the command with 130."""
    with trio.fail_after(30):
        command = [*CARMY, "call", "slow.py", tool, '{"seconds": 1000}']
        process = await trio.lowlevel.open_process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert await word(told) == "sleeping"
        process.send_signal(number)
        assert await process.wait() == 130


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_closed_standard_descriptors(closed: str) -> None:
    """A command does its work although descriptors were closed when it started, if it still has where to write its data."""
    script = f'exec "$@" {closed}'
    with trio.fail_after(30):
        done = await trio.run_process(
            ["sh", "-c", script, "sh", *CARMY, "call", "slow.py", "sleep", '{"seconds": 0}'],
            capture_stdout=True,
            check=False,
        )
    is_open = ">&-" not in closed.replace("2>&-", "")
    assert (b"slept" in done.stdout, done.returncode) == (is_open, 0 if is_open else 1)


@pytest.mark.usefixtures("directory")
async def test_a_reader_that_has_gone() -> None:
    """When no client reads the data any more, a command ends quietly with 1."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with trio.fail_after(30):
            done = await trio.run_process([*CARMY, "tools", "slow.py"], stdout=writer, capture_stderr=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.usefixtures("directory")
async def test_an_address_that_is_taken() -> None:
    """A server that cannot listen states on which address and why, and ends with 1."""
    with socket.socket() as taken, trio.fail_after(30):
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = await carmy("serve", "slow.py", "--address", address)
    assert code == 1
    assert address in said
    assert "Address already in use" in said
    assert "Traceback" not in said


def test_descendants_are_children_and_theirs() -> None:
    """A process's descendants include those of its children."""
    child = subprocess.Popen(["sh", "-c", "sleep 1000 & echo started; wait"], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        found = descendants(os.getpid())
        assert found[0] == child.pid or child.pid in found
        assert len(descendants(child.pid)) == 1
    finally:
        for pid in [*descendants(child.pid), child.pid]:
            os.kill(pid, signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


async def test_a_transport_that_returns_by_itself_ends_the_engine() -> None:
    """When a transport's input ends, the engine is shut down as after a signal."""
    lines: list[str] = []

    async def transport(engine: Engine, *, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("pipe listening on nothing")

    async with App("short").open() as engine:
        with trio.fail_after(5):
            await serve(engine, transport, announce=lines.append)
        assert engine.stopped.is_set()
    assert lines == ["pipe listening on nothing"]


async def test_a_signal_drains(autojump_clock: trio.testing.MockClock) -> None:
    """The first signal shuts the engine down, and a transport that does not return is cancelled soon after."""
    lines: list[str] = []

    async def transport(engine: Engine, *, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("loop listening on nothing")
        signal.raise_signal(signal.SIGTERM)
        await engine.stopping.wait()
        await trio.sleep_forever()

    before = signal.getsignal(signal.SIGTERM)
    async with App("stubborn").open() as engine:
        await serve(engine, transport, announce=lines.append)
        assert engine.stopped.is_set()
    assert lines[1].startswith("stopping")
    assert signal.getsignal(signal.SIGTERM) is before
