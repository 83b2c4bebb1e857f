"""One request of HTTP/2 and its answer, between the application and the stream of frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from ..asgi_types import Message
from .http2_head import OF_CONNECTION

if TYPE_CHECKING:
    from .http2_stream import GuardedHttp2Stream

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, CANCEL = 0x0, 0x1, 0x2, 0x8

MAX_FRAME_BYTES = 16 * 1024
"""Payload of one frame, the least that RFC 9113 allows (4.2)."""

_Send = Callable[[Message], Awaitable[None]]


class Http2Exchange:
    """One request and its answer.

    Args:
        connection: Its stream of frames.
        number: Of the HTTP/2 stream.
        length: What Content-Length announces; None without one.
        expects_continue: The client waits for ``100 Continue``.
    """

    def __init__(self, connection: GuardedHttp2Stream, number: int, length: int | None, expects_continue: bool) -> None:
        self.number = number
        self._connection = connection
        self._missing = length
        self._owes_continue = expects_continue
        self._held = bytearray()
        self._is_wanted = False
        self._writing = trio.CancelScope()
        self.client_ended = False
        self.end_passed = False  # to the parser
        self.is_answered = False  # in part
        self.is_over = False
        self.is_running = True
        self._is_complete = False

    # For the application

    @contextmanager
    def running(self) -> Iterator[None]:
        """The block in which the application answers, and does what it does after that."""
        try:
            yield
        finally:
            self.is_running = False
            if self.is_answered and not self._is_complete:
                self.reset(INTERNAL_ERROR)
            self._connection.settle(self)

    async def ask(self) -> None:
        """Let the parser have the next piece of the body; send ``100 Continue`` to a client that waits for it."""
        self._is_wanted = True
        self._pass_body()
        if self._owes_continue:
            self._owes_continue = False
            if not self.is_answered and not self.is_over:
                self._connection.send_continue(self.number)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def answer(self, message: Message, send: _Send) -> None:
        """Pass a message of the answer to the parser, or reset the stream when the client takes nothing for too long.

        Raises:
            ValueError: The message is neither the start nor a part of an answer.
        """
        if self.is_over or self._connection.is_broken:
            await trio.lowlevel.checkpoint()
            return
        try:
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0].lower() not in OF_CONNECTION]
                with trio.CancelScope(
                    shield=True
                ):  # a lost header block would break all streams; this never blocks for long
                    await send({**message, "headers": headers, "trailers": False})
                self.is_answered = True
            elif message["type"] == "http.response.body":
                self._writing = trio.CancelScope(deadline=trio.current_time() + self._connection.write_seconds)
                with self._writing:
                    await send(message)
                    self._is_complete = not message.get("more_body", False)
                if self._writing.cancelled_caught:
                    self.reset(CANCEL)
                await self._connection.wait_for_room()
            else:
                raise ValueError(f"ASGI messages of type {message['type']!r} are not supported over HTTP/2")
        except trio.Cancelled:
            self.reset(CANCEL)  # part of the message may be out
            raise

    async def conclude(self, send: _Send) -> None:
        """Answer 500 if the application has ended without an answer."""
        if not self.is_answered:
            await self.answer(
                {"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]}, send
            )
            await self.answer({"type": "http.response.body", "body": b""}, send)

    # For the connection

    def progress(self) -> None:
        """A part of the answer is on its way: the time limit of writing begins anew."""
        self._writing.deadline = trio.current_time() + self._connection.write_seconds

    def take_data(self, data: bytes, *, is_last: bool) -> None:
        """Hold a piece of the body until the application asks for it. A wrong length resets the stream."""
        self._held += data
        self.client_ended = is_last
        if self._missing is not None:
            self._missing -= len(data)
            if self._missing < 0 or (is_last and self._missing > 0):
                self._connection.violate(self)
                return
        self._pass_body()

    def reset(self, code: int) -> None:
        """End the stream, for the parser and the client alike, unless it has ended."""
        if not self.is_over:
            self.close(stops_writing=code != NO_ERROR)
            self._connection.reset(self.number, None if code == NO_ERROR and self.client_ended else code)
            self._connection.settle(self)

    def close(self, *, stops_writing: bool = True) -> None:
        """Nothing more goes to the parser, and nothing comes from it unless it is about to finish."""
        self.is_over = True
        if stops_writing:
            self._writing.cancel()
        self._connection.discard(len(self._held), held=True)
        self._held.clear()

    def _pass_body(self) -> None:
        if not self._is_wanted or self.end_passed or self.is_over or not (self._held or self.client_ended):
            return
        piece = bytes(self._held[:MAX_FRAME_BYTES])
        del self._held[:MAX_FRAME_BYTES]
        self.end_passed = self.client_ended and not self._held
        self._is_wanted = False
        self._connection.pass_data(self.number, piece, is_last=self.end_passed)
