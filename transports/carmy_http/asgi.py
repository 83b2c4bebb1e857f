"""The endpoints as an ASGI application, for hypercorn here and for mounting in any other trio ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

import trio

from carmy_engine import BoundEngine, Engine, ExecutionRequest
from carmy_engine.abc import PeerProcess
from carmy_engine.errors import AgentError
from carmy_engine.transport import contain, raise_single

from .api import event_response
from .api.endpoints import Endpoints
from .api.errors import error_body, log
from .asgi_types import PROCESS_KEY, AsgiApplication, Message, Receive, Scope, Send
from .message import (
    JSON_TYPE,
    NO_STORE,
    BodyWriter,
    Disconnected,
    Request,
    RequestHead,
    Response,
    StreamResponse,
    split_path,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def application(engine: Engine) -> AsgiApplication:
    """The engine as an ASGI 3 application, for servers that run on trio.

    The application answers scopes of type ``http``, refuses ``websocket`` and acknowledges ``lifespan``. The engine is opened and
    closed outside, by its own block. Under ``root_path``, the discovery document lists the addresses with that prefix. Time limits of
    writing, framing rules and connection limits are left to the server. The server of this package has them; others may not.

    Args:
        engine: An open engine.
    """
    return asgi(Endpoints(engine))


def asgi(endpoints: Endpoints) -> AsgiApplication:
    """The endpoints as an ASGI application; see `application`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await answer_http(endpoints, scope, receive, send)
        elif kind == "lifespan":
            await _lifespan(receive, send)
        elif kind == "websocket":
            await refuse_websocket(scope, receive, send)
        else:
            raise NotImplementedError(f"ASGI scopes of type {kind!r} are not served")

    return app


def read_scope(scope: Scope) -> tuple[RequestHead, str | None, PeerProcess | None]:
    """The head of a request, and the address and the process of its client."""
    path, authority = split_path(scope["path"])  # hypercorn passes a target in absolute form as the path
    head = RequestHead(method=scope["method"], path=path, headers=scope["headers"], authority=authority)
    root: str = scope.get("root_path", "").rstrip("/")
    if root:
        head.set_root(root)
    client = scope.get("client")
    return head, str(client[0]) if client else None, scope.get(PROCESS_KEY)


class AsgiRequest(Request):
    """A request whose body and end come through ``receive``."""

    __slots__ = ("_ended", "_receive")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(*read_scope(scope))
        self._receive = receive
        self._ended = False

    async def next_chunk(self) -> bytes:
        """See `Request`."""
        while not self._ended:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Disconnected
            self._ended = not message.get("more_body", False)
            chunk: bytes = message.get("body", b"")
            if chunk:
                return chunk
        return b""

    async def while_connected(self, run: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """See `Request`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                result = await run(*args)
                nursery.cancel_scope.cancel()
                return result
        except BaseExceptionGroup as group:
            raise_single(group)  # so that a function raises the same with and without this task
        raise Disconnected

    async def _watch(self, scope: trio.CancelScope) -> None:
        # receive() is the only way to detect the client's end: on hypercorn, sending to a closed connection succeeds.
        while (await self._receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


async def answer_http(endpoints: Endpoints, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a scope of type ``http``, under trio."""
    request = AsgiRequest(scope, receive)
    whole = await run_answer(endpoints, request, send)
    if whole is not None:
        for message in messages_of(whole, request.head.method):
            await send(message)


async def run_answer(endpoints: Endpoints, request: Request, send: Send) -> Response | None:
    """Answer a request. Returns an answer that is complete and not sent; None if it was sent, or the client has gone."""
    try:
        answer = await endpoints.answer(request)
    except Disconnected:
        return None
    if isinstance(answer, Response):
        return answer
    return await AsgiBodyWriter(request, answer, send, endpoints.settings.heartbeat_secs).write()


def messages_of(answer: Response, method: str) -> tuple[Message, Message]:
    """The messages of a complete answer."""
    return (
        {"type": "http.response.start", "status": answer.status, "headers": answer.all_headers()},
        {"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body},
    )


class AsgiBodyWriter(BodyWriter):
    """Writes one `StreamResponse` through ``send``."""

    __slots__ = ("_answer", "_begun", "_heartbeat_seconds", "_request", "_send")

    def __init__(self, request: Request, answer: StreamResponse, send: Send, heartbeat_seconds: float) -> None:
        self._request = request
        self._answer = answer
        self._send = send
        self._heartbeat_seconds = heartbeat_seconds
        self._begun = False

    async def write(self) -> Response | None:
        """Write the answer while it is made. If it is a whole `Response`, nothing is written and it is returned."""
        try:
            whole = await self._answer.run(self)
        except Disconnected:
            return None
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one call. The head has been sent, so the body ends without its last event and without a
            # proper end, by which the client detects the failure.
            contain(error, log, "%s %r broke off", self._request.head.method, self._request.head.path)
            return None
        if whole is not None:
            return whole
        await self._begin()
        await self._send({"type": "http.response.body", "body": b""})
        return None

    async def send(self, chunk: bytes) -> None:
        """See `BodyWriter`."""
        await self._begin()
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def send_events(self, request: Request, engine: BoundEngine, wanted: ExecutionRequest) -> None:
        """See `BodyWriter`."""
        await request.while_connected(self._forward_events, engine, wanted)

    async def _forward_events(self, engine: BoundEngine, wanted: ExecutionRequest) -> None:
        async with engine.stream(wanted) as events:
            while True:
                data = event_response.HEARTBEAT
                with trio.move_on_after(self._heartbeat_seconds):
                    try:
                        data = event_response.frame(await events.receive())
                    except trio.EndOfChannel:
                        return
                await self.send(data)

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            answer = self._answer
            await self._send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a scope of type ``websocket``."""
    await receive()
    if "websocket.http.response" in scope.get("extensions", {}):
        error = AgentError.standard("INVALID_REQUEST", "WebSocket is not served at this address")
        await send({"type": "websocket.http.response.start", "status": 400, "headers": [JSON_TYPE, NO_STORE]})
        await send({"type": "websocket.http.response.body", "body": error_body(error.info)})
    else:
        await send({"type": "websocket.close", "code": 1008})
