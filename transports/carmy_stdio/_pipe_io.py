"""Reading and writing descriptors that may block: pipes by asking the kernel not to wait, all others in threads of their own.

Not with `trio.lowlevel.FdStream`: it makes the open file non-blocking for every process that shares it (a shell, a log
that goes to the same pipe) and knows no regular files. Both threads are daemons, so that a read or a write which never
returns cannot hold the process.
"""

from __future__ import annotations

import contextlib
import os
import queue
import stat
import threading
from collections import deque
from typing import Protocol

import trio

from ._output_lock import OutputLock

CHUNK_BYTES = 65536
"""Of one read: what a pipe holds."""

MAX_CHUNKS = 4
"""Read ahead of the protocol. Beyond it the peer waits, as it would at a full pipe."""

AT_ONCE_BYTES = 4096
"""Most that is written without a thread: what a pipe takes as a whole or not at all (``PIPE_BUF``)."""


class Reader(Protocol):
    """Reads a descriptor to its end."""

    async def receive_some(self) -> bytes:
        """The next bytes; empty at the end, and from then on."""
        ...

    def end(self) -> None:
        """Take nothing more, as if the input had ended here."""
        ...


def reader_of(descriptor: int) -> Reader:
    """What reads this descriptor best."""
    return PipeReader(descriptor) if is_pipe(descriptor) else ThreadReader(descriptor)


def is_pipe(descriptor: int) -> bool:
    """Whether it is a pipe, and the kernel may be asked not to wait for it (``RWF_NOWAIT``), which leaves the open file as it is."""
    return hasattr(os, "RWF_NOWAIT") and stat.S_ISFIFO(os.fstat(descriptor).st_mode)


class PipeReader:
    """Reads a pipe in the trio thread: without the two switches of threads that a `ThreadReader` needs for each read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray(CHUNK_BYTES)
        self._ended = False
        self._instead: ThreadReader | None = None

    async def receive_some(self) -> bytes:
        """See `Reader.receive_some`."""
        while not self._ended and self._instead is None:
            try:
                count = os.preadv(self._descriptor, [self._buffer], -1, os.RWF_NOWAIT)
            except BlockingIOError:
                with contextlib.suppress(trio.ClosedResourceError):  # `end`
                    await trio.lowlevel.wait_readable(self._descriptor)
            except OSError:
                # Not every kernel can do it for pipes, and not every sandbox lets it be asked. Nothing was read.
                self._instead = ThreadReader(self._descriptor)
            else:
                self._ended = not count
                if count:
                    return bytes(memoryview(self._buffer)[:count])
        return b"" if self._ended or self._instead is None else await self._instead.receive_some()

    def end(self) -> None:
        """See `Reader.end`."""
        self._ended = True
        trio.lowlevel.notify_closing(self._descriptor)
        if self._instead is not None:
            self._instead.end()


class ThreadReader:
    """Reads a descriptor to its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._token = trio.lowlevel.current_trio_token()
        self._chunks: deque[bytes] = deque()
        self._room = threading.Semaphore(MAX_CHUNKS)
        self._filled = trio.Event()
        threading.Thread(target=self._run, name="carmy-stdin", daemon=True).start()

    async def receive_some(self) -> bytes:
        """The next bytes; empty at the end, and from then on."""
        while not self._chunks:
            self._filled = trio.Event()
            await self._filled.wait()
        if not self._chunks[0]:
            return b""
        self._room.release()
        return self._chunks.popleft()

    def end(self) -> None:
        """Take nothing more, as if the input had ended here."""
        self._chunks.append(b"")
        self._filled.set()

    def _run(self) -> None:
        try:
            data = b"?"
            while data:
                self._room.acquire()
                try:
                    data = os.read(self._descriptor, CHUNK_BYTES)
                except OSError:
                    data = b""  # a terminal that was hung up, for example
                self._token.run_sync_soon(self._take, data)
        except trio.RunFinishedError:
            pass

    def _take(self, data: bytes) -> None:
        self._chunks.append(data)
        self._filled.set()


class ThreadWriter:
    """Writes a descriptor: short messages at once, if the kernel takes them without waiting, all others in the thread.

    Args:
        descriptor: What to write to.
        output_lock: With others who write to the same open file.
    """

    def __init__(self, descriptor: int, output_lock: OutputLock) -> None:
        self._descriptor = descriptor
        self._output_lock = output_lock
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: queue.SimpleQueue[tuple[bytes, _Written]] = queue.SimpleQueue()
        self._broken = False
        self._can_try = is_pipe(descriptor)
        threading.Thread(target=self._run, name="carmy-stdout", daemon=True).start()

    async def send_all(self, data: bytes) -> None:
        """Write all of it. When cancelled, some of it may have been written, and nothing can be written any more.

        Raises:
            trio.BrokenResourceError: The reader has gone, or a write was cancelled before.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._broken:
            raise trio.BrokenResourceError
        if self.write_at_once(data):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        if self._broken:
            raise trio.BrokenResourceError
        written = _Written()
        self._jobs.put((data, written))
        try:
            await written.done.wait()
        except BaseException:
            self._broken = True
            raise
        if written.failed:
            self._broken = True
            raise trio.BrokenResourceError

    def write_at_once(self, data: bytes) -> bool:
        """Write all of it, or nothing and say so. Not while `send_all` does anything: so the thread is idle."""
        # One byte less, for the end of somebody's line.
        if (
            not self._can_try
            or self._broken
            or len(data) >= AT_ONCE_BYTES
            or not self._output_lock.lock.acquire(blocking=False)
        ):
            return False
        try:
            # -1 is where the file is, which a pipe does not know. Without waiting, whoever else shares the open file.
            line = data if self._output_lock.at_line_start else b"\n" + data
            count = os.pwritev(self._descriptor, [line], -1, os.RWF_NOWAIT)
            self._output_lock.at_line_start = True  # as every message leaves it
        except BlockingIOError:
            return False
        except BrokenPipeError:
            self._broken = True
            return False
        except OSError:
            # Not every kernel can do it, and not every sandbox lets it be asked.
            self._can_try = False
            return False
        finally:
            self._output_lock.lock.release()
        assert count == len(line)  # PIPE_BUF
        return True

    def _run(self) -> None:
        try:
            while True:
                data, written = self._jobs.get()
                try:
                    with self._output_lock.lock:
                        # Somebody's unfinished line; readers ignore the blank one that this may make.
                        view = memoryview(data if self._output_lock.at_line_start else b"\n" + data)
                        self._output_lock.at_line_start = True  # as every message leaves it
                        while view:
                            view = view[os.write(self._descriptor, view) :]
                except OSError:
                    written.failed = True
                self._token.run_sync_soon(written.done.set)
        except trio.RunFinishedError:
            pass


class _Written:
    """What became of one write."""

    __slots__ = ("done", "failed")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failed = False
