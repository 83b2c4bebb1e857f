"""Responses to requests that run in the tasks of their HTTP requests."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import trio

from carmy_engine import BoundEngine
from carmy_engine.transport import raise_own
from carmy_http.api.event_response import EVENT_STREAM, HEARTBEAT
from carmy_http.api.protected_resource import ProtectedResource
from carmy_http.message import BodyWriter, Request, Response, StreamResponse

from ..protocol.connection import key_of
from ..protocol.errors import HTTP_STATUS, JsonRpcError
from ..protocol.event_log import render_event
from ..protocol.messages import Request as RpcRequest
from ..protocol.messages import encode_error, encode_notification, encode_result
from ..protocol.params import Client
from .exchange import NEVER, Exchange, SessionState
from .refusals import JSON_HEADERS
from .server import McpServer
from .sessions import Place

log = logging.getLogger("carmy.mcp")

OPENING = b": open\n\n"
"""A comment, sent with the head of a stream of events: it must not wait for the first of them."""


class Replies:
    """What all replies share: the server behind them, and the tasks that write to late ones.

    Args:
        server: Answers the requests.
        nursery: For writes beside the task of a request.
        silence_seconds: Silence before a late answer becomes a stream, and between heartbeats.
        resource: The server for clients of OAuth.
    """

    def __init__(
        self, server: McpServer, nursery: trio.Nursery, silence_seconds: float, resource: ProtectedResource
    ) -> None:
        self.silence_seconds = silence_seconds
        self.resource = resource
        self._server = server
        self._nursery = nursery
        self._late: dict[Reply, float] = {}
        """Since when replies wait, on trio's clock; the one that has waited for longest first."""
        self._some_late = trio.Event()

    async def answer(self, exchange: Exchange) -> tuple[bytes | None, int]:
        """The bytes of the answer to a request, None if it gets none, and its status."""
        status = 200
        try:
            document = encode_result(exchange.id, await self._server.answer(exchange))
        except JsonRpcError as error:
            document = encode_error(exchange.id, error)
            if exchange.client.is_modern:
                status = HTTP_STATUS.get(error.code, status)
        return (None if exchange.is_unanswered else document), status

    def watch(self, reply: Reply) -> None:
        """Begin a stream for this reply if it is late."""
        self._late[reply] = trio.current_time()
        self._some_late.set()

    def unwatch(self, reply: Reply) -> None:
        """End what `watch` has begun."""
        self._late.pop(reply, None)

    def start_flush(self, reply: Reply) -> None:
        """Send the notifications of a reply soon."""
        self._nursery.start_soon(reply.flush_guarded)

    async def stream_late(self) -> None:
        """Begin a stream for each reply that is late, until cancelled."""
        while True:
            while not self._late:  # it may have been a moment's wait
                self._some_late = trio.Event()
                await self._some_late.wait()
            await trio.sleep_until(next(iter(self._late.values())) + self.silence_seconds)
            late = trio.current_time() - self.silence_seconds
            for reply in [reply for reply, since in self._late.items() if since <= late]:
                del self._late[reply]
                self._nursery.start_soon(reply.send_heartbeats)


class Reply(StreamResponse):
    """The response to one request, which runs in the task of its HTTP request. It is also the `Peer` of its request.

    Args:
        replies: What it shares with the others.
        request: The HTTP request.
        message: The request.
        client: The client.
        caller: The engine for the caller.
        place: The session; None outside of any.
        streams: The response is a stream of events from the beginning.
    """

    __slots__ = (
        "_begun",
        "_is_over",
        "_lock",
        "_over",
        "_pending",
        "_place",
        "_replies",
        "_request",
        "_streams",
        "_writer",
        "exchange",
    )

    input_closed = NEVER

    def __init__(
        self,
        replies: Replies,
        request: Request,
        message: RpcRequest,
        client: Client,
        caller: BoundEngine,
        place: Place | None = None,
        *,
        streams: bool = False,
    ) -> None:
        super().__init__(200, (), self._run)
        self.exchange = exchange = Exchange(message, client, caller, self)
        self._replies = replies
        self._request = request
        self._place = place
        self._streams = streams
        self._begun = False
        self._is_over = False
        self._over: trio.Event | None = None
        self._lock: trio.Lock | None = None
        self._writer: BodyWriter | None = None
        self._pending: list[bytes] = []
        if place is not None:
            place.session.running[key_of(message.id)] = exchange

    async def _run(self, writer: BodyWriter) -> Response | None:
        """Handle the request, while its client is connected."""
        self._writer = writer
        self._replies.watch(self)
        try:
            if self._place is None:
                return await self._request.while_connected(self._answer)
            with self._place.used():
                return await self._request.while_connected(self._answer)
        finally:
            self._replies.unwatch(self)
            self._finish()
            if self._place is not None:
                self._place.settle(self.exchange)

    def _finish(self) -> None:
        self._is_over = True
        if self._over is not None:
            self._over.set()

    async def _answer(self) -> Response | None:
        if self._streams:
            await self._send(OPENING)
        document, status = await self._replies.answer(self.exchange)
        self._finish()
        if self._pending and not self.exchange.is_unanswered:
            await self._flush()
        if not self._begun:
            if document is None:
                return Response(200, (*EVENT_STREAM, *self.headers))
            headers = (*JSON_HEADERS, *self.headers)
            lacks, resource = self.exchange.lacks, self._replies.resource
            if lacks is not None and resource.exists:
                challenge = resource.challenge(self._request.head, "insufficient_scope", lacks)
                status, headers = 403, (*headers, (b"www-authenticate", challenge))
            return Response(status, headers, document)
        if document is not None:
            await self._send(render_event(document))
        return None

    async def _send(self, data: bytes) -> None:
        """Send a piece of the stream, which begins with the first of them."""
        if self._lock is None:
            self._lock = trio.Lock()
        if not self._begun:
            self._begun = True  # before the lock is waited for: the answer must not overtake this piece as plain JSON
            self.headers = (*EVENT_STREAM, *self.headers)
        async with self._lock:
            assert self._writer is not None
            await self._writer.send(data)

    async def send_heartbeats(self) -> None:
        """Begin a stream, and let it not be silent, until there is an answer."""
        self._over = trio.Event()
        try:
            while not self._is_over:
                await self._send(HEARTBEAT)
                with trio.move_on_after(self._replies.silence_seconds):
                    await self._over.wait()
        except BaseException as error:
            # The request's own task handles a client that has gone; here the exception would end all others.
            raise_own(error)
            log.debug("a heartbeat could not be sent", exc_info=True)

    @property
    def can_ask(self) -> bool:
        """See `Peer`."""
        return self._place is not None

    @property
    def session(self) -> SessionState | None:
        """See `Peer`."""
        return None if self._place is None else self._place.session.state

    async def notify(self, method: str, params: Any) -> None:
        """See `Peer`."""
        await self._flush()
        await self._send_message(encode_notification(method, params))

    def notify_soon(self, method: str, params: Any) -> None:
        """See `Peer`."""
        self._pending.append(render_event(encode_notification(method, params)))
        if len(self._pending) == 1:
            self._replies.start_flush(self)

    async def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            await self._send(b"".join(pending))

    async def flush_guarded(self) -> None:
        """Send what `notify_soon` has left, from another task."""
        try:
            if not self._is_over:
                await self._flush()
        except BaseException as error:
            raise_own(error)
            log.debug("a notification could not be sent", exc_info=True)

    async def _send_message(self, message: bytes) -> None:
        if not self._is_over:
            await self._send(render_event(message))

    async def ask(self, method: str, params: Any) -> msgspec.Raw:
        """See `Peer`."""
        assert self._place is not None
        return await self._place.session.questions.ask(method, params, self._send_message)

    async def wait_for_room(self) -> None:
        """See `Peer`. One request has a connection to itself."""
