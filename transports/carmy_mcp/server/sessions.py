"""The sessions of clients over HTTP: their owners, their number and their requests. Sans-IO, with an injected clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import trio

from ..protocol.connection import ServerProtocol, key_of
from ..protocol.messages import Id
from .exchange import Exchange, Owner, SessionState
from .questions import OpenRequests
from .streams import EventStream


class Session:
    """One session.

    Attributes:
        owner: The caller that opened it.
        protocol: The state of the protocol.
        questions: The requests of the server to the client.
        running: The client's requests that have not been answered, by key.
        streams: The streams that a client may resume, by name.
        standing: The stream of messages that belong to no request.
        state: The settings of the client.
        announcing: The scope of the task that sends changes.
        open: HTTP requests in it, streams included, and executions that continue without one.
        used: The time of the last one.
    """

    __slots__ = (
        "announcing",
        "open",
        "owner",
        "protocol",
        "questions",
        "running",
        "standing",
        "state",
        "streams",
        "used",
    )

    def __init__(self, owner: Owner, protocol: ServerProtocol, standing: EventStream, now: float) -> None:
        self.owner = owner
        self.protocol = protocol
        self.questions = OpenRequests(protocol)
        self.running: dict[Id, Exchange] = {}
        self.streams: dict[str, EventStream] = {}
        self.standing = standing
        self.state: SessionState | None = None
        self.announcing = trio.CancelScope()
        self.open = 0
        self.used = now

    def stop(self) -> None:
        """Cancel what runs in it (cause ``disconnect``); nothing of it is answered."""
        for exchange in tuple(self.running.values()):
            exchange.leave()
        self.standing.end()
        self.announcing.cancel()


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

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def find(self, session_id: str, owner: Owner) -> Session | None:
        """The session of an owner. A session of another owner looks like one that does not exist."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.owner == owner else None

    def make_room(self, owner: Owner) -> Session | None:
        """Make sure that one more can be added.

        Returns:
            The session that was removed for it, None if there was room: the owner's that has been idle for longest, so that a
            caller with many sessions ends none of another; of all callers if the owner has none.

        Raises:
            FullError: All of them are in use.
        """
        if len(self._sessions) < self._most:
            return None
        idle = [(id_, session.owner == owner) for id_, session in self._sessions.items() if not session.open]
        if not idle:
            raise FullError
        oldest = next((id_ for id_, own in idle if own), idle[0][0])
        return self._sessions.pop(oldest)

    def add(self, session_id: str, owner: Owner, protocol: ServerProtocol, standing: EventStream) -> Session:
        """Add an open session."""
        session = self._sessions[session_id] = Session(owner, protocol, standing, self._now())
        return session

    def take_idle(self, seconds: float) -> list[Session]:
        """Remove the sessions in which there was no request for so long, and return them."""
        since = self._now() - seconds
        idle = [id_ for id_, session in self._sessions.items() if not session.open and session.used <= since]
        return [self._sessions.pop(session_id) for session_id in idle]

    @contextmanager
    def using(self, session_id: str, session: Session) -> Iterator[None]:
        """A block round one HTTP request in it, or one execution that continues without."""
        session.open += 1
        try:
            yield
        finally:
            session.open -= 1
            session.used = self._now()
            if self._sessions.get(session_id) is session:
                self._sessions[session_id] = self._sessions.pop(session_id)  # at the end

    def remove(self, session_id: str) -> None:
        """Remove a session that has ended."""
        self._sessions.pop(session_id, None)


class Place(NamedTuple):
    """A session, and the way to find it again.

    Attributes:
        sessions: All sessions.
        session_id: The id of this one.
        session: The session.
    """

    sessions: Sessions
    session_id: str
    session: Session

    def used(self) -> AbstractContextManager[None]:
        """A block in which the session is in use."""
        return self.sessions.using(self.session_id, self.session)

    def settle(self, exchange: Exchange) -> None:
        """Record the end of a request."""
        key = key_of(exchange.id)
        if self.session.running.get(key) is exchange:
            del self.session.running[key]
        if key in self.session.protocol.accepted:
            self.session.protocol.forget(exchange.id)
