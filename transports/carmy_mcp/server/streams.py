"""Streams of server-sent events that outlive the connection of their reader, for clients that resume them."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from carmy_http.api.event_response import HEARTBEAT
from carmy_http.message import BodyWriter

from ..protocol.event_log import EventLog
from ..protocol.messages import encode_notification
from .exchange import NEVER, Exchange, SessionState
from .questions import OpenRequests


class EventStream:
    """The events of one request, or of one session, and their reader. It is also the `Peer` of its request.

    Args:
        log: The events.
        questions: The requests of the server; None if the client cannot be asked.

    Attributes:
        exchange: The request that it belongs to; None for that of a session.
        session: See `Peer`.
        has_ended: No event follows.
    """

    input_closed = NEVER

    def __init__(self, log: EventLog, questions: OpenRequests | None = None) -> None:
        self.log = log
        self.exchange: Exchange | None = None
        self.session: SessionState | None = None
        self.has_ended = False
        self._questions = questions
        self._reader: object | None = None
        self._sent = 0
        self._filled = trio.Event()
        self._taken = trio.Event()
        self._joined = trio.Event()

    @property
    def can_ask(self) -> bool:
        """See `Peer`."""
        return self._questions is not None

    @property
    def has_reader(self) -> bool:
        """A client reads it."""
        return self._reader is not None

    def put(self, message: bytes) -> int:
        """Add a message, and return the number of its event."""
        number = self.log.append(message)
        self._filled.set()
        return number

    async def send(self, message: bytes) -> None:
        """Add a message, and wait until the reader has taken it. Without a reader, it stays in the log."""
        number = self.put(message)
        while self._reader is not None and self._sent < number and not self.has_ended:
            await self._wait_taken()

    async def wait_read(self) -> None:
        """Wait until a reader has taken every event."""
        while self._sent < self.log.newest:
            await self._wait_taken()

    async def _wait_taken(self) -> None:
        if self._taken.is_set():
            self._taken = trio.Event()
        await self._taken.wait()

    def end(self) -> None:
        """Add no further message. The reader still gets what there is."""
        self.has_ended = True
        for event in (self._filled, self._taken, self._joined):
            event.set()

    async def read(self, writer: BodyWriter, opening: bytes, after: int, silence_seconds: float) -> None:
        """Write the events to a client, until the stream has ended or another reader takes over.

        Args:
            writer: Writes to the client.
            opening: The first bytes.
            after: The number of the last event that the client has.
            silence_seconds: Between heartbeats.
        """
        reader = self._reader = object()
        self._sent = after
        self._joined.set()
        try:
            await writer.send(opening)
            while self._reader is reader:
                for number, event in self.log.after(self._sent):
                    await writer.send(event)
                    if self._reader is not reader:
                        return
                    self._sent = number
                    self._taken.set()
                if self._sent >= self.log.newest:
                    if self.has_ended:
                        return
                    self._filled = trio.Event()
                    with trio.move_on_after(silence_seconds) as silence:
                        await self._filled.wait()
                    if silence.cancelled_caught:
                        await writer.send(HEARTBEAT)
        finally:
            if self._reader is reader:
                self._reader = None
            self._taken.set()

    async def wait_reader(self) -> None:
        """Wait for a reader, or for the end."""
        if self._reader is None and not self.has_ended:
            if self._joined.is_set():
                self._joined = trio.Event()
            await self._joined.wait()

    async def notify(self, method: str, params: Any) -> None:
        """See `Peer`."""
        await self.send(encode_notification(method, params))

    def notify_soon(self, method: str, params: Any) -> None:
        """See `Peer`."""
        self.put(encode_notification(method, params))

    async def ask(self, method: str, params: Any) -> msgspec.Raw:
        """See `Peer`."""
        assert self._questions is not None
        return await self._questions.ask(method, params, self.send)

    async def wait_for_room(self) -> None:
        """See `Peer`. The log is bounded."""
