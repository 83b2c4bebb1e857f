"""The server: ``carmy-frames/1`` over WebSocket, on a listener of its own."""

from __future__ import annotations

import logging

import trio
from trio_websocket import ConnectionClosed, wrap_server_stream

from carmy_engine import AgentError, BoundEngine, Engine
from carmy_engine.transport import RateLimitedLogger, as_agent_error, contain, raise_own
from carmy_frames.driver import Ending, serve_channel
from carmy_frames.protocol import MAX_MESSAGE_BYTES
from carmy_net import Access, Server, every, network_problems, open_listeners, url_of

from ._channel import FAULT, GOING_AWAY, MAX_OVERHEAD, RECEIVE_BYTES, MessageChannel
from ._handshake import PATH, HandshakeReader, Head, Offer, Refused, check_route, check_upgrade, library_head, too_slow
from ._link import LINGER_SECONDS, Link

log = logging.getLogger("carmy.websocket")


class _WebSocket:
    """The transport. An object, because the command asks it for the `problems` of the settings."""

    problems = staticmethod(network_problems)

    async def __call__(self, engine: Engine, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve an engine over WebSocket until it has stopped, or until cancelled.

        Once ``engine.stopping`` is set, the listener closes and connections go on. Once ``engine.stopped`` is set, answers get
        two seconds to leave, and every connection is closed with 1001. When cancelled, nothing is left open and nothing is
        waited for.

        Args:
            engine: An open engine. Of its settings, the address, the table ``http`` (hosts, origins, the time for a head, the
                number of connections) and the drain time count.
            task_status: Started with a line for people, which ends in the address, once connections are accepted.

        Raises:
            ConfigurationError: The settings do not allow it, or the address cannot be had.
        """
        settings = engine.settings
        access = Access(engine, "websocket")
        listeners = await open_listeners(settings, authenticated=engine.authenticator is not None)

        limited_log = RateLimitedLogger(log)

        def connect(stream: trio.SocketStream) -> Connection:
            return Connection(engine, access, stream, limited_log)

        server = Server(connect, settings.http.max_connections, log=log)
        line = f"ws listening on {url_of(listeners[0], 'ws', PATH)}"
        await server.run(listeners, engine.stopping, engine.stopped, lambda: task_status.started(line))


serve = _WebSocket()
"""The transport; see `_WebSocket.__call__`."""


class Connection:
    """One connection, from its first byte to its last.

    Args:
        engine: What runs the tools.
        access: Who may talk to it.
        stream: The connection; closed at its end.
        limited_log: For its failures.
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
        """Leave peers that have not asked for anything yet. The driver ends the others once the engine has stopped."""
        self._reading_head.cancel()

    async def run(self) -> None:
        """Serve it to its end. Whatever happens in it, it ends nothing but this connection."""
        try:
            agreed = await self._shake_hands()
            if agreed is not None:
                await self._serve(*agreed)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer has gone, which is its right
        except* BaseException as fault:  # noqa: BLE001 - see below
            # The boundary of one connection: a fault of ours, or of the library below, must not end the others.
            contain(fault, self._log, "a WebSocket connection failed")
        finally:
            self._stream.socket.close()  # without an await: a cancel there would take the place of a Ctrl-C

    async def _shake_hands(self) -> tuple[Offer, BoundEngine] | None:
        """Read the handshake and decide on it. None when there was none, or when it was refused and answered so."""
        try:
            head = await self._read_head(self._engine.settings.http.header_timeout_secs)
            return None if head is None else await self._decide(head)
        except Refused as refused:
            told = refused
        except AgentError as error:
            told = Refused(error)
        self._access.nobody.record_refusal(told.error, self._peer())
        link = Link(self._stream, is_client=False)
        with trio.move_on_after(LINGER_SECONDS):
            await link.write(told.answer())
            await link.finish(None)
        return None

    async def _decide(self, head: Head) -> tuple[Offer, BoundEngine]:
        """Check a handshake.

        Raises:
            Refused: It is no handshake for this address.
            AgentError: Host, origin, credentials, or a shutdown stand against it.
        """
        hosts = every(head.headers, b"host")
        host = hosts[0] if len(hosts) == 1 else None
        self._access.check_host(host)
        self._access.check_origin(every(head.headers, b"origin"), host)
        caller = await self._authenticate(head)
        check_route(head)
        offer = check_upgrade(head)
        if self._engine.stopping.is_set():
            raise AgentError.standard("SHUTTING_DOWN", "the server is shutting down", retry_after=1)
        return offer, caller

    async def _authenticate(self, head: Head) -> BoundEngine:
        try:
            return await self._access.authenticate(head.headers, self._peer())
        except AgentError:
            raise
        except BaseException as fault:  # noqa: BLE001 - the boundary round an authenticator of the host
            raise_own(fault)
            panic, _ = as_agent_error(fault, "the handshake", expose=False)
            raise panic from None

    async def _read_head(self, seconds: float) -> Head | None:
        """The head of the request; None when the peer, or the server, goes away before it is complete."""
        if self._engine.stopping.is_set():
            return None  # accepted in the very moment in which the others were told
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

    async def _serve(self, offer: Offer, caller: BoundEngine) -> None:
        """Serve it as a WebSocket."""
        link = Link(
            self._stream,
            is_client=False,
            first=library_head(offer),
            max_unfinished_bytes=MAX_OVERHEAD * MAX_MESSAGE_BYTES,
        )
        code: int | None = None
        reason = ""
        try:
            code, reason = await self._serve_messages(link, offer, caller)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed):
            pass  # the peer has gone, maybe before the library could answer its handshake
        except* BaseException as fault:  # noqa: BLE001 - see below
            # As in `run`; here the peer can still be told. The library raises, for example, when a ping meets our close.
            contain(fault, self._log, "a WebSocket connection failed")
            code, reason = FAULT, "internal fault"
        await link.finish(code, reason)

    async def _serve_messages(self, link: Link, offer: Offer, caller: BoundEngine) -> tuple[int | None, str]:
        """Serve what the peer asks for; give the code and reason of the close frame that is due."""
        async with trio.open_nursery() as background:
            request = await wrap_server_stream(
                background,
                link,
                max_message_size=MAX_MESSAGE_BYTES,
                receive_buffer_size=RECEIVE_BYTES,
            )
            connection = await request.accept(subprotocol=offer.subprotocol)
            channel = MessageChannel(connection, link, MAX_MESSAGE_BYTES, self._log)
            background.start_soon(channel.run)
            ending = await serve_channel(
                caller,
                channel,
                server=self._engine.name,
                stopped=self._engine.stopped,
                drain_seconds=self._engine.settings.drain_timeout_secs,
                log=self._log,
            )
            background.cancel_scope.cancel()
        if channel.verdict is not None:
            return channel.verdict
        return (GOING_AWAY, "the server is shutting down") if ending is Ending.STOPPED else (None, "")
