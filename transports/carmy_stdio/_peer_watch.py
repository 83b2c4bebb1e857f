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

from carmy_engine.transport import end_flushed

from ._descriptors import Descriptors

log = logging.getLogger("carmy.stdio")

WATCH_SECONDS = 1.0
"""Interval of the checks. The ends of input and output are detected at once, the death of the parent after this time."""

_NO_READER = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NO_WRITER = select.POLLHUP | getattr(select, "POLLRDHUP", 0)


class PeerWatch(threading.Thread):
    """Watches the pipes and the parent until `stop`.

    A thread, because a tool that never awaits holds the event loop. Once the peer has gone, the loop must run another task
    within `seconds`; otherwise the process is ended with its children.

    Args:
        descriptors: The descriptors of the protocol.
        seconds: Limit for holding the event loop once the peer has gone.
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
        """End the watch without waiting for the thread."""
        self._stopped.set()

    def run(self) -> None:
        """Run the checks in the thread, until stopped."""
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
                    poll.unregister(descriptor)  # it would be reported again and again
                    has_left = True
                if os.getppid() != self._descriptors.parent:
                    self._descriptors.parent = os.getppid()
                    self._token.run_sync_soon(self._on_orphaned)
                    has_left = True
                if has_left:
                    self._require_turn()

    def _require_turn(self) -> None:
        """End the process unless the event loop runs a callback in time."""
        turned = threading.Event()
        self._token.run_sync_soon(turned.set)
        if not turned.wait(self._seconds) and not self._stopped.is_set():
            log.error(
                "a tool has held the event loop for %g s since the client left: ending the process", self._seconds
            )
            end_flushed(signal.SIGHUP)
