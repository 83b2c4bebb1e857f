"""HTTP on hypercorn, borrowed whole: its own server of one connection, over a `GuardedStream` or a `GuardedHttp2Stream`.

The only importer of hypercorn. It parses what the stream has accepted, speaks ASGI and frames answers. What a connection may do to
others is decided here and in the streams: an exception in one connection ends that connection only.

`TCPServer` is not part of hypercorn's documented interface: the minor version is pinned, and ``tests/hostile`` holds the cases that
used to end the process.
"""

from __future__ import annotations

import logging
import math
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypedDict, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from carmy_engine import HttpSettings
from carmy_engine.abc import PeerProcess
from carmy_engine.codec import invalid_request
from carmy_engine.transport import RateLimitedLogger, contain
from carmy_net import process_of

from ..api.errors import error_response
from ..asgi_types import PROCESS_KEY, AsgiApplication, Message, Scope
from ..message import Response
from .admission import Admission
from .guarded_stream import GuardedStream, GuardedTlsStream
from .http2_stream import BLOCK_FACTOR, MAX_STREAMS, GuardedHttp2Stream
from .tls_stream import TlsStream

log = logging.getLogger("carmy.http")

AnyGuardedStream: TypeAlias = GuardedStream | GuardedHttp2Stream


class _Shared(TypedDict):
    """What both kinds of stream get."""

    settings: HttpSettings
    is_draining: Callable[[], bool]
    refusal: Callable[[int, str], Response]
    admission: Admission
    log: RateLimitedLogger


class _Application:
    """The application as hypercorn calls it for the requests of one connection.

    Args:
        app: The ASGI application.
        stream: The connection's.
        limited_log: For its failures.
        process: The client's process, if it is known.
    """

    def __init__(
        self,
        app: AsgiApplication,
        stream: AnyGuardedStream,
        limited_log: RateLimitedLogger,
        process: PeerProcess | None,
    ) -> None:
        self._app = app
        self._stream = stream
        self._log = limited_log
        self._process = process

    async def __call__(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        *_: object,
    ) -> None:
        exchange = self._stream.exchange(scope)
        scope[PROCESS_KEY] = self._process

        async def take() -> Message:
            await exchange.ask()
            return await receive()

        async def give(message: Message) -> None:
            await exchange.answer(message, send)

        with exchange.running():
            try:
                await self._app(scope, take, give)
            except BaseException as error:  # noqa: BLE001 - see below
                # The boundary of one request: an application's failure must not end the connection's other requests,
                # let alone the server.
                contain(error, self._log, "the application failed")
            await exchange.conclude(send)


class Connection:
    """One client's connection, from its acceptance to its end.

    Args:
        stream: The accepted stream. Its socket is closed at the end of `run`.
        guard: Makes the guarded stream over it, which may take a handshake. Returns None if the client gave none.
        server: Makes hypercorn's server of the connection.
        limited_log: For its failures.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        guard: Callable[[trio.SocketStream], Awaitable[AnyGuardedStream | None]],
        server: Callable[[AnyGuardedStream, PeerProcess | None], TCPServer],
        limited_log: RateLimitedLogger,
    ) -> None:
        self._socket = stream.socket
        self._stream = stream
        self._guard = guard
        self._guarded: AnyGuardedStream | None = None
        self._server = server
        self._log = limited_log

    def drain(self) -> None:
        """See `Served`."""
        if self._guarded is not None:
            self._guarded.drain()

    async def run(self) -> None:
        """Serve the connection to its end. Raises nothing but the cancel of a scope round it, and a Ctrl-C.

        Leaves the socket closed, also when cancelled.
        """
        try:
            guarded = self._guarded = await self._guard(self._stream)
            if guarded is not None:
                await guarded.serve(self._server(guarded, process_of(self._socket)).run)
                await guarded.finish()
        except OSError:
            pass  # gone before it began
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one connection: its server may raise for some inputs, and unguarded that would end all others.
            contain(error, self._log, "a connection failed")
        finally:
            self._socket.close()


def _refusal(status: int, reason: str, _peer: str | None) -> Response:
    return error_response(invalid_request(reason), status=status)


def connector(
    app: AsgiApplication,
    settings: HttpSettings,
    is_draining: Callable[[], bool] = bool,
    refusal: Callable[[int, str, str | None], Response] = _refusal,
    tls: ssl.SSLContext | None = None,
) -> Callable[[trio.SocketStream], Connection]:
    """What makes a connection of an accepted stream.

    Args:
        app: The ASGI application that answers.
        settings: Limits in time and bytes.
        is_draining: Whether the server is going away; never, unless given.
        refusal: Makes the answer to what is no request, from its status, its reason and the client's address.
        tls: For TLS, and for HTTP/2 if it offers ``h2``; None for plain text.
    """
    config = _config(settings)
    context = WorkerContext(None)
    limited_log = RateLimitedLogger(log)
    admission = Admission()

    def serve(guarded: AnyGuardedStream, process: PeerProcess | None) -> TCPServer:
        application = cast("Any", _Application(app, guarded, limited_log, process))
        return TCPServer(application, config, context, {}, cast("Any", guarded))

    async def guard(stream: trio.SocketStream) -> AnyGuardedStream | None:
        def refused(status: int, reason: str) -> Response:
            return refusal(status, reason, _peer_of(stream))

        shared: _Shared = {
            "settings": settings,
            "is_draining": is_draining,
            "refusal": refused,
            "admission": admission,
            "log": limited_log,
        }
        if tls is None:
            return GuardedStream(stream, **shared)
        secured = TlsStream(stream, tls)
        with trio.move_on_after(settings.header_timeout_secs):
            try:
                protocol = await secured.handshake()
            except trio.BrokenResourceError:
                return None
            if protocol == GuardedHttp2Stream.alpn_protocol:
                return GuardedHttp2Stream(secured, **shared)
            return GuardedTlsStream(secured, **shared)
        return None

    def connect(stream: trio.SocketStream) -> Connection:
        return Connection(stream, guard, serve, limited_log)

    return connect


def _peer_of(stream: trio.SocketStream) -> str | None:
    """The client's address; None for a unix socket, and once the client has gone."""
    try:
        name: tuple[object, ...] | str = stream.socket.getpeername()
    except OSError:
        return None
    return None if isinstance(name, str) else str(name[0])


def _config(settings: HttpSettings) -> Config:
    """Hypercorn's configuration: what `GuardedStream` decides is left open here."""
    config = Config()
    config.accesslog = None
    config.errorlog = log
    config.include_server_header = False
    config.keep_alive_timeout = cast("Any", math.inf)
    config.keep_alive_max_requests = sys.maxsize
    config.h11_max_incomplete_size = sys.maxsize
    config.h2_max_concurrent_streams = MAX_STREAMS
    config.h2_max_header_list_size = BLOCK_FACTOR * settings.max_head_bytes
    return config
