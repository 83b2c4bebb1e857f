"""A thread that watches the peer of standard input and output, and ends a process that cannot end by itself."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import threading
from collections.abc import Callable

import trio

from carmy_engine.transport import end_at_once

from ._descriptors import Descriptors

log = logging.getLogger("carmy.stdio")

WATCH_SECONDS = 1.0
"""Between two checks. The end of input and of output is noticed at once; the death of the parent, after this time."""

_NO_READER = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NO_WRITER = select.POLLHUP | getattr(select, "POLLRDHUP", 0)


class PeerWatch(threading.Thread):
    """Watches the pipes and the parent until `stop`.

    A thread, because a tool that never awaits holds the event loop, and with it everything that would notice that the peer
    has left. Once it has, the loop has `seconds` to take its turn; a process whose loop does not is ended with its children.

    Args:
        descriptors: Of the protocol.
        seconds: For which the event loop may be held once the peer has left.
        on_unread: Called in the trio thread when the output has no reader.
        on_orphaned: Called in the trio thread when the parent has ended.
    """

    def __init__(
        self,
        descriptors: Descriptors,
        seconds: float,
        *,
        on_unread: Callable[[], object],
        on_orphaned: Callable[[], object],
    ) -> None:
        super().__init__(name="carmy-peer-watch", daemon=True)
        self._descriptors = descriptors
        self._seconds = seconds
        self._on_unread = on_unread
        self._on_orphaned = on_orphaned
        self._token = trio.lowlevel.current_trio_token()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the watch. Does not wait for the thread, which may be in the middle of a check."""
        self._stopped.set()

    def run(self) -> None:
        """Check, in the thread, until stopped."""
        poll = select.poll()
        poll.register(self._descriptors.output, 0)
        poll.register(self._descriptors.input, _NO_WRITER & ~select.POLLHUP)
        has_left = False
        with contextlib.suppress(trio.RunFinishedError):
            while not self._stopped.is_set():
                for descriptor, flags in poll.poll(1000 * WATCH_SECONDS):
                    if descriptor == self._descriptors.output and flags & _NO_READER:
                        self._token.run_sync_soon(self._on_unread)
                    elif not flags & _NO_WRITER:
                        continue
                    poll.unregister(descriptor)  # it would be reported without end
                    has_left = True
                if os.getppid() != self._descriptors.parent:
                    self._descriptors.parent = os.getppid()
                    self._token.run_sync_soon(self._on_orphaned)
                    has_left = True
                if has_left:
                    self._require_turn()

    def _require_turn(self) -> None:
        """End the process unless the event loop takes a turn in time."""
        turned = threading.Event()
        self._token.run_sync_soon(turned.set)
        if not turned.wait(self._seconds) and not self._stopped.is_set():
            log.error(
                "a tool has held the event loop for %g s since the client left: ending the process", self._seconds
            )
            end_at_once(signal.SIGHUP)
