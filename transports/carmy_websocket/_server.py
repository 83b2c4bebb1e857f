"""The server: ``carmy-frames/1`` over WebSocket, on a listener of its own."""

from __future__ import annotations

import logging

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from carmy_engine import AgentError, BoundEngine, Engine, Settings
from carmy_engine.transport import RateLimitedLogger, Transport, as_agent_error, contain, raise_own
from carmy_frames.driver import ConnectionEnd, serve_channel
from carmy_net import (
    Access,
    Server,
    header_values,
    listener_url,
    network_problems,
    open_listeners,
    process_of,
    within_trace,
)

from ._channel import FAULT, GOING_AWAY, RECEIVE_BYTES, ChannelLimits, MessageChannel
from ._guarded_stream import LINGER_SECONDS, GuardedStream
from ._handshake import PATH, HandshakeReader, Head, Refused, check_route, check_upgrade, plain_request, too_slow

log = logging.getLogger("carmy.websocket")


async def serve_websocket(engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
    """Serve an engine over WebSocket until it has stopped, or until cancelled.

    Once ``engine.stopping`` is set, the listener closes and connections go on. Once ``engine.stopped`` is set, answers get
    two seconds to leave, and every connection is closed with 1001. When cancelled, it closes everything at once.

    Args:
        engine: An open engine. Its settings give the address, the table ``http`` (hosts, origins, the time for a head,
            the number of connections) and the drain time.
        task_status: Started with a line for people, which ends in the address, once connections are accepted.

    Raises:
        ConfigurationError: The settings are refused, or the address cannot be bound.
    """
    settings = engine.settings
    access = Access(engine, "websocket")
    listeners = await open_listeners(settings, authenticated=engine.authenticator is not None)

    limited_log = RateLimitedLogger(log)

    def connect(stream: trio.SocketStream) -> Connection:
        return Connection(engine, access, stream, limited_log)

    server = Server(connect, settings.http, log=log)
    if engine.metrics is not None:
        engine.metrics.connections["websocket"] = lambda: server.connections
    line = f"ws listening on {listener_url(listeners[0], 'ws', PATH)}"
    await server.run(listeners, engine.stopping, engine.stopped, lambda: task_status.started(line))


serve = Transport(serve_websocket, help="Serve over WebSocket.", problems=network_problems)
"""The transport; see `serve_websocket`."""


class Connection:
    """One connection, from its first byte to its last.

    Args:
        engine: Runs the tools.
        access: The rules for ``Host``, ``Origin`` and credentials.
        stream: The connection; closed at the end of `run`.
        limited_log: For failures.
    """

    def __init__(
        self, engine: Engine, access: Access, stream: trio.SocketStream, limited_log: RateLimitedLogger
    ) -> None:
        self._engine = engine
        self._access = access
        self._stream = stream
        self._log = limited_log
        self._reading_head = trio.CancelScope()

    def drain(self) -> None:
        """Close connections whose handshake is incomplete. The driver ends the others once the engine has stopped."""
        self._reading_head.cancel()

    async def run(self) -> None:
        """Serve the connection to its end. A failure ends this connection only."""
        try:
            accepted = await self._shake_hands()
            if accepted is not None:
                await self._serve(*accepted)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has closed
        except* BaseException as fault:  # noqa: BLE001 - see below
            # The boundary of one connection: a fault of ours, or of the library below, must not end the others.
            contain(fault, self._log, "a WebSocket connection failed")
        finally:
            self._stream.socket.close()  # without an await: a cancel there would take the place of a Ctrl-C

    async def _shake_hands(self) -> tuple[Head, str | None, BoundEngine] | None:
        """Read the handshake and decide on it.

        Returns:
            The accepted head, the subprotocol and the caller; None when the peer has left or was refused.
        """
        try:
            head = await self._read_head(self._engine.settings.http.header_timeout_secs)
            return None if head is None else await self._decide(head)
        except Refused as error:
            refusal = error
        except AgentError as error:
            refusal = Refused(error)
        self._access.anonymous.record_refusal(refusal.error, self._peer())
        stream = GuardedStream(self._stream, is_client=False)
        with trio.move_on_after(LINGER_SECONDS):
            await stream.write(refusal.answer())
            await stream.finish()
        return None

    async def _decide(self, head: Head) -> tuple[Head, str | None, BoundEngine]:
        """Check a handshake.

        Raises:
            Refused: The request is no handshake for this address.
            AgentError: Host, origin, credentials or a shutdown forbid it.
        """
        hosts = header_values(head.headers, b"host")
        host = hosts[0] if len(hosts) == 1 else None
        self._access.check_host(host)
        self._access.check_origin(header_values(head.headers, b"origin"), host)
        caller = await self._authenticate(head)
        if self._engine.settings.trust_traceparent:
            caller = within_trace(caller, header_values(head.headers, b"traceparent"))
        check_route(head, self._engine.settings.http.root_path or "")
        subprotocol = check_upgrade(head)
        if self._engine.stopping.is_set():
            raise AgentError.standard("SHUTTING_DOWN", "the server is shutting down", retry_after=1)
        return head, subprotocol, caller

    async def _authenticate(self, head: Head) -> BoundEngine:
        try:
            process = process_of(self._stream.socket)
            return await self._access.authenticate(head.headers, self._peer(), process)
        except AgentError:
            raise
        except BaseException as fault:  # noqa: BLE001 - the boundary round an authenticator of the host
            raise_own(fault)
            panic, _ = as_agent_error(fault, "the handshake", expose=False)
            raise panic from None

    async def _read_head(self, seconds: float) -> Head | None:
        """Read the request's head; None when the peer or the server ends the connection before it is complete."""
        if self._engine.stopping.is_set():
            return None  # accepted just before the listener closed
        with self._reading_head:
            with trio.move_on_after(seconds):
                reader = HandshakeReader()
                while data := await self._stream.receive_some(RECEIVE_BYTES):
                    head = reader.receive(data)
                    if head is not None:
                        return head
                return None
            raise too_slow(seconds)
        return None

    def _peer(self) -> str | None:
        try:
            name = self._stream.socket.getpeername()
        except OSError:
            return None
        return None if isinstance(name, str) else str(name[0])  # a path for unix sockets

    async def _serve(self, head: Head, subprotocol: str | None, caller: BoundEngine) -> None:
        """Serve an accepted connection, and close it."""
        limits = self._engine.settings.websocket
        stream = GuardedStream(
            self._stream,
            is_client=False,
            first=plain_request(head, subprotocol),
            max_unfinished_bytes=limits.max_unfinished_bytes,
        )
        channel: MessageChannel | None = None
        has_failed = False
        try:
            async with trio.open_nursery() as background:
                connection = await self._accept(background, stream, subprotocol)
                channel = MessageChannel(
                    connection, stream, is_client=False, limits=_channel_limits(self._engine.settings), log=self._log
                )
                background.start_soon(channel.run)
                code = await self._serve_channel(channel, caller)
                await channel.close(code, "the server is shutting down" if code is not None else "")
                background.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed):
            pass  # the peer has closed, maybe before it had the answer to its handshake
        except* BaseException as fault:  # noqa: BLE001 - see below
            # As in `run`; here the peer can still get a close frame.
            if not (channel is not None and channel.is_behind_close(fault)):
                contain(fault, self._log, "a WebSocket connection failed")
                has_failed = True
        stream.detach()
        if has_failed and channel is not None:
            await channel.close(FAULT, "internal fault")
        await stream.finish()

    async def _accept(
        self, background: trio.Nursery, stream: GuardedStream, subprotocol: str | None
    ) -> WebSocketConnection:
        """Answer the handshake through the library.

        Raises:
            trio.TooSlowError: The peer takes no bytes, or the library refuses a request that `check_upgrade` has passed.
        """
        with trio.fail_after(self._engine.settings.websocket.accept_timeout_secs):
            request = await wrap_server_stream(
                background,
                stream,
                max_message_size=self._engine.settings.frames.max_message_bytes,
                receive_buffer_size=RECEIVE_BYTES,
            )
            return await request.accept(subprotocol=subprotocol)

    async def _serve_channel(self, channel: MessageChannel, caller: BoundEngine) -> int | None:
        """Serve the peer's requests.

        Returns:
            The code of the close frame; None where the peer has ended the connection.
        """
        ending = await serve_channel(
            caller,
            channel,
            server=self._engine.name,
            stopped=self._engine.stopped,
            drain_seconds=self._engine.settings.drain_timeout_secs,
            limits=self._engine.settings.frames,
            write_seconds=self._engine.settings.websocket.write_timeout_secs,
            log=self._log,
        )
        return GOING_AWAY if ending is ConnectionEnd.STOPPED else None


def _channel_limits(settings: Settings) -> ChannelLimits:
    return ChannelLimits(
        ping_secs=settings.websocket.ping_secs,
        silence_secs=settings.websocket.silence_secs,
        max_message_bytes=settings.frames.max_message_bytes,
        max_waiting_messages=settings.websocket.max_waiting_messages,
        max_waiting_bytes=settings.websocket.max_waiting_bytes,
    )
