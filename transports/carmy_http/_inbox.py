"""What the application has not taken yet of one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from ._asgi import Message
from ._message import Response

MAX_UNREAD_BYTES = 256 * 1024
"""Of a body that the application has not taken yet; the client is made to wait beyond it."""


class Inbox:
    """A bounded queue of ASGI messages whose end never blocks anybody.

    Args:
        respond: What sends a whole answer to the request.
        connection: The scope of everything that the connection does.
    """

    def __init__(self, respond: Callable[[Response, bool], Awaitable[None]], connection: trio.CancelScope) -> None:
        self._respond = respond
        self._connection = connection
        self._watched = False
        self.gone = False
        self._abandoned = False
        self._messages: deque[dict[str, Any]] = deque()
        self._size = 0
        self._arrival: trio.Event | None = None
        self._room: trio.Event | None = None

    async def put(self, message: Any) -> None:
        """Add a message of the request. Waits while too much is unread, unless nobody will ever read it."""
        if message["type"] == "http.disconnect":
            self.hang_up()
            return
        if self._is_closed():
            return
        if self._messages and not message["more_body"] and not message["body"]:
            self._messages[-1]["more_body"] = False  # the end of the body needs no message of its own
        else:
            self._messages.append(message)
            self._size += len(message["body"])
        self._notify()
        while self._size > MAX_UNREAD_BYTES and not self._is_closed():
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()

    def _is_closed(self) -> bool:
        return self._abandoned or self.gone

    def hang_up(self) -> None:
        """Say that the client has gone: after what is queued, `receive` says so for ever."""
        self.gone = True
        self._notify()
        self._make_room()
        if self._watched:
            self._connection.cancel()

    def abandon(self) -> None:
        """Say that the application has ended: whatever still comes is dropped."""
        self._abandoned = True
        self._messages.clear()
        self._size = 0
        self._make_room()

    def whole_body(self) -> bytes | None:
        """See `Direct`."""
        if len(self._messages) != 1 or self._messages[0]["more_body"]:
            return None
        self._size = 0
        body: bytes = self._messages.popleft()["body"]
        return body

    def watch(self) -> trio.CancelScope:
        """See `Direct`."""
        self._watched = True
        if self.gone:
            self._connection.cancel()
        return self._connection

    def unwatch(self) -> None:
        """See `Direct`."""
        self._watched = False

    async def respond(self, answer: Response, *, head: bool) -> None:
        """See `Direct`."""
        await self._respond(answer, head)

    async def receive(self) -> Message:
        """The application's ``receive``."""
        while not self._messages:
            if self.gone:
                await trio.lowlevel.checkpoint()
                return {"type": "http.disconnect"}
            if self._arrival is None:
                self._arrival = trio.Event()
            await self._arrival.wait()
        message = self._messages.popleft()
        self._size -= len(message["body"])
        self._make_room()
        return message

    def _notify(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
