"""`App.asgi`: an application for any ASGI server, on asyncio or trio.

On asyncio, the engine runs under trio in a thread of its own. A request crosses to that thread once, with its whole body, and its answer
crosses back once. The pieces of a stream cross one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeVar, TypeVarTuple, Unpack
from weakref import WeakKeyDictionary

import trio

from carmy_engine import App, HttpSettings
from carmy_engine.errors import AgentError, CarmyError, ClosedError
from carmy_engine.transport import AsyncioHost

from .api.endpoints import Endpoints
from .api.errors import error_response
from .api.mounts import open_mounts
from .asgi import answer_http, messages_of, read_scope, refuse_websocket, run_answer
from .asgi_types import Message, Receive, Scope, Send
from .message import Request, Response, body_too_slow

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

QUICK_SECONDS = 0.005
"""Age of a call at which the client's end is watched for. Most calls end earlier, and a watching task costs more than they do."""

MAX_UNSENT_BYTES = 64 * 1024
"""Of a stream: pieces that wait for the server to take them. Beyond it, the execution's own bounded buffer fills."""

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


class HostedApplication:
    """The ASGI application of an `App`; see `App.asgi`.

    Args:
        app: Opened once in each event loop that calls it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._sides: WeakKeyDictionary[object, _Side] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one scope of type ``http`` or ``lifespan``; refuse ``websocket``."""
        kind = scope["type"]
        if kind == "http":
            await self._side().answer(scope, receive, send)
        elif kind == "lifespan":
            await self._run_lifespan(receive, send)
        elif kind == "websocket":
            await refuse_websocket(scope, receive, send)
        else:
            raise NotImplementedError(f"ASGI scopes of type {kind!r} are not served")

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: object = None, /) -> AsyncIterator[None]:
        """Open the engine for the length of a block, and drain it at the end.

        Raises:
            StartupError: The application cannot start.
        """
        async with self._side().opened():
            yield

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self._side().opened():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except CarmyError as problem:
            await send({"type": "lifespan.startup.failed", "message": str(problem)})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    def _side(self) -> _Side:
        """The open application of the running event loop."""
        loop: object = asyncio._get_running_loop()  # noqa: SLF001 - documented; returns None where none runs
        if loop is not None:
            found = self._sides.get(loop)
            return self._sides.setdefault(loop, _AsyncioSide(self._app)) if found is None else found
        token = trio.lowlevel.current_trio_token()
        found = self._sides.get(token)
        return self._sides.setdefault(token, _TrioSide(self._app)) if found is None else found


@contextlib.asynccontextmanager
async def open_endpoints(app: App) -> AsyncIterator[Endpoints]:
    """Open an application and what is mounted beside it; at the end, running executions get the time of the drain."""
    async with app.open() as engine, open_mounts(engine) as mounts:
        try:
            yield Endpoints(engine, mounts)
        finally:
            await engine.shut_down()


class _Side:
    """An application in one event loop."""

    def __init__(self, app: App) -> None:
        self._app = app

    def opened(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Open the application for the length of a block."""
        raise NotImplementedError

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a scope of type ``http``; open the application first where no lifespan has."""
        raise NotImplementedError


class _TrioSide(_Side):
    _endpoints: Endpoints | None = None
    _is_open: trio.Event | None = None
    _failure: BaseException | None = None

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with open_endpoints(self._app) as self._endpoints:
            yield
        self._endpoints = None

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._endpoints is None:
            await self._open()
        assert self._endpoints is not None
        await answer_http(self._endpoints, scope, receive, send)

    async def _open(self) -> None:
        if self._is_open is None:
            self._is_open = trio.Event()
            self._failure = None
            trio.lowlevel.spawn_system_task(self._hold, self._is_open)
        await self._is_open.wait()
        if self._failure is not None:
            self._is_open = None  # the next request tries again
            raise self._failure

    async def _hold(self, is_open: trio.Event) -> None:
        """Keep the application open until the loop ends."""
        try:
            async with self.opened():
                is_open.set()
                await trio.sleep_forever()
        except Exception as failure:  # noqa: BLE001 - raised by the request that waits; a system task may not raise
            self._failure = failure
        finally:
            is_open.set()


class _AsyncioSide(_Side):
    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._host: AsyncioHost[Endpoints] | None = None
        self._opening = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        host = await self._open()
        try:
            yield
        finally:
            try:
                await host.close()
            finally:
                self._host = None

    async def _open(self) -> AsyncioHost[Endpoints]:
        async with self._opening:
            if self._host is None:
                host = AsyncioHost(partial(open_endpoints, self._app), f"the application {self._app.name!r}")
                await host.open()
                self._host = host
            return self._host

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = self._host or await self._open()
        endpoints = host.subject
        request = ReadRequest(scope)
        if request.head.method not in _BODILESS and not await request.read(receive, endpoints.settings):
            return
        try:
            await _Exchange(host, request).run(endpoints, receive, send)
        except ClosedError:
            refusal = error_response(AgentError.standard("SHUTTING_DOWN", "the engine behind this server is closed"))
            for message in messages_of(refusal, request.head.method):
                await send(message)


class ReadRequest(Request):
    """A request whose body has been read."""

    __slots__ = ("_chunks", "_refusal")

    def __init__(self, scope: Scope) -> None:
        super().__init__(*read_scope(scope))
        self._chunks: deque[bytes] = deque()
        self._refusal: Exception | None = None

    async def read(self, receive: Receive, limits: HttpSettings) -> bool:
        """Read the body, under asyncio, as far as the limits allow. False if the client left before its end."""
        declared = self.head.first(b"content-length")
        if declared is not None and (not declared.isdigit() or int(declared[:18]) > limits.max_body_bytes):
            return True  # `read_body` refuses it
        size = 0
        try:
            async with asyncio.timeout(limits.body_timeout_secs):
                while size <= limits.max_body_bytes:
                    message = await receive()
                    if message["type"] != "http.request":
                        return False
                    chunk: bytes = message.get("body", b"")
                    if chunk:
                        self._chunks.append(chunk)
                        size += len(chunk)
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            self._refusal = body_too_slow(limits.body_timeout_secs)
        return True

    async def next_chunk(self) -> bytes:
        """See `Request`."""
        if self._refusal is not None:
            raise self._refusal
        return self._chunks.popleft() if self._chunks else b""

    async def while_connected(self, run: Callable[[Unpack[Ts]], Awaitable[T]], *args: *Ts) -> T:
        """See `Request`. The asyncio side watches for the client's end, and cancels the call."""
        return await run(*args)


class _Exchange:
    """One request under asyncio: its call in the trio thread, and the messages that come back.

    Args:
        host: The trio thread.
        request: The request.
    """

    def __init__(self, host: AsyncioHost[Endpoints], request: ReadRequest) -> None:
        self._host = host
        self._request = request
        self._messages: deque[Message] = deque()
        # Each thread writes one of the two: their difference is the size of what is unsent.
        self._added_bytes = 0
        self._taken_bytes = 0
        self._room: trio.Event | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_gone = False

    async def run(self, endpoints: Endpoints, receive: Receive, send: Send) -> None:
        """Answer the request."""
        call = self._host.submit(run_answer, endpoints, self._request, self._send, on_end=self.resolve)
        watcher: asyncio.Task[None] | None = None

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._is_gone = True
            await self._host.end(call)

        def start_watching() -> None:
            nonlocal watcher
            watcher = self._host.loop.create_task(watch())

        timer = self._host.loop.call_later(QUICK_SECONDS, start_watching)
        try:
            while not call.has_ended or self._messages:
                if not self._messages:
                    self._waiter = self._host.loop.create_future()
                    await self._waiter
                    continue
                message = self._messages.popleft()
                if not self._is_gone:
                    await send(message)
                self._take(message)
        except OSError:  # the server found out that the client has gone
            self._is_gone = True
        finally:
            timer.cancel()
            if watcher is not None:
                watcher.cancel()
            await self._host.end(call)
        if self._is_gone:
            return
        whole: Response | None = call.result()
        if whole is not None:
            for message in messages_of(whole, self._request.head.method):
                await send(message)

    def resolve(self) -> None:
        """Continue after a message or the end of the call. Called in the loop."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self, message: Message) -> None:
        self._taken_bytes += len(message.get("body", b""))
        if self._room is not None:
            self._host.run_soon(self._make_room)

    # --- the trio thread

    async def _send(self, message: Message) -> None:
        """Send a message of a stream; wait while too much is unsent."""
        self._messages.append(message)
        self._added_bytes += len(message.get("body", b""))
        self._host.deliver([self])
        while self._is_full():
            self._room = trio.Event()
            if self._is_full():  # once more: the other thread looks for the event after it has taken a message
                await self._room.wait()
        self._room = None

    def _is_full(self) -> bool:
        return self._added_bytes - self._taken_bytes > MAX_UNSENT_BYTES

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
