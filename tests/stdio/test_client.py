"""The client that owns its server's process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from carmy_engine import ClosedError, ExecutionRequest, OutcomeUnknownError, ToolProgress
from carmy_stdio import StdioClientLimits, open_stdio
from tests.stdio.conftest import COMMAND, appears, is_gone


def process_of(marker: Path) -> int:
    """The process that serves, as the first child of this one that has the marker's directory in its command line."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(marker.parent).encode() in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                return int(entry.parent.name)
        except OSError:
            continue  # it has ended meanwhile
    raise AssertionError("it does not run")


def names_in(directory: Path) -> list[str]:
    """The files of a directory."""
    return [path.name for path in directory.iterdir()]


async def test_calls_and_streams(noisy: Path) -> None:
    """Calls and streams work as in process, however much the server prints, and its end is clean."""
    async with open_stdio([*COMMAND, str(noisy)]) as client:
        assert (await client.execute(ExecutionRequest(tool="noise"))).status == "completed"
        assert len((await client.catalog()).tools) == client.ready.tools
        async with client.stream(ExecutionRequest(tool="progress", arguments={"count": 2000})) as events:
            parts = [event.partial for event in [e async for e in events] if isinstance(event, ToolProgress)]
        assert [part for part in parts if part is not None] == list(range(2000))
        pid = process_of(noisy)
    await is_gone(pid)
    with pytest.raises(ClosedError):
        await client.execute(ExecutionRequest(tool="echo"))


async def test_a_server_that_is_killed(noisy: Path, tmp_path: Path) -> None:
    """When the server dies in the middle of a call, the caller gets an error promptly, with the request_id and the reason."""
    marker, done = tmp_path / "running", trio.Event()
    async with open_stdio([*COMMAND, str(noisy)]) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError, match="ended by signal 9") as caught:
                await client.execute(ExecutionRequest(tool="hold", arguments={"marker": str(marker)}, request_id="r"))
            assert caught.value.request_id == "r"
            done.set()

        nursery.start_soon(call)
        await appears(marker)
        with trio.fail_after(10):
            os.kill(process_of(noisy), signal.SIGKILL)
            await done.wait()
        with pytest.raises(ClosedError, match="nothing was sent"):
            await client.ping()


async def test_a_client_that_is_cancelled(noisy: Path, tmp_path: Path) -> None:
    """Leaving the block with a call running ends the call, the server, and what the tool had started."""
    marker = tmp_path / "running"
    pid = 0
    with trio.fail_after(30):
        async with open_stdio([*COMMAND, str(noisy)]) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.execute, ExecutionRequest(tool="child", arguments={"marker": str(marker)}))
            await appears(marker)
            pid = process_of(noisy)
            nursery.cancel_scope.cancel()
    await is_gone(pid)
    with pytest.raises(AssertionError, match="does not run"):
        process_of(marker)


async def test_a_server_that_cannot_start(tmp_path: Path) -> None:
    """A command that is not there, or that fails, is a `ClosedError` with the program's last words."""
    with pytest.raises(ClosedError, match="cannot be started"):
        async with open_stdio([str(tmp_path / "nothing")]):
            raise AssertionError("it cannot be open")
    path = tmp_path / "broken.py"
    path.write_text("raise LookupError('the reason')\n")
    with pytest.raises(ClosedError, match=r"(?s)exit code 1.*the reason"):
        async with open_stdio([*COMMAND, str(path)]):
            raise AssertionError("it cannot be open")


async def test_something_that_is_no_server() -> None:
    """A program that prints something else is refused and ended; one that sends nothing as well."""
    with pytest.raises(ClosedError, match="not its first frame"):
        async with open_stdio([sys.executable, "-c", "print('hello'); input()"]):
            raise AssertionError("it cannot be open")
    with trio.fail_after(20), pytest.raises(ClosedError, match=r"not ready within 0\.2 s"):
        async with open_stdio([sys.executable, "-c", "input()"], limits=StdioClientLimits(ready_secs=0.2)):
            raise AssertionError("it cannot be open")


async def test_a_stubborn_server() -> None:
    """A program that ignores the end of its input and the polite signal is killed, with what it has started."""
    program = (
        "import signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        'print(\'{"event":"ready","protocol":"carmy-frames/1","server":"%d"}\' % child.pid, flush=True)\n'
        "time.sleep(1000)\n"
    )
    with trio.fail_after(20):
        async with open_stdio(
            [sys.executable, "-c", program], limits=StdioClientLimits(end_secs=0.2, terminate_secs=0.2)
        ) as client:
            pid = int(client.ready.server)
    await is_gone(pid)


async def test_environment_and_directory(noisy: Path, tmp_path: Path) -> None:
    """The child gets the environment and the working directory that it is given."""
    (tmp_path / "carmy.toml").write_text("app = 'noisy.py:app'\n")
    env = {**os.environ, "CARMY_NAME": "renamed"}
    async with open_stdio(COMMAND, env=env, cwd=tmp_path) as client:
        assert client.ready.tools == 12


@pytest.mark.parametrize("rounds", [60, pytest.param(3000, marks=pytest.mark.long)])
async def test_call_cancel_call_again(noisy: Path, tmp_path: Path, rounds: int) -> None:
    """However soon calls are left, later ones work, and the server ends at once because nothing runs in it."""
    async with open_stdio([*COMMAND, str(noisy)]) as client:
        for number in range(rounds):
            with trio.move_on_after(0.0001 * (number % 50)):
                await client.execute(ExecutionRequest(tool="hold", arguments={"marker": str(tmp_path / str(number))}))
            result = await client.execute(ExecutionRequest(tool="echo", arguments={"text": str(number)}))
            assert result.unwrap() == str(number)
    assert not [name for name in names_in(tmp_path) if name.isdigit()]
