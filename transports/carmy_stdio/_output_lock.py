"""The lock of an output that frames and standard error may share."""

from __future__ import annotations

import threading


class OutputLock:
    """Serialises the writers of one open file: the kernel keeps only short writes in one piece.

    Attributes:
        lock: Held while a line is written.
        at_line_start: True if the last write ended its line. Guarded by the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at_line_start = True

    def begin_line(self, line: memoryview) -> memoryview:
        """Return the line with an LF before it if another writer has not ended its own; readers ignore the blank line."""
        return line if self.at_line_start else memoryview(b"\n" + line)
