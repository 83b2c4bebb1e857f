"""The server as a process: what is on its output, and how it ends."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import sys
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest
import trio
import trio.testing

from carmy_engine.transport import descendants
from carmy_stdio._descriptors import FIRST_DESCRIPTOR
from tests.stdio.conftest import COMMAND, appears, is_gone, is_there, number_in, peer


async def test_nothing_but_frames_on_the_output(noisy: Path) -> None:
    """Whatever prints, and however, before and while tools run, goes to standard error."""
    async with peer(noisy) as found:
        assert (await found.receive())["event"] == "ready"
        await found.call(1, "noise")
        answer = await found.receive()
        assert answer["result"]["status"] == "completed"
        assert answer["result"]["data"].split()[0] == "0"  # a child's standard input is empty
        await found.end()
        assert await found.exit_code() == 0
        assert await found.rest() == []
        for kind in (
            "import", "raw import", "unflushed", "print", "__stdout__", "raw", "C library", "warning", "thread", "child",
        ):  # fmt: skip
            assert f"noise: {kind}" in found.said.decode()


async def test_the_programs_own_command(noisy: Path) -> None:
    """The same with ``python file.py stdio``, where the application is loaded first."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    async with peer(noisy, "stdio", command=[sys.executable], env=env) as found:
        # What was written past Python's buffer before `run` was called cannot be taken back.
        assert await found.line() == b"noise: raw import"
        assert (await found.receive())["event"] == "ready"
        await found.call(1, "noise")
        assert (await found.receive())["result"]["status"] == "completed"
        await found.end()
        assert await found.exit_code() == 0
        assert b"noise: unflushed" in found.said


async def test_child_processes_inherit_nothing(noisy: Path) -> None:
    """A child process has the three standard descriptors (and the one it lists with), none of the protocol's."""
    async with peer(noisy) as found:
        await found.receive()
        await found.call(1, "descriptors")
        assert (await found.receive())["result"]["data"] == ["0", "1", "2", "3"]


async def test_copies_of_the_process(noisy: Path) -> None:
    """A forked copy has none of the protocol's descriptors, prints to standard error, and exits without waiting."""
    async with peer(noisy) as found:
        await found.receive()
        await found.call(1, "fork")
        assert not {FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + 1} & set((await found.receive())["result"]["data"])
        assert (await found.ask(id=2, op="ping"))["id"] == 2
        await found.end()
        assert await found.exit_code() == 0
        assert await found.rest() == []
    assert b"noise: fork" in found.said


async def test_twenty_calls_and_the_end_of_input(noisy: Path) -> None:
    """All calls of one write, the last one without its line's end, are answered before the process exits with 0."""
    async with peer(noisy) as found:
        lines = [
            msgspec.json.encode({"id": n, "op": "call", "tool": "echo", "arguments": {"text": str(n)}})
            for n in range(20)
        ]
        await found.send_bytes(b"\n".join(lines))
        await found.end()
        ready, *answers = await found.rest()
        assert ready["event"] == "ready"
        assert {answer["id"]: answer["result"]["data"] for answer in answers} == {n: str(n) for n in range(20)}
        assert await found.exit_code() == 0


async def test_empty_input(noisy: Path) -> None:
    """Without any input the process sends its first frame and exits with 0."""
    async with peer(noisy, stdin=-3) as found:
        assert [frame["event"] for frame in await found.rest()] == ["ready"]
        assert await found.exit_code() == 0


async def test_input_from_a_file(noisy: Path, tmp_path: Path) -> None:
    """Input and output may be files."""
    requests, answers = tmp_path / "in", tmp_path / "out"
    requests.write_text('{"id":1,"op":"ping"}\n')
    with requests.open() as source, answers.open("w") as target:
        async with peer(noisy, stdin=source, stdout=target) as found:
            assert await found.exit_code() == 0
    assert [msgspec.json.decode(line).get("id") for line in answers.read_bytes().splitlines()] == [None, 1]


async def test_garbage(noisy: Path) -> None:
    """Each bad line gets one refusal with id null, blank ones none, and the next call is answered."""
    async with peer(noisy) as found:
        await found.receive()
        bad = [b"garbage", b"null", b"1", b"[]", b'{"id":1,"op":', b'\xef\xbb\xbf{"id":1,"op":"ping"}', b"\xff\xfe"]
        bad.append(b'{"id":1,"op":"ping"} {"id":2,"op":"ping"}')
        await found.send_bytes(b"\n\r\n   \n" + b"\n\n".join(bad) + b'\n{"id":"last","op":"ping"}\r\n')
        for _ in bad:
            frame = await found.receive()
            assert (frame["id"], frame["ok"], frame["error"]["code"]) == (None, False, "INVALID_REQUEST")
        assert await found.receive() == {"id": "last", "ok": True, "result": {}}


@pytest.mark.parametrize("piece", [997, 65536, 20_000_000])
async def test_large_messages(noisy: Path, piece: int) -> None:
    """Ten megabytes are refused and skipped, three are carried in both directions, however they are cut."""
    async with peer(noisy) as found:
        await found.receive()
        large = msgspec.json.encode(
            {"id": "big", "op": "call", "tool": "echo", "arguments": {"text": "x" * 10_000_000}}
        )
        fits = msgspec.json.encode({"id": "fits", "op": "call", "tool": "echo", "arguments": {"text": "y" * 3_000_000}})
        data = large + b"\n" + fits + b"\n"

        async def send() -> None:
            for start in range(0, len(data), piece):
                await found.send_bytes(data[start : start + piece])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            refusal = await found.receive()
            assert (refusal["id"], refusal["error"]["code"]) == ("big", "PAYLOAD_TOO_LARGE")
            answer = await found.receive()
            assert answer["id"] == "fits"
            assert answer["result"]["data"] == "y" * 3_000_000


async def test_large_answers_to_a_reader_that_pauses(noisy: Path) -> None:
    """Answers far larger than the pipe are complete, also when the process has nothing left to do but to exit."""
    async with peer(noisy) as found:
        for number in range(4):
            await found.call(number, "echo", {"text": "z" * 1000, "times": 5000})
        await found.end()
        with trio.move_on_after(0.5):
            await found.process.wait()
        _, *answers = await found.rest()
        assert [len(answer["result"]["data"]) for answer in answers] == [5_000_000] * 4
        assert await found.exit_code() == 0


async def test_a_parent_that_never_reads_cannot_hold_a_shutdown(noisy: Path) -> None:
    """With both output and standard error full, a signal still ends the process, and tools are not kept waiting."""
    env = {**os.environ, "CARMY_DRAIN_TIMEOUT_SECS": "0.2"}
    async with peer(noisy, listen=False, env=env) as found:
        await found.receive()
        await found.call("log", "log", {"lines": 100_000, "size": 100})
        await found.call("progress", "progress", {"count": 100_000}, stream=True)
        await found.call("echo", "echo", {"text": "z" * 1000, "times": 5000})
        with trio.move_on_after(0.5):
            await found.process.wait()
        found.process.terminate()
        assert await found.exit_code() == 0


async def test_a_full_standard_error_blocks_nobody(noisy: Path) -> None:
    """A parent that does not read standard error still gets its answers, and the process ends."""
    async with peer(noisy, listen=False) as found:
        await found.receive()
        await found.call("log", "log", {"lines": 200_000, "size": 100})
        assert (await found.receive())["result"]["data"] == 200_000
        await found.end()
        assert await found.exit_code() == 0


async def test_what_a_late_reader_of_standard_error_gets(noisy: Path) -> None:
    """A reader that comes back late gets a line with the number of missed bytes; what was kept is whole and in order."""
    async with peer(noisy, listen=False) as found:
        await found.receive()
        await found.call(1, "log", {"lines": 100_000, "size": 100})
        assert (await found.receive())["result"]["data"] == 100_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.listen)
            while b"were dropped" not in found.said:
                await trio.testing.wait_all_tasks_blocked(0.01)
            await found.end()
            assert await found.exit_code() == 0
    said = found.said.partition(b"carmy: stdio ready\n")[2]
    # One notice for each time that the reader fell behind: a slow machine may see more than one.
    kept, *missed = re.split(rb"\ncarmy: (\d+) bytes of standard error were dropped[^\n]*\n", said)
    assert sum(map(int, missed[::2])) + len(kept) + sum(map(len, missed[1::2])) == 10_000_000
    assert kept.startswith(b"line 0 ")


async def test_a_closed_standard_error_blocks_nobody(noisy: Path) -> None:
    """Nor does it matter when standard error has no reader."""
    async with peer(noisy, listen=False) as found:
        assert found.process.stderr is not None
        await found.process.stderr.aclose()
        await found.receive()
        await found.call(1, "noise")
        assert (await found.receive())["result"]["status"] == "completed"
        await found.end()
        assert await found.exit_code() == 0


async def test_missing_descriptors(noisy: Path) -> None:
    """Standard error may be closed from the start; so may the input; without an output there is a reason given."""
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND]
    async with peer(noisy, command=shell) as found:
        await found.receive()
        await found.call(1, "noise")
        assert (await found.receive())["result"]["status"] == "completed"
        await found.end()
        assert await found.exit_code() == 0
    async with peer(noisy, command=["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND]) as found:
        assert [frame["event"] for frame in await found.rest()] == ["ready"]
        assert await found.exit_code() == 0
    async with peer(noisy, command=["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]) as found:
        assert await found.exit_code() == 1
        await found.rest()
    assert b"standard output is closed" in found.said


async def test_standard_error_keeps_the_order_and_every_byte(noisy: Path) -> None:
    """A reader of standard error that is slow, but reads, loses nothing."""
    async with peer(noisy, listen=False) as found:
        await found.receive()
        await found.call(1, "log", {"lines": 50_000, "size": 50})
        assert (await found.receive())["result"]["data"] == 50_000
        await found.end()
        await found.listen()
        assert await found.exit_code() == 0
    lines = [line for line in found.said.decode().splitlines() if line.startswith("line ")]
    assert lines == [f"line {n} ".ljust(49, "x") for n in range(50_000)]


async def test_one_pipe_for_both(noisy: Path) -> None:
    """With ``2>&1`` into one pipe no byte of either is lost, and every frame is in one piece."""
    async with peer(noisy, stderr=-2) as found:
        await found.call(1, "log", {"lines": 4000, "size": 100})
        await found.call(2, "echo", {"text": "z" * 1000, "times": 500})
        await found.call(3, "log", {"lines": 4000, "size": 100})
        await found.end()
        assert found.process.stdout is not None
        with trio.fail_after(30):
            data = b"".join([bytes(piece) async for piece in found.process.stdout])
        assert await found.exit_code() == 0
    frames = [msgspec.json.decode(line) for line in data.split(b"\n") if line.startswith(b"{")]
    assert [frame.get("id") for frame in frames if frame.get("id")] in (
        [1, 2, 3],
        [1, 3, 2],
        [2, 1, 3],
        [3, 1, 2],
        [2, 3, 1],
    )
    assert sum(line.startswith(b"line ") and len(line) == 99 for line in data.split(b"\n")) == 8000


async def test_the_open_files_stay_as_they_are(noisy: Path) -> None:
    """The pipes that a process shares with others are not made non-blocking for them."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    try:
        async with peer(noisy, stdin=in_read, stdout=out_write) as found:
            assert os.read(out_read, 1000).startswith(b'{"event":"ready"')
            for descriptor in (in_read, out_write):
                assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK
            os.close(in_write)
            in_write = -1
            assert await found.exit_code() == 0
    finally:
        for descriptor in (in_read, in_write, out_read, out_write):
            if descriptor >= 0:
                os.close(descriptor)


async def test_utf8_whatever_the_locale(noisy: Path) -> None:
    """Bytes are UTF-8 with LF, whatever locale and environment say; lines are never split at other characters."""
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    text = "é\u2028\u0085\U0001f600\r\n"
    async with peer(noisy, env=env) as found:
        await found.receive()
        await found.call(1, "echo", {"text": text})
        line = await found.line()
        assert b"\r" not in line
        assert len(line.decode().splitlines()) == 1
        assert msgspec.json.decode(line)["result"]["data"] == text


async def test_ping_and_cancel_while_a_thread_blocks(noisy: Path) -> None:
    """A tool that blocks a thread keeps neither a ping nor its own cancel waiting."""
    async with peer(noisy) as found:
        await found.receive()
        await found.call("b", "block", {"seconds": 30})
        assert (await found.ask(id="p", op="ping"))["id"] == "p"
        await found.send({"id": "c", "op": "cancel", "target": "b"})
        frames = {(frame := await found.receive())["id"]: frame for _ in range(2)}
        assert frames["c"]["result"] == {"cancelled": True}
        assert frames["b"]["result"]["status"] == "cancelled"
        await found.end()
        assert await found.exit_code() == 0


async def test_closed_output(noisy: Path, tmp_path: Path) -> None:
    """When no client reads the output any more, running tools are cancelled and the process ends quietly."""
    marker = tmp_path / "running"
    async with peer(noisy) as found:
        await found.receive()
        await found.call(1, "hold", {"marker": str(marker)})
        await appears(marker)
        assert found.process.stdout is not None
        await found.process.stdout.aclose()
        assert await found.exit_code() == 0
    assert not is_there(marker)
    assert b"Traceback" not in found.said
    assert b"Broken" not in found.said


async def test_death_of_the_parent(noisy: Path, tmp_path: Path) -> None:
    """When the parent is killed, the process ends within seconds, also while a thread waits for a child; both are gone."""
    marker, pid_file = tmp_path / "running", tmp_path / "pid"
    request = msgspec.json.encode({"id": 1, "op": "call", "tool": "child", "arguments": {"marker": str(marker)}})
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({[*COMMAND, str(noisy)]!r}, stdin=-1, stdout=-1)\n"
        f"child.stdin.write({request + bytes([10])!r}); child.stdin.flush()\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "child.wait()\n"
    )
    async with peer(command=[sys.executable, "-c", parent]) as found:
        await appears(marker)
        pid = number_in(pid_file)
        children = descendants(pid)
        assert children
        found.process.send_signal(signal.SIGKILL)
        await found.exit_code()
        await is_gone(pid)
        for child in children:
            await is_gone(child)


HURRIED = {"CARMY_DRAIN_TIMEOUT_SECS": "0.2", "CARMY_EXIT_TIMEOUT_SECS": "0.6"}
"""A hard limit of a second instead of eighteen."""


@pytest.mark.parametrize("leave", ["input", "output", "half"])
@pytest.mark.parametrize("tool", ["spin", "stubborn"])
async def test_no_tool_outlives_its_client(noisy: Path, tmp_path: Path, tool: str, leave: str) -> None:
    """A loop without an await, or a shielded wait, ends with its process and children within the hard limit of a stop."""
    marker = tmp_path / "running"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        async with peer(noisy, env={**os.environ, **HURRIED}, stdin=theirs if leave == "half" else PIPE) as found:
            theirs.close()
            await found.receive()
            frame = {"id": 1, "op": "call", "tool": tool, "arguments": {"marker": str(marker)}}
            if leave == "half":
                ours.send(msgspec.json.encode(frame) + b"\n")
            else:
                await found.send(frame)
            await appears(marker)
            children = descendants(found.process.pid)
            assert children
            if leave == "half":
                ours.shutdown(socket.SHUT_WR)
            elif leave == "input":
                await found.end()
            else:
                assert found.process.stdout is not None
                await found.process.stdout.aclose()
            assert await found.exit_code() == 128 + signal.SIGHUP
            for child in children:
                await is_gone(child)
            assert found.said.count(b"ending the process") == 1


async def test_no_thread_of_a_tool_outlives_its_client(noisy: Path) -> None:
    """A thread that a tool has left behind, and that is no daemon, does not keep the process after the end of input."""
    async with peer(noisy, env={**os.environ, **HURRIED}) as found:
        await found.receive()
        await found.call(1, "leave", {})
        assert (await found.receive())["result"]["data"] == "left"
        await found.end()
        assert await found.exit_code() == 1
        assert b"does not end" in found.said


async def test_no_tool_outlives_the_parent(noisy: Path, tmp_path: Path) -> None:
    """A tool that holds the event loop ends with its process when the parent is killed."""
    marker, pid_file = tmp_path / "running", tmp_path / "pid"
    request = msgspec.json.encode({"id": 1, "op": "call", "tool": "spin", "arguments": {"marker": str(marker)}})
    parent = (
        "import os, subprocess\n"
        f"child = subprocess.Popen({[*COMMAND, str(noisy)]!r}, stdin=-1, stdout=-1)\n"
        "os.set_inheritable(child.stdin.fileno(), True)\n"
        "keeps_it_open = subprocess.Popen(['sleep', '1000'], close_fds=False)\n"
        f"child.stdin.write({request + bytes([10])!r}); child.stdin.flush()\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid) + ' ' + str(keeps_it_open.pid))\n"
        "child.wait()\n"
    )
    async with peer(command=[sys.executable, "-c", parent], env={**os.environ, **HURRIED}) as found:
        await appears(marker)
        pid, keeps_it_open = map(int, pid_file.read_text().split())
        children = descendants(pid)
        assert children
        found.process.send_signal(signal.SIGKILL)
        await is_gone(pid)
        os.kill(keeps_it_open, signal.SIGKILL)
        for child in children:
            await is_gone(child)


async def test_drain(noisy: Path, tmp_path: Path) -> None:
    """At a signal running calls that do not end are cancelled after the drain limit, answered, and the process exits with 0."""
    marker = tmp_path / "running"
    env = {**os.environ, "CARMY_DRAIN_TIMEOUT_SECS": "0.2"}
    async with peer(noisy, env=env) as found:
        await found.receive()
        await found.call(1, "hold", {"marker": str(marker)})
        await appears(marker)
        found.process.terminate()
        answer = await found.receive()
        assert answer["result"]["error"]["code"] == "SHUTTING_DOWN"
        assert answer["result"]["error"]["details"]["phase"] == "running"
        assert await found.exit_code() == 0
        assert await found.rest() == []


async def test_startup_failure(tmp_path: Path) -> None:
    """An application that cannot be loaded gives the reason on standard error; the output stays empty."""
    path = tmp_path / "broken.py"
    path.write_text("print('noise')\nimport nonexistent_module\n")
    async with peer(path) as found:
        assert await found.exit_code() == 1
        assert await found.rest() == []
    assert b"nonexistent_module" in found.said


async def test_the_longest_line_of_the_settings(noisy: Path) -> None:
    """A line over ``frames.max_message_bytes``, which the first frame announces, is refused, and the next one is answered."""
    environment = {**os.environ, "CARMY_FRAMES_MAX_MESSAGE_BYTES": "100"}
    async with peer(noisy, env=environment) as found:
        assert (await found.receive())["limits"]["max_message_bytes"] == 100
        await found.send({"id": 1, "op": "ping", "x": "y" * 200}, {"id": 2, "op": "ping"})
        refused = await found.receive()
        assert (refused["id"], refused["error"]["code"]) == (1, "PAYLOAD_TOO_LARGE")
        assert refused["error"]["details"] == {"max_message_bytes": 100}
        assert (await found.receive())["id"] == 2
