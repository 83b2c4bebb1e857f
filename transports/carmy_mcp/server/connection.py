"""One connection: messages of a channel to the SDK's loop and back, so that what was accepted is answered.

The SDK's loop cancels every running request as soon as its input ends, so a script that writes its requests and closes the pipe
loses about half of its answers. Here the loop sees the end of input after `LINGER_SECONDS`, or when every request is answered.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.server.lowlevel.server import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.jsonrpc import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from carmy_engine import AgentError, Cause, McpSettings
from carmy_engine.codec import invalid_request
from carmy_engine.transport import await_foreign
from carmy_net import FLUSH_SECONDS, BatchChannel, SendQueue

from ..protocol.messages import Id, MessageError, error_reply, read, write
from ..protocol.request_state import Exchange

log = logging.getLogger("carmy.mcp")

LINGER_SECONDS = 0.25
"""From the end of input to the cancel of the requests that run. A client of MCP closes the input when it leaves, and kills the server
2 s later; a script that pipes its requests in gets the answers that take no longer than this."""

CLEANUP_SECONDS = 1.0
"""For the requests that the end of input cancelled: what the engine grants a tool for its clean-up."""


async def serve_connection(
    server: Server[Any],
    channel: BatchChannel,
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
        server: Finds the `Exchange` of a request in its context.
        channel: The channel of messages.
        stopped: Set when every execution has ended at shutdown.
        limits: The number of requests without an answer.
        write_seconds: For one message to leave; infinite for a peer that may take its time.
        on_left: Called when the client has left, after its requests were cancelled.
    """
    await _Connection(channel, stopped, limits, write_seconds, on_left).run(server)


class _Connection:
    def __init__(
        self,
        channel: BatchChannel,
        stopped: trio.Event,
        limits: McpSettings,
        write_seconds: float,
        on_left: Callable[[], object],
    ) -> None:
        self._on_left = on_left
        self._channel = channel
        self._stopped = stopped
        self._limits = limits
        self._write_seconds = write_seconds
        self._out = SendQueue(log=log)
        self._accepted: dict[Id, Exchange] = {}
        self._idle = trio.Event()
        self._reading = trio.CancelScope()
        self._serving = trio.CancelScope()
        self._ended = False
        self._input_closed = trio.Event()
        self._left = False
        """The client takes no further answer."""

    async def run(self, server: Server[Any]) -> None:
        async with trio.open_nursery() as background:
            background.start_soon(self._write)
            try:
                with self._serving:
                    async with trio.open_nursery() as watch:
                        watch.start_soon(self._watch_stop)
                        # The SDK's tasks are in there: what they let out is no cancel of these nurseries, which would swallow it.
                        options = server.create_initialization_options()
                        await await_foreign(server.run(_Incoming(self), _Sent(self), options))
                        watch.cancel_scope.cancel()
            finally:
                self._out.close()
                self._out.flush_within(FLUSH_SECONDS)

    async def _watch_stop(self) -> None:
        await self._stopped.wait()
        self._reading.cancel()
        self._out.flush_within(FLUSH_SECONDS)

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
        for exchange in tuple(self._accepted.values()):
            exchange.stop(Cause.DISCONNECT)
        self._on_left()

    async def next_message(self) -> SessionMessage | None:
        """The next message for the SDK; None when there will be none and everything has been answered."""
        while not self._ended:
            data: bytes | None = None
            try:
                with trio.CancelScope() as self._reading:
                    if not self._stopped.is_set():
                        data = await self._channel.receive()
            except trio.EndOfChannel:
                self._ended = True
                self._input_closed.set()
                await self._finish()
                break
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._lose()
                break
            if data is None:  # the engine has stopped; the flush limit bounds the wait
                self._ended = True
                await self._wait_idle()
                break
            message = await self._accept(data)
            if message is not None:
                return message
        return None

    async def _accept(self, data: bytes) -> SessionMessage | None:
        """A message for the SDK. What cannot be one is answered here."""
        try:
            message, exchange = read(data)
        except MessageError as error:
            # Under the id of a request that runs, it would be taken for that one's answer.
            runs = error.request_id is not None and coerce_request_id(error.request_id) in self._accepted
            await self._reply(error.anonymous if runs else error.reply)
            return None
        if not isinstance(message, JSONRPCRequest):
            return SessionMessage(message)
        request_id = coerce_request_id(message.id)  # to the SDK "1" and 1 are one when something is cancelled
        if request_id in self._accepted:
            # Not under its id: that answer would be taken for the first one's.
            twice = invalid_request(f"a request with the id {message.id!r} is still being handled")
            await self._reply(error_reply(None, types.INVALID_REQUEST, twice))
            return None
        limits = self._limits
        if len(self._accepted) >= (limits.max_calls if message.method == "tools/call" else limits.max_requests):
            # While the client does not read, this waits, and so does whatever else it has to say.
            await self._reply(error_reply(message.id, types.INTERNAL_ERROR, _overloaded(len(self._accepted))))
            return None
        self._accepted[request_id] = exchange
        exchange.wait_for_room = self._wait_for_room
        exchange.input_closed = self._input_closed

        async def unanswered() -> None:
            self._settle(request_id)

        return SessionMessage(
            message, ServerMessageMetadata(request_context=exchange, on_request_unanswered=unanswered)
        )

    async def _wait_for_room(self) -> None:
        with contextlib.suppress(trio.ClosedResourceError):  # the waiting request is being cancelled
            await self._out.wait_for_room(0)

    async def _reply(self, data: bytes) -> None:
        with contextlib.suppress(trio.ClosedResourceError):  # the connection has ended
            await self._out.wait_for_room(len(data))
            self._out.put(data)

    async def send(self, message: JSONRPCMessage) -> None:
        """Queue a message of the SDK's. An answer ends its request, also when the client has left and it is dropped."""
        try:
            if not self._left:
                data = write(message)
                await self._out.wait_for_room(len(data))
                self._out.put(data)
        except trio.ClosedResourceError:
            raise anyio.ClosedResourceError from None
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                self._settle(coerce_request_id(message.id))

    def _settle(self, request_id: Id) -> None:
        self._accepted.pop(request_id, None)
        self._idle.set()

    async def _finish(self) -> None:
        """Wait a moment for the accepted requests; then cancel them, and wait for their clean-up."""
        self._out.flush_within(LINGER_SECONDS + CLEANUP_SECONDS)
        with trio.move_on_after(LINGER_SECONDS):
            await self._wait_idle()
        self._leave()
        with trio.move_on_after(CLEANUP_SECONDS):
            await self._wait_idle()

    async def _wait_idle(self) -> None:
        while self._accepted:
            self._idle = trio.Event()
            await self._idle.wait()


def _overloaded(accepted: int) -> AgentError:
    message = f"{accepted} requests of this connection have no answer yet, which is the limit"
    return AgentError.standard("OVERLOADED", message, retry_after=1)


class _Stream:
    """What the SDK's two kinds of streams have in common. The connection outlives them, so there is nothing to close."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        return None


class _Incoming(_Stream):
    """The SDK's view of what comes in."""

    async def receive(self) -> SessionMessage | Exception:
        message = await self._connection.next_message()
        if message is None:
            raise anyio.EndOfStream
        return message

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message = await self._connection.next_message()
        if message is None:
            raise StopAsyncIteration
        return message

    async def __aenter__(self) -> _Incoming:
        return self


class _Sent(_Stream):
    """The SDK's view of what goes out."""

    async def send(self, item: SessionMessage, /) -> None:
        await self._connection.send(item.message)

    async def __aenter__(self) -> _Sent:
        return self
