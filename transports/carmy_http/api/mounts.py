"""Another application at an address of ours: behind the same checks, and with the caller that they have found.

Packages offer one through the entry-point group ``carmy.http_mounts``: under the name of an address (``mcp`` for ``/mcp``) a
function that gets the open engine, and gives the block in which its ASGI application lives, or None when it cannot serve
here, for example because a library is not installed. It is looked for only where it is to be served, and should import
what takes long only when it is first asked for something.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import trio

from carmy_engine import BoundEngine, Engine
from carmy_engine.transport import raise_own

from ..message import NO_STORE, Request, Response, SendChunk, StreamResponse
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
"""The name in a scope's ``extensions`` of the engine as the caller may use it (`carmy_engine.BoundEngine`)."""

OPENING = b": open\n\n"
"""A comment, sent with the head of a stream of events: it must not wait for the first of them."""

_HEADERS_OF_CONNECTIONS = frozenset({b"connection", b"content-length", b"keep-alive", b"transfer-encoding"})


@asynccontextmanager
async def open_mounts(engine: Engine) -> AsyncIterator[Mapping[str, AsgiApplication]]:
    """The applications to serve beside ours, by their path, as the settings and the installation have them."""
    found: dict[str, AsgiApplication] = {}
    async with AsyncExitStack() as opened:
        if engine.settings.http.mcp:
            for entry in entry_points(group=GROUP, name="mcp"):
                mount: Mount = entry.load()
                if (block := mount(engine)) is not None:
                    found["/mcp"] = await opened.enter_async_context(block)
        yield found


class MountedResponse(StreamResponse):
    """An answer that a mounted application gives. Its status and headers are known when it has begun.

    One that comes in a single piece is written as such.
    """

    __slots__ = ("_app", "_begun", "_body", "_caller", "_request")

    def __init__(self, app: AsgiApplication, request: Request, caller: BoundEngine, body: bytes) -> None:
        super().__init__(500, (), self._run)
        self._app = app
        self._request = request
        self._caller = caller
        self._body = body
        self._begun = False

    async def _run(self, send: SendChunk) -> Response | None:
        """Let it answer. It is cancelled when the client goes away, and need not look for that itself."""
        whole: Response | None = None
        sent = False

        async def take(message: Message) -> None:
            nonlocal sent, whole
            if message["type"] == "http.response.start":
                sent = self._begin(message)
                if sent:
                    await send(OPENING)
                return
            chunk: bytes = message.get("body", b"")
            if not sent and not message.get("more_body", False):
                headers = (
                    self.headers if chunk else [pair for pair in self.headers if pair[0].lower() != b"content-type"]
                )
                whole = Response(self.status, headers, chunk)
            elif chunk:
                sent = True
                await send(chunk)

        async with self._request.cancelled_when_gone():
            try:
                await self._app(self._scope(), self._receive_once(), take)
                if not self._begun:
                    raise RuntimeError("it has returned without an answer")
            except BaseException as fault:
                # The boundary of one call: what is mounted is not ours.
                raise_own(fault)
                if self._begun:
                    raise
                answer = fault_response(f"{self._request.method} {self._request.path!r} failed", fault)
                self._begin({"status": answer.status, "headers": answer.headers})
                whole = Response(self.status, self.headers, answer.body)
        return whole

    def _begin(self, message: Message) -> bool:
        """Take status and headers. True for a stream of events, whose reader wants to know at once that it is open."""
        self._begun = True
        self.status = message["status"]
        # How long the connection and the body are is known better by the server.
        own = [(name, value) for name, value in message["headers"] if name.lower() not in _HEADERS_OF_CONNECTIONS]
        names: dict[bytes, bytes] = {name.lower(): value for name, value in own}
        if b"cache-control" not in names:
            own.append(NO_STORE)
        self.headers = (*own, *self.headers)
        return names.get(b"content-type", b"").startswith(b"text/event-stream")

    def _receive_once(self) -> Receive:
        """Gives the body in one message, and nothing after it."""
        body: list[Message] = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive() -> Message:
            if not body:
                await trio.sleep_forever()
            return body.pop()

        return receive

    def _scope(self) -> Scope:
        request = self._request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode("utf-8", "surrogateescape"),
            "query_string": b"",
            "root_path": request.root,
            "headers": list(request.headers),
            "client": None,
            "server": None,
            "extensions": {CALLER: self._caller},
        }
