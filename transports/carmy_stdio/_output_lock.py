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
