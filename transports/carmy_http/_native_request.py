"""A request of the native front end, as the endpoints see it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol

import trio

from ._message import Request
from ._native_body import Body
from ._native_head import Head


class Origin(Protocol):
    """The connection that a request came on.

    Attributes:
        peer: The client's address, None where there is none.
        body: Of the request.
        watched: The block in which the client's end cancels.
    """

    peer: str | None
    body: Body
    watched: Watched

    async def next_chunk(self) -> bytes:
        """See `Request.next_chunk`."""
        ...

    def watch(self) -> trio.CancelScope:
        """From here on the connection ends when the client does."""
        ...

    def unwatch(self) -> None:
        """The client's end cancels nothing any more."""
        ...


class Watched:
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
    """A request whose body comes from its connection."""

    __slots__ = ("_origin",)

    def __init__(self, head: Head, origin: Origin) -> None:
        super().__init__(
            method=head.method,
            path=head.path,
            root="",
            headers=head.headers,
            peer=origin.peer,
            authority=head.authority,
        )
        self._origin = origin

    def body_at_hand(self) -> bytes | None:
        body = self._origin.body
        return body.read() if body.complete else None

    async def next_chunk(self) -> bytes:
        return await self._origin.next_chunk()

    def cancelled_when_gone(self) -> AbstractAsyncContextManager[trio.CancelScope]:
        return self._origin.watched
