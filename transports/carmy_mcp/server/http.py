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
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import trio

from carmy_engine import AgentError, BoundEngine, Cause, Engine
from carmy_engine.codec import LONG_MESSAGE_BYTES, invalid_request
from carmy_engine.transport import contain
from carmy_http.api.content_negotiation import accepts
from carmy_http.api.protected_resource import ProtectedResource
from carmy_http.message import (
    NO_STORE,
    Answer,
    Handler,
    Request,
    RequestHead,
    Response,
)

from ..protocol.connection import KnownClients, ServerProtocol, key_of
from ..protocol.errors import HTTP_STATUS, JsonRpcError, RemoteProtocolError
from ..protocol.event_log import EventLog, parse_event_id
from ..protocol.headers import (
    LAST_EVENT_ID,
    SESSION_ID,
    VERSION,
    check_parameters,
    unsupported_version,
)
from ..protocol.messages import (
    ErrorResponse,
    Message,
    Notification,
    decode,
    encode_result,
)
from ..protocol.messages import Request as RpcRequest
from ..protocol.messages import Response as RpcResponse
from ..protocol.params import NO_CAPABILITIES, CancelledParams, client_of, meta_of, parse, parse_call
from ..protocol.versions import HANDSHAKE_VERSIONS, UNSTATED_VERSION
from .exchange import NEVER, Exchange, SessionState, owner_of
from .listening import announce
from .post_head import PostHead, header_text
from .refusals import JSON_HEADERS, copy_of, refusal_of, refuse
from .replies import OPENING, Replies, Reply
from .resumable import ResumableStreams, StreamReply
from .server import McpServer
from .sessions import FullError, Place, Session, Sessions
from .streams import EventStream

log = logging.getLogger("carmy.mcp")

IDLE_ROUNDS = 30
"""Checks for idle sessions within the limit of a session's idleness."""

FULL_RETRY_SECONDS = 5
"""The ``Retry-After`` of a server whose sessions are all in use."""

_TOKEN = b"progressToken"


class HttpApplication:
    """The application.

    Args:
        engine: An open engine.
        nursery: For executions that continue when their client has gone.
        several: Other processes serve at the same address, so that there cannot be sessions.

    Attributes:
        server: Answers the requests.
    """

    def __init__(self, engine: Engine, nursery: trio.Nursery, *, several: bool) -> None:
        settings = engine.settings
        self.server = McpServer(engine, nursery)
        self._replies = Replies(self.server, nursery, settings.http.heartbeat_secs, ProtectedResource(engine))
        self._resumable = ResumableStreams(
            self._replies, nursery, settings.mcp.max_replay_bytes, settings.mcp.resume_timeout_secs
        )
        self._engine = engine
        self._nursery = nursery
        self._limits = settings.mcp
        self._http = settings.http
        self._alone = several or not settings.mcp.sessions or settings.reuse_port
        self._known = KnownClients()
        self._sessions = Sessions(settings.mcp.max_sessions)
        # The caller is the same object for all requests without credentials.
        self._bind = functools.lru_cache(64)(_bind_transport)

    async def run(self) -> None:
        """Do what is due by time, until cancelled."""
        async with trio.open_nursery() as tasks:
            for task in (self._replies.stream_late, self._end_idle, self._end_standing):
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
            return copy_of(head.problem)
        try:
            if len(body) <= LONG_MESSAGE_BYTES:
                message = decode(body)
            else:
                message = await caller.read_message(functools.partial(decode, body))
        except RemoteProtocolError as violation:
            return refusal_of(caller, request, 400, violation.request_id, violation.error)
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
            return refusal_of(caller, request, HTTP_STATUS.get(error.code, 400), request_id, error)

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
        return Reply(self._replies, request, message, client, caller)

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
            return Reply(self._replies, request, message, self._new_protocol().initialize(message), caller)
        client = client_of(head.version or UNSTATED_VERSION, NO_CAPABILITIES)
        return Reply(self._replies, request, message, client, caller, streams=_wants_progress(message))

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
        headers = (*JSON_HEADERS, (SESSION_ID, session_id.encode()))
        return Response(200, headers, encode_result(message.id, result))

    def _new_protocol(self) -> ServerProtocol:
        return ServerProtocol(self._limits.max_calls, self._limits.max_requests, self._known)

    def _post_in_session(self, head: PostHead, message: Message, request: Request, caller: BoundEngine) -> Answer:
        if head.session_id is None:
            missing = invalid_request("the header Mcp-Session-Id is missing; begin with 'initialize'")
            return refusal_of(caller, request, 400, None, JsonRpcError.of(missing))
        session = self._sessions.find(head.session_id, owner_of(caller.context))
        if session is None:
            return refusal_of(caller, request, 404, None, JsonRpcError.of(_no_session()))
        if not isinstance(message, RpcRequest):
            with self._sessions.using(head.session_id, session):
                self._note(session, message)
            return Response(202, (NO_STORE,))
        try:
            session.protocol.accept(message)
        except RemoteProtocolError as violation:
            return refusal_of(caller, request, 400, None, violation.error)
        client = session.protocol.client_of(message)
        place = Place(self._sessions, head.session_id, session)
        if not _wants_progress(message):
            return Reply(self._replies, request, message, client, caller, place)
        return self._resumable.begin(message, request, client, caller, place)

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

    async def _get(self, request: Request, caller: BoundEngine) -> Answer:
        """The stream of messages that belong to no request, or the rest of a stream that was lost."""
        found = self._session_of(request, caller)
        if isinstance(found, Response):
            return found
        if not accepts(request.head.every(b"accept"), "text/event-stream"):
            return refusal_of(
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
            return refusal_of(caller, request, 409, None, JsonRpcError.of(problem))
        return StreamReply(self._resumable, request, stream, found, OPENING, after)

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
        version = header_text(request.head.first(VERSION))
        if self._alone or (version is not None and version not in HANDSHAKE_VERSIONS):
            error = AgentError.standard(
                "METHOD_NOT_ALLOWED", "there are no sessions here; this address answers to POST only"
            )
            caller.record_refusal(error, request.peer)
            return refuse(405, error, [(b"allow", b"POST")])
        session_id = header_text(request.head.first(SESSION_ID))
        if session_id is None:
            missing = invalid_request("the header Mcp-Session-Id is missing; begin with 'initialize'")
            return refusal_of(caller, request, 400, None, JsonRpcError.of(missing))
        session = self._sessions.find(session_id, owner_of(caller.context))
        if session is None:
            return refusal_of(caller, request, 404, None, JsonRpcError.of(_no_session()))
        return Place(self._sessions, session_id, session)

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


def _bind_transport(caller: BoundEngine) -> BoundEngine:
    return caller.bind(transport="mcp", gone=Cause.DISCONNECT)


def _wants_progress(message: RpcRequest) -> bool:
    return _TOKEN in bytes(message.params) and meta_of(message.params).wants_progress


def _no_session() -> AgentError:
    return invalid_request("there is no such session any more; begin with 'initialize'")


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
