"""I/O on descriptors that may block: non-blocking system calls for pipes, threads for all others.

`trio.lowlevel.FdStream` does not fit: it makes the open file non-blocking for every process that shares it (a shell, a log
on the same pipe), and does not support regular files. The threads are daemons, so that a blocked read or write cannot hold the
process.
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
"""Limit of one read: the capacity of a pipe."""

MAX_CHUNKS = 4
"""Chunks that are read ahead of the protocol. Beyond it the peer waits, as at a full pipe."""

AT_ONCE_BYTES = 4096
"""Limit of a write that must not be split: a pipe takes it as a whole or not at all (``PIPE_BUF``)."""


class Reader(Protocol):
    """Reads a descriptor to its end."""

    async def receive_some(self) -> bytes:
        """Return the next bytes; empty from the end on."""
        ...

    def end(self) -> None:
        """Stop reading, as if the input had ended here."""
        ...


def reader_of(descriptor: int) -> Reader:
    """Return the reader for this kind of descriptor."""
    return PipeReader(descriptor) if is_pipe(descriptor) else ThreadReader(descriptor)


def is_pipe(descriptor: int) -> bool:
    """True for a pipe that supports ``RWF_NOWAIT``, which does not change the mode of the open file."""
    return hasattr(os, "RWF_NOWAIT") and stat.S_ISFIFO(os.fstat(descriptor).st_mode)


class PipeReader:
    """Reads a pipe in the trio thread, which saves the two thread switches of each read of a `ThreadReader`."""

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
                # Some kernels do not support this for pipes, and some sandboxes forbid it. Nothing was read.
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
    """Reads any descriptor, in a thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._token = trio.lowlevel.current_trio_token()
        self._chunks: deque[bytes] = deque()
        self._room = threading.Semaphore(MAX_CHUNKS)
        self._filled = trio.Event()
        threading.Thread(target=self._run, name="carmy-stdin", daemon=True).start()

    async def receive_some(self) -> bytes:
        """See `Reader.receive_some`."""
        while not self._chunks:
            self._filled = trio.Event()
            await self._filled.wait()
        if not self._chunks[0]:
            return b""
        self._room.release()
        return self._chunks.popleft()

    def end(self) -> None:
        """See `Reader.end`."""
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
                    data = b""  # such as a terminal that was hung up
                self._token.run_sync_soon(self._take, data)
        except trio.RunFinishedError:
            pass

    def _take(self, data: bytes) -> None:
        self._chunks.append(data)
        self._filled.set()


class ThreadWriter:
    """Writes a descriptor: to a pipe as much at once as the kernel takes without waiting, the rest in a thread.

    Args:
        descriptor: The descriptor.
        output_lock: Serialises the writers of the open file.
    """

    def __init__(self, descriptor: int, output_lock: OutputLock) -> None:
        self._descriptor = descriptor
        self._output_lock = output_lock
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._broken = False
        self._can_try = is_pipe(descriptor)
        threading.Thread(target=self._run, name="carmy-stdout", daemon=True).start()

    async def send_all(self, data: bytes) -> None:
        """Write all bytes. A cancel may leave a part of them written; the writer is then broken.

        Raises:
            trio.BrokenResourceError: The reader has gone, or a write was cancelled before.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._broken:
            raise trio.BrokenResourceError
        job = self._begin(data)
        if self._broken:
            raise trio.BrokenResourceError
        if job is None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        self._jobs.put(job)
        try:
            await job.done.wait()
        except BaseException:
            self._broken = True
            raise
        if job.failed:
            self._broken = True
            raise trio.BrokenResourceError

    def write_at_once(self, data: bytes) -> bool:
        """Write all bytes without waiting, or none and return False. Not while `send_all` runs, so that the thread is idle."""
        # One byte less: an LF may have to end the line of another writer.
        return not self._broken and len(data) < AT_ONCE_BYTES and self._begin(data) is None

    def _begin(self, data: bytes) -> _Job | None:
        """Write what the kernel takes without waiting, and return a job for the rest.

        A job that has begun keeps the output lock until the thread has done it: no other writer comes between its pieces.
        """
        rest, has_begun = memoryview(data), False
        if not self._can_try or not self._output_lock.lock.acquire(blocking=False):
            return _Job(rest, has_begun)
        try:
            line = self._output_lock.begin_line(rest)
            # Offset -1 is the current position, as pipes require. Only this write does not block, not the shared open file.
            count = os.pwritev(self._descriptor, [line], -1, os.RWF_NOWAIT)
            self._output_lock.at_line_start = True  # every message ends its line
            rest = line[count:]
            has_begun = bool(rest)
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._broken = True
        except OSError:
            # Some kernels do not support this, and some sandboxes forbid it.
            self._can_try = False
        finally:
            if not has_begun:
                self._output_lock.lock.release()
        return _Job(rest, has_begun) if rest else None

    def _run(self) -> None:
        try:
            while True:
                job = self._jobs.get()
                if not job.has_begun:
                    self._output_lock.lock.acquire()
                    job.rest = self._output_lock.begin_line(job.rest)
                    self._output_lock.at_line_start = True  # every message ends its line
                try:
                    while job.rest:
                        job.rest = job.rest[os.write(self._descriptor, job.rest) :]
                except OSError:
                    job.failed = True
                finally:
                    self._output_lock.lock.release()
                self._token.run_sync_soon(job.done.set)
        except trio.RunFinishedError:
            pass


class _Job:
    """The rest of a write, for the thread.

    Attributes:
        rest: The bytes that are not written yet.
        has_begun: True if bytes before them are written; the output lock is then held.
        done: Set by the thread, after which `failed` is final.
        failed: True if the reader has gone.
    """

    __slots__ = ("done", "failed", "has_begun", "rest")

    def __init__(self, rest: memoryview, has_begun: bool) -> None:
        self.rest = rest
        self.has_begun = has_begun
        self.done = trio.Event()
        self.failed = False
