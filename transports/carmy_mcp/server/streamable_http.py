"""Streamable HTTP: an ASGI application before the SDK's sessions.

The SDK opens sessions, routes messages and implements every version of the protocol. This module refuses malformed and
forbidden requests before it, bounds sessions and ties them to their owners, passes arguments on as they were sent, and cancels
executions whose client has gone.

`carmy_http` has authenticated the caller and limited the body, in bytes and in time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import trio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from mcp_types.jsonrpc import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from carmy_engine import AgentError, BoundEngine, Cause, Engine, ToolSpec
from carmy_engine.codec import invalid_request
from carmy_engine.transport import contain
from carmy_http.api.content_negotiation import content_type_problem
from carmy_http.api.mounts import CALLER, Message, Receive, Scope, Send

from ..protocol.messages import MessageError, misnamed_task, read, unsupported_version, write
from ..protocol.request_state import Exchange, Owner, owner_of
from .asgi import (
    JSON,
    Paced,
    accepts_both,
    again,
    escaping,
    first,
    names_task,
    no_session,
    no_sessions,
    refuse,
    send_document,
    unless,
    until,
    without,
)
from .confirmations import Questions
from .fast_path import FastPath
from .sdk_server import Context, make_server
from .sessions import FullError, Session, Sessions
from .tasks import Tasks

log = logging.getLogger("carmy.mcp")

IDLE_ROUNDS = 30
"""So many times in ``mcp.session_idle_secs`` it is looked which sessions have been idle for that long."""

ARRIVAL_SECONDS = 1.0
"""For the SDK's loop to take the messages that arrive while their session is ended. It takes them at once, unless it is stuck."""

FULL_RETRY_SECONDS = 5
"""The ``Retry-After`` of a server whose sessions are all in use."""

_SESSION_ID = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_LAST_EVENT_ID = b"last-event-id"
_CONTENT_TYPE = b"content-type"
_NOT_SAID = DEFAULT_NEGOTIATED_VERSION.encode()
_HANDSHAKE_VERSIONS = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)
_MODERN_VERSIONS = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)

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
            nursery.start_soon(application.fast_path.run)
            task_status.started(application)
            await application.end_idle()


class HttpApplication:
    """The application.

    Args:
        engine: An open engine.
        nursery: For what has to go on when its client has gone.
        several: See `run_application`.

    Attributes:
        manager: The SDK's part of it.
        fast_path: Handles most requests without it.
    """

    def __init__(self, engine: Engine, nursery: trio.Nursery, several: bool) -> None:
        self._engine = engine
        self._stopping = engine.stopping
        self._nursery = nursery
        settings = engine.settings
        self._sessions = Sessions(settings.mcp.max_sessions)
        self._idle_seconds = settings.mcp.session_idle_secs
        self._alone = several or not settings.mcp.sessions or settings.reuse_port
        questions = Questions(engine.stopping, settings.mcp) if settings.mcp.confirm == "ask" else None
        tasks = Tasks(nursery, settings.mcp) if settings.mcp.promote_after_secs else None
        server = make_server(engine.name, _executor_of, _exchange_of, questions, tasks, version=engine.settings.version)

        def input_schema_of(name: str) -> Mapping[str, Any] | None:
            spec = self._spec_of(name)
            return None if spec is None else spec.input_schema

        # Without this the SDK lists all tools on every call since 2026-07-28, to see which headers there could be.
        server.get_tool_input_schema = input_schema_of
        server.middleware.append(_note)
        self.fast_path = FastPath(server, self._spec_of, nursery, settings.http.heartbeat_secs)
        self.manager = StreamableHTTPSessionManager(
            server,
            stateless=self._alone,
            session_idle_timeout=None,  # of most requests it does not know, see `end_idle`
            max_sessions=None,  # `Sessions` bounds them
        )

    def _spec_of(self, name: str) -> ToolSpec | None:
        # The callers are synchronous, and an engine's tools do not change.
        found = self._engine._open_pipeline().registry.get(name)  # noqa: SLF001 - as above
        return None if found is None else found.spec

    async def end_idle(self) -> None:
        """End the sessions that have been idle for too long, until cancelled."""
        while True:
            await trio.sleep(self._idle_seconds / IDLE_ROUNDS)
            for session_id in self._sessions.take_idle(self._idle_seconds):
                try:
                    await self._end(session_id)
                except BaseException as error:  # noqa: BLE001 - the SDK's business, and not that of the other sessions
                    contain(error, log, "a session could not be ended")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request. When it breaks off, so does the execution that it has begun."""
        caller: BoundEngine = scope["extensions"][CALLER]
        message: JSONRPCMessage | None = None
        request = await receive()
        if scope["method"] == "POST":
            # Before the SDK does it: it would answer without a body, or without saying what that is.
            problem = content_type_problem(first(scope["headers"], _CONTENT_TYPE))
            if problem is not None:
                await refuse(send, 400, invalid_request(problem))
                return
            if not accepts_both(first(scope["headers"], b"accept")):
                problem = "the header Accept must name application/json and text/event-stream"
                await refuse(send, 406, invalid_request(problem))
                return
            scope["headers"] = [*without(scope["headers"], _CONTENT_TYPE), JSON]  # the SDK accepts one spelling
            try:
                message, exchange = read(request["body"])
            except MessageError as error:
                await send_document(send, 400, error.reply)
                return
            if exchange.arguments is not None and bytes(memoryview(exchange.arguments)[:1]) != b"{":
                # Without them: the SDK would refuse what is no object in words of its own.
                request = {**request, "body": write(message)}
        else:
            exchange = Exchange()
        if scope["method"] == "GET":
            receive = until(self._stopping)  # a stream of what the server has to say: nothing any more
            scope["headers"] = without(scope["headers"], _LAST_EVENT_ID)  # nothing is kept that it could go on with
        receive = again(request, receive)
        version = first(scope["headers"], _VERSION)
        modern = version is not None and version not in _HANDSHAKE_VERSIONS
        if version is not None and modern and version not in _MODERN_VERSIONS:
            request_id = message.id if isinstance(message, JSONRPCRequest) else None
            await send_document(send, 400, unsupported_version(request_id, version.decode("latin-1")))
            return
        # Where there are no sessions, a request is given up by closing it; else there is a message for that.
        alone = modern or self._alone
        exchange.left = Cause.DISCONNECT if alone else Cause.CALLER
        executor = caller.bind(transport="mcp", gone=exchange.why_left)
        scope["extensions"] |= {CALLER: executor, _EXCHANGE: exchange}
        try:
            if alone and scope["method"] != "POST":
                await refuse(send, 405, no_sessions(), [(b"allow", b"POST")])
            elif alone:
                await self._ask_alone(message, exchange, None if modern else version or _NOT_SAID, scope, receive, send)
            elif isinstance(message, JSONRPCRequest) and message.method == "initialize":
                await self._open(exchange, scope, receive, send, owner_of(caller.context))
            else:
                await self._in_session(message, exchange, scope, receive, send, owner_of(caller.context))
        except BaseException:
            exchange.stop(Cause.DISCONNECT)
            raise

    async def _ask_alone(
        self,
        message: JSONRPCMessage | None,
        exchange: Exchange,
        version: bytes | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request outside of any session, in a version with a handshake or, if there is none, in one without."""
        if isinstance(message, JSONRPCRequest):
            if version is None and not names_task(message, scope["headers"]):
                await send_document(send, 400, misnamed_task(message.id))
                return
            if version is None:
                runner = self.fast_path.takes_modern(message, scope["headers"])
            else:
                runner = self.fast_path.takes(message, version.decode())
            if runner is not None:
                await self.fast_path.answer(message, exchange, Request(scope), runner, send)
                return
        await self.manager.handle_request(scope, receive, send if version is None else escaping(send))

    async def _open(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send, owner: Owner) -> None:
        """Let a session be opened, whatever has become of the one that the client has had before."""
        scope["headers"] = without(scope["headers"], _SESSION_ID)
        try:
            oldest = self._sessions.reserve(owner)
        except FullError:
            error = AgentError.standard(
                "OVERLOADED", "every session of this server is in use", retry_after=FULL_RETRY_SECONDS
            )
            await refuse(send, 503, error, [(b"retry-after", b"%d" % FULL_RETRY_SECONDS)])
            return
        gone, done = trio.Event(), trio.Event()
        session: Session | None = None

        async def watch(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start" and message["status"] < 400:
                session_id = first(message["headers"], _SESSION_ID)
                if session_id is not None:
                    session = self._sessions.add(session_id.decode("latin-1"), owner)
            if not gone.is_set():
                await send(message)

        async def run() -> None:
            try:
                if oldest is not None:
                    await self._end(oldest)
                await self.manager.handle_request(scope, again(await receive(), until(gone)), watch)
                if session is not None:
                    session.version = exchange.version
            except BaseException as error:  # noqa: BLE001 - the boundary of one request
                contain(error, log, "a session could not be opened")
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
        given = first(scope["headers"], _SESSION_ID)
        if given is None:
            await refuse(send, 400, invalid_request("the header Mcp-Session-Id is missing; begin with 'initialize'"))
            return
        session_id = given.decode("latin-1")
        session = self._sessions.find(session_id, owner)
        if session is None:
            await refuse(send, 404, no_session())
            return

        with self._sessions.using(session_id, session):
            if isinstance(message, JSONRPCRequest):
                await self._ask(session_id, session, message, exchange, scope, receive, send)
                return
            if scope["method"] == "DELETE":
                self._sessions.remove(session_id)
                with trio.move_on_after(ARRIVAL_SECONDS):
                    await session.wait_arrived()
                session.stop()
            elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                session.take_back(str(cancelled_request_id_from_params(message.params)))
            if scope["method"] == "POST":
                session.arriving.add(exchange)
            await self._hand_on(session_id, session, exchange, scope, receive, Paced(escaping(send)))

    async def _ask(
        self,
        session_id: str,
        session: Session,
        message: JSONRPCRequest,
        exchange: Exchange,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request in a session."""
        key = str(message.id)  # the SDK identifies streams by this
        if key in session.running:
            await refuse(send, 400, invalid_request(f"a request with the id {key!r} is still being handled"))
            return
        session.running[key] = exchange
        try:
            runner = None if session.version is None else self.fast_path.takes(message, session.version)
            if runner is not None:
                exchange.left = Cause.DISCONNECT  # until it is taken back
                session.on_fast_path[key] = exchange
                await self.fast_path.answer(message, exchange, Request(scope), runner, send)
                return
            paced = Paced(escaping(unless(lambda: exchange.is_unanswered, send)))
            exchange.wait_report = paced.wait_report
            exchange.on_arrival = partial(session.has_arrived, exchange)
            session.arriving.add(exchange)
            await self._hand_on(session_id, session, exchange, scope, receive, paced)
        finally:
            del session.running[key]
            session.on_fast_path.pop(key, None)

    async def _hand_on(
        self, session_id: str, session: Session, exchange: Exchange, scope: Scope, receive: Receive, paced: Paced
    ) -> None:
        """Let the SDK answer."""
        has_begun = is_over = False

        async def watch(message: Message) -> None:
            nonlocal has_begun, is_over
            if is_over:
                return  # it answers a notification first, and then once more if its loop does not take it
            if message["type"] == "http.response.start":
                has_begun = True
                if message["status"] == 404:
                    self._sessions.remove(session_id)  # the SDK has lost it
            is_over = message["type"] == "http.response.body" and not message.get("more_body", False)
            await paced.send(message)

        try:
            await self.manager.handle_request(scope, receive, watch)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session has ended meanwhile
            if not has_begun:
                await refuse(paced.send, 404, no_session())
        finally:
            session.has_arrived(exchange)
            paced.close()

    async def _end(self, session_id: str) -> None:
        """End an idle session, in the way in which its client would."""

        async def discard(_: Message) -> None:
            await trio.lowlevel.checkpoint()

        headers = [(_SESSION_ID, session_id.encode("latin-1"))]
        nothing = again({"type": "http.request", "body": b""}, trio.sleep_forever)
        await self.manager.handle_request({"type": "http", "method": "DELETE", "headers": headers}, nothing, discard)


async def _note(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Note that a message has arrived, and which version its answer agrees upon."""
    _exchange_of(ctx).on_arrival()
    result = await call_next(ctx)
    if ctx.method == "initialize" and isinstance(result, dict):
        _exchange_of(ctx).version = result.get("protocolVersion")
    return result


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
