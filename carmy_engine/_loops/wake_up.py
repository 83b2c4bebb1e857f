"""A wake-up from other threads, for one task of a trio run."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import trio


class WakeUp:
    """Wakes one task, the attendant, when other threads have left something for it.

    The attendant waits for a socket: ``TrioToken.run_sync_soon`` would first run a task of trio's own, which doubles the wait. Without an
    attendant it is used.

    Args:
        unattended: Called in the trio thread for a wake-up without an attendant, and now and then with one.

    Attributes:
        is_attended: A task waits, or looks once more before it waits. Set in the trio thread.
    """

    def __init__(self, unattended: Callable[[], object]) -> None:
        self.is_attended = True
        self._is_sent = True
        """The attendant is awake, or about to be. Cleared before it looks for the last time."""
        self._unattended = unattended
        self._token: trio.lowlevel.TrioToken | None = None
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def start(self) -> None:
        """Serve the current trio run."""
        self._token = trio.lowlevel.current_trio_token()

    def send(self) -> None:
        """Wake the attendant. In any thread, after what it shall find is in its place."""
        # An attendant that leaves clears its flag before it looks for the last time, so one of the two sees the other.
        if not self.is_attended:
            assert self._token is not None
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._unattended, idempotent=True)
        elif not self._is_sent:
            self._is_sent = True
            with contextlib.suppress(OSError):  # full: a wake-up is on its way; closed: no task waits
                self._sender.send(b"\0")

    def attend(self) -> None:
        """Announce an attendant, which looks for what is there and then waits."""
        self._is_sent = True
        self.is_attended = True

    def leave(self) -> None:
        """Withdraw the attendant, which then looks once more."""
        self.is_attended = False

    async def wait(self, has_more: Callable[[], object]) -> None:
        """Wait for a wake-up. May return without one.

        Args:
            has_more: Whether something is there already.
        """
        self._is_sent = False
        if has_more():
            self._is_sent = True
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.wait_readable(self._receiver)
        self._is_sent = True
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        """Release the socket. No task waits."""
        self._sender.close()
        self._receiver.close()
