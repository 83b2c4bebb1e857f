"""Streamable HTTP: an application for one address of `carmy_http`.

A request is answered with one JSON document. If a notification, or a question to the client, comes before the answer, or if the
answer is long in coming, the response is a stream of events. A stream in a session that reports progress can be resumed: its
execution continues for a while when its connection is lost.

`carmy_http` has checked ``Host`` and ``Origin`` and authenticated the caller, and limits the body in bytes and in time.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import trio

from carmy_engine import AgentError, BoundEngine, Cause, Engine
from carmy_engine.codec import invalid_request
from carmy_engine.transport import contain, raise_own
from carmy_http.api.content_negotiation import accepts, content_type_problem
from carmy_http.api.event_response import EVENT_STREAM, HEARTBEAT
from carmy_http.message import (
    JSON_TYPE,
    NO_STORE,
    Answer,
    BodyWriter,
    Handler,
    Request,
    RequestHead,
    Response,
    StreamResponse,
)

from ..protocol.connection import KnownClients, ServerProtocol, key_of
from ..protocol.errors import HTTP_STATUS, JsonRpcError, RemoteProtocolError
from ..protocol.event_log import EventLog, parse_event_id, render_event
from ..protocol.headers import (
    LAST_EVENT_ID,
    SESSION_ID,
    VERSION,
    RoutingHeaders,
    check_parameters,
    unsupported_version,
)
from ..protocol.messages import (
    ErrorResponse,
    Message,
    Notification,
    decode,
    encode_error,
    encode_notification,
    encode_result,
)
from ..protocol.messages import Request as RpcRequest
from ..protocol.messages import Response as RpcResponse
from ..protocol.params import NO_CAPABILITIES, CancelledParams, Client, client_of, meta_of, parse, parse_call
from ..protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS, UNSTATED_VERSION
from .exchange import NEVER, Exchange, SessionState, owner_of
from .listening import announce
from .server import McpServer
from .sessions import FullError, Session, Sessions
from .streams import EventStream

log = logging.getLogger("carmy.mcp")

IDLE_ROUNDS = 30
"""Checks for idle sessions within the limit of a session's idleness."""

FULL_RETRY_SECONDS = 5
"""The ``Retry-After`` of a server whose sessions are all in use."""

RETRY_MS = 1000
"""The time after which a client connects again to a stream that it has lost."""

PRIMING_VERSION = "2025-11-25"
"""The first version in which a stream begins with an event without a message. Older clients take it for a broken one."""

OPENING = b": open\n\n"
"""A comment, sent with the head of a stream of events: it must not wait for the first of them."""

_JSON = (JSON_TYPE, NO_STORE)
_TOKEN = b"progressToken"


class PostHead(NamedTuple):
    """What the head of a POST states about its message.

    Attributes:
        problem: The refusal, whatever the message is; None if there is none.
        version: The version of the protocol; None if it is not stated.
        is_modern: The version has no ``initialize``.
        is_unknown: The version is not supported.
        session_id: The session; None if there is none.
        routing: The headers that repeat parts of the message.
    """

    problem: Response | None
    version: str | None
    is_modern: bool
    is_unknown: bool
    session_id: str | None
    routing: RoutingHeaders

    @classmethod
    def of(cls, head: RequestHead) -> PostHead:
        """Read a head."""
        problem: Response | None = None
        content_type = content_type_problem(head.first(b"content-type"))
        accept = head.every(b"accept")
        if content_type is not None:
            problem = refuse(400, invalid_request(content_type))
        elif not (accepts(accept, "application/json") and accepts(accept, "text/event-stream")):
            wanted = "the header Accept must name application/json and text/event-stream"
            problem = refuse(406, invalid_request(wanted))
        version = _text(head.first(VERSION))
        return cls(
            problem=problem,
            version=version,
            is_modern=version in MODERN_VERSIONS,
            is_unknown=version is not None and version not in (*HANDSHAKE_VERSIONS, *MODERN_VERSIONS),
            session_id=_text(head.first(SESSION_ID)),
            routing=RoutingHeaders.of(head.headers),
        )


class HttpApplication:
    """The application.

    Args:
        engine: An open engine.
        nursery: For executions that continue when their client has gone.
        several: Other processes serve at the same address, so that there cannot be sessions.

    Attributes:
        server: Answers the requests.
        silence_seconds: Silence before a late answer becomes a stream, and between heartbeats.
    """

    def __init__(self, engine: Engine, nursery: trio.Nursery, *, several: bool) -> None:
        settings = engine.settings
        self.server = McpServer(engine, nursery)
        self.silence_seconds = settings.http.heartbeat_secs
        self._engine = engine
        self._nursery = nursery
        self._limits = settings.mcp
        self._http = settings.http
        self._alone = several or not settings.mcp.sessions or settings.reuse_port
        self._known = KnownClients()
        self._sessions = Sessions(settings.mcp.max_sessions)
        self._late: dict[Reply, float] = {}
        """Since when replies wait, on trio's clock; the one that has waited for longest first."""
        self._some_late = trio.Event()
        # The caller is the same object for all requests without credentials.
        self._bind = functools.lru_cache(64)(_bind_transport)

    async def run(self) -> None:
        """Do what is due by time, until cancelled."""
        async with trio.open_nursery() as tasks:
            for task in (self._stream_late, self._end_idle, self._end_standing):
                tasks.start_soon(_guarded, task)

    def handler(self, head: RequestHead) -> Handler:
        """The handler for all requests with equal heads."""
        if head.method == "POST":
            return functools.partial(self._post, PostHead.of(head))
        return self._delete if head.method == "DELETE" else self._get

    # Messages

    async def _post(self, head: PostHead, request: Request, caller: BoundEngine) -> Answer:
        body = await request.read_body(self._http)
        if head.problem is not None:
            return _copy(head.problem)
        try:
            message = decode(body)
        except RemoteProtocolError as violation:
            return _refusal(caller, request, 400, violation.request_id, violation.error)
        request_id = message.id if isinstance(message, RpcRequest) else None
        try:
            if head.is_unknown:
                raise unsupported_version(head.version or "")
            bound = self._bind(caller)
            if head.is_modern:
                return self._post_modern(head, message, request, bound)
            if self._alone:
                return self._post_alone(head, message, request, bound)
            if isinstance(message, RpcRequest) and message.method == "initialize":
                return await self._open(message, request, bound)
            return self._post_in_session(head, message, request, bound)
        except JsonRpcError as error:
            return _refusal(caller, request, HTTP_STATUS.get(error.code, 400), request_id, error)

    def _post_modern(self, head: PostHead, message: Message, request: Request, caller: BoundEngine) -> Answer:
        """Answer a request of a version in which it stands alone. Notifications mean nothing there."""
        if isinstance(message, Notification):
            return Response(202, (NO_STORE,))
        if not isinstance(message, RpcRequest):
            raise JsonRpcError.of(invalid_request("this version has no requests of a server, and so no responses"))
        meta = meta_of(message.params)
        if meta.version is not msgspec.UNSET and meta.capabilities is not msgspec.UNSET:
            head.routing.check(meta.version, message.method, message.params)
        client = self._known.client_in(meta)
        if message.method == "tools/call":
            self._check_parameters(message, request)
        return Reply(self, request, message, client, caller)

    def _check_parameters(self, message: RpcRequest, request: Request) -> None:
        call = parse_call(message.params)
        tool = self.server.tools.find(call.name)
        if tool is not None and tool.headers:
            arguments: Any = None if call.arguments is msgspec.UNSET else msgspec.json.decode(call.arguments)
            check_parameters(tool.headers, arguments, request.head.headers)

    def _post_alone(self, head: PostHead, message: Message, request: Request, caller: BoundEngine) -> Answer:
        """Answer a request outside of any session, in a version that could have them."""
        if not isinstance(message, RpcRequest):
            return Response(202, (NO_STORE,))
        if message.method == "initialize":
            return Reply(self, request, message, self._new_protocol().initialize(message), caller)
        client = client_of(head.version or UNSTATED_VERSION, NO_CAPABILITIES)
        return Reply(self, request, message, client, caller, streams=_wants_progress(message))

    async def _open(self, message: RpcRequest, request: Request, caller: BoundEngine) -> Answer:
        """Open a session, whatever has become of the one that the client had before."""
        owner = owner_of(caller.context)
        protocol = self._new_protocol()
        client = protocol.initialize(message)
        try:
            evicted = self._sessions.make_room(owner)
        except FullError:
            error = AgentError.standard(
                "OVERLOADED", "every session of this server is in use", retry_after=FULL_RETRY_SECONDS
            )
            caller.record_refusal(error, request.peer)
            return refuse(503, error, [(b"retry-after", b"%d" % FULL_RETRY_SECONDS)])
        if evicted is not None:
            evicted.stop()
        session_id = secrets.token_hex(16)
        result = await self.server.answer(Exchange(message, client, caller, _Nobody()))
        standing = EventStream(EventLog("0", self._limits.max_replay_bytes))
        session = self._sessions.add(session_id, owner, protocol, standing)
        with self._sessions.using(session_id, session):
            session.state = SessionState(await self._nursery.start(_announce, session, caller))
        headers = (*_JSON, (SESSION_ID, session_id.encode()))
        return Response(200, headers, encode_result(message.id, result))

    def _new_protocol(self) -> ServerProtocol:
        return ServerProtocol(self._limits.max_calls, self._limits.max_requests, self._known)

    def _post_in_session(self, head: PostHead, message: Message, request: Request, caller: BoundEngine) -> Answer:
        if head.session_id is None:
            missing = invalid_request("the header Mcp-Session-Id is missing; begin with 'initialize'")
            return _refusal(caller, request, 400, None, JsonRpcError.of(missing))
        session = self._sessions.find(head.session_id, owner_of(caller.context))
        if session is None:
            return _refusal(caller, request, 404, None, JsonRpcError.of(_no_session()))
        if not isinstance(message, RpcRequest):
            with self._sessions.using(head.session_id, session):
                self._note(session, message)
            return Response(202, (NO_STORE,))
        try:
            session.protocol.accept(message)
        except RemoteProtocolError as violation:
            return _refusal(caller, request, 400, None, violation.error)
        client = session.protocol.client_of(message)
        place = Place(self._sessions, head.session_id, session)
        if not _wants_progress(message):
            return Reply(self, request, message, client, caller, place)
        return self._begin_stream(message, request, client, caller, place)

    def _note(self, session: Session, message: Message) -> None:
        """Take a notification or a response in a session."""
        if isinstance(message, RpcResponse | ErrorResponse):
            if session.protocol.receive(message) is not None:
                session.questions.receive(message)
        elif isinstance(message, Notification) and message.method == "notifications/cancelled":
            try:
                cancelled = parse(message.params, CancelledParams, message.method).request_id
            except JsonRpcError:
                return  # a notification has no answer
            exchange = None if cancelled is None else session.running.get(key_of(cancelled))
            if exchange is not None:
                exchange.take_back()

    # Streams that can be resumed

    def _begin_stream(
        self, message: RpcRequest, request: Request, client: Client, caller: BoundEngine, place: Place
    ) -> Answer:
        """Run a request beside its response, which the client can resume."""
        session = place.session
        stream = EventStream(
            EventLog(secrets.token_hex(8), self._limits.max_replay_bytes),
            session.questions,
        )
        stream.session = session.state
        exchange = Exchange(message, client, caller, stream)
        stream.exchange = session.running[key_of(message.id)] = exchange
        session.streams[stream.log.stream] = stream
        self._nursery.start_soon(self._run_beside, exchange, stream, place)
        opening = stream.log.opening(RETRY_MS) if client.version >= PRIMING_VERSION else OPENING
        return StreamReply(self, request, stream, place, opening, 0)

    async def _run_beside(self, exchange: Exchange, stream: EventStream, place: Place) -> None:
        session = place.session
        try:
            with place.used():
                message, _ = await self.answer(exchange)
                place.settle(exchange)
                if message is not None:
                    stream.put(message)
                stream.end()
                if message is not None:
                    with trio.move_on_after(self._limits.resume_timeout_secs):  # the answer waits for its client
                        await stream.wait_read()
        except BaseException as error:  # noqa: BLE001 - the boundary of one request: others have the same nursery
            contain(error, log, "a request failed")
        finally:
            place.settle(exchange)
            stream.end()
            session.streams.pop(stream.log.stream, None)

    async def expire(self, exchange: Exchange, stream: EventStream) -> None:
        """Cancel an execution whose client does not come back."""
        with trio.move_on_after(self._limits.resume_timeout_secs):
            await stream.wait_reader()
            return
        exchange.leave()

    def start_expiry(self, exchange: Exchange, stream: EventStream) -> None:
        """Begin `expire`."""
        self._nursery.start_soon(self.expire, exchange, stream)

    async def _get(self, request: Request, caller: BoundEngine) -> Answer:
        """The stream of messages that belong to no request, or the rest of a stream that was lost."""
        found = self._session_of(request, caller)
        if isinstance(found, Response):
            return found
        if not accepts(request.head.every(b"accept"), "text/event-stream"):
            return _refusal(
                caller,
                request,
                406,
                None,
                JsonRpcError.of(invalid_request("the header Accept must name text/event-stream")),
            )
        session = found.session
        position = parse_event_id(request.head.first(LAST_EVENT_ID) or b"")
        stream, after = session.standing, session.standing.log.newest
        if position is not None:
            resumed = session.standing if position[0] == "0" else session.streams.get(position[0])
            if resumed is not None:
                stream, after = resumed, position[1]
        if stream is session.standing and stream.has_reader:
            problem = invalid_request("the session has such a stream already")
            return _refusal(caller, request, 409, None, JsonRpcError.of(problem))
        return StreamReply(self, request, stream, found, OPENING, after)

    async def _delete(self, request: Request, caller: BoundEngine) -> Answer:
        """End a session."""
        found = self._session_of(request, caller)
        if isinstance(found, Response):
            return found
        self._sessions.remove(found.session_id)
        found.session.stop()
        return Response(200, (NO_STORE,))

    def _session_of(self, request: Request, caller: BoundEngine) -> Place | Response:
        """The session of a request that has no message, or its refusal."""
        version = _text(request.head.first(VERSION))
        if self._alone or (version is not None and version not in HANDSHAKE_VERSIONS):
            error = AgentError.standard(
                "METHOD_NOT_ALLOWED", "there are no sessions here; this address answers to POST only"
            )
            caller.record_refusal(error, request.peer)
            return refuse(405, error, [(b"allow", b"POST")])
        session_id = _text(request.head.first(SESSION_ID))
        if session_id is None:
            missing = invalid_request("the header Mcp-Session-Id is missing; begin with 'initialize'")
            return _refusal(caller, request, 400, None, JsonRpcError.of(missing))
        session = self._sessions.find(session_id, owner_of(caller.context))
        if session is None:
            return _refusal(caller, request, 404, None, JsonRpcError.of(_no_session()))
        return Place(self._sessions, session_id, session)

    # Answers

    async def answer(self, exchange: Exchange) -> tuple[bytes | None, int]:
        """The bytes of the answer to a request, None if it gets none, and its status."""
        status = 200
        try:
            document = encode_result(exchange.id, await self.server.answer(exchange))
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

    async def _stream_late(self) -> None:
        while True:
            while not self._late:  # it may have been a moment's wait
                self._some_late = trio.Event()
                await self._some_late.wait()
            await trio.sleep_until(next(iter(self._late.values())) + self.silence_seconds)
            late = trio.current_time() - self.silence_seconds
            for reply in [reply for reply, since in self._late.items() if since <= late]:
                del self._late[reply]
                self._nursery.start_soon(reply.send_heartbeats)

    async def _end_idle(self) -> None:
        seconds = self._limits.session_idle_secs
        while True:
            await trio.sleep(seconds / IDLE_ROUNDS)
            for session in self._sessions.take_idle(seconds):
                session.stop()

    async def _end_standing(self) -> None:
        await self._engine.stopping.wait()
        for session in self._sessions:
            session.standing.end()


class Place(NamedTuple):
    """A session, and the way to find it again.

    Attributes:
        sessions: All sessions.
        session_id: The id of this one.
        session: The session.
    """

    sessions: Sessions
    session_id: str
    session: Session

    def used(self) -> Any:
        """A block in which the session is in use."""
        return self.sessions.using(self.session_id, self.session)

    def settle(self, exchange: Exchange) -> None:
        """Record the end of a request."""
        key = key_of(exchange.id)
        if self.session.running.get(key) is exchange:
            del self.session.running[key]
        if key in self.session.protocol.accepted:
            self.session.protocol.forget(exchange.id)


class _Nobody:
    """The `Peer` of a request whose answer is all that its client gets."""

    can_ask = False
    input_closed = NEVER
    session: SessionState | None = None

    def notify_soon(self, method: str, params: Any) -> None:
        """See `Peer`."""

    async def notify(self, method: str, params: Any) -> None:
        """See `Peer`."""

    async def ask(self, method: str, params: Any) -> msgspec.Raw:
        """See `Peer`."""
        raise NotImplementedError

    async def wait_for_room(self) -> None:
        """See `Peer`."""


class Reply(StreamResponse):
    """The response to one request, which runs in the task of its HTTP request. It is also the `Peer` of its request.

    Args:
        app: The application.
        request: The HTTP request.
        message: The request.
        client: The client.
        caller: The engine for the caller.
        place: The session; None outside of any.
        streams: The response is a stream of events from the beginning.
    """

    __slots__ = (
        "_app",
        "_begun",
        "_is_over",
        "_lock",
        "_over",
        "_pending",
        "_place",
        "_request",
        "_streams",
        "_writer",
        "exchange",
    )

    input_closed = NEVER

    def __init__(
        self,
        app: HttpApplication,
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
        self._app = app
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
        self._app.watch(self)
        try:
            if self._place is None:
                return await self._request.while_connected(self._answer)
            with self._place.used():
                return await self._request.while_connected(self._answer)
        finally:
            self._app.unwatch(self)
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
        document, status = await self._app.answer(self.exchange)
        self._finish()
        if self._pending and not self.exchange.is_unanswered:
            await self._flush()
        if not self._begun:
            if document is None:
                return Response(200, (*EVENT_STREAM, *self.headers))
            return Response(status, (*_JSON, *self.headers), document)
        if document is not None:
            await self._send(render_event(document))
        return None

    async def _send(self, data: bytes) -> None:
        """Send a piece of the stream, which begins with the first of them."""
        if self._lock is None:
            self._lock = trio.Lock()
        async with self._lock:
            if not self._begun:
                self._begun = True
                self.headers = (*EVENT_STREAM, *self.headers)
            assert self._writer is not None
            await self._writer.send(data)

    async def send_heartbeats(self) -> None:
        """Begin a stream, and let it not be silent, until there is an answer."""
        self._over = trio.Event()
        try:
            while not self._is_over:
                await self._send(HEARTBEAT)
                with trio.move_on_after(self._app.silence_seconds):
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
            self._app.start_flush(self)

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


class StreamReply(StreamResponse):
    """The response that reads an `EventStream`.

    Args:
        app: The application.
        request: The HTTP request.
        stream: The stream.
        place: The session.
        opening: The first bytes.
        after: The number of the last event that the client has.
    """

    __slots__ = ("_after", "_app", "_opening", "_place", "_request", "_stream")

    def __init__(
        self,
        app: HttpApplication,
        request: Request,
        stream: EventStream,
        place: Place,
        opening: bytes,
        after: int,
    ) -> None:
        super().__init__(200, EVENT_STREAM, self._run)
        self._app = app
        self._request = request
        self._stream = stream
        self._place = place
        self._opening = opening
        self._after = after

    async def _run(self, writer: BodyWriter) -> None:
        stream, silence = self._stream, self._app.silence_seconds
        try:
            with self._place.used():
                await self._request.while_connected(stream.read, writer, self._opening, self._after, silence)
        finally:
            if stream.exchange is not None and not stream.has_ended and not stream.has_reader:
                self._app.start_expiry(stream.exchange, stream)


async def _announce(session: Session, caller: BoundEngine, *, task_status: trio.TaskStatus[Any]) -> None:
    """Send all changes to the standing stream of a session, until it ends."""
    try:
        with session.announcing:
            await announce(caller, session.standing, task_status=task_status)
    except BaseException as error:  # noqa: BLE001 - others have the same nursery
        contain(error, log, "a background task of MCP failed")


async def _guarded(task: Callable[[], Awaitable[None]]) -> None:
    """Run a task of the application. Its failure costs no session."""
    try:
        await task()
    except BaseException as error:  # noqa: BLE001 - see above
        contain(error, log, "a background task of MCP failed")


def refuse(status: int, error: AgentError, headers: Iterable[tuple[bytes, bytes]] = ()) -> Response:
    """Answer with one error, to no request in particular."""
    return Response(status, (*_JSON, *headers), encode_error(None, JsonRpcError.of(error)))


def _refusal(caller: BoundEngine, request: Request, status: int, request_id: Any, error: JsonRpcError) -> Response:
    if error.refusal is not None:
        caller.record_refusal(error.refusal, request.peer)
    return Response(status, _JSON, encode_error(request_id, error))


def _copy(response: Response) -> Response:
    """A response of its own: the front end adds headers to it."""
    return Response(response.status, response.headers, response.body)


def _bind_transport(caller: BoundEngine) -> BoundEngine:
    return caller.bind(transport="mcp", gone=Cause.DISCONNECT)


def _wants_progress(message: RpcRequest) -> bool:
    return _TOKEN in bytes(message.params) and meta_of(message.params).wants_progress


def _no_session() -> AgentError:
    return invalid_request("there is no such session any more; begin with 'initialize'")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
