"""Who writes next, where frames and standard error may go to one and the same pipe."""

from __future__ import annotations

import threading


class OutputLock:
    """One for each open file. The kernel keeps only short writes in one piece, so writers take output_lock.

    Attributes:
        lock: Held for everything that has to stay in one piece.
        at_line_start: What was written last, by whomever, ended its line. Guarded by the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at_line_start = True
