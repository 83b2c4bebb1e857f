"""A client of HTTP/2 on the library h2, which can also send frames that break the rules."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from hyperframe.frame import Frame, GoAwayFrame

from tests.support.tls import Secured

JSON_TYPE = ("content-type", "application/json")


class Http2Client:
    """One connection. Events are kept by stream; `until` reads until a condition holds."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream], authority: str) -> None:
        self.stream = stream
        self.authority = authority
        config = H2Configuration(
            header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = H2Connection(config)
        self.status: dict[int, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goaways: list[GoAwayFrame] = []
        self._buffer = b""
        self.events: list[Event] = []
        self.is_closed = False
        self.grants_windows = True

    async def start(self) -> None:
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        if data := self.h2.data_to_send():
            await self.stream.send_all(data)

    async def send_raw(self, data: bytes) -> None:
        """Bytes that the library would refuse to make."""
        await self.flush()
        await self.stream.send_all(data)

    async def ask(
        self,
        method: str = "GET",
        path: str = "/health",
        body: bytes | None = None,
        headers: list[tuple[str, str]] | None = None,
        *,
        ends: bool = True,
    ) -> int:
        """Send a request; return the number of its stream."""
        number = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", self.authority), (":path", path)]
        self.h2.send_headers(number, [*head, *(headers or [])], end_stream=ends and body is None)
        if body is not None:
            self.h2.send_data(number, body, end_stream=ends)
        await self.flush()
        return number

    async def call(self, tool: str, accept: str = "application/json", **arguments: Any) -> int:
        """Ask for an execution; return the number of its stream."""
        body = json.dumps({"tool": tool, "arguments": arguments}).encode()
        return await self.ask("POST", "/agent/execute", body, [JSON_TYPE, ("accept", accept)])

    async def until(self, holds: Callable[[], bool]) -> None:
        """Read until a condition holds, or the connection ends."""
        while not holds() and not self.is_closed:
            await self.read()

    async def until_reset(self, number: int) -> None:
        """Read until a stream was reset."""
        await self.until(lambda: number in self.resets)

    async def read(self) -> None:
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            self.is_closed = True
            return
        for event in self.h2.receive_data(self._without_goaways(bytes(data))):
            self.events.append(event)
            match event:
                case ResponseReceived():
                    self.status[event.stream_id] = next(
                        int(value) for name, value in event.headers if name == ":status"
                    )
                    self.bodies.setdefault(event.stream_id, b"")
                case DataReceived():
                    self.bodies[event.stream_id] += event.data
                    if self.grants_windows:
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded():
                    self.ended.add(event.stream_id)
                case StreamReset():
                    self.resets[event.stream_id] = int(event.error_code)
                case _:
                    pass
        await self.flush()

    def _without_goaways(self, data: bytes) -> bytes:
        """Whole frames but for GOAWAY, after which the library would take no more answers."""
        self._buffer += data
        kept = b""
        while len(self._buffer) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self._buffer[:9]))
            if len(self._buffer) < 9 + length:
                break
            if isinstance(frame, GoAwayFrame):
                frame.parse_body(memoryview(self._buffer[9 : 9 + length]))
                self.goaways.append(frame)
            else:
                kept += self._buffer[: 9 + length]
            self._buffer = self._buffer[9 + length :]
        return kept

    async def answer(self, number: int) -> tuple[int, Any]:
        """The status and the decoded body of an answer; status 0 for a stream that was reset instead."""
        await self.until(lambda: number in self.ended or number in self.resets)
        body = self.bodies.get(number, b"")
        return self.status.get(number, 0), json.loads(body) if body else None


@asynccontextmanager
async def http2(secured: Secured) -> AsyncIterator[Http2Client]:
    """A connection to a server, closed without a word at the end."""
    tcp = await trio.open_tcp_stream("127.0.0.1", secured.server.port)
    context = secured.certificates.context("h2")
    stream = trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True)
    try:
        with trio.fail_after(30):
            await stream.do_handshake()
            assert stream.selected_alpn_protocol() == "h2"
            client = Http2Client(stream, f"127.0.0.1:{secured.server.port}")
            await client.start()
            yield client
    finally:
        tcp.socket.close()
