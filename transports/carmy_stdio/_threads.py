"""Reading and writing descriptors that may block, in threads of their own.

Not with `trio.lowlevel.FdStream`: it makes the open file non-blocking for every process that shares it (a shell, a log
that goes to the same pipe) and knows no regular files. Both threads are daemons, so that a read or a write which never
returns cannot hold the process.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque

import trio

from ._turns import Turns

CHUNK_BYTES = 65536
"""Of one read: what a pipe holds."""

MAX_CHUNKS = 4
"""Read ahead of the protocol. Beyond it the peer waits, as it would at a full pipe."""


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
    """Writes a descriptor.

    Args:
        descriptor: What to write to.
        turns: With others who write to the same open file.
    """

    def __init__(self, descriptor: int, turns: Turns) -> None:
        self._descriptor = descriptor
        self._turns = turns
        self._token = trio.lowlevel.current_trio_token()
        self._jobs: queue.SimpleQueue[tuple[bytes, _Written]] = queue.SimpleQueue()
        self._broken = False
        threading.Thread(target=self._run, name="carmy-stdout", daemon=True).start()

    async def send_all(self, data: bytes) -> None:
        """Write all of it. When cancelled, some of it may have been written, and nothing can be written any more.

        Raises:
            trio.BrokenResourceError: The reader has gone, or a write was cancelled before.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
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

    def _run(self) -> None:
        try:
            while True:
                data, written = self._jobs.get()
                try:
                    with self._turns.lock:
                        # Somebody's unfinished line; readers ignore the blank one that this may make.
                        view = memoryview(data if self._turns.at_line_start else b"\n" + data)
                        self._turns.at_line_start = True  # as every message leaves it
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
