"""Requests of the native front end: their heads, parsed once for equal bytes, and their bodies."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack
from urllib.parse import unquote

from carmy_engine import HttpSettings
from carmy_net.http1 import BodyReader

from ..http1.request_head import read_request_head
from ..message import HeaderList, Request, RequestHead, body_too_large, split_path

if TYPE_CHECKING:
    from .connection import NativeConnection

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_CACHED_HEADS = 1024
"""Of some dozens of clients, with bodies of some dozens of lengths."""

MAX_CACHED_HEAD_BYTES = 1024
"""Longer heads are parsed each time. Bounds the memory of the cache, together with the number."""


class Head(RequestHead):
    """The head of a request, with the parts that concern the connection.

    Attributes:
        is_old: The version is HTTP/1.0.
        keep_alive: The connection may be used again.
        expects_continue: The client waits for "100 Continue" before it sends the body.
        length: Bytes of the body; None when it comes in chunks.
    """

    __slots__ = ("expects_continue", "is_old", "keep_alive", "length")

    def __init__(
        self,
        *,
        method: str,
        path: str,
        authority: bytes | None,
        headers: HeaderList,
        is_old: bool,
        keep_alive: bool,
        expects_continue: bool,
        length: int | None,
    ) -> None:
        super().__init__(method=method, path=path, headers=headers, authority=authority)
        self.is_old = is_old
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.length = length


def parse_head(raw: bytes, max_bytes: int) -> Head:
    """Parse a complete head, blank line included.

    A parser in C would be no faster (1.4 µs against 1.0 for a usual head) and accepts a fixed list of methods, so that the front ends
    would answer differently.

    Raises:
        FramingError: See `read_request_head`.
    """
    head = read_request_head(raw, max_bytes)
    path, authority = split_path(unquote(head.target.partition(b"?")[0].decode("ascii")))
    return Head(
        method=head.method.decode("ascii"),
        path=path,
        authority=authority,
        headers=head.headers,
        is_old=head.is_old,
        keep_alive=head.keep_alive,
        expects_continue=head.expects_continue,
        length=head.length,
    )


class HeadCache:
    """Parses heads, and returns the same object for the same bytes: clients send few different heads, again and again.

    Args:
        max_bytes: Of a head.
    """

    def __init__(self, max_bytes: int) -> None:
        self._parse = functools.partial(parse_head, max_bytes=max_bytes)
        self._parse_cached = functools.lru_cache(MAX_CACHED_HEADS)(self._parse)

    def parse(self, raw: bytes) -> Head:
        """See `parse_head`."""
        return self._parse_cached(raw) if len(raw) <= MAX_CACHED_HEAD_BYTES else self._parse(raw)


class NativeRequest(Request):
    """A request whose body comes from its connection.

    Args:
        head: Its head.
        connection: Its connection.
        body: The reader of its body, or the whole body.
    """

    __slots__ = ("_body", "_connection")

    def __init__(self, head: Head, connection: NativeConnection, body: BodyReader | bytes) -> None:
        self.head = head  # without a call of the constructor above: this runs for every request
        self.peer = connection.peer
        self.process = connection.process
        self._connection = connection
        self._body = body

    @property
    def is_read(self) -> bool:
        """The client has sent the whole body."""
        return isinstance(self._body, bytes) or self._body.complete

    async def read_body(self, limits: HttpSettings) -> bytes:
        """See `Request`. Most bodies have arrived together with their heads, and need no time limit."""
        body = self._body
        if not isinstance(body, bytes):
            if not body.complete:
                return await super().read_body(limits)
            body = body.read()
        if len(body) > limits.max_body_bytes:
            raise body_too_large(limits.max_body_bytes)
        return body

    async def next_chunk(self) -> bytes:
        """See `Request`."""
        body = self._body
        if isinstance(body, bytes):
            self._body = b""
            return body
        return await self._connection.next_chunk(body)

    async def while_connected(self, run: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """See `Request`. The end of the client ends the whole connection."""
        self._connection.watch()
        try:
            return await run(*args)
        finally:
            self._connection.unwatch()
