"""The endpoints as an ASGI application, for hypercorn here and for mounting in any other trio ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from carmy_engine import Engine
from carmy_engine.errors import AgentError
from carmy_engine.transport import contain, raise_single

from .api.endpoints import Endpoints
from .api.errors import error_body, log
from .api.mounts import AsgiApplication, Receive, Scope, Send
from .message import JSON_TYPE, NO_STORE, Disconnected, Request, Response, StreamResponse, split_path


def application(engine: Engine) -> AsgiApplication:
    """The engine as an ASGI 3 application, for servers that run on trio.

    Scopes of type ``http`` are answered, those of type ``websocket`` refused, and ``lifespan`` is acknowledged: the
    engine is opened and closed by its own block, outside. Under ``root_path`` the discovery document names the
    addresses with that prefix. Time limits of writing, framing rules and connection limits are the server's; only
    the one that comes with this package is known to have them.

    Args:
        engine: An open engine.
    """
    return asgi(Endpoints(engine))


def asgi(endpoints: Endpoints) -> AsgiApplication:
    """The endpoints as an ASGI application; see `application`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await _http(endpoints, scope, receive, send)
        elif kind == "lifespan":
            await _lifespan(receive, send)
        elif kind == "websocket":
            await _refuse_websocket(scope, receive, send)
        else:
            raise NotImplementedError(f"ASGI scopes of type {kind!r} are not served")

    return app


class AsgiRequest(Request):
    """A request whose body and end come through ``receive``."""

    __slots__ = ("_ended", "_receive")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        path, authority = split_path(scope["path"])  # hypercorn passes a target in absolute form as the path
        root: str = scope.get("root_path", "").rstrip("/")
        if root and path.startswith(root + "/"):
            path = path[len(root) :]
        client = scope.get("client")
        super().__init__(
            method=scope["method"],
            path=path,
            root=root,
            headers=scope["headers"],
            peer=None if not client else str(client[0]),
            authority=authority,
        )
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

    @asynccontextmanager
    async def cancelled_when_gone(self) -> AsyncIterator[trio.CancelScope]:
        """See `Request`."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                yield nursery.cancel_scope
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise_single(group)  # so that a block raises the same with and without this task

    async def _watch(self, scope: trio.CancelScope) -> None:
        # Nothing but receive() tells that the client has gone: on hypercorn even sending into the void succeeds.
        while (await self._receive())["type"] != "http.disconnect":
            pass
        scope.cancel()


async def _http(endpoints: Endpoints, scope: Scope, receive: Receive, send: Send) -> None:
    request = AsgiRequest(scope, receive)
    try:
        answer = await endpoints.answer(request)
    except Disconnected:
        return
    whole = answer if isinstance(answer, Response) else await _stream(request, answer, send)
    if whole is None:
        return
    head = request.method == "HEAD"
    await send({"type": "http.response.start", "status": whole.status, "headers": whole.all_headers()})
    await send({"type": "http.response.body", "body": b"" if head else whole.body})


async def _stream(request: AsgiRequest, answer: StreamResponse, send: Send) -> Response | None:
    """Write an answer while it is made. Gives it back if it has turned out to be a whole one, with nothing written."""
    begun = False

    async def send_chunk(chunk: bytes) -> None:
        nonlocal begun
        if not begun:
            begun = True
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": chunk, "more_body": True})

    try:
        whole = await answer.run(send_chunk)
    except BaseException as error:  # noqa: BLE001 - see below
        # The boundary of one call. The head is out, so the body just ends, without its last event and without a
        # proper end, which is how a client can tell.
        contain(error, log, "%s %r broke off", request.method, request.path)
        return None
    if whole is not None:
        return whole
    if not begun:
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": b""})
    return None


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    if "websocket.http.response" in scope.get("extensions", {}):
        error = AgentError.standard("INVALID_REQUEST", "WebSocket is not served at this address")
        await send({"type": "websocket.http.response.start", "status": 400, "headers": [JSON_TYPE, NO_STORE]})
        await send({"type": "websocket.http.response.body", "body": error_body(error.info)})
    else:
        await send({"type": "websocket.close", "code": 1008})
