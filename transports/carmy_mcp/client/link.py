"""The link to a server, shared by stdio and HTTP: one answer for each request, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from ..protocol.messages import ErrorResponse, Notification, Request, Response


class LinkError(Exception):
    """A request has no answer. The message has the reason, in words for people."""


class NotSentError(LinkError):
    """The request was not sent: the server has not seen it."""


class RefusedError(NotSentError):
    """The server refused the request before it read it, with a status of HTTP."""


class SessionEndedError(RefusedError):
    """The server has ended the session over HTTP.

    Attributes:
        session: Its id.
    """

    def __init__(self, why: str, session: str) -> None:
        super().__init__(why)
        self.session = session


class LostError(LinkError):
    """The connection was lost after the server may have seen the request."""


class UnreadableError(LinkError):
    """The answer has come, and cannot be read."""


class Outgoing(msgspec.Struct, frozen=True):
    """A request on its way.

    Attributes:
        id: Its id.
        data: Its bytes.
        headers: What HTTP sends beside it.
    """

    id: int
    data: bytes
    headers: Mapping[str, str]


class Receiver(Protocol):
    """The session above a link."""

    async def receive(self, message: Request | Notification, during: int | None) -> None:
        """Take a message that is no answer, in the order of arrival. Must not wait for the server.

        Args:
            message: The message.
            during: The id of the request in whose stream it came; None where all requests share one connection.
        """
        ...

    def receive_end(self, why: str) -> None:
        """Take the end of the connection."""
        ...


class Link(Protocol):
    """A way to a server.

    Attributes:
        has_headers: Requests have headers.
        session: The id of the session over HTTP; empty without one.
    """

    has_headers: bool
    session: str

    async def run(self, receiver: Receiver) -> None:
        """Receive what comes, until cancelled."""
        ...

    async def request(self, outgoing: Outgoing) -> Response | ErrorResponse:
        """Send a request, and return its answer.

        Raises:
            NotSentError: See there; so for the others.
            LostError: Likewise.
            UnreadableError: Likewise.
        """
        ...

    async def send(self, data: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that has no answer. Failures are ignored: the next request shows them."""
        ...

    async def listen(self, headers: Mapping[str, str]) -> None:
        """Receive what the server of a version with sessions sends by itself. Returns where that takes no connection."""
        ...

    def close(self) -> None:
        """End all requests: the client is closed."""
        ...
