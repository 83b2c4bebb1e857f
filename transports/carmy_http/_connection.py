"""The socket side of one HTTP/1.1 connection: reading at all times, bounded writing, time limits, the end.

What the bytes mean is the business of a `Speaker`; the one on hypercorn is in `_hypercorn`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Protocol

import trio

from carmy_engine.transport import contain

log = logging.getLogger("carmy.http")

KEEP_ALIVE_SECONDS = 75.0
"""Idle time between two requests; longer than common proxies keep a connection, so that they close it and not we."""

LAST_REQUEST_SECONDS = 0.1
"""For a request that is on its way when the server begins to go away. Clients that ask without a pause would else all be cut off."""

WRITE_SECONDS = 10.0
"""Without progress. A client that takes nothing for so long is gone, or might as well be."""

LINGER_SECONDS = 2.0
"""For reading on after the last answer: closing with unread bytes would reset the connection and lose the answer."""

MAX_LINGER_BYTES = 8 * 1024 * 1024
"""Discarded after the last answer. A client that still sends after so much gets its reset."""

MAX_PIPELINED_BYTES = 64 * 1024
"""Sent behind a request that is still being answered. More is not pipelining but a flood."""

_READ_BYTES = 64 * 1024


class Speaker(Protocol):
    """Reads requests out of the bytes of one connection and sees to their answers."""

    @property
    def is_idle(self) -> bool:
        """No request has begun to arrive, and none is being answered."""
        ...

    async def receive(self, data: bytes) -> None:
        """Take bytes from the client. Waits while the application does not take them."""
        ...

    async def take_head(self) -> None:
        """Go on with a request that arrived behind the last one."""
        ...

    async def expired(self) -> bool:
        """The time for the next head is over. True when an answer is on its way."""
        ...

    async def end(self) -> None:
        """Nothing more comes from the client: tell the application."""
        ...

    def hang_up(self) -> None:
        """Tell the application at once, without waiting for anything."""
        ...


class Connection:
    """One client's connection, from its acceptance to its end.

    Args:
        stream: The socket. Closed at the end of `run`.
        speak: Makes the speaker; its tasks go into the nursery.
        header_seconds: For the head of a request.
        is_draining: Whether the server is going away, so that the next answer is the last one.

    Attributes:
        client: The client's address.
        server: Ours.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        speak: Callable[[Connection, trio.Nursery], Speaker],
        header_seconds: float,
        is_draining: Callable[[], bool],
    ) -> None:
        self.is_draining = is_draining
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int] | None = None
        self._stream = stream
        self._speak = speak
        self._speaker: Speaker | None = None
        self._header_seconds = header_seconds
        self._deadline = trio.current_time() + header_seconds
        self._waiting: trio.CancelScope | None = None
        self._finishing = False
        self._broken = False
        self._resume = False

    async def run(self) -> None:
        """Serve the connection to its end. Raises nothing but the cancel of a scope round it, and a Ctrl-C.

        Leaves the socket closed, also when cancelled.
        """
        try:
            self.client = _address(self._stream.socket.getpeername())
            self.server = _address(self._stream.socket.getsockname())
            async with trio.open_nursery() as nursery:
                self._speaker = speaker = self._speak(self, nursery)
                await self._read(speaker)
                await speaker.end()
        except OSError:
            pass  # gone before it began
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one connection: the classes of a front end may raise for some inputs, and unguarded that
            # would end the whole server.
            contain(error, log, "a connection failed")
        finally:
            self._stream.socket.close()

    async def _read(self, speaker: Speaker) -> None:
        try:
            while not self._finishing:
                if self._resume:
                    self._resume = False
                    await speaker.take_head()
                    continue
                data = b""
                with trio.CancelScope(deadline=self._deadline) as self._waiting:
                    data = await self._stream.receive_some(_READ_BYTES)
                if self._waiting.cancelled_caught:
                    if self._has_news():
                        continue
                    if await speaker.expired():
                        break
                    return  # no answer is on its way that closing could cut off
                if not data:
                    return
                await speaker.receive(data)
            if not self._broken:
                await self._linger()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def _has_news(self) -> bool:
        return self._finishing or self._resume

    async def _linger(self) -> None:
        """Say that nothing more will come, and read until the client says the same, within bounds."""
        with trio.move_on_after(LINGER_SECONDS):
            await self._stream.send_eof()
            discarded = 0
            while discarded < MAX_LINGER_BYTES:
                data = await self._stream.receive_some(_READ_BYTES)
                if not data:
                    return
                discarded += len(data)

    async def write(self, data: bytes) -> None:
        """Send everything, or give the connection up: after `WRITE_SECONDS` without progress, and when cancelled."""
        if self._broken:
            return
        sock = self._stream.socket
        view = memoryview(data)
        try:
            while view:
                with trio.move_on_after(WRITE_SECONDS) as scope:
                    view = view[await sock.send(view) :]
                if scope.cancelled_caught:
                    log.info("closing a connection: the client took nothing for %g seconds", WRITE_SECONDS)
                    self.abort()
                    return
        except (OSError, trio.ClosedResourceError):
            self.abort()
        except trio.Cancelled:
            # Part of a message may be out: nothing sensible can follow it.
            self.abort()
            raise

    # What the speaker and the server tell the connection. All of it is for the reader to act on.

    def expect_head(self) -> None:
        """A head has begun to arrive: it has to be complete in time."""
        self._set_deadline(trio.current_time() + self._header_seconds)

    def begin_request(self) -> None:
        """A head is complete. From here on the application bounds the time."""
        self._set_deadline(math.inf)

    def end_request(self, *, more: bool) -> None:
        """A request has been answered; `more` when the next one is already here."""
        # While the server drains: since the answer, which does not say that it is the last one.
        idle_seconds = LAST_REQUEST_SECONDS if self.is_draining() else KEEP_ALIVE_SECONDS
        self._set_deadline(trio.current_time() + (self._header_seconds if more else idle_seconds))
        if more:
            self._resume = True
            self._wake()

    def finish(self) -> None:
        """Close once everything written is out."""
        self._finishing = True
        self._wake()

    def abort(self) -> None:
        """Close at once, and tell the application."""
        self._broken = self._finishing = True
        self._stream.socket.close()
        if self._speaker is not None:
            self._speaker.hang_up()

    def drain(self) -> None:
        """The server is going away: close as soon as no answer is owed, and none asked for."""
        if self._speaker is None or self._speaker.is_idle:
            self._set_deadline(trio.current_time() + LAST_REQUEST_SECONDS)

    def _set_deadline(self, deadline: float) -> None:
        self._deadline = deadline
        if self._waiting is not None:
            self._waiting.deadline = deadline

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()


def _address(address: tuple[Any, ...] | str) -> tuple[str, int] | None:
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None  # a path for unix sockets
