"""The common part of the guarded streams: the parser's side, and leaving the client within limits."""

from __future__ import annotations

import logging

import trio

from carmy_engine import HttpSettings

from ..limits import READ_BYTES
from .tls_stream import TlsStream


class ParserStream(trio.abc.HalfCloseableStream):
    """The side of a guarded stream that a borrowed server writes to: no write blocks, and the owner sends and closes.

    Args:
        stream: The connection.
        settings: Limits in time and bytes.
        log: For what a client does.

    Attributes:
        socket: The connection's socket, for its addresses.
    """

    def __init__(
        self,
        stream: trio.SocketStream | TlsStream,
        settings: HttpSettings,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._settings = settings
        self._log = log
        self._reading = trio.CancelScope()
        self._serving = trio.CancelScope()
        self._client_ended = False
        self._lingers = True
        self._closed = False
        self._broken = False

    async def wait_send_all_might_not_block(self) -> None:
        """Part of the interface: `send_all` never blocks."""
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Part of the interface: the owner sends the end, behind everything else."""
        await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError
        if self._broken:
            raise trio.BrokenResourceError

    async def _send_within_limit(self, data: bytes | memoryview) -> bool:
        """Send a piece. False if the client took nothing for too long."""
        seconds = self._settings.write_timeout_secs
        with trio.move_on_after(seconds) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self._log.info("closing a connection: the client took nothing for %g seconds", seconds)
        return not scope.cancelled_caught

    async def _linger(self) -> None:
        """Shut down sending, and read until the client closes its side, within limits."""
        with trio.move_on_after(self._settings.linger_timeout_secs):
            await self._stream.send_eof()
            discarded = 0
            while discarded < self._settings.max_linger_bytes and (data := await self._stream.receive_some(READ_BYTES)):
                discarded += len(data)
