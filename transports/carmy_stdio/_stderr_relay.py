"""A relay that keeps standard error from blocking: a private pipe, drained by a thread, before the real one.

A non-blocking real descriptor would change the open file for every process that shares it, and make prints fail. A blocking one
lets a parent that does not read stop every tool that logs.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import os
import select
import sys
import termios
import threading
import time
from collections import deque

from carmy_engine.transport import flush_at_forced_exit

from ._output_lock import OutputLock

MAX_STDERR_BYTES = 4 * 1024 * 1024
"""Limit of bytes that wait for the reader of standard error. Beyond it, a reader without progress loses further output."""

PATIENCE_SECONDS = 0.25
"""Time that the first writer beyond the limit waits for progress of the reader."""

LINE_SECONDS = 0.05
"""Time that the beginning of a line waits for its end on a pipe shared with frames."""

EXIT_SECONDS = 1.0
"""Limit without progress of the reader, at the end of the process."""

MAX_EXIT_SECONDS = 10.0
"""Limit for the final flush as a whole."""

PIPE_BYTES = 1024 * 1024
"""Capacity of the private pipe: C code may write this much while it holds the GIL."""

_CHUNK = 65536


def relay_stderr(real: int, shared: OutputLock | None) -> None:
    """Redirect descriptors 1 and 2 to `real` through a relay, for the rest of the process's life.

    Args:
        real: A descriptor of the real standard error; owned by the relay.
        shared: The lock of the protocol's output if it is the same pipe; whole lines are then written where possible.
    """
    source, sink = os.pipe()
    with contextlib.suppress(OSError):  # over the system's limit for users: the default size suffices
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    relay = StderrRelay(source, real, shared)
    os.dup2(sink, 2)
    os.dup2(sink, 1)
    os.close(sink)
    relay.start()
    atexit.register(relay.finish)
    flush_at_forced_exit(relay.finish)
    # A copy of this process has no relay threads, and may have inherited locks that stay held.
    os.register_at_fork(after_in_child=lambda: atexit.unregister(relay.finish))


class StderrRelay:
    def __init__(self, source: int, real: int, shared: OutputLock | None) -> None:
        self._source = source
        self._real = real
        self._whole_lines = shared is not None
        self._output_lock = shared or OutputLock()
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0
        self._patient = True
        self._broken = False
        self._written = 0

    def start(self) -> None:
        """Start daemon threads: a child process that keeps the pipe open cannot hold this process."""
        for run in (self._read, self._write):
            threading.Thread(target=run, name=f"carmy-stderr{run.__name__}", daemon=True).start()

    def _read(self) -> None:
        readable = select.poll()
        readable.register(self._source, select.POLLIN)
        while readable.poll():
            # Reading under the lock keeps every byte either in the pipe or in the queue, as `finish` requires.
            with self._changed:
                if not self._has_room() and self._patient:
                    self._patient = self._changed.wait_for(self._has_room, PATIENCE_SECONDS)
                data = os.read(self._source, _CHUNK)
                if not data:
                    return
                if self._has_room():
                    self._chunks.append(data)
                    self._size += len(data)
                else:
                    self._dropped += len(data)
                self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._size < MAX_STDERR_BYTES

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._chunks)
                data = self._next()
            try:
                with self._output_lock.lock:
                    self._output_lock.at_line_start = data.endswith(b"\n")
                    self._write_all(data)
            except OSError:
                self._broken = True  # standard error has no reader; the relay goes on and drops
            with self._changed:
                self._chunks.popleft()
                self._size -= len(data)
                self._written += 1
                self._patient = True
                if self._dropped and not self._broken:
                    note = f"\ncarmy: {self._dropped} bytes of standard error were dropped: its reader was too slow\n"
                    self._dropped = 0
                    self._chunks.append(note.encode())
                    self._size += len(note)
                self._changed.notify_all()

    def _next(self) -> bytes:
        """Return the first chunk; on a shared pipe, without an incomplete last line that soon continues."""
        data = self._chunks[0]
        cut = data.rfind(b"\n") + 1
        if self._whole_lines and 0 < cut < len(data):
            if self._changed.wait_for(lambda: len(self._chunks) > 1, LINE_SECONDS):
                self._chunks[1] = data[cut:] + self._chunks[1]
            else:
                self._chunks.append(data[cut:])
            data = self._chunks[0] = data[:cut]
        return data

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._broken:
            view = view[os.write(self._real, view) :]

    def finish(self) -> None:
        """Flush within the exit limits, then restore the real descriptor for the last output of the interpreter."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        now = time.monotonic()
        end, latest, seen = now + EXIT_SECONDS, now + MAX_EXIT_SECONDS, self._written
        with self._changed:
            while (self._chunks or self._bytes_in_pipe()) and time.monotonic() < min(end, latest):
                self._changed.wait(0.01)
                if self._written != seen:
                    end, seen = time.monotonic() + EXIT_SECONDS, self._written
            stuck = bool(self._chunks)
        if stuck or self._broken:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        else:
            os.dup2(self._real, 1)
            os.dup2(self._real, 2)

    def _bytes_in_pipe(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self._source, termios.FIONREAD, count)
        return count[0]
