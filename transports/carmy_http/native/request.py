"""A request of the native front end, as the endpoints see it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

import trio

from carmy_net.http1 import BodyReader

from ..message import Request
from .head import Head


class Origin(Protocol):
    """The connection that a request came on.

    Attributes:
        peer: The client's address, None where there is none.
    """

    peer: str | None

    async def next_chunk(self, body: BodyReader) -> bytes:
        """See `Request.next_chunk`."""
        ...

    def watch(self) -> trio.CancelScope:
        """From here on the connection ends when the client does."""
        ...

    def unwatch(self) -> None:
        """The client's end cancels nothing any more."""
        ...


class _Watched:
    """The block of `Request.cancelled_when_gone`. The scope is the connection's: without a client it has no purpose."""

    __slots__ = ("_origin",)

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    async def __aenter__(self) -> trio.CancelScope:
        return self._origin.watch()

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._origin.unwatch()


class NativeRequest(Request):
    """A request whose body comes from its connection.

    Args:
        head: Its head.
        origin: Its connection.
        body: What is to come of its body, or all of it.

    Attributes:
        head: Its head.
    """

    __slots__ = ("_body", "_origin", "head")

    def __init__(self, head: Head, origin: Origin, body: BodyReader | bytes) -> None:
        # Not through the constructor of the class above: what follows from the headers is known.
        self.method = head.method
        self.path = head.path
        self.root = ""
        self.headers = head.headers
        self._first = head._first  # noqa: SLF001 - one noun, two classes
        self.authority = head.authority
        self.plain = head.plain
        self.peer = origin.peer
        self.head = head
        self._origin = origin
        self._body = body

    @property
    def is_read(self) -> bool:
        """Nothing of the body is still to come from the client."""
        return isinstance(self._body, bytes) or self._body.complete

    def body_at_hand(self) -> bytes | None:
        """See `Request`."""
        body = self._body
        if isinstance(body, bytes):
            return body
        return body.read() if body.complete else None

    async def next_chunk(self) -> bytes:
        """See `Request`."""
        body = self._body
        if isinstance(body, bytes):
            self._body = b""
            return body
        return await self._origin.next_chunk(body)

    def cancelled_when_gone(self) -> AbstractAsyncContextManager[trio.CancelScope]:
        """See `Request`."""
        return _Watched(self._origin)

    def watch(self) -> bool:
        """See `Request`."""
        self._origin.watch()
        return True

    def unwatch(self) -> None:
        """See `Request`."""
        self._origin.unwatch()
