"""Streamable HTTP: an ASGI application before the SDK's sessions.

The SDK opens sessions, routes messages and speaks every version of the protocol. What it is spared is everything that
is not well-formed or not allowed, and what it does not do is done here: sessions are bounded and belong to whom opened
them, arguments reach the engine as they were sent, and an execution for whose answer nobody waits any more is cancelled.

Who the caller is has been found out before (`carmy_http`), as have limits of bodies, in bytes and in time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeAlias

import mcp_types as types
import trio
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.jsonrpc import JSONRPCMessage, JSONRPCRequest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from carmy_engine import AgentError, BoundEngine, Cause, Engine
from carmy_engine.codec import invalid_request
from carmy_http._accept import content_type_problem
from carmy_http._mounted import CALLER

from ._confirm import Questions
from ._exchange import Exchange, Owner, owner_of
from ._messages import MessageError, error_reply, read, write
from ._server import Context, make_server
from ._sessions import FullError, Sessions
from ._tasks import Tasks

log = logging.getLogger("carmy_mcp")

Headers: TypeAlias = list[tuple[bytes, bytes]]
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

IDLE_SECONDS = 1800.0
"""Without any request in a session, streams included, after which it ends."""

FULL_RETRY_SECONDS = 5
"""What a client is told to wait when every session is in use."""

_SESSION_ID = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_LAST_EVENT_ID = b"last-event-id"
_CONTENT_TYPE = b"content-type"
_JSON = (_CONTENT_TYPE, b"application/json")
_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)

_EXCHANGE = "carmy_mcp.exchange"
"""The name in a scope's ``extensions`` of what is known of the request."""


async def run_application(engine: Engine, several: bool, *, task_status: trio.TaskStatus[HttpApplication]) -> None:
    """Keep the application's sessions until cancelled.

    Args:
        engine: An open engine.
        several: Other processes serve at the same address, so that there cannot be sessions.
        task_status: Started with the application.
    """
    async with trio.open_nursery() as nursery:
        application = HttpApplication(engine, nursery, several)
        async with application.manager.run():
            task_status.started(application)
            await trio.sleep_forever()


class HttpApplication:
    """The application.

    Args:
        engine: An open engine.
        nursery: For what has to go on when its client has gone.
        several: See `run_application`.

    Attributes:
        manager: The SDK's part of it.
    """

    def __init__(self, engine: Engine, nursery: trio.Nursery, several: bool) -> None:
        self._stopping = engine.stopping
        self._nursery = nursery
        self._sessions = Sessions()
        settings = engine.settings
        self._alone = several or not settings.mcp.sessions or settings.reuse_port
        questions = Questions(engine.stopping) if engine.settings.mcp.confirm == "ask" else None
        after = engine.settings.mcp.promote_after_secs
        tasks = Tasks(nursery, after) if after else None
        server = make_server(engine.name, _executor_of, _exchange_of, questions, tasks)

        def input_schema_of(name: str) -> Mapping[str, Any] | None:
            # It asks without waiting, and engines do not change their tools. Without this the SDK lists all tools on every
            # call since 2026-07-28, to see which headers there could be.
            found = engine._open_pipeline().registry.get(name)  # noqa: SLF001 - as above
            return None if found is None else found.spec.input_schema

        server.get_tool_input_schema = input_schema_of
        self.manager = StreamableHTTPSessionManager(
            server,
            stateless=self._alone,
            session_idle_timeout=IDLE_SECONDS,
            max_sessions=None,  # `Sessions` bounds them
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. When it breaks off, so does the execution that it has begun."""
        caller: BoundEngine = scope["extensions"][CALLER]
        message: JSONRPCMessage | None = None
        exchange = Exchange()
        request = await receive()
        if scope["method"] == "POST":
            # Before the SDK does it: it would answer without a body, or without saying what that is.
            problem = content_type_problem(_first(scope["headers"], _CONTENT_TYPE))
            if problem is not None:
                await _refuse(send, 400, invalid_request(problem))
                return
            if not all(check_accept_headers(Request(scope))):
                problem = "the header Accept must name application/json and text/event-stream"
                await _refuse(send, 406, invalid_request(problem))
                return
            scope["headers"] = [*_without(scope["headers"], _CONTENT_TYPE), _JSON]  # it knows one way of writing it
            try:
                message, exchange = read(request["body"])
            except MessageError as error:
                await _send(send, 400, error.reply)
                return
            if exchange.arguments is not None and bytes(memoryview(exchange.arguments)[:1]) != b"{":
                # Without them: the SDK would refuse what is no object in words of its own.
                request = {**request, "body": write(message)}
        elif scope["method"] == "GET":
            receive = _until(self._stopping)  # a stream of what the server has to say: nothing any more
            scope["headers"] = _without(scope["headers"], _LAST_EVENT_ID)  # nothing is kept that it could go on with
        receive = _again(request, receive)
        version = _first(scope["headers"], _VERSION)
        modern = version is not None and version not in _HANDSHAKE_VERSIONS
        # Where there are no sessions, a request is given up by closing it; else there is a message for that.
        alone = modern or self._alone
        executor = caller.bind(transport="mcp", gone=Cause.DISCONNECT if alone else Cause.CALLER)
        scope["extensions"] |= {CALLER: executor, _EXCHANGE: exchange}
        try:
            if alone and scope["method"] != "POST":
                await _refuse(send, 405, _no_sessions(), [(b"allow", b"POST")])
            elif alone:
                await self.manager.handle_request(scope, receive, send if modern else _escaping(send))
            elif isinstance(message, JSONRPCRequest) and message.method == "initialize":
                await self._open(scope, receive, send, owner_of(caller.context))
            else:
                await self._in_session(message, exchange, scope, receive, _escaping(send), owner_of(caller.context))
        except BaseException:
            exchange.stop(Cause.DISCONNECT)
            raise

    async def _open(self, scope: Scope, receive: Receive, send: Send, owner: Owner) -> None:
        """Let a session be opened, whatever has become of the one that the client has had before."""
        scope["headers"] = _without(scope["headers"], _SESSION_ID)
        try:
            oldest = self._sessions.reserve(owner)
        except FullError:
            error = AgentError.standard(
                "OVERLOADED", "every session of this server is in use", retry_after=FULL_RETRY_SECONDS
            )
            await _refuse(send, 503, error, [(b"retry-after", b"%d" % FULL_RETRY_SECONDS)])
            return
        gone, done = trio.Event(), trio.Event()

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session_id = _first(message["headers"], _SESSION_ID)
                if session_id is not None:
                    self._sessions.add(session_id.decode("latin-1"), owner)
            if not gone.is_set():
                await send(message)

        async def run() -> None:
            try:
                if oldest is not None:
                    await self._end(oldest, scope)
                await self.manager.handle_request(scope, _again(await receive(), _until(gone)), watch)
            except Exception:
                log.exception("a session could not be opened")  # the boundary of one request
            finally:
                self._sessions.release()
                done.set()

        # In a task of its own: clients leave as soon as they have read the answer, and if that cancelled this request, the
        # SDK would discard the session that they have just been given.
        self._nursery.start_soon(run)
        try:
            await done.wait()
        finally:
            gone.set()

    async def _in_session(
        self,
        message: JSONRPCMessage | None,
        exchange: Exchange,
        scope: Scope,
        receive: Receive,
        send: Send,
        owner: Owner,
    ) -> None:
        given = _first(scope["headers"], _SESSION_ID)
        if given is None:
            await _refuse(send, 400, invalid_request("the header Mcp-Session-Id is missing; begin with 'initialize'"))
            return
        session_id = given.decode("latin-1")
        session = self._sessions.find(session_id, owner)
        if session is None:
            await _refuse(send, 404, invalid_request("there is no such session any more; begin with 'initialize'"))
            return

        paced = _Paced(send)
        exchange.wait_report = paced.wait_report

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 404:
                self._sessions.remove(session_id)  # it has been idle for too long
            await paced.send(message)

        with self._sessions.using(session_id, session):
            if not isinstance(message, JSONRPCRequest):
                if scope["method"] == "DELETE":
                    session.stop()
                    self._sessions.remove(session_id)
                await self.manager.handle_request(scope, receive, watch)
                return
            key = str(message.id)  # the SDK tells streams apart by this
            if key in session.running:
                await _refuse(send, 400, invalid_request(f"a request with the id {key!r} is still being handled"))
                return
            session.running[key] = exchange
            try:
                await self.manager.handle_request(scope, receive, watch)
            finally:
                paced.close()
                del session.running[key]

    async def _end(self, session_id: str, scope: Scope) -> None:
        """End an idle session, in the way in which its client would."""

        async def discard(_: Message) -> None:
            await trio.lowlevel.checkpoint()

        headers = [(_SESSION_ID, session_id.encode("latin-1"))]
        nothing = _again({"type": "http.request", "body": b""}, trio.sleep_forever)
        await self.manager.handle_request({**scope, "method": "DELETE", "headers": headers}, nothing, discard)


def _no_sessions() -> AgentError:
    return AgentError.standard("METHOD_NOT_ALLOWED", "there are no sessions here; this address answers to POST only")


class _Paced:
    """Sends what the SDK writes on one stream, and lets one report after the other onto it.

    The SDK hands on the messages of a session one after the other, each stream with a few in its queue: more reports than a
    slow reader takes would hold up all other streams. And its comments in silent streams do not wait for an event that
    is on its way.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = trio.Lock()
        self._out = trio.Event()
        self._out.set()
        self._closed = False

    async def send(self, message: Message) -> None:
        async with self._lock:
            await self._send(message)
        if not message.get("body", b":").startswith(b":"):
            self._out.set()

    async def wait_report(self) -> None:
        await self._out.wait()
        if not self._closed:
            self._out = trio.Event()

    def close(self) -> None:
        """Nothing more will be sent, and nobody has to wait for it."""
        self._closed = True
        self._out.set()


def _executor_of(context: Context) -> BoundEngine:
    executor: BoundEngine = _extensions(context)[CALLER]
    return executor


def _exchange_of(context: Context) -> Exchange:
    exchange: Exchange = _extensions(context)[_EXCHANGE]
    return exchange


def _extensions(context: Context) -> dict[str, Any]:
    assert context.request is not None  # what `__call__` has passed on, as the SDK wraps it
    extensions: dict[str, Any] = context.request.scope["extensions"]
    return extensions


def _first(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _without(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> Headers:
    return [(key, value) for key, value in headers if key != name]


def _again(message: Message, receive: Receive) -> Receive:
    """Gives a message that has been taken, and then what follows."""
    left = [message]

    async def again() -> Message:
        return left.pop() if left else await receive()

    return again


def _until(end: trio.Event) -> Receive:
    """Gives no message until the end, and then that of a client that has gone."""

    async def receive() -> Message:
        await end.wait()
        return {"type": "http.disconnect"}

    return receive


def _escaping(send: Send) -> Send:
    """Widely used readers of events split lines where Unicode, but not the standard of events, has their ends."""

    async def escaping(message: Message) -> None:
        body = message.get("body", b"")
        if not body.isascii():
            for end in "\u2028\u2029\u0085":
                body = body.replace(end.encode(), b"\\u%04x" % ord(end))  # only strings can have them
            message = {**message, "body": body}
        await send(message)

    return escaping


async def _refuse(send: Send, status: int, error: AgentError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await _send(send, status, error_reply(None, types.INVALID_REQUEST, error), headers)


async def _send(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, *headers]})
    await send({"type": "http.response.body", "body": body})
