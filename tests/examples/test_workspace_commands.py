"""The workspace example: commands, and that nothing of them is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from carmy_engine import ExecutionCompleted, ExecutionRequest, ToolProgress

from .conftest import Caller, example

STUBBORN = 'trap "" TERM; exec 3>alive; sleep 1000 & echo started >&3; wait'
"""Holds a FIFO open in two processes, the second of which nobody waits for, and ignores SIGTERM in both."""


class Lifeline:
    """The reading end of a FIFO: it ends when the last process that holds the other end has ended."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    async def read(self) -> bytes:
        await trio.lowlevel.wait_readable(self.descriptor)
        return os.read(self.descriptor, 100)


@pytest.fixture
def lifeline(root: Path) -> Iterator[Lifeline]:
    """A FIFO ``alive`` in the workspace."""
    line = Lifeline(root / "alive")
    yield line
    os.close(line.descriptor)


async def test_a_command_runs_in_its_directory(owner: Caller, root: Path) -> None:
    """Exit code and both outputs come back; the program starts in the given directory, and reads nothing."""
    (root / "below").mkdir()
    (root / "below" / "file").touch()
    script = "ls; echo oops >&2; cat; exit 3"
    assert await owner.data("run_command", argv=["sh", "-c", script], cwd="below") == {
        "exit_code": 3,
        "signal": None,
        "stdout": "file\n",
        "stderr": "oops\n",
        "left_out_bytes": 0,
    }
    assert (await owner.data("run_command", argv=["sh", "-c", "kill -9 $$"]))["signal"] == "SIGKILL"


async def test_there_is_no_shell_and_no_secret(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words reach the program as they are, and the server's environment does not."""
    monkeypatch.setenv("WORKSPACE_TOKEN", "secret")
    assert (await owner.data("run_command", argv=["echo", "$HOME; ls", "*"]))["stdout"] == "$HOME; ls *\n"
    assert "secret" not in (await owner.data("run_command", argv=["env"]))["stdout"]


async def test_what_does_not_start_says_why(owner: Caller, root: Path) -> None:
    """No such program, one that may not be run, and words that cannot be words."""
    (root / "script").write_text("#!/bin/sh\n")
    assert await owner.code("run_command", argv=["no-such-program"]) == "COMMAND_NOT_FOUND"
    assert await owner.code("run_command", argv=["./script"]) == "COMMAND_NOT_ALLOWED"
    assert await owner.code("run_command", argv=["echo", "a\0b"]) == "INVALID_COMMAND"
    assert await owner.code("run_command", argv=[""]) == "INVALID_COMMAND"
    assert await owner.code("run_command", argv=[]) == "INVALID_ARGUMENTS"
    assert await owner.code("run_command", argv=["ls"], cwd="script") == "FILE_NOT_FOUND"


async def test_the_deadline_kills_the_whole_group(owner: Caller, lifeline: Lifeline) -> None:
    """At the deadline a command ends with all it has started, even if it ignores being asked."""
    request = ExecutionRequest(tool="run_command", arguments={"argv": ["sh", "-c", STUBBORN]}, timeout_ms=2000)
    with trio.fail_after(30):
        result = await owner.executor.execute(request)
        assert result.error is not None
        assert (result.error.code, dict(result.error.details or {})["phase"]) == ("TIMEOUT", "running")
        assert await lifeline.read() == b"started\n"
        assert await lifeline.read() == b""


async def test_a_cancel_kills_the_whole_group(owner: Caller, lifeline: Lifeline) -> None:
    """So does a cancel by id; it answers CANCELLED."""
    request = ExecutionRequest(tool="run_command", arguments={"argv": ["sh", "-c", STUBBORN]})
    with trio.fail_after(30):
        async with owner.executor.stream(request) as events:
            started = await events.receive()
            assert await lifeline.read() == b"started\n"
            assert owner.executor.cancel(started.execution_id)
            async for event in events:
                last = event
        assert isinstance(last, ExecutionCompleted)
        assert last.result.error is not None
        assert last.result.error.code == "CANCELLED"
        assert await lifeline.read() == b""


async def test_a_caller_who_leaves_kills_the_whole_group(owner: Caller, lifeline: Lifeline) -> None:
    """Leaving the stream is a cancel."""
    request = ExecutionRequest(tool="run_command", arguments={"argv": ["sh", "-c", STUBBORN]})
    with trio.fail_after(30):
        async with owner.executor.stream(request):
            assert await lifeline.read() == b"started\n"
        assert await lifeline.read() == b""


async def test_what_a_command_leaves_running_ends_with_it(owner: Caller, lifeline: Lifeline) -> None:
    """A process in the background neither delays the answer nor outlives it, though it holds the output open."""
    with trio.fail_after(30):
        script = "exec 3>alive; sleep 1000 & echo done"
        assert (await owner.data("run_command", argv=["sh", "-c", script]))["stdout"] == "done\n"
        assert await lifeline.read() == b""


async def test_output_is_bounded(owner: Caller) -> None:
    """Of long output the beginning and the end are kept, with a note of how much is missing between them."""
    script = "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last"
    got = await owner.data("run_command", argv=["sh", "-c", script])
    assert got["stdout"].startswith("first\nxxx")
    assert got["stdout"].endswith("xxx\nlast\n")
    assert f"[... {got['left_out_bytes']} bytes left out ...]" in got["stdout"]
    assert len(got["stdout"]) < 70_000
    assert got["left_out_bytes"] == 5_000_000 + 12 - 2 * 32 * 1024


@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_no_character_is_cut_in_two(step: int) -> None:
    """However the bytes arrive, the two ends are text."""
    kept = example("workspace_commands").HeadAndTail(10)
    data = "ä€😀".encode() * 20
    for start in range(0, len(data), step):
        kept.add(data[start : start + step])
    begin, _, end = kept.text().split("\n")
    assert "\ufffd" not in begin + end
    assert "".join(("ä€😀" * 20).split(begin, 1)[0]) == ""
    assert ("ä€😀" * 20).endswith(end)
    assert kept.left_out == len(data) - 20


async def test_output_is_streamed(owner: Caller, root: Path) -> None:
    """A listener gets text while the command runs, before it has ended."""
    request = ExecutionRequest(
        tool="run_command", arguments={"argv": ["sh", "-c", "echo one; read line <go; echo two"]}
    )
    parts: list[Any] = []
    os.mkfifo(root / "go")
    with trio.fail_after(30):
        async with owner.executor.stream(request) as events:
            async for event in events:
                if isinstance(event, ToolProgress):
                    parts.append(event.partial)
                    if len(parts) == 1:
                        async with await trio.open_file(root / "go", "w") as go:
                            await go.write("go\n")
    assert parts == [{"stream": "stdout", "text": "one\n"}, {"stream": "stdout", "text": "two\n"}]
