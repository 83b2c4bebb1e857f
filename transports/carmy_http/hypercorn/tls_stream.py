"""TLS over an accepted socket, and the attributes by which hypercorn recognises a stream of TLS."""

from __future__ import annotations

import ssl
from typing import Any

import trio


class _Ciphertext(trio.abc.Stream):
    """The socket as `trio.SSLStream` uses it. Closing is left to the owner of the socket, which reads on for a while."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Part of the interface."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Part of the interface."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Part of the interface."""
        return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        """Part of the interface; closes nothing."""
        await trio.lowlevel.checkpoint()


class TlsStream(trio.abc.HalfCloseableStream):
    """The server's side of TLS.

    Args:
        stream: The accepted connection.
        context: See `carmy_http.tls.tls_context`.

    Attributes:
        socket: The connection's socket.
    """

    def __init__(self, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        self.socket = stream.socket
        self._raw = stream
        self._tls = trio.SSLStream(_Ciphertext(stream), context, server_side=True, https_compatible=True)
        self._has_sent_end = False

    async def handshake(self) -> str | None:
        """Shake hands, and return the protocol that ALPN chose.

        Raises:
            trio.BrokenResourceError: The client has gone, or its bytes are no handshake.
        """
        await self._tls.do_handshake()
        protocol: str | None = self._tls.selected_alpn_protocol()
        return protocol

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Part of the interface."""
        await self._tls.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Part of the interface."""
        await self._tls.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Part of the interface. After `send_eof` the bytes are ciphertext, to be discarded."""
        return bytes(await (self._raw if self._has_sent_end else self._tls).receive_some(max_bytes))

    async def send_eof(self) -> None:
        """Send the ``close_notify`` of TLS and the end of the TCP stream."""
        self._has_sent_end = True
        await self._tls.aclose()
        await self._raw.send_eof()

    async def aclose(self) -> None:
        """Close the socket at once, without ``close_notify``."""
        self.socket.close()
        await trio.lowlevel.checkpoint()


class OverTls:
    """Mixin for a stream whose TLS handshake is done. Hypercorn takes a stream without these attributes for plain text."""

    alpn_protocol = "http/1.1"

    async def do_handshake(self) -> None:
        """Part of the interface; done already."""
        await trio.lowlevel.checkpoint()

    def selected_alpn_protocol(self) -> str:
        """The protocol that hypercorn speaks on the stream."""
        return self.alpn_protocol

    @property
    def transport_stream(self) -> Any:
        """An object with the socket, for its addresses."""
        return self
