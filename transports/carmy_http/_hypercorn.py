"""HTTP/1.1 on the protocol classes of hypercorn, with the guards that they lack under trio.

The only importer of hypercorn and h11. Hypercorn parses requests, speaks ASGI and frames answers; what a connection
may do to others is decided here and in `_connection`:

- An exception in one connection ends that connection, not the server.
- Every write has a time limit, and no write is shielded from cancellation.
- A head is checked by `_framing` before the parser sees it. HTTP/2 and WebSocket never get a parser at all.
- The socket is read at all times, so the client's end is noticed at once: while a tool is silent, behind a pipelined
  request, and after an answer that did not wait for the body.
- A head, a pipelined request, an unread body: each has a limit in bytes, and in time.

These classes are not part of hypercorn's documented interface: the minor version is pinned, and ``tests/http`` holds
the cases that used to end the process.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.protocol.events import Body, EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from carmy_engine.codec import invalid_request
from carmy_engine.transport import contain

from ._asgi import DIRECT, AsgiApplication, Message
from ._connection import MAX_PIPELINED_BYTES, Connection
from ._date import http_date
from ._errors import error_body
from ._framing import END_OF_HEAD, MAX_BODY_CHUNKS, FramingError, check_head, check_incomplete_head
from ._inbox import Inbox
from ._message import HeaderList
from ._message import Response as Answer
from ._render import whole

log = logging.getLogger("carmy.http")


class _Tasks:
    """Hypercorn's task group, as its streams use it: starts the application of one request."""

    def __init__(self, nursery: trio.Nursery, app: AsgiApplication) -> None:
        self._nursery = nursery
        self._app = app
        self.inbox: Inbox | None = None
        self.expects_continue = False
        self.send_continue: Callable[[], Awaitable[None]]
        self.respond: Callable[[Answer, bool], Awaitable[None]]

    async def spawn_app(
        self, _app: Any, _config: Any, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        inbox = self.inbox = Inbox(self.respond, self._nursery.cancel_scope)
        if not self.expects_continue:
            scope["extensions"][DIRECT] = inbox
        self._nursery.start_soon(self._run, scope, inbox, send, self.expects_continue)
        return inbox.put

    async def _run(
        self, scope: Any, inbox: Inbox, send: Callable[[Any], Awaitable[None]], expects_continue: bool
    ) -> None:
        receive: Callable[[], Awaitable[Message]] = inbox.receive
        if expects_continue:
            receive = self._asking(inbox)
        try:
            await self._app(scope, receive, send)
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one request: an application's failure must not end the connection's other requests,
            # let alone the server.
            contain(error, log, "the application failed")
        finally:
            inbox.abandon()
        await send(None)

    def _asking(self, inbox: Inbox) -> Callable[[], Awaitable[Message]]:
        """A ``receive`` that first tells the client to go on, which is waiting for that (RFC 9110, 10.1.1)."""

        async def receive() -> Message:
            await self.send_continue()
            return await inbox.receive()

        return receive


class Protocol(H11Protocol):
    """Hypercorn's HTTP/1.1 protocol, fed with checked heads and one request at a time."""

    connection: h11.Connection

    def __init__(self, config: Config, tasks: _Tasks, link: Connection, extra: bytes) -> None:
        super().__init__(
            app=cast("Any", None),  # only passed on to _Tasks, which has it
            config=config,
            context=cast("Any", WorkerContext(None)),
            task_group=cast("Any", tasks),
            connection_state=ConnectionState({}),
            ssl=False,
            client=link.client,
            server=link.server,
            send=self._on_event,
        )
        tasks.send_continue = self.send_continue
        tasks.respond = self.respond
        self._tasks = tasks
        self._link = link
        self._extra = extra
        self._head = bytearray()
        self._checked = 0
        self._expecting = False
        self._chunks = 0
        self._pipelined = bytearray()
        self._held = b""
        self._refused = False
        self._answered = False

    @property
    def is_idle(self) -> bool:
        """See `Speaker`."""
        return self.stream is None and self.connection.their_state is h11.IDLE and not self._head

    async def receive(self, data: bytes) -> None:
        """See `Speaker`."""
        state = self.connection.their_state
        if state is h11.IDLE:
            self._head += data
            await self.take_head()
        elif state is h11.SEND_BODY:
            self.connection.receive_data(data)
            await self._handle_events()
        else:
            self._pipelined += data
            if len(self._pipelined) > MAX_PIPELINED_BYTES:
                log.warning("closing a connection: more than %d bytes behind a request", MAX_PIPELINED_BYTES)
                self._link.abort()

    async def take_head(self) -> None:
        """See `Speaker`: go on with the request whose head is buffered, if it is complete."""
        head = self._head
        while head.startswith(b"\r\n"):
            del head[:2]  # RFC 9112, 2.2: some clients send an empty line after a body
            self._checked = 0
        if not self._expecting and head.strip(b"\r"):  # empty lines buy no time
            self._expecting = True
            self._link.expect_head()
        end = head.find(END_OF_HEAD, max(0, self._checked - len(END_OF_HEAD)))
        try:
            if end < 0:
                check_incomplete_head(head, self._checked)
                self._checked = len(head)
                return
            end += len(END_OF_HEAD)
            checked = check_head(bytes(head[:end]))
        except FramingError as error:
            await self.refuse(error.status, error.reason)
            return
        self.connection.receive_data(checked + head[end:])
        self._head = bytearray()
        self._checked = 0
        self._expecting = False
        await self._handle_events()

    async def expired(self) -> bool:
        """See `Speaker`."""
        if not self._head:
            return False
        await self.refuse(408, "the request's head did not arrive in time")
        return True

    async def end(self) -> None:
        """See `Speaker`."""
        await self.handle(Closed())

    def hang_up(self) -> None:
        """See `Speaker`."""
        if self._tasks.inbox is not None:
            self._tasks.inbox.hang_up()

    async def _handle_events(self) -> None:
        while not self._refused:
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                await self.refuse(error.error_status_hint, "the message is not valid HTTP/1.1")
                return
            if isinstance(event, h11.Request):
                self._chunks = 0
                self._link.begin_request()
                self._tasks.expects_continue = self.connection.they_are_waiting_for_100_continue
                await self._create_stream(event)
            elif self.stream is None:
                return  # answered already; the connection is about to close
            elif isinstance(event, h11.Data):
                self._chunks += event.chunk_start
                if self._chunks > MAX_BODY_CHUNKS:
                    await self.refuse(400, f"the body comes in more than {MAX_BODY_CHUNKS} chunks")
                    return
                await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self.stream.handle(EndBody(stream_id=STREAM_ID))
                return  # a pipelined request has to wait; behind the last request, h11 would take any byte for an error
            else:
                return  # needs data

    async def send_continue(self) -> None:
        """Tell a client that waits for it to send the body."""
        if self.connection.they_are_waiting_for_100_continue and not self._refused:
            await self._link.write(self.connection.send(h11.InformationalResponse(status_code=100, headers=[])))

    async def refuse(self, status: int, reason: str) -> None:
        """Answer what is no request, if no answer has begun, and close. A running application is told of the end."""
        refused, self._refused = self._refused, True
        if not refused and not self._answered and self.connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = error_body(invalid_request(reason).info)
            await self._link.write(
                b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncache-control: no-store\r\n%b"
                b"date: %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (status, self._extra, http_date(), len(body), body)
            )
        await self._close_stream()
        self._link.finish()

    async def stream_send(self, event: StreamEvent) -> None:
        """Write a part of the answer. The head waits for the first of the body, so that both are one packet (ASGI allows it)."""
        if isinstance(event, StreamClosed):
            await self._maybe_recycle()
        elif self._refused:
            return
        elif isinstance(event, Response):
            headers = [*event.headers, (b"date", http_date())]
            if self._link.is_draining() or self.connection.their_state is h11.SEND_BODY:
                # The rest of this body will not be read, or the server is going away.
                headers.append((b"connection", b"close"))
            self._held = self._encode(h11.Response(headers=headers, status_code=event.status_code))
        elif isinstance(event, Body):
            await self._flush(self._encode(h11.Data(data=event.data)))
        elif isinstance(event, EndBody):
            await self._flush(self._encode(h11.EndOfMessage()))

    async def respond(self, answer: Answer, head: bool) -> None:
        """Write a whole answer at once; see `Direct`.

        The parser does not learn of it, and makes room for another one: putting headers through its checks would cost more
        than everything else here, and ours need none.
        """
        if self._refused:
            return
        self._answered = True
        # Only a parser that has seen the whole request and may see another one is DONE.
        ends = self._link.is_draining() or self.connection.their_state is not h11.DONE
        await self._link.write(whole(answer, with_body=not head, ends=ends))
        await self._close_stream()
        if ends:
            self._link.finish()
        else:
            self._answered = False
            self._renew()

    def _encode(self, event: h11.Response | h11.Data | h11.EndOfMessage) -> bytes:
        try:
            return self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return b""

    async def _flush(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        if data:
            await self._link.write(data)

    async def _maybe_recycle(self) -> None:
        await self._close_stream()
        connection = self.connection
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            self._link.finish()
            return
        self._renew()

    def _renew(self) -> None:
        """Be ready for the next request. Its head must pass the checks, so what is here of it cannot stay in the parser."""
        self._head = bytearray(self.connection.trailing_data[0])
        self._head += self._pipelined
        self._pipelined = bytearray()
        self._expecting = bool(self._head)
        limit = self.config.h11_max_incomplete_size
        fresh = h11.Connection(h11.SERVER, max_incomplete_event_size=limit)
        self.connection = fresh  # pyright: ignore[reportIncompatibleVariableOverride] - never a WebSocket's
        self._link.end_request(more=self._expecting)

    async def _on_event(self, event: Any) -> None:
        """For what hypercorn's own methods send past `stream_send`; only the closing of a connection is left."""
        if isinstance(event, Closed):
            self._link.finish()


def connector(
    app: AsgiApplication,
    header_seconds: float,
    is_draining: Callable[[], bool] = bool,
    always: HeaderList = (),
) -> Callable[[trio.SocketStream], Connection]:
    """What makes a connection of an accepted stream.

    Args:
        app: The ASGI application that answers.
        header_seconds: For the head of a request.
        is_draining: Whether the server is going away; never, unless given.
        always: Headers of the answers that the application does not see, to what is no request.
    """
    config = _config()
    extra = b"".join(b"%b: %b\r\n" % header for header in always)

    def speak(link: Connection, nursery: trio.Nursery) -> Protocol:
        return Protocol(config, _Tasks(nursery, app), link, extra)

    def connect(stream: trio.SocketStream) -> Connection:
        return Connection(stream, speak, header_seconds, is_draining)

    return connect


def _config() -> Config:
    """What hypercorn's classes read of their configuration."""
    config = Config()
    config.accesslog = None
    config.errorlog = log
    config.include_server_header = False
    return config
