"""Standard error that never blocks: a pipe of our own, emptied by a thread, in front of the real one.

Nothing else would do. Making the real one non-blocking would change it for everybody who shares it, and make prints fail;
leaving it as it is lets a parent that does not read it stop every tool that logs.
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

from ._output_lock import OutputLock

MAX_STDERR_BYTES = 4 * 1024 * 1024
"""Waiting for the reader of standard error. Beyond it, a reader that makes no progress loses what comes next."""

PATIENCE_SECONDS = 0.25
"""How long the first writer beyond that waits for the reader to make progress."""

LINE_SECONDS = 0.05
"""How long the beginning of a line waits for its end, where frames may come between."""

EXIT_SECONDS = 1.0
"""At the end of the process, for a reader of what is still on its way to make progress."""

MAX_EXIT_SECONDS = 10.0
"""For all of it."""

PIPE_BYTES = 1024 * 1024
"""Of our own pipe: what C code may write at once while it keeps Python's threads from running."""

_CHUNK = 65536


def relay_stderr(real: int, shared: OutputLock | None) -> None:
    """Let descriptors 1 and 2 lead to `real` by way of a pipe that is always emptied. For the rest of the process's life.

    Args:
        real: A descriptor of the real standard error. Owned from now on.
        shared: With the protocol's writer, if its pipe is the same. Then whole lines are written where possible.
    """
    source, sink = os.pipe()
    with contextlib.suppress(OSError):  # more than the system allows a user; the default does as well
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    relay = StderrRelay(source, real, shared)
    os.dup2(sink, 2)
    os.dup2(sink, 1)
    os.close(sink)
    relay.start()
    atexit.register(relay.finish)
    # A copy of this process has no relay of its own, and this one's locks may be held there for ever.
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
        """Daemon threads: neither a reader nor a child process that keeps the pipe open can hold the process."""
        for run in (self._read, self._write):
            threading.Thread(target=run, name=f"carmy-stderr{run.__name__}", daemon=True).start()

    def _read(self) -> None:
        readable = select.poll()
        readable.register(self._source, select.POLLIN)
        while readable.poll():
            # Read under the lock: for `finish`, every byte is either in the pipe or in the queue.
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
                self._broken = True  # nobody reads it any more, and that is no reason to stop
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
        """The first chunk; where others write to the same pipe, without the beginning of a line that soon goes on."""
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
        """Wait a moment for what is on its way; then let the last words of the interpreter go out directly."""
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
