"""The sessions of clients over HTTP: their owners, their number and their requests. Sans-IO, with an injected clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from carmy_engine import Cause

from ..protocol.request_state import Exchange, Owner


class Session:
    """One session.

    Attributes:
        owner: The caller that opened it.
        version: Of the protocol; None until it has been agreed upon.
        running: Its requests that have not been answered, by id.
        on_fast_path: The requests among them that bypass the SDK's session.
        arriving: Messages on their way into the SDK's loop.
        open: HTTP requests in it, streams included.
        used: When there was one last.
    """

    __slots__ = ("_arrived", "arriving", "on_fast_path", "open", "owner", "running", "used", "version")

    def __init__(self, owner: Owner, now: float) -> None:
        self.owner = owner
        self.version: str | None = None
        self.running: dict[str, Exchange] = {}
        self.on_fast_path: dict[str, Exchange] = {}
        self.arriving: set[Exchange] = set()
        self._arrived = trio.Event()
        self.open = 0
        self.used = now

    def stop(self) -> None:
        """Cancel what runs in it (cause ``disconnect``); nothing of it is answered."""
        for exchange in tuple(self.running.values()):
            exchange.is_unanswered = True
            exchange.stop(Cause.DISCONNECT)

    def take_back(self, request_id: str) -> None:
        """Send nothing more for a request; cancel it, unless the SDK does."""
        cancelled = self.running.get(request_id)
        if cancelled is not None:
            cancelled.is_unanswered = True
            if request_id in self.on_fast_path:
                cancelled.take_back()

    def has_arrived(self, exchange: Exchange) -> None:
        """The SDK's loop has taken a message."""
        self.arriving.discard(exchange)
        self._arrived.set()

    async def wait_arrived(self) -> None:
        """Wait until the SDK's loop has taken every message that is on its way."""
        while self.arriving:
            self._arrived = trio.Event()
            await self._arrived.wait()


class FullError(Exception):
    """There is no room for another session."""


class Sessions:
    """All sessions, the one that was used last at the end.

    Args:
        most: Open sessions at one time.
        now: A monotonic clock, in seconds.
    """

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._sessions: dict[str, Session] = {}
        self._opening = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: str, owner: Owner) -> Session | None:
        """The session, if it is there and this owner's: a foreign one looks like one that is not there."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def reserve(self, owner: Owner) -> str | None:
        """Make sure that one more can be opened; `add` or `release` has to follow.

        Returns:
            The session to end first, None if there is room: the owner's that has been idle for longest, so that a caller
            with many sessions ends none of another; of all callers if the owner has none.

        Raises:
            FullError: All of them are in use.
        """
        oldest = None
        if len(self._sessions) + self._opening >= self._most:
            idle = [(id_, session.owner == owner) for id_, session in self._sessions.items() if not session.open]
            if not idle:
                raise FullError
            oldest = next((id_ for id_, own in idle if own), idle[0][0])
            del self._sessions[oldest]
        self._opening += 1
        return oldest

    def release(self) -> None:
        """The one for which there was room has been opened, or will not be."""
        self._opening -= 1

    def add(self, session_id: str, owner: Owner) -> Session:
        """A session has been opened."""
        session = self._sessions[session_id] = Session(owner, self._now())
        return session

    def take_idle(self, seconds: float) -> list[str]:
        """Take those out in which there was no request for so long."""
        since = self._now() - seconds
        idle = [id_ for id_, session in self._sessions.items() if not session.open and session.used <= since]
        for session_id in idle:
            del self._sessions[session_id]
        return idle

    @contextmanager
    def using(self, session_id: str, session: Session) -> Iterator[None]:
        """A block round one HTTP request in it."""
        session.open += 1
        try:
            yield
        finally:
            session.open -= 1
            session.used = self._now()
            if self._sessions.pop(session_id, None) is not None:
                self._sessions[session_id] = session  # at the end

    def remove(self, session_id: str) -> None:
        """It has ended."""
        self._sessions.pop(session_id, None)
