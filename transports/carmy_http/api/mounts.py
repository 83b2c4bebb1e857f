"""Other ASGI applications at addresses of this server, behind the same checks and with the authenticated caller.

Packages offer one through the entry-point group ``carmy.http_mounts``. The entry point has the name of the address (``mcp`` for
``/mcp``). It is a function that takes the open engine and returns a context manager for the ASGI application, or None when it
cannot serve, for example because a library is missing. It is loaded only where it is served, and should import slow libraries
on the first request only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import trio

from carmy_engine import BoundEngine, Engine, HttpSettings
from carmy_engine.transport import raise_own

from ..message import NO_STORE, Answer, BodyWriter, Request, Response, StreamResponse
from .errors import fault_response

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApplication: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Mount: TypeAlias = Callable[[Engine], AbstractAsyncContextManager[AsgiApplication] | None]

NO_MOUNTS: Mapping[str, AsgiApplication] = {}

GROUP = "carmy.http_mounts"
"""The entry points, by the name of their address."""

CALLER = "carmy_http.caller"
"""The name in a scope's ``extensions`` of the engine for the caller (`carmy_engine.BoundEngine`)."""

OPENING = b": open\n\n"
"""A comment, sent with the head of a stream of events: it must not wait for the first of them."""

_HEADERS_OF_CONNECTIONS = frozenset({b"connection", b"content-length", b"keep-alive", b"transfer-encoding"})


@asynccontextmanager
async def open_mounts(engine: Engine) -> AsyncIterator[Mapping[str, AsgiApplication]]:
    """The mounted applications by their path, according to the settings and the installed packages."""
    found: dict[str, AsgiApplication] = {}
    async with AsyncExitStack() as opened:
        if engine.settings.http.mcp:
            for entry in entry_points(group=GROUP, name="mcp"):
                mount: Mount = entry.load()
                if (block := mount(engine)) is not None:
                    found["/mcp"] = await opened.enter_async_context(block)
        yield found


class MountedResponse(StreamResponse):
    """The answer of a mounted application. Its status and headers are set when the application starts its response.

    A body that comes in one piece becomes a `Response`.
    """

    __slots__ = ("_app", "_begun", "_body", "_caller", "_request")

    def __init__(self, app: AsgiApplication, request: Request, caller: BoundEngine, body: bytes) -> None:
        super().__init__(500, (), self._run)
        self._app = app
        self._request = request
        self._caller = caller
        self._body = body
        self._begun = False

    async def _run(self, writer: BodyWriter) -> Response | None:
        """Run the application. It is cancelled when the client disconnects."""
        return await self._request.while_connected(self._call, writer)

    async def _call(self, writer: BodyWriter) -> Response | None:
        whole: Response | None = None
        sent = False

        async def take(message: Message) -> None:
            nonlocal sent, whole
            if message["type"] == "http.response.start":
                sent = self._begin(message)
                if sent:
                    await writer.send(OPENING)
                return
            chunk: bytes = message.get("body", b"")
            if not sent and not message.get("more_body", False):
                headers = (
                    self.headers if chunk else [pair for pair in self.headers if pair[0].lower() != b"content-type"]
                )
                whole = Response(self.status, headers, chunk)
            elif chunk:
                sent = True
                await writer.send(chunk)

        try:
            await self._app(self._scope(), self._receive_once(), take)
            if not self._begun:
                raise RuntimeError("it has returned without an answer")
        except BaseException as fault:
            # The boundary of one call: a mounted application is foreign code.
            raise_own(fault)
            if self._begun:
                raise
            head = self._request.head
            answer = fault_response(f"{head.method} {head.path!r} failed", fault)
            self._begin({"status": answer.status, "headers": answer.headers})
            whole = Response(self.status, self.headers, answer.body)
        return whole

    def _begin(self, message: Message) -> bool:
        """Store status and headers. True for a stream of events, whose head is sent before its first event."""
        self._begun = True
        self.status = message["status"]
        # The front end decides on the framing of the body and the life of the connection.
        own = [(name, value) for name, value in message["headers"] if name.lower() not in _HEADERS_OF_CONNECTIONS]
        names: dict[bytes, bytes] = {name.lower(): value for name, value in own}
        if b"cache-control" not in names:
            own.append(NO_STORE)
        self.headers = (*own, *self.headers)
        return names.get(b"content-type", b"").startswith(b"text/event-stream")

    def _receive_once(self) -> Receive:
        """An ASGI ``receive`` that returns the body in one message, and then blocks."""
        body: list[Message] = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive() -> Message:
            if not body:
                await trio.sleep_forever()
            return body.pop()

        return receive

    def _scope(self) -> Scope:
        head = self._request.head
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": head.method,
            "scheme": "http",
            "path": head.path,
            "raw_path": head.path.encode("utf-8", "surrogateescape"),
            "query_string": b"",
            "root_path": head.root,
            "headers": list(head.headers),
            "client": None,
            "server": None,
            "extensions": {CALLER: self._caller},
        }


async def answer_mounted(app: AsgiApplication, limits: HttpSettings, request: Request, caller: BoundEngine) -> Answer:
    """Read the body of a POST, and answer with a mounted application."""
    body = await request.read_body(limits) if request.head.method == "POST" else b""
    return MountedResponse(app, request, caller, body)
