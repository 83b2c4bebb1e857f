"""HTTP/1.1 on hypercorn, borrowed whole: its own server of one connection, over a `GuardedStream`.

The only importer of hypercorn. It parses what the stream has accepted, speaks ASGI and frames answers. What a connection may do to
others is decided here and in `_guarded_stream`: an exception in one connection ends that connection only.

`TCPServer` is not part of hypercorn's documented interface: the minor version is pinned, and ``tests/hostile`` holds the cases that
used to end the process.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext

from carmy_engine.codec import invalid_request
from carmy_engine.transport import RateLimitedLogger, contain

from ..api.errors import error_response
from ..api.mounts import AsgiApplication, Message, Scope
from ..http1.response_bytes import render_response
from .admission import Admission
from .guarded_stream import GuardedStream

log = logging.getLogger("carmy.http")


class _Application:
    """The application as hypercorn calls it for the requests of one connection.

    Args:
        app: The ASGI application.
        stream: The connection's.
        limited_log: For its failures.
    """

    def __init__(self, app: AsgiApplication, stream: GuardedStream, limited_log: RateLimitedLogger) -> None:
        self._app = app
        self._stream = stream
        self._log = limited_log

    async def __call__(
        self,
        scope: Scope,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        *_: object,
    ) -> None:
        stream = self._stream

        async def take() -> Message:
            await stream.ask()
            return await receive()

        async def give(message: Message) -> None:
            if stream.is_broken:
                await trio.lowlevel.checkpoint()
                return
            is_start = message["type"] == "http.response.start"
            if is_start and stream.is_last:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            try:
                await send(message)
            except trio.Cancelled:
                stream.abort()  # hypercorn may have taken it or not: nothing sensible can follow
                raise
            if is_start:
                return  # it leaves with what follows: ASGI allows it, and both are one packet
            await stream.flush()
            if not message.get("more_body", False):
                stream.end_answer()

        try:
            with stream.running():
                await self._app(scope, take, give)
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one request: an application's failure must not end the connection's other requests,
            # let alone the server.
            contain(error, self._log, "the application failed")


class Connection:
    """One client's connection, from its acceptance to its end.

    Args:
        guarded: The stream over it. Its socket is closed at the end of `run`.
        server: Makes hypercorn's server of the connection.
        limited_log: For its failures.
    """

    def __init__(
        self, guarded: GuardedStream, server: Callable[[GuardedStream], TCPServer], limited_log: RateLimitedLogger
    ) -> None:
        self._guarded = guarded
        self._server = server
        self._log = limited_log

    def drain(self) -> None:
        """See `Served`."""
        self._guarded.drain()

    async def run(self) -> None:
        """Serve the connection to its end. Raises nothing but the cancel of a scope round it, and a Ctrl-C.

        Leaves the socket closed, also when cancelled.
        """
        try:
            with self._guarded.serving():
                await self._server(self._guarded).run()
            await self._guarded.finish()
        except OSError:
            pass  # gone before it began
        except BaseException as error:  # noqa: BLE001 - see below
            # The boundary of one connection: its server may raise for some inputs, and unguarded that would end all others.
            contain(error, self._log, "a connection failed")
        finally:
            self._guarded.socket.close()


def _refuse(status: int, reason: str, _peer: str | None) -> bytes:
    return render_response(error_response(invalid_request(reason), status=status), with_body=True, ends=True)


def connector(
    app: AsgiApplication,
    header_seconds: float,
    is_draining: Callable[[], bool] = bool,
    refuse: Callable[[int, str, str | None], bytes] = _refuse,
) -> Callable[[trio.SocketStream], Connection]:
    """What makes a connection of an accepted stream.

    Args:
        app: The ASGI application that answers.
        header_seconds: For the head of a request.
        is_draining: Whether the server is going away; never, unless given.
        refuse: Renders the answer to what is no request, from its status, its reason and the client's address.
    """
    config = _config()
    context = WorkerContext(None)
    limited_log = RateLimitedLogger(log)
    admission = Admission()

    def serve(guarded: GuardedStream) -> TCPServer:
        application = cast("Any", _Application(app, guarded, limited_log))
        return TCPServer(application, config, context, {}, cast("Any", guarded))

    def connect(stream: trio.SocketStream) -> Connection:
        def refusal(status: int, reason: str) -> bytes:
            return refuse(status, reason, _peer_of(stream))

        guarded = GuardedStream(
            stream,
            header_seconds=header_seconds,
            is_draining=is_draining,
            refusal=refusal,
            admission=admission,
            log=limited_log,
        )
        return Connection(guarded, serve, limited_log)

    return connect


def _peer_of(stream: trio.SocketStream) -> str | None:
    """The client's address; None for a unix socket, and once the client has gone."""
    try:
        name: tuple[object, ...] | str = stream.socket.getpeername()
    except OSError:
        return None
    return None if isinstance(name, str) else str(name[0])


def _config() -> Config:
    """Hypercorn's configuration: what `GuardedStream` decides is left open here."""
    config = Config()
    config.accesslog = None
    config.errorlog = log
    config.include_server_header = False
    config.keep_alive_timeout = cast("Any", math.inf)
    config.keep_alive_max_requests = sys.maxsize
    config.h11_max_incomplete_size = sys.maxsize
    return config
