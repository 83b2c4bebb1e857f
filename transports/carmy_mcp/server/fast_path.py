"""The fast path over HTTP: requests with one answer and no notifications bypass the SDK's sessions.

The SDK passes each request through four or five streams and tasks, so that notifications may accompany it. Most requests have
none. They call the SDK's handlers directly, in the task of their HTTP request, and the response is one JSON document, which the
protocol permits. A late answer becomes a stream with heartbeats, so that no proxy takes the silence for a lost connection.

Requests that are refused before a handler runs take the SDK's path, which has the error messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio
import mcp_types as types
import msgspec
import trio
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.jsonrpc import JSONRPCError, JSONRPCRequest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from carmy_engine import ToolSpec
from carmy_engine.transport import raise_own
from carmy_http.api.event_response import EVENT_STREAM, HEARTBEAT
from carmy_http.api.mounts import Message, Send

from ..protocol.messages import result_reply, write
from ..protocol.request_state import Exchange
from .asgi import send_document

log = logging.getLogger("carmy.mcp")

MAX_KNOWN = 256
"""Limit of cached client descriptions. There are few, and parsing one takes as long as a call."""

MAX_SAID_BYTES = 4096
"""Limit of a cached client description: larger ones would only cost memory."""

_METHODS = frozenset({"ping", "tools/call", "tools/list"})
_TRANSPORT = TransportContext(kind="streamable-http", can_send_request=False)


def has_one_answer(message: JSONRPCRequest, asks: Callable[[str], bool]) -> bool:
    """True if a request has one answer and no notifications, in a version with a handshake.

    Args:
        message: The request.
        asks: Returns whether calls of a tool, by name, may need a confirmation.
    """
    if message.method != "tools/call":
        return message.method in _METHODS
    name = (message.params or {}).get("name")
    return progress_token_from_params(message.params) is None and not (isinstance(name, str) and asks(name))


def modern_route(
    message: JSONRPCRequest, headers: Iterable[tuple[bytes, bytes]], declares: Callable[[str], bool]
) -> InboundModernRoute | None:
    """Return the client description in a request, in a version without a handshake.

    None if notifications may accompany the answer, or if the request will be refused.

    Args:
        message: The request.
        headers: Its headers.
        declares: Returns whether a tool, by name, has headers that repeat its arguments.
    """
    params = message.params or {}
    if message.method == "subscriptions/listen" or progress_token_from_params(params) is not None:
        return None
    name = params.get("name")
    if message.method == "tools/call" and isinstance(name, str) and declares(name):
        return None
    routing = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in headers if key.startswith(b"mcp-")]
    if find_duplicated_routing_header(routing) is not None:
        return None
    found = classify_inbound_request({"method": message.method, "params": params}, headers=dict(routing))
    return found if isinstance(found, InboundModernRoute) else None


class FastPath:
    """Handles requests, and sends their one answer.

    Args:
        server: Handles the requests; the caller is in the request's context.
        spec_of: Finds a tool.
        nursery: For answers that are long in coming.
        silence_seconds: Silence before a late answer becomes a stream, and between its heartbeats.
        max_known: Client descriptions that are cached.
    """

    def __init__(
        self,
        server: Server[Any],
        spec_of: Callable[[str], ToolSpec | None],
        nursery: trio.Nursery,
        silence_seconds: float,
        max_known: int = MAX_KNOWN,
    ) -> None:
        self._silence_seconds = silence_seconds
        self._max_known = max_known
        self._server = server
        self._spec_of = spec_of
        self._declaring: dict[str, bool] = {}
        self._known: dict[bytes, ServerRunner[Any]] = {}
        """Runners by client description, which every request repeats."""
        # One for each version: these requests depend on nothing else that the client has declared.
        self._runners = {
            version: ServerRunner(server, Connection.from_envelope(version, None, None), {})
            for version in HANDSHAKE_PROTOCOL_VERSIONS
        }
        self._nursery = nursery
        self._waiting: dict[_Reply, float] = {}
        """Since when, on trio's clock; the one that has waited for longest first."""
        self._some = trio.Event()

    async def run(self) -> None:
        """Begin a stream for every answer that is long in coming, until cancelled."""
        while True:
            while not self._waiting:  # it may have been a moment's wait
                self._some = trio.Event()
                await self._some.wait()
            await trio.sleep_until(next(iter(self._waiting.values())) + self._silence_seconds)
            late = trio.current_time() - self._silence_seconds
            for reply in [reply for reply, since in self._waiting.items() if since <= late]:
                del self._waiting[reply]
                self._nursery.start_soon(reply.stream)

    def takes(self, message: JSONRPCRequest, version: str) -> ServerRunner[Any] | None:
        """Return the runner for a request in a version with a handshake; None if it has to take the SDK's path."""
        return self._runners.get(version) if has_one_answer(message, self._asks) else None

    def takes_modern(self, message: JSONRPCRequest, headers: Iterable[tuple[bytes, bytes]]) -> ServerRunner[Any] | None:
        """Return the runner for a request in a version without a handshake; otherwise as `takes`."""
        route = modern_route(message, headers, self._declares)
        if route is None:
            return None
        said = msgspec.json.encode((route.protocol_version, route.client_info, route.client_capabilities))
        runner = self._known.get(said)
        if runner is None:
            client = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
            runner = ServerRunner(self._server, client, {})
            if len(said) <= MAX_SAID_BYTES:
                if len(self._known) >= self._max_known:
                    del self._known[next(iter(self._known))]
                self._known[said] = runner
        return runner

    def _asks(self, name: str) -> bool:
        spec = self._spec_of(name)
        return spec is not None and spec.needs_confirmation

    def _declares(self, name: str) -> bool:
        known = self._declaring.get(name)
        if known is None:
            spec = self._spec_of(name)
            if spec is None:
                return False
            known = self._declaring[name] = bool(x_mcp_header_map(spec.input_schema))
        return known

    async def answer(
        self, message: JSONRPCRequest, exchange: Exchange, context: object, runner: ServerRunner[Any], send: Send
    ) -> None:
        """Handle a request and send its answer. If cancelled, its client has left, and so is the execution.

        Args:
            message: The request.
            exchange: What is known of it.
            context: What its handler finds as the request.
            runner: What handles it.
            send: Of ASGI.
        """
        reply = _Reply(send, self._silence_seconds)
        self._waiting[reply] = trio.current_time()
        self._some.set()
        try:
            answer = await _handle(message, context, runner)
            if exchange.is_unanswered:
                await reply.end()
                return
            status = 200
            if not isinstance(answer, types.ErrorData):
                document = result_reply(message.id, answer)
            else:
                document = write(JSONRPCError.model_construct(jsonrpc="2.0", id=message.id, error=answer))
                if runner.connection.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    status = ERROR_CODE_HTTP_STATUS.get(answer.code, status)
            await reply.send(status, document)
        finally:
            self._waiting.pop(reply, None)
            reply.over.set()


async def _handle(
    message: JSONRPCRequest, context: object, runner: ServerRunner[Any]
) -> dict[str, Any] | types.ErrorData:
    asked = _Asked(message.id, ServerMessageMetadata(request_context=context, can_send_request=False))
    try:
        return await runner.on_request(asked, message.method, message.params)
    except (MCPError, ValidationError) as error:  # `guard` lets nothing else through
        told = handler_exception_to_error_data(error)
        assert told is not None  # both have an error
        return told


class _Reply:
    """One answer.

    Attributes:
        over: Set when there is nothing more to wait for.
    """

    def __init__(self, send: Send, heartbeat_seconds: float) -> None:
        self._send = send
        self._heartbeat_seconds = heartbeat_seconds
        self._streams = False
        self._lock = trio.Lock()
        self.over = trio.Event()

    async def stream(self) -> None:
        """Begin a stream, and let it not be silent, until there is an answer."""
        if self.over.is_set():
            return  # it has come in the meantime
        self._streams = True
        try:
            async with self._lock:
                await self._send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
            while not self.over.is_set():
                async with self._lock:
                    if not self.over.is_set():
                        await self._send(_body(HEARTBEAT, more=True))
                with trio.move_on_after(self._heartbeat_seconds):
                    await self.over.wait()
        except BaseException as error:
            # The request's own task handles a client that has gone; here the exception would end all others.
            raise_own(error)
            log.debug("a heartbeat could not be sent", exc_info=True)

    async def send(self, status: int, document: bytes) -> None:
        """Send the answer, in whatever form it has to have by now."""
        self.over.set()
        if not self._streams:
            await send_document(self._send, status, document)
            return
        async with self._lock:
            await self._send(_body(b"event: message\ndata: %b\n\n" % document, more=False))

    async def end(self) -> None:
        """End without an answer: a stream of no events, which is what a request may have instead of a response."""
        self.over.set()
        async with self._lock:
            if not self._streams:
                await self._send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
            await self._send(_body(b"", more=False))


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


class _Asked:
    """A request as the SDK's handlers see it. There is no way back to the client but the answer."""

    transport = _TRANSPORT
    can_send_request = False

    def __init__(self, request_id: types.RequestId, metadata: ServerMessageMetadata) -> None:
        self.request_id = request_id
        self.message_metadata = metadata

    @property
    def cancel_requested(self) -> anyio.Event:
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        await trio.lowlevel.checkpoint()

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await trio.lowlevel.checkpoint()
