"""A noisy application, and processes that serve it over pipes of the test's own."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest
import trio

from carmy_engine.transport import descendants

NOISY = r'''
    import ctypes
    import logging
    import multiprocessing
    import os
    import subprocess
    import sys
    import threading
    import time
    import warnings

    import trio
    import carmy_engine
    from carmy_engine import AgentContext

    print("noise: import")
    os.write(1, b"noise: raw import\n")
    print("noise: unflushed", end=" ")

    app = carmy_engine.app()  # with the settings of the environment

    @app.tool(effect="none", parallel_safe=True)
    async def echo(text: str, times: int = 1) -> str:
        """Repeat."""
        return text * times

    @app.tool(effect="none", parallel_safe=True)
    async def noise() -> str:
        """Print by every means there is."""
        print("noise: print")
        sys.__stdout__.write("noise: __stdout__\n")
        sys.__stdout__.flush()
        os.write(1, b"noise: raw\n")
        libc = ctypes.CDLL(None)
        libc.puts(b"noise: C library")
        libc.fflush(None)
        warnings.warn("noise: warning")
        thread = threading.Thread(target=print, args=("noise: thread",))
        thread.start()
        thread.join()
        subprocess.run(["echo", "noise: child"], check=True)
        return subprocess.run("cat | wc -c; ls -l /proc/self/fd | wc -l", shell=True, check=True, stdout=-1, text=True).stdout

    @app.tool(effect="none", parallel_safe=True)
    async def descriptors() -> list[str]:
        """What a child process has."""
        return subprocess.run(["ls", "/proc/self/fd"], check=True, stdout=-1, text=True).stdout.split()

    @app.tool(effect="none", parallel_safe=True)
    def fork() -> list[int]:
        """The descriptors of a copy of this process, which also prints."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=tell_descriptors, args=(theirs,))
        process.start()
        process.join()
        return ours.recv()

    def tell_descriptors(pipe) -> None:
        print("noise: fork", flush=True)
        pipe.send([int(name) for name in os.listdir("/proc/self/fd")])

    @app.tool(effect="write", parallel_safe=True)
    async def hold(marker: str) -> str:
        """Say that it runs, and go on for ever."""
        try:
            open(marker, "w").close()
            await trio.sleep_forever()
        finally:
            os.unlink(marker)

    @app.tool(effect="none", parallel_safe=True)
    def child(marker: str) -> str:
        """Wait in a thread for a child process."""
        subprocess.run(["sh", "-c", f"touch {marker}; exec sleep 1000"])
        return "done"

    @app.tool(effect="none", parallel_safe=True)
    async def spin(marker: str) -> None:
        """Start a child process, and hold the event loop for ever."""
        subprocess.Popen(["sh", "-c", f"touch {marker}; exec sleep 1000"])
        while True:
            pass

    @app.tool(effect="none", parallel_safe=True)
    async def leave() -> str:
        """Leave a thread behind that waits for ever."""
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return "left"

    @app.tool(effect="none", parallel_safe=True)
    async def stubborn(marker: str) -> None:
        """Start a child process, and ignore every cancel."""
        subprocess.Popen(["sh", "-c", f"touch {marker}; exec sleep 1000"])
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    @app.tool(effect="none", parallel_safe=True)
    def block(seconds: float) -> str:
        """Wait in a thread."""
        time.sleep(seconds)
        return "blocked"

    @app.tool(effect="none", parallel_safe=True)
    async def log(lines: int, size: int) -> int:
        """Write to standard error, with nothing in between: a slow machine would add the watchdog's lines."""
        logging.disable()
        for number in range(lines):
            sys.stderr.write(f"line {number} ".ljust(size - 1, "x") + "\n")
        return lines

    @app.tool(effect="none", parallel_safe=True)
    async def progress(ctx: AgentContext, count: int) -> int:
        """Report, and log as much."""
        for number in range(count):
            ctx.progress.report(number + 1, count)
            await ctx.progress.partial(number)
        return count

    if __name__ == "__main__":
        app.run()
'''

COMMAND = [sys.executable, "-c", "from carmy_engine.cli import main; main()", "stdio"]


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    """The application's file."""
    path = tmp_path / "noisy.py"
    path.write_text(textwrap.dedent(NOISY))
    return path


class Peer:
    """A serving process, spoken to by hand.

    Attributes:
        process: The process.
        said: Its standard error so far, while somebody listens.
    """

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said = b""
        self._buffer = b""
        self._heard_all: trio.Event | None = None

    async def send(self, *frames: dict[str, Any]) -> None:
        await self.send_bytes(b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames))

    async def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(data)

    async def end(self) -> None:
        """Close its input."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()

    async def line(self) -> bytes:
        assert self.process.stdout is not None
        pieces = [self._buffer]
        while b"\n" not in pieces[-1]:
            data = bytes(await self.process.stdout.receive_some(1_000_000))
            assert data, f"the output has ended; standard error: {self.said.decode()}"
            pieces.append(data)
        line, _, self._buffer = b"".join(pieces).partition(b"\n")
        return line

    async def receive(self) -> dict[str, Any]:
        with trio.fail_after(30):
            return msgspec.json.decode(await self.line())

    async def rest(self) -> list[dict[str, Any]]:
        """Every frame until the output ends."""
        assert self.process.stdout is not None
        data = self._buffer
        with trio.fail_after(30):
            data += b"".join([bytes(piece) async for piece in self.process.stdout])
        lines = data.split(b"\n")
        assert lines.pop() == b""
        return [msgspec.json.decode(line) for line in lines]

    async def ask(self, **frame: Any) -> dict[str, Any]:
        await self.send(frame)
        return await self.receive()

    async def call(self, id: object, tool: str, arguments: dict[str, Any] | None = None, **fields: Any) -> None:  # noqa: A002
        await self.send({"id": id, "op": "call", "tool": tool, "arguments": arguments or {}, **fields})

    async def exit_code(self) -> int:
        """Wait for its end, and for the end of its standard error if that is being read."""
        with trio.fail_after(20):
            code = await self.process.wait()
        if self._heard_all is not None:
            with trio.move_on_after(5):  # a process that has inherited it may keep it open
                await self._heard_all.wait()
        return code

    async def listen(self) -> None:
        """Read its standard error to the end."""
        assert self.process.stderr is not None
        self._heard_all = trio.Event()
        async for data in self.process.stderr:
            self.said += bytes(data)
        self._heard_all.set()


@asynccontextmanager
async def peer(
    *arguments: str | Path, listen: bool = True, command: list[str] = COMMAND, **options: Any
) -> AsyncIterator[Peer]:
    """Run a command until the end of the block; then nothing of it is left."""
    process = await trio.lowlevel.open_process(
        [*command, *map(str, arguments)], **{"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, **options}
    )
    found = Peer(process)
    async with trio.open_nursery() as nursery:
        if listen and process.stderr is not None:
            nursery.start_soon(found.listen)
        try:
            yield found
        finally:
            for pid in [*descendants(process.pid), process.pid]:
                if process.returncode is None:
                    os.kill(pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()
                nursery.cancel_scope.cancel()  # before the listener's stream is closed under it
                for stream in (process.stdin, process.stdout, process.stderr):
                    if stream is not None:
                        await stream.aclose()


async def appears(path: Path) -> None:
    """Wait until a file is there."""
    with trio.fail_after(20):
        while not is_there(path):  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.01)


async def is_gone(pid: int) -> None:
    """Wait until a process has ended."""
    with trio.fail_after(20):
        while _runs(pid):  # noqa: ASYNC110 - nobody tells of somebody else's child
            await trio.sleep(0.02)


def is_there(path: Path) -> bool:
    """Whether there is such a file."""
    return path.exists()


def number_in(path: Path) -> int:
    """What a file says."""
    return int(path.read_text())


def _runs(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
