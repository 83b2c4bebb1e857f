"""One connection whose messages all travel on one channel, in both directions."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec
import trio

from carmy_engine import BoundEngine, McpSettings
from carmy_engine.codec import LONG_MESSAGE_BYTES
from carmy_engine.transport import Fault, contain, raise_own
from carmy_frames.driver import run_inline
from carmy_net import FLUSH_SECONDS, BatchChannel, SendQueue

from ..protocol.connection import ServerProtocol, ServerState, key_of
from ..protocol.errors import INTERNAL_ERROR, JsonRpcError, RemoteProtocolError
from ..protocol.messages import ErrorResponse, Id, Notification, Request, Response, decode, encode_notification
from ..protocol.params import CancelledParams, parse
from .exchange import Exchange, SessionState
from .listening import announce
from .questions import OpenRequests
from .server import McpServer

log = logging.getLogger("carmy.mcp")

LINGER_SECONDS = 0.25
"""From the end of input to the cancel of the requests that run. A client of MCP closes the input when it leaves, and kills the server
2 s later; a script that pipes its requests in gets the answers that take no longer than this."""

CLEANUP_SECONDS = 1.0
"""For the requests that the end of input cancelled: what the engine grants a tool for its clean-up."""

MAX_SPARE_READERS = 16
"""Idle reader tasks that are kept. Beyond it, each request that waits costs a new task."""


async def serve_connection(
    server: McpServer,
    channel: BatchChannel,
    caller: BoundEngine,
    *,
    stopped: trio.Event,
    limits: McpSettings,
    write_seconds: float = math.inf,
    on_left: Callable[[], object] = bool,
) -> None:
    """Serve one connection until it ends. The channel stays open.

    At the end of input the client has left (MCP 2025-11-25, "Lifecycle", "Shutdown"): requests that `LINGER_SECONDS` do not suffice
    for are cancelled (cause ``disconnect``) and not answered. So are all requests when the peer reads no more. When
    this function is cancelled, the message that is being written gets `FLUSH_SECONDS` to leave.

    Args:
        server: Answers the requests.
        channel: The channel of messages.
        caller: The engine for the client.
        stopped: Set when every execution has ended at shutdown.
        limits: The number of requests without an answer.
        write_seconds: For one message to leave; infinite for a peer that may take its time.
        on_left: Called when the client has left, after its requests were cancelled.
    """
    await Connection(server, channel, caller, stopped, limits, write_seconds, on_left).run()


class Connection:
    """See `serve_connection`. It is also the `Peer` of its requests.

    Attributes:
        caller: The engine for the client.
        input_closed: See `Peer`.
    """

    def __init__(
        self,
        server: McpServer,
        channel: BatchChannel,
        caller: BoundEngine,
        stopped: trio.Event,
        limits: McpSettings,
        write_seconds: float,
        on_left: Callable[[], object],
    ) -> None:
        self.caller = caller
        self.input_closed = trio.Event()
        self._server = server
        self._channel = channel
        self._has_more = channel.has_more
        self._stopped = stopped
        self._write_seconds = write_seconds
        self._on_left = on_left
        self._protocol = ServerProtocol(limits.max_calls, limits.max_requests)
        self._requests = OpenRequests(self._protocol)
        self._out = SendQueue(log=log)
        self._running: dict[Id, Exchange] = {}
        self._idle = trio.Event()
        self._ended = trio.Event()
        self._nursery: trio.Nursery
        self._readers = trio.lowlevel.ParkingLot()
        """Reader tasks that have finished a request and are idle."""
        self._context = copy_context()
        self._serving = trio.CancelScope()
        self._left = False
        """The client takes no further answer."""
        self._session: SessionState | None = None

    async def run(self) -> None:
        """Serve until the connection ends."""
        async with trio.open_nursery() as background:
            background.start_soon(self._write)
            try:
                with self._serving:
                    await self._serve()
            except Exception:
                raise
            except BaseException as error:
                raise_own(error)
                raise Fault(error) from error  # a foreign cancel would end silently in this nursery
            finally:
                self._out.close()
                self._out.flush_within(FLUSH_SECONDS)

    async def _serve(self) -> None:
        async with trio.open_nursery() as requests:
            self._nursery = requests
            requests.start_soon(self._watch_stop)
            requests.start_soon(self._read, requests)
            await self._ended.wait()
            if self.input_closed.is_set():
                await self._finish()
            else:
                await self._wait_idle()  # the engine has stopped; the flush limit bounds the wait
            requests.cancel_scope.cancel()

    async def _watch_stop(self) -> None:
        await self._stopped.wait()
        self._out.flush_within(FLUSH_SECONDS)
        self._ended.set()

    async def _write(self) -> None:
        if not await self._out.write_shielded(self._channel, self._write_seconds):
            self._lose()

    def _lose(self) -> None:
        """The peer reads no more: cancel what runs for it."""
        self._out.clear()
        self._leave()
        self._serving.cancel()

    def _leave(self) -> None:
        self._left = True
        for exchange in tuple(self._running.values()):
            exchange.leave()
        self._on_left()

    async def _finish(self) -> None:
        """Wait a moment for the accepted requests; then cancel them, and wait for their clean-up."""
        self._out.flush_within(LINGER_SECONDS + CLEANUP_SECONDS)
        with trio.move_on_after(LINGER_SECONDS):
            await self._wait_idle()
        self._leave()
        with trio.move_on_after(CLEANUP_SECONDS):
            await self._wait_idle()

    async def _wait_idle(self) -> None:
        while self._running:
            self._idle = trio.Event()
            await self._idle.wait()

    async def _read(self, requests: trio.Nursery) -> None:
        """Read messages until the input ends. One task reads at a time, and handles the request that it has read.

        Before that request first waits, another task takes over reading.
        """

        def read_on() -> None:
            if not self._readers.unpark():
                requests.start_soon(self._read, requests)

        while not self._ended.is_set():
            try:
                data = await self._channel.receive()
            except trio.EndOfChannel:
                self._protocol.receive_end()
                self.input_closed.set()
                self._ended.set()
                return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._lose()
                return
            if self._ended.is_set():
                return
            try:
                exchange = await self._receive(data)
            except trio.ClosedResourceError:
                return  # the writer has ended, and has logged the reason
            if exchange is None:
                continue
            if await run_inline(self._handle(exchange), self._context.copy(), read_on):
                if len(self._readers) >= MAX_SPARE_READERS:
                    return
                await self._readers.park()

    async def _receive(self, data: bytes) -> Exchange | None:
        """Take one message. Returns a request; all other messages are handled here."""
        try:
            if len(data) <= LONG_MESSAGE_BYTES:
                message = self._protocol.receive_message(data)
            else:
                found = await self.caller.read_message(partial(decode, data))
                if self._ended.is_set():
                    return None
                message = self._protocol.receive(found)
        except RemoteProtocolError as error:
            if error.error.refusal is not None:
                self.caller.record_refusal(error.error.refusal)
            # While the client does not read, this waits, and so does whatever else it sends.
            await self._send(self._protocol.reply_to(error))
            return None
        if isinstance(message, Request):
            try:
                client = self._protocol.client_of(message)
            except JsonRpcError as error:
                await self._send(self._protocol.send_error(message.id, error))
                return None
            if self._session is None and self._protocol.state is ServerState.HANDSHAKE:
                self._session = SessionState(await self._nursery.start(announce, self.caller, self))
            exchange = self._running[key_of(message.id)] = Exchange(message, client, self.caller, self)
            return exchange
        if isinstance(message, Response | ErrorResponse):
            self._requests.receive(message)
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            self._cancel(message)
        return None

    def _cancel(self, message: Notification) -> None:
        try:
            cancelled = parse(message.params, CancelledParams, message.method).request_id
        except JsonRpcError:
            return  # a notification has no answer
        exchange = None if cancelled is None else self._running.get(key_of(cancelled))
        if exchange is not None:
            exchange.take_back()

    async def _handle(self, exchange: Exchange) -> None:
        """Handle one request, and answer it."""
        try:
            try:
                body = await self._server.answer(exchange)
            except JsonRpcError as error:
                if not exchange.is_unanswered:
                    await self._out.wait_for_room(0)
                    self._put(self._protocol.send_error(exchange.id, error))
                return
            if not exchange.is_unanswered:
                await self._out.wait_for_room(len(body))
                self._put(self._protocol.send_result(exchange.id, body))
        except trio.ClosedResourceError:
            pass  # the connection has ended
        except BaseException as error:  # noqa: BLE001 - the boundary round one request of a connection
            contain(error, log, "a request failed")
            if not exchange.is_unanswered:
                failed = JsonRpcError(INTERNAL_ERROR, "the server failed to answer; its log has the details")
                with contextlib.suppress(trio.ClosedResourceError):
                    self._put(self._protocol.send_error(exchange.id, failed))
        finally:
            key = key_of(exchange.id)
            if key in self._protocol.accepted:
                self._protocol.forget(exchange.id)
            del self._running[key]
            self._idle.set()

    def _put(self, message: bytes) -> None:
        """Queue a message; send it at once if no other is about to follow."""
        self._out.put(message, alone=len(self._running) <= 1 and not self._has_more())

    async def _send(self, message: bytes) -> None:
        if not self._left:
            await self._out.wait_for_room(len(message))
            self._out.put(message)

    # The way back of a request

    @property
    def session(self) -> SessionState | None:
        """See `Peer`."""
        return self._session

    @property
    def can_ask(self) -> bool:
        """See `Peer`."""
        return self._protocol.state is ServerState.HANDSHAKE

    async def notify(self, method: str, params: Any) -> None:
        """See `Peer`."""
        with contextlib.suppress(trio.ClosedResourceError):
            await self._send(encode_notification(method, params))

    def notify_soon(self, method: str, params: Any) -> None:
        """See `Peer`."""
        with contextlib.suppress(trio.ClosedResourceError):
            if not self._left:
                self._out.put(encode_notification(method, params))

    async def ask(self, method: str, params: Any) -> msgspec.Raw:
        """See `Peer`."""
        return await self._requests.ask(method, params, self._send)

    async def wait_for_room(self) -> None:
        """See `Peer`."""
        try:  # noqa: SIM105 - a context manager would take longer than what it holds
            await self._out.wait_for_room(0)
        except trio.ClosedResourceError:
            pass  # the waiting request is being cancelled
